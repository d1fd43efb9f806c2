import com.google.protobuf.TextFormat;
import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.meta.LedgerMetadataSerDe;
import org.apache.bookkeeper.mledger.proto.MLDataFormats.LongProperty;
import org.apache.bookkeeper.mledger.proto.MLDataFormats.ManagedCursorInfo;
import org.apache.bookkeeper.mledger.proto.MLDataFormats.ManagedLedgerInfo;
import org.apache.bookkeeper.mledger.proto.MLDataFormats.PositionInfo;
import org.apache.bookkeeper.mledger.proto.MLDataFormats.StringProperty;
import org.apache.pulsar.broker.service.schema.SchemaStorageFormat.IndexEntry;
import org.apache.pulsar.broker.service.schema.SchemaStorageFormat.SchemaEntry;
import org.apache.pulsar.broker.service.schema.SchemaStorageFormat.SchemaLocator;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.schema.GenericSchema;
import org.apache.pulsar.client.api.schema.RecordSchemaBuilder;
import org.apache.pulsar.client.api.schema.SchemaBuilder;
import org.apache.pulsar.common.schema.SchemaType;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/**
 * Load maker and metadata viewer for the Pulsar lab. It talks to the broker as
 * an ordinary client, and to ZooKeeper and BookKeeper directly for the views.
 */
public final class LabTool {
    private static final String ZK = System.getProperty("lab.zk");
    private static final String BROKER = System.getProperty("lab.broker");

    private static final String HELP = String.join("\n",
        "produce TOPIC COUNT [BYTES] [KEYS]   send COUNT messages, with KEYS different keys if given",
        "subscribe TOPIC SUB [ACK] [single]   durable subscription from the earliest message; acknowledge ACK",
        "                                     messages cumulatively, or every second one with `single`",
        "topics COUNT BYTES TOPIC[=ACK]...    COUNT messages to each topic, and a subscription s1 that acknowledges ACK",
        "schema TOPIC VERSIONS                send one message under each of VERSIONS growing AVRO schemas",
        "delayed TOPIC SUB COUNT              COUNT messages due in one hour, read by a shared subscription",
        "fill NAMESPACE TOPICS LEDGERS        many small topics, each with a half-read subscription",
        "tree PATH                            nodes below PATH: version, creation id, bytes",
        "hex PATH                             data of one node",
        "show PATH                            stat, hex and decoded form of one node",
        "lists PATH...                        ledger ids of managed ledger nodes, a line for each that is there",
        "ledger ID                            ledger metadata: stat, hex, fields",
        "ledgers                              every ledger in the metadata, one a line",
        "refs                                 every reference to a ledger, one a line",
        "orphans                              ledgers that no reference names",
        "lastentry ID                         last entry of a closed or open ledger, hex and as PositionInfo",
        "forget PATH ID...                    remove ledger ids from a managed ledger node (metadata edit)",
        "dump PATH...                         every node from PATH down: version, ids, times, owner, children, hex",
        "set PATH HEX                         write a node's data, and make the node if it is not there",
        "remove PATH                          delete a node",
        "deny PATH | allow PATH               let nobody read and list a node; undo that",
        "make PLAN...                         ledgers of BookKeeper's own client (see LedgerTool.java)",
        "read DIGEST ID...                    read ledgers from end to end, count and SHA-256 of their entries",
        "traffic NAMESPACE TOPICS MS STOP     topics with a writer and a reader until STOP exists (Traffic.java)",
        "golden                               ledger metadata as BookKeeper's classes write it (Golden.java)",
        "killwhen PATH PID [data|children]    SIGKILL PID at the next change of PATH's data or of its children");

    private LabTool() {
    }

