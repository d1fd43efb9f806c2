import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.bookkeeper.client.LedgerMetadataBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.meta.LedgerMetadataSerDe;
import org.apache.bookkeeper.net.BookieId;

/**
 * Prints ledger metadata as BookKeeper's own classes write it, one `name hex` a line: what the unit tests of
 * `src/cluster/ledger` read. Nothing in it depends on the time or the machine.
 */
final class Golden {
    private static final List<BookieId> ONE = ids("10.0.0.1:3181", "b-2", "[::1]:3181");
    private static final List<BookieId> TWO = ids("10.0.0.1:3181", "b-4", "[::1]:3181");

    private Golden() {
    }

    static void print() throws Exception {
        line("v1_open", base(1).newEnsembleEntry(0, ONE));
        line("v1_closed", base(1).newEnsembleEntry(0, ONE).newEnsembleEntry(7, TWO)
            .withClosedState().withLastEntryId(9).withLength(1400));
        line("v1_in_recovery", base(1).newEnsembleEntry(0, ONE).withInRecoveryState());
        line("v2_open", base(2).newEnsembleEntry(0, ONE).withDigestType(DigestType.CRC32).withPassword(new byte[0]));
        line("v2_mac_custom", base(2).newEnsembleEntry(0, ONE).newEnsembleEntry(7, TWO).withClosedState()
            .withLastEntryId(9).withLength(1400).withDigestType(DigestType.MAC)
            .withPassword(new byte[] {'a', '"', '\\', 0, (byte) 255, '\n', '\t', 127, '7'})
            .withCustomMetadata(custom()).withCreationTime(1795999510587L).storingCreationTime(true));
        for (DigestType digest : DigestType.values()) {
            line("v3_" + digest.name().toLowerCase(), base(3).newEnsembleEntry(0, ONE).withDigestType(digest)
                .withPassword("secret".getBytes(StandardCharsets.UTF_8)).withCToken(7));
        }
        line("v3_in_recovery", base(3).newEnsembleEntry(0, ONE)
            .withDigestType(DigestType.CRC32).withPassword(new byte[0]).withInRecoveryState());
        line("v3_closed_empty", base(3).newEnsembleEntry(0, ONE)
            .withDigestType(DigestType.CRC32).withPassword(new byte[0])
            .withClosedState().withLastEntryId(-1).withLength(0));
        line("v3_fragments_ctime_custom", base(3).withEnsembleSize(3).withWriteQuorumSize(3).withAckQuorumSize(2)
            .newEnsembleEntry(0, ONE).newEnsembleEntry(7, TWO).newEnsembleEntry(5_000_000_000L, ONE)
            .withClosedState().withLastEntryId(5_000_000_001L).withLength(900_000_000_000L)
            .withDigestType(DigestType.CRC32C).withPassword(new byte[0])
            .withCustomMetadata(custom()).withCreationTime(1795999510587L).storingCreationTime(true));
    }

    private static LedgerMetadataBuilder base(int format) {
        return LedgerMetadataBuilder.create().withId(4_294_967_299L).withMetadataFormatVersion(format)
            .withEnsembleSize(3).withWriteQuorumSize(2).withAckQuorumSize(2);
    }

    private static Map<String, byte[]> custom() {
        Map<String, byte[]> custom = new TreeMap<>();
        custom.put("application", "pulsar".getBytes(StandardCharsets.UTF_8));
        custom.put("bytes", new byte[] {0, 8, 30, 16, 9, 48, (byte) 0xc3, (byte) 0xa9, '\''});
        return custom;
    }

    private static List<BookieId> ids(String... names) {
        return java.util.Arrays.stream(names).map(BookieId::parse).toList();
    }

    private static void line(String name, LedgerMetadataBuilder built) throws Exception {
        byte[] bytes = new LedgerMetadataSerDe().serialize(built.build());
        System.out.println(name + " " + HexFormat.of().formatHex(bytes));
    }
}
