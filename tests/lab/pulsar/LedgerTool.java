import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteHandle;

/** Makes ledgers with BookKeeper's own client, of any digest and with any custom metadata, and reads them. */
final class LedgerTool {
    /** Ledgers written at a time. */
    private static final int THREADS = 8;

    private LedgerTool() {
    }

    /**
     * Each plan is COUNT:STATE:DIGEST:FIRST-ID:ENTRIES:KEY=VALUE,... with `open` or `closed`, and `auto` where the
     * client chooses the ids; `%d` in a value becomes the ledger's place in its plan. Prints a line for each ledger.
     */
    static void make(BookKeeper client, List<String> plans) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(THREADS);
        List<Future<String>> lines = new ArrayList<>();
        for (String plan : plans) {
            String[] p = plan.split(":", 6);
            for (int i = 0; i < Integer.parseInt(p[0]); i++) {
                int place = i;
                lines.add(pool.submit(() -> one(client, p, place)));
            }
        }
        for (Future<String> line : lines) {
            System.out.println(line.get());
        }
        pool.shutdown();
    }

    private static String one(BookKeeper client, String[] plan, int place) throws Exception {
        Map<String, byte[]> custom = new HashMap<>();
        for (String pair : plan[5].isEmpty() ? new String[0] : plan[5].split(",")) {
            String[] kv = pair.split("=", 2);
            custom.put(kv[0], kv[1].replace("%d", Integer.toString(place)).getBytes(StandardCharsets.UTF_8));
        }
        DigestType digest = DigestType.valueOf(plan[2]);
        var create = client.newCreateLedgerOp().withEnsembleSize(2).withWriteQuorumSize(2).withAckQuorumSize(2)
            .withDigestType(digest).withPassword(new byte[0]).withCustomMetadata(custom);
        int entries = Integer.parseInt(plan[4]);
        WriteHandle handle;
        if (plan[3].equals("auto")) {
            handle = create.execute().get();
            for (int e = 0; e < entries; e++) {
                handle.append(payload(handle.getId(), e));
            }
        } else {
            var adv = create.makeAdv().withLedgerId(Long.parseLong(plan[3]) + place).execute().get();
            for (int e = 0; e < entries; e++) {
                adv.write(e, payload(adv.getId(), e));
            }
            handle = null;
            if (plan[1].equals("closed")) {
                adv.close();
            }
            return told(adv.getId(), plan, entries);
        }
        if (plan[1].equals("closed")) {
            handle.close();
        }
        return told(handle.getId(), plan, entries);
    }

    private static String told(long id, String[] plan, int entries) throws Exception {
        MessageDigest sum = MessageDigest.getInstance("SHA-256");
        for (int e = 0; e < entries; e++) {
            sum.update(payload(id, e));
        }
        return id + " " + plan[1] + " " + plan[2] + " " + entries + " " + HexFormat.of().formatHex(sum.digest());
    }

    private static byte[] payload(long id, long entry) {
        byte[] text = (id + ":" + entry + " ").getBytes(StandardCharsets.UTF_8);
        byte[] body = new byte[1000];
        for (int i = 0; i < body.length; i++) {
            body[i] = text[i % text.length];
        }
        return body;
    }

    /** Reads each ledger from its first entry to its last, without recovery: `ID entries N sha256`, or why not. */
    static void read(BookKeeper client, DigestType digest, List<String> ids) {
        for (String text : ids) {
            long id = Long.parseLong(text);
            try (ReadHandle handle = client.newOpenLedgerOp().withLedgerId(id).withDigestType(digest)
                    .withPassword(new byte[0]).withRecovery(false).execute().get()) {
                MessageDigest sum = MessageDigest.getInstance("SHA-256");
                long count = 0;
                if (handle.getLastAddConfirmed() >= 0) {
                    for (LedgerEntry entry : handle.read(0, handle.getLastAddConfirmed())) {
                        sum.update(entry.getEntryBytes());
                        count++;
                    }
                }
                System.out.println(id + " read " + count + " " + HexFormat.of().formatHex(sum.digest()));
            } catch (Exception e) {
                Throwable cause = e.getCause() == null ? e : e.getCause();
                System.out.println(id + " failed " + cause.getClass().getSimpleName() + ": " + cause.getMessage());
            }
        }
    }
}