    public static void main(String[] a) throws Exception {
        String cmd = a.length == 0 ? "help" : a[0];
        switch (cmd) {
            case "produce" -> produce(a[1], Integer.parseInt(a[2]), num(a, 3, 100), num(a, 4, 0));
            case "subscribe" -> subscribe(a[1], a[2], num(a, 3, 0), a.length > 4);
            case "topics" -> topics(Integer.parseInt(a[1]), Integer.parseInt(a[2]), words(a, 3));
            case "schema" -> schema(a[1], Integer.parseInt(a[2]));
            case "delayed" -> delayed(a[1], a[2], Integer.parseInt(a[3]));
            case "fill" -> fill(a[1], Integer.parseInt(a[2]), Integer.parseInt(a[3]));
            case "tree" -> withZk(zk -> tree(zk, a[1]));
            case "hex" -> withZk(zk -> System.out.println(hex(zk.getData(a[1], false, null))));
            case "show" -> withZk(zk -> show(zk, a[1]));
            case "lists" -> withZk(zk -> {
                for (String path : words(a, 1)) {
                    list(zk, path);
                }
            });
            case "ledger" -> withZk(zk -> ledger(zk, Long.parseLong(a[1])));
            case "ledgers" -> withZk(LabTool::ledgers);
            case "refs" -> withZk(zk -> references(zk).forEach((id, who) -> System.out.println(id + "\t" + who)));
            case "orphans" -> withZk(LabTool::orphans);
            case "lastentry" -> lastEntry(Long.parseLong(a[1]));
            case "forget" -> withZk(zk -> forget(zk, a[1], numbers(a, 2)));
            case "dump" -> withZk(zk -> {
                for (String path : words(a, 1)) {
                    dump(zk, path);
                }
            });
            case "set" -> withZk(zk -> set(zk, a[1], HexFormat.of().parseHex(a[2])));
            case "remove" -> withZk(zk -> zk.delete(a[1], -1));
            case "deny" -> withZk(zk -> rights(zk, a[1], true));
            case "allow" -> withZk(zk -> rights(zk, a[1], false));
            case "make" -> withBookies(bk -> LedgerTool.make(bk, words(a, 1)));
            case "read" -> withBookies(bk -> LedgerTool.read(bk, DigestType.valueOf(a[1]), words(a, 2)));
            case "traffic" -> {
                try (PulsarClient c = client()) {
                    Traffic.run(c, a[1], Integer.parseInt(a[2]), Long.parseLong(a[3]), Path.of(a[4]));
                }
            }
            case "golden" -> Golden.print();
            case "killwhen" -> withZk(zk -> killWhen(zk, a[1], Long.parseLong(a[2]), a.length > 3 ? a[3] : "data"));
            default -> System.out.println(HELP);
        }
        System.exit(0);
    }

    private static List<String> words(String[] a, int from) {
        return List.of(a).subList(from, a.length);
    }

    private static List<Long> numbers(String[] a, int from) {
        return words(a, from).stream().map(Long::valueOf).toList();
    }

    private static int num(String[] a, int i, int dflt) {
        return a.length > i ? Integer.parseInt(a[i]) : dflt;
    }

    // ---------------------------------------------------------------- load

    private static PulsarClient client() throws Exception {
        return PulsarClient.builder().serviceUrl(BROKER).ioThreads(1).listenerThreads(1).build();
    }

    private static void send(PulsarClient c, String topic, int count, int bytes, int keys) throws Exception {
        byte[] body = new byte[bytes];
        try (Producer<byte[]> p = c.newProducer().topic(topic).enableBatching(false)
                .blockIfQueueFull(true).create()) {
            MessageId last = null;
            for (int i = 0; i < count; i++) {
                byte[] text = ("m" + i).getBytes(StandardCharsets.UTF_8);
                System.arraycopy(text, 0, body, 0, Math.min(text.length, bytes));
                var m = p.newMessage().value(body);
                if (keys > 0) {
                    m.key("k" + i % keys);
                }
                // One by one: a ledger is closed at its entry limit, and a deep
                // pipeline would let many adds slip into the old one.
                last = m.send();
            }
            System.out.println(topic + " sent " + count + " last " + last);
        }
    }

    private static void produce(String topic, int count, int bytes, int keys) throws Exception {
        try (PulsarClient c = client()) {
            send(c, topic, count, bytes, keys);
        }
    }

    private static void read(PulsarClient c, String topic, String sub, int ack, boolean single) throws Exception {
        try (Consumer<byte[]> s = c.newConsumer().topic(topic).subscriptionName(sub)
                .subscriptionType(single ? SubscriptionType.Shared : SubscriptionType.Exclusive)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS).isAckReceiptEnabled(true).subscribe()) {
            Message<byte[]> m = null;
            for (int i = 0; i < ack; i++) {
                m = s.receive(20, TimeUnit.SECONDS);
                if (m == null) {
                    throw new IllegalStateException("only " + i + " messages came");
                }
                if (single && i % 2 == 0) {
                    s.acknowledge(m);
                }
            }
            if (m != null && !single) {
                s.acknowledgeCumulative(m);
            }
            System.out.println(topic + " subscription " + sub + " read " + ack);
        }
    }

    private static void subscribe(String topic, String sub, int ack, boolean single) throws Exception {
        try (PulsarClient c = client()) {
            read(c, topic, sub, ack, single);
        }
    }

    private static void topics(int count, int bytes, List<String> topics) throws Exception {
        try (PulsarClient c = client()) {
            for (String words : topics) {
                String[] w = words.split("=", 2);
                int ack = w.length > 1 ? Integer.parseInt(w[1]) : 0;
                if (w.length > 1) {
                    read(c, w[0], "s1", 0, false); // holds what comes, also without retention
                }
                send(c, w[0], count, bytes, 0);
                if (ack > 0) {
                    read(c, w[0], "s1", ack, false);
                }
            }
        }
    }

    private static void schema(String topic, int versions) throws Exception {
        try (PulsarClient c = client()) {
            for (int v = 1; v <= versions; v++) {
                RecordSchemaBuilder b = SchemaBuilder.record("Lab");
                for (int f = 1; f <= v; f++) {
                    b.field("f" + f).type(SchemaType.STRING).optional().defaultValue(null);
                }
                GenericSchema<GenericRecord> s =
                    org.apache.pulsar.client.api.Schema.generic(b.build(SchemaType.AVRO));
                try (Producer<GenericRecord> p = c.newProducer(s).topic(topic).create()) {
                    p.send(s.newRecordBuilder().set("f1", "x").build());
                }
            }
            System.out.println(topic + " schema versions " + versions);
        }
    }

    private static void delayed(String topic, String sub, int count) throws Exception {
        try (PulsarClient c = client();
             Consumer<byte[]> s = c.newConsumer().topic(topic).subscriptionName(sub)
                 .subscriptionType(SubscriptionType.Shared).subscribe();
             Producer<byte[]> p = c.newProducer().topic(topic).enableBatching(false).create()) {
            for (int i = 0; i < count; i++) {
                p.newMessage().value(("d" + i).getBytes(StandardCharsets.UTF_8))
                    .deliverAfter(3600 + i, TimeUnit.SECONDS).send();
            }
            s.receive(3, TimeUnit.SECONDS); // gives the tracker time to index them
            System.out.println(topic + " delayed " + count);
        }
    }

    private static void fill(String ns, int topics, int ledgers) throws Exception {
        int perLedger = Integer.parseInt(System.getenv().getOrDefault("LAB_ENTRIES", "10"));
        try (PulsarClient c = client()) {
            for (int t = 0; t < topics; t++) {
                String topic = "persistent://" + ns + "/t" + t;
                read(c, topic, "s", 0, false);
                send(c, topic, ledgers * perLedger, 64, 0);
                read(c, topic, "s", ledgers * perLedger / 2, false);
            }
        }
    }

    // ---------------------------------------------------------------- views

    private interface ZkWork {
        void run(ZooKeeper zk) throws Exception;
    }

    private static void withZk(ZkWork w) throws Exception {
        CountDownLatch up = new CountDownLatch(1);
        try (ZooKeeper zk = new ZooKeeper(ZK, 10_000, e -> {
            if (e.getState() == Watcher.Event.KeeperState.SyncConnected) {
                up.countDown();
            }
        })) {
            if (!up.await(10, TimeUnit.SECONDS)) {
                throw new IllegalStateException("no ZooKeeper at " + ZK);
            }
            w.run(zk);
        }
    }

    private static String hex(byte[] b) {
        return b == null ? "null" : HexFormat.of().formatHex(b);
    }

    private static List<String> children(ZooKeeper zk, String path) throws Exception {
        try {
            List<String> c = zk.getChildren(path, false);
            Collections.sort(c);
            return c;
        } catch (KeeperException.NoNodeException e) {
            return List.of();
        }
    }

    private static String join(String parent, String child) {
        return parent.equals("/") ? "/" + child : parent + "/" + child;
    }

    private static void tree(ZooKeeper zk, String path) throws Exception {
        Stat s = new Stat();
        byte[] d = zk.getData(path, false, s);
        System.out.printf("%s v%d czxid=0x%x bytes=%d%s%n", path, s.getVersion(), s.getCzxid(),
            d == null ? 0 : d.length, s.getEphemeralOwner() == 0 ? "" : " ephemeral");
        for (String c : children(zk, path)) {
            tree(zk, join(path, c));
        }
    }

    private static void dump(ZooKeeper zk, String path) throws Exception {
        Stat s = new Stat();
        byte[] d = zk.getData(path, false, s);
        System.out.println(String.join("\t", path, "v" + s.getVersion(), "0x" + Long.toHexString(s.getCzxid()),
            "" + s.getCtime(), "" + s.getMtime(), "0x" + Long.toHexString(s.getEphemeralOwner()),
            "" + s.getNumChildren(), hex(d)));
        for (String c : children(zk, path)) {
            dump(zk, join(path, c));
        }
    }

    private static void stat(String path, byte[] d, Stat s) {
        System.out.printf("%s version=%d czxid=0x%x ctime=%d mtime=%d bytes=%d%n%s%n", path, s.getVersion(),
            s.getCzxid(), s.getCtime(), s.getMtime(), d == null ? 0 : d.length, hex(d));
    }

    private static void show(ZooKeeper zk, String path) throws Exception {
        Stat s = new Stat();
        byte[] d = zk.getData(path, false, s);
        stat(path, d, s);
        if (path.startsWith("/schemas/")) {
            System.out.println(TextFormat.printer().printToString(SchemaLocator.parseFrom(d)));
        } else if (path.contains("/managed-ledgers/")) {
            int depth = path.substring(path.lastIndexOf("/persistent/") + 12).split("/").length;
            if (depth == 1) {
                System.out.println(TextFormat.printer().printToString(ManagedLedgerInfo.parseFrom(d)));
            } else if (depth == 2) {
                System.out.println(TextFormat.printer().printToString(ManagedCursorInfo.parseFrom(d)));
            }
        } else if (path.startsWith("/ledgers/") && path.matches(".*/L[0-9]{4}")) {
            printLedger(d);
        } else if (d != null) {
            System.out.println(new String(d, StandardCharsets.UTF_8));
        }
    }

    private static String ledgerPath(long id) {
        if (id < Integer.MAX_VALUE) {
            String d = String.format("%010d", id);
            return "/ledgers/" + d.substring(0, 2) + "/" + d.substring(2, 6) + "/L" + d.substring(6);
        }
        String d = String.format("%019d", id);
        return "/ledgers/" + d.substring(0, 3) + "/" + d.substring(3, 7) + "/" + d.substring(7, 11) + "/"
            + d.substring(11, 15) + "/L" + d.substring(15);
    }

    private static LedgerMetadata parse(long id, byte[] d) throws Exception {
        return new LedgerMetadataSerDe().parseConfig(d, id, java.util.Optional.empty());
    }

    private static void printLedger(byte[] d) throws Exception {
        LedgerMetadata m = parse(0, d);
        System.out.printf("format=%d state=%s E=%d Qw=%d Qa=%d last=%d length=%d digest=%s ctime=%d%n",
            m.getMetadataFormatVersion(), m.getState(), m.getEnsembleSize(), m.getWriteQuorumSize(),
            m.getAckQuorumSize(), m.getLastEntryId(), m.getLength(), m.getDigestType(), m.getCtime());
        System.out.println("ensembles " + m.getAllEnsembles());
        m.getCustomMetadata().forEach((k, v) ->
            System.out.println("custom " + k + " = " + text(v)));
    }

    private static void ledger(ZooKeeper zk, long id) throws Exception {
        Stat s = new Stat();
        byte[] d = zk.getData(ledgerPath(id), false, s);
        stat(ledgerPath(id), d, s);
        printLedger(d);
    }

    private static Map<Long, LedgerMetadata> allLedgers(ZooKeeper zk) throws Exception {
        Map<Long, LedgerMetadata> out = new TreeMap<>();
        for (String c : children(zk, "/ledgers")) {
            if (c.matches("[0-9]{2}|[0-9]{3}")) {
                collect(zk, "/ledgers/" + c, c, out);
            }
        }
        return out;
    }

    private static void collect(ZooKeeper zk, String path, String digits, Map<Long, LedgerMetadata> out)
            throws Exception {
        for (String c : children(zk, path)) {
            if (c.startsWith("L")) {
                try {
                    long id = Long.parseLong(digits + c.substring(1));
                    out.put(id, parse(id, zk.getData(path + "/" + c, false, null)));
                } catch (KeeperException.NoNodeException e) {
                    // deleted while listing
                }
            } else {
                collect(zk, path + "/" + c, digits + c, out);
            }
        }
    }

    private static String text(byte[] v) {
        for (byte b : v) {
            if (b < 32 || b == 127) {
                return "0x" + hex(v);
            }
        }
        return new String(v, StandardCharsets.UTF_8);
    }

    private static String custom(LedgerMetadata m) {
        Map<String, String> t = new TreeMap<>();
        m.getCustomMetadata().forEach((k, v) -> t.put(k, text(v)));
        return t.toString();
    }

    private static void ledgers(ZooKeeper zk) throws Exception {
        allLedgers(zk).forEach((id, m) -> System.out.printf("%d %s last=%d length=%d %s %s%n", id, m.getState(),
            m.getLastEntryId(), m.getLength(), m.getAllEnsembles(), custom(m)));
    }

    // ---------------------------------------------------------------- references

    private static void ref(Map<Long, List<String>> refs, long id, String who) {
        if (id >= 0) {
            refs.computeIfAbsent(id, k -> new ArrayList<>()).add(who);
        }
    }

    private static Map<Long, List<String>> references(ZooKeeper zk) throws Exception {
        Map<Long, List<String>> refs = new TreeMap<>();
        try (BookKeeper bk = bookkeeper()) {
            for (String topic : topics(zk)) {
                topicRefs(zk, bk, topic, refs);
            }
            for (String tenant : children(zk, "/schemas")) {
                for (String ns : children(zk, "/schemas/" + tenant)) {
                    for (String topic : children(zk, "/schemas/" + tenant + "/" + ns)) {
                        schemaRefs(zk, bk, "/schemas/" + tenant + "/" + ns + "/" + topic, refs);
                    }
                }
            }
        }
        return refs;
    }

    /** Topic nodes: the children of any folder named after a topic domain, however deep it is. */
    private static List<String> topics(ZooKeeper zk) throws Exception {
        List<String> out = new ArrayList<>();
        List<String> todo = new ArrayList<>(List.of("/managed-ledgers"));
        while (!todo.isEmpty()) {
            String path = todo.remove(todo.size() - 1);
            boolean domain = path.endsWith("/persistent") && path.split("/").length >= 5;
            for (String c : children(zk, path)) {
                (domain ? out : todo).add(path + "/" + c);
            }
        }
        Collections.sort(out);
        return out;
    }

    private static void topicRefs(ZooKeeper zk, BookKeeper bk, String path, Map<Long, List<String>> refs)
            throws Exception {
        for (var l : ManagedLedgerInfo.parseFrom(zk.getData(path, false, null)).getLedgerInfoList()) {
            ref(refs, l.getLedgerId(), "data " + path);
        }
        for (String cursor : children(zk, path)) {
            ManagedCursorInfo c = ManagedCursorInfo.parseFrom(zk.getData(path + "/" + cursor, false, null));
            ref(refs, c.getCursorsLedgerId(), "cursor " + path + "/" + cursor);
            List<LongProperty> props = new ArrayList<>(c.getPropertiesList());
            if (c.getCursorsLedgerId() >= 0) {
                byte[] last = lastBytes(bk, c.getCursorsLedgerId());
                if (last != null) {
                    props.addAll(PositionInfo.parseFrom(last).getPropertiesList());
                }
            }
            for (LongProperty p : props) {
                if (p.getName().equals("CompactedTopicLedger")) {
                    ref(refs, p.getValue(), "compacted " + path + "/" + cursor);
                }
            }
            for (StringProperty p : c.getCursorPropertiesList()) {
                if (p.getName().startsWith("#pulsar.internal.delayed.bucket")) {
                    ref(refs, Long.parseLong(p.getValue()), "bucket " + path + "/" + cursor);
                }
            }
        }
    }

    private static void schemaRefs(ZooKeeper zk, BookKeeper bk, String path, Map<Long, List<String>> refs)
            throws Exception {
        SchemaLocator loc = SchemaLocator.parseFrom(zk.getData(path, false, null));
        TreeSet<String> seen = new TreeSet<>();
        List<IndexEntry> todo = new ArrayList<>(loc.getIndexList());
        todo.add(loc.getInfo());
        while (!todo.isEmpty()) {
            IndexEntry e = todo.remove(todo.size() - 1);
            long ledger = e.getPosition().getLedgerId();
            long entry = e.getPosition().getEntryId();
            if (ledger < 0 || !seen.add(ledger + ":" + entry)) {
                continue;
            }
            ref(refs, ledger, "schema v" + e.getVersion() + " " + path);
            byte[] d = entryBytes(bk, ledger, entry);
            if (d != null) {
                todo.addAll(SchemaEntry.parseFrom(d).getIndexList());
            }
        }
    }

    private static void orphans(ZooKeeper zk) throws Exception {
        Map<Long, LedgerMetadata> all = allLedgers(zk);
        Map<Long, List<String>> refs = references(zk);
        all.forEach((id, m) -> {
            if (!refs.containsKey(id)) {
                System.out.printf("orphan %d %s length=%d %s%n", id, m.getState(), m.getLength(), custom(m));
            }
        });
        refs.forEach((id, who) -> {
            if (!all.containsKey(id)) {
                System.out.println("dangling " + id + " " + who);
            }
        });
    }

    // ---------------------------------------------------------------- entries

    private interface BookieWork {
        void run(org.apache.bookkeeper.client.api.BookKeeper bk) throws Exception;
    }

    /** Ends without an orderly close: a ledger left open stays open, as after the death of its writer. */
    private static void withBookies(BookieWork work) throws Exception {
        ClientConfiguration c = new ClientConfiguration();
        c.setMetadataServiceUri("zk+hierarchical://" + ZK + "/ledgers");
        work.run(org.apache.bookkeeper.client.api.BookKeeper.newBuilder(c).build());
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static BookKeeper bookkeeper() throws Exception {
        ClientConfiguration c = new ClientConfiguration();
        c.setMetadataServiceUri("zk+hierarchical://" + ZK + "/ledgers");
        return new BookKeeper(c);
    }

    /** Digests in use by the broker, tried in turn; the password is empty. */
    private static LedgerHandle open(BookKeeper bk, long id) throws Exception {
        Exception bad = null;
        for (var t : List.of(BookKeeper.DigestType.CRC32C, BookKeeper.DigestType.CRC32)) {
            try {
                return bk.openLedgerNoRecovery(id, t, new byte[0]);
            } catch (Exception e) {
                bad = e;
            }
        }
        throw bad;
    }

    private static byte[] entryBytes(BookKeeper bk, long id, long entry) {
        try (LedgerHandle h = open(bk, id)) {
            return h.readUnconfirmedEntries(entry, entry).nextElement().getEntry();
        } catch (Exception e) {
            System.out.println("# ledger " + id + " entry " + entry + ": " + e.getMessage());
            return null;
        }
    }

    private static byte[] lastBytes(BookKeeper bk, long id) {
        try (LedgerHandle h = open(bk, id)) {
            long lac = h.isClosed() ? h.getLastAddConfirmed() : h.readLastConfirmed();
            // An open ledger's last entry is usually one past its confirmed one.
            for (long e = h.isClosed() ? lac : lac + 1; e >= 0; e--) {
                try {
                    LedgerEntry x = h.readUnconfirmedEntries(e, e).nextElement();
                    return x.getEntry();
                } catch (Exception none) {
                    // try the one before
                }
            }
            return null;
        } catch (Exception e) {
            System.out.println("# ledger " + id + ": " + e.getMessage());
            return null;
        }
    }

    private static void lastEntry(long id) throws Exception {
        try (BookKeeper bk = bookkeeper()) {
            byte[] b = lastBytes(bk, id);
            System.out.println(hex(b));
            if (b != null) {
                try {
                    System.out.println(TextFormat.printer().printToString(PositionInfo.parseFrom(b)));
                } catch (Exception e) {
                    System.out.println("not a cursor position: " + e.getMessage());
                }
            }
        }
    }

    // ---------------------------------------------------------------- faults

    private static void list(ZooKeeper zk, String path) throws Exception {
        try {
            StringBuilder line = new StringBuilder(path);
            for (var l : ManagedLedgerInfo.parseFrom(zk.getData(path, false, null)).getLedgerInfoList()) {
                line.append(' ').append(l.getLedgerId());
            }
            System.out.println(line);
        } catch (KeeperException.NoNodeException e) {
            System.out.println("# " + path + " is not there");
        }
    }

    private static void forget(ZooKeeper zk, String path, List<Long> ids) throws Exception {
        Stat s = new Stat();
        ManagedLedgerInfo old = ManagedLedgerInfo.parseFrom(zk.getData(path, false, s));
        ManagedLedgerInfo.Builder b = old.toBuilder().clearLedgerInfo();
        old.getLedgerInfoList().stream().filter(l -> !ids.contains(l.getLedgerId())).forEach(b::addLedgerInfo);
        zk.setData(path, b.build().toByteArray(), s.getVersion());
        System.out.println(path + " ledgers " + old.getLedgerInfoCount() + " -> " + b.getLedgerInfoCount());
    }

    private static void set(ZooKeeper zk, String path, byte[] data) throws Exception {
        if (zk.exists(path, false) == null) {
            zk.create(path, data, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        } else {
            zk.setData(path, data, -1);
        }
    }

    private static void rights(ZooKeeper zk, String path, boolean deny) throws Exception {
        zk.addAuthInfo("digest", "lab:lab".getBytes(StandardCharsets.UTF_8));
        zk.setACL(path, deny ? ZooDefs.Ids.CREATOR_ALL_ACL : ZooDefs.Ids.OPEN_ACL_UNSAFE, -1);
    }

    /**
     * Kills straight from the watch callback: the broker has a few milliseconds between its
     * list update and the first ledger deletion, a round trip to look first would be too slow.
     */
    private static void killWhen(ZooKeeper zk, String path, long pid, String how) throws Exception {
        ProcessHandle p = ProcessHandle.of(pid).orElseThrow();
        // Kill something else first, so that no class has to be loaded when it counts.
        Process victim = new ProcessBuilder("sleep", "60").start();
        victim.toHandle().destroyForcibly();
        victim.waitFor();
        boolean kids = how.equals("children");
        CountDownLatch done = new CountDownLatch(1);
        Watcher strike = e -> {
            if (e.getType() != Watcher.Event.EventType.None) {
                p.destroyForcibly();
                done.countDown();
            }
        };
        int before = kids ? zk.getChildren(path, strike).size() : count(zk, path, strike);
        System.out.println("watching " + path + " with " + before + (kids ? " children" : " ledgers"));
        System.out.flush();
        if (done.await(120, TimeUnit.SECONDS)) {
            int now = kids ? children(zk, path).size() : count(zk, path, null);
            System.out.println("killed " + pid + " when " + before + " became " + now);
        } else {
            System.out.println("nothing happened in 120 s");
        }
    }

    private static int count(ZooKeeper zk, String path, Watcher w) throws Exception {
        try {
            return ManagedLedgerInfo.parseFrom(zk.getData(path, w, null)).getLedgerInfoCount();
        } catch (KeeperException.NoNodeException e) {
            return -1;
        }
    }
}
