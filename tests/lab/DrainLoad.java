package org.apache.bookkeeper.client;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.UnpooledByteBufAllocator;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.net.HttpURLConnection;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.proto.BookieProtocol;
import org.apache.bookkeeper.proto.checksum.DigestManager;
import org.apache.bookkeeper.versioning.LongVersion;
import org.apache.bookkeeper.versioning.Versioned;

/**
 * The real Java client around a drain: makes ledgers of many kinds, reads every entry, asks every replica, holds handles,
 * writes on. It lies in the client's own package for its connection to single bookies. Prints JSON lines.
 *
 * <pre>
 * make URI --ledgers 500 [--rounds 3 --entries 4 --max BYTES --open J --size BYTES --kind E,W,A] [--admin PORT,PORT,...]
 *          [--stay]       in each round another bookie is read-only, so that most ledgers get a fragment a round; with
 *                         --stay obeys `add` (an entry to each open ledger), `close` and `quit` from standard input
 * hash URI FILE           reads every entry of every ledger: lines `ledger entry length sha1`, or `ledger entry ! why`
 * raw URI FILE            reads every entry from every bookie of its write set, digest and content checked: lines
 *                         `ledger entry good wanted [bookie why ...]`
 * members URI             the metadata of every ledger, a line each
 * hold URI [--refresh]    opens all ledgers, then at each `read` reads everything; --refresh: handles that follow metadata
 * write URI [--ledgers 2 --rate 50 --size 4096 --roll 500 --kind E,W,A]
 *                         adds until `stop`; `mark NAME` ends a phase and tells its latencies
 * </pre>
 *
 * Content and size of an entry follow from ledger and entry alone; digest and password of a ledger from its custom metadata,
 * which a drain must not touch.
 */
public final class DrainLoad {
    private static final PrintStream OUT = System.out;
    private static final long LIMIT_SECONDS = 30;
    /** Bytes on their way at a time: the heap is 256 MB. */
    private static final int FLYING = 16 << 20;
    private static final String[] PASSWORDS = {"", "secret", "p\u00e4ss \u0001\u4e16"};
    private static final int[][] KINDS = {{3, 2, 2}, {3, 3, 2}, {2, 2, 2}, {1, 1, 1}};

    private final BookKeeper client;
    private final Map<String, String> opts;

    private DrainLoad(BookKeeper client, Map<String, String> opts) {
        this.client = client;
        this.opts = opts;
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> opts = new HashMap<>();
        List<String> words = new ArrayList<>();
        for (int i = 2; i < args.length; i++) {
            if (args[i].equals("--stay") || args[i].equals("--refresh")) {
                opts.put(args[i], "true");
            } else if (args[i].startsWith("--")) {
                opts.put(args[i], args[++i]);
            } else {
                words.add(args[i]);
            }
        }
        ClientConfiguration conf = new ClientConfiguration();
        conf.setMetadataServiceUri(args[1]);
        conf.setNumIOThreads(2);
        conf.setNumWorkerThreads(2);
        conf.setAddEntryTimeout((int) LIMIT_SECONDS);
        conf.setReadEntryTimeout((int) LIMIT_SECONDS);
        conf.setZkTimeout(30000);
        int code = 1;
        try {
            DrainLoad load = new DrainLoad(new BookKeeper(conf), opts);
            code = switch (args[0]) {
                case "make" -> load.make();
                case "hash" -> load.hash(words.get(0));
                case "raw" -> load.raw(words.get(0));
                case "members" -> load.members();
                case "hold" -> load.hold();
                case "write" -> load.write();
                default -> throw new IllegalArgumentException(args[0]);
            };
        } catch (Throwable t) {
            t.printStackTrace();
        }
        OUT.flush();
        // No orderly end: a ledger left open stays open, as after the death of its writer.
        Runtime.getRuntime().halt(code);
    }

    private long number(String key, long otherwise) {
        return opts.containsKey(key) ? Long.parseLong(opts.get(key)) : otherwise;
    }

    private int[] kind(int i) {
        String given = opts.get("--kind");
        return given == null ? KINDS[i % KINDS.length]
                : Arrays.stream(given.split(",")).mapToInt(Integer::parseInt).toArray();
    }

    // ---- make ---------------------------------------------------------------------------------------

    private static final class Made {
        final WriteHandle handle;
        final int[] kind;
        long entries;
        long bytes;

        Made(WriteHandle handle, int[] kind) {
            this.handle = handle;
            this.kind = kind;
        }
    }

    private CompletableFuture<WriteHandle> create(int i, int[] kind) {
        DigestType digest = DigestType.values()[i / KINDS.length % DigestType.values().length];
        String password = PASSWORDS[i / 16 % PASSWORDS.length];
        return client.newCreateLedgerOp().withEnsembleSize(kind[0]).withWriteQuorumSize(kind[1])
                .withAckQuorumSize(kind[2]).withDigestType(digest)
                .withPassword(password.getBytes(StandardCharsets.UTF_8))
                .withCustomMetadata(Map.of("digest", digest.name().getBytes(StandardCharsets.UTF_8),
                        "password", password.getBytes(StandardCharsets.UTF_8),
                        "size", Long.toString(number("--size", -1)).getBytes(StandardCharsets.UTF_8),
                        "max", Long.toString(number("--max", 1 << 20)).getBytes(StandardCharsets.UTF_8)))
                .execute();
    }

    private int make() throws Exception {
        int ledgers = (int) number("--ledgers", 500);
        int open = (int) number("--open", 0);
        int rounds = (int) number("--rounds", 3);
        int entries = (int) number("--entries", 4);
        boolean uniform = opts.containsKey("--kind");
        String[] admin = opts.containsKey("--admin") ? opts.get("--admin").split(",") : new String[0];
        List<Made> made = new ArrayList<>();
        for (int i = 0; i < ledgers; i++) {
            int[] kind = kind(i);
            made.add(new Made(create(i, kind).get(), kind));
        }
        for (int round = 0; round < rounds; round++) {
            String away = 0 < round && 0 < admin.length ? admin[(round - 1) % admin.length] : null;
            if (away != null) {
                putReadOnly(away, true);
            }
            List<Made> written = new ArrayList<>();
            for (int i = 0; i < ledgers; i++) {
                // some stay empty
                if (uniform || i % 25 != 24) {
                    written.add(made.get(i));
                }
            }
            addTo(written, entries);
            if (away != null) {
                putReadOnly(away, false);
            }
        }
        for (int i = 0; i < ledgers; i++) {
            boolean closed = i < ledgers - open;
            if (closed) {
                made.get(i).handle.closeAsync().get(LIMIT_SECONDS, TimeUnit.SECONDS);
            }
            tell(made.get(i), closed ? "closed" : "open");
        }
        line("event", "made", "ledgers", ledgers);
        if (opts.containsKey("--stay")) {
            obey(made.subList(ledgers - open, ledgers));
        }
        return 0;
    }

    private void obey(List<Made> open) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String word = in.readLine(); word != null && !word.equals("quit"); word = in.readLine()) {
            try {
                if (word.equals("add")) {
                    addTo(open, 1);
                } else if (word.equals("close")) {
                    for (Made m : open) {
                        m.handle.closeAsync().get(LIMIT_SECONDS, TimeUnit.SECONDS);
                        tell(m, "closed");
                    }
                }
                line("event", word, "errors", 0);
            } catch (Exception e) {
                line("event", word, "errors", 1, "why", root(e));
            }
        }
    }

    /** So many entries to each, in turn. */
    private void addTo(List<Made> to, int entries) throws Exception {
        Semaphore room = new Semaphore(FLYING);
        AtomicReference<Throwable> error = new AtomicReference<>();
        for (int e = 0; e < entries; e++) {
            for (Made m : to) {
                byte[] payload = payload(m.handle.getId(), m.entries, m.handle.getLedgerMetadata());
                int weight = Math.max(payload.length, 1 << 12);
                room.acquire(weight);
                m.entries++;
                m.bytes += payload.length;
                m.handle.appendAsync(payload).whenComplete((id, problem) -> {
                    if (problem != null) {
                        error.compareAndSet(null, problem);
                    }
                    room.release(weight);
                });
            }
        }
        room.acquire(FLYING);
        if (error.get() != null) {
            throw new Exception(root(error.get()));
        }
    }

    private static void tell(Made m, String state) {
        LedgerMetadata metadata = m.handle.getLedgerMetadata();
        line("ledger", m.handle.getId(), "state", state, "kind", m.kind[0] + "/" + m.kind[1] + "/" + m.kind[2],
                "digest", custom(metadata, "digest"), "entries", m.entries, "bytes", m.bytes, "fragments",
                metadata.getAllEnsembles().size());
    }

    private static void putReadOnly(String port, boolean readOnly) throws Exception {
        URI uri = URI.create("http://127.0.0.1:" + port + "/api/v1/bookie/state/readonly");
        HttpURLConnection call = (HttpURLConnection) uri.toURL().openConnection();
        call.setRequestMethod("PUT");
        call.setReadTimeout((int) TimeUnit.SECONDS.toMillis(LIMIT_SECONDS));
        call.setDoOutput(true);
        try (OutputStream body = call.getOutputStream()) {
            body.write(("{\"readOnly\":" + readOnly + "}").getBytes(StandardCharsets.UTF_8));
        }
        if (call.getResponseCode() != 200) {
            throw new Exception("the bookie's admin server answers " + call.getResponseCode());
        }
    }

    // ---- what is there ------------------------------------------------------------------------------

    private interface Each {
        void of(long ledger, Versioned<LedgerMetadata> metadata) throws Exception;
    }

    /** Every ledger in the order of the ids; one that goes meanwhile is passed over. */
    private int each(Each each) throws Exception {
        List<Long> ids = new ArrayList<>();
        var ranges = client.getLedgerManager().getLedgerRanges(TimeUnit.SECONDS.toMillis(LIMIT_SECONDS));
        while (ranges.hasNext()) {
            ids.addAll(ranges.next().getLedgers());
        }
        Collections.sort(ids);
        for (long id : ids) {
            Versioned<LedgerMetadata> found;
            try {
                found = client.getLedgerManager().readLedgerMetadata(id).get(LIMIT_SECONDS, TimeUnit.SECONDS);
            } catch (Exception e) {
                if (root(e).contains("NoSuchLedger")) {
                    continue;
                }
                throw e;
            }
            each.of(id, found);
        }
        return ids.size();
    }

    private int members() throws Exception {
        each((id, found) -> {
            LedgerMetadata m = found.getValue();
            StringBuilder ensembles = new StringBuilder();
            for (var e : m.getAllEnsembles().entrySet()) {
                ensembles.append(ensembles.length() == 0 ? "" : ",").append('[').append(e.getKey());
                for (BookieId bookie : e.getValue()) {
                    ensembles.append(",\"").append(bookie).append('"');
                }
                ensembles.append(']');
            }
            Map<String, String> customs = new TreeMap<>();
            m.getCustomMetadata().forEach((k, v) -> customs.put(k, HexFormat.of().formatHex(v)));
            // all that a drain must leave as it is
            String rest = String.join(" ", "E" + m.getEnsembleSize(), "W" + m.getWriteQuorumSize(),
                    "A" + m.getAckQuorumSize(), "" + m.getDigestType(), HexFormat.of().formatHex(m.getPassword()),
                    "" + m.getCtime(), "V" + m.getMetadataFormatVersion(), "" + customs);
            line("ledger", id, "state", m.getState().name(), "last", m.getLastEntryId(), "length", m.getLength(),
                    "version", ((LongVersion) found.getVersion()).getLongVersion(), "token", m.getCToken(),
                    "rest", rest, "ensembles", new Raw("[" + ensembles + "]"));
        });
        return 0;
    }

    private LedgerHandle open(long id, LedgerMetadata m, boolean refresh) throws Exception {
        BookKeeper.DigestType digest = BookKeeper.DigestType.fromApiDigestType(DigestType.valueOf(custom(m, "digest")));
        byte[] password = custom(m, "password").getBytes(StandardCharsets.UTF_8);
        // An open one is never opened with recovery, which would fence it.
        return m.isClosed() ? client.openLedger(id, digest, password, refresh)
                : client.openLedgerNoRecovery(id, digest, password);
    }

    private int hash(String file) throws Exception {
        AtomicLong entries = new AtomicLong();
        AtomicLong bytes = new AtomicLong();
        AtomicLong wrong = new AtomicLong();
        AtomicLong errors = new AtomicLong();
        int ledgers;
        try (PrintWriter out = new PrintWriter(file, StandardCharsets.UTF_8)) {
            MessageDigest sha = MessageDigest.getInstance("SHA-1");
            ledgers = each((id, found) -> {
                LedgerMetadata m = found.getValue();
                try (LedgerHandle handle = open(id, m, false)) {
                    for (long at = 0; at <= handle.getLastAddConfirmed(); at += 8) {
                        long to = Math.min(at + 7, handle.getLastAddConfirmed());
                        try (LedgerEntries got = handle.read(at, to)) {
                            for (LedgerEntry e : got) {
                                byte[] read = e.getEntryBytes();
                                out.println(id + " " + e.getEntryId() + " " + read.length + " "
                                        + HexFormat.of().formatHex(sha.digest(read)));
                                entries.incrementAndGet();
                                bytes.addAndGet(read.length);
                                wrong.addAndGet(Arrays.equals(read, payload(id, e.getEntryId(), m)) ? 0 : 1);
                            }
                        } catch (Exception e) {
                            errors.incrementAndGet();
                            out.println(id + " " + at + " ! " + root(e));
                        }
                    }
                } catch (Exception e) {
                    errors.incrementAndGet();
                    out.println(id + " -1 ! " + root(e));
                }
            });
        }
        line("event", "hashed", "ledgers", ledgers, "entries", entries.get(), "bytes", bytes.get(), "wrong",
                wrong.get(), "errors", errors.get());
        return 0;
    }

    // ---- every replica ------------------------------------------------------------------------------

    private static final class Asked {
        final int wanted;
        int good;
        int heard;
        final StringBuilder bad = new StringBuilder();

        Asked(int wanted) {
            this.wanted = wanted;
        }
    }

    private int raw(String file) throws Exception {
        AtomicLong entries = new AtomicLong();
        AtomicLong replicas = new AtomicLong();
        AtomicLong missing = new AtomicLong();
        AtomicLong none = new AtomicLong();
        int window = 64;
        Semaphore room = new Semaphore(window);
        int ledgers;
        try (PrintWriter out = new PrintWriter(file, StandardCharsets.UTF_8)) {
            ledgers = each((id, found) -> {
                LedgerMetadata m = found.getValue();
                DigestManager digest = DigestManager.instantiate(id, custom(m, "password").getBytes(StandardCharsets.UTF_8),
                        BookKeeper.DigestType.toProtoDigestType(BookKeeper.DigestType
                                .fromApiDigestType(DigestType.valueOf(custom(m, "digest")))),
                        UnpooledByteBufAllocator.DEFAULT, false);
                long last;
                try (LedgerHandle handle = open(id, m, false)) {
                    last = handle.getLastAddConfirmed();
                }
                for (long entry = 0; entry <= last; entry++) {
                    List<BookieId> ensemble = m.getEnsembleAt(entry);
                    Asked asked = new Asked(m.getWriteQuorumSize());
                    long at = entry;
                    for (int w = 0; w < asked.wanted; w++) {
                        BookieId bookie = ensemble.get((int) ((entry + w) % m.getEnsembleSize()));
                        room.acquire();
                        client.getBookieClient().readEntry(bookie, id, entry, (rc, l, e, buffer, ctx) -> {
                            String why = rc == 0 ? judged(digest, id, at, m, buffer) : "rc " + rc;
                            synchronized (asked) {
                                asked.heard++;
                                asked.good += why == null ? 1 : 0;
                                if (why != null) {
                                    asked.bad.append(' ').append(bookie).append(' ').append(why.replace(' ', '_'));
                                }
                                if (asked.heard == asked.wanted) {
                                    entries.incrementAndGet();
                                    replicas.addAndGet(asked.good);
                                    missing.addAndGet(asked.wanted - asked.good);
                                    none.addAndGet(asked.good == 0 ? 1 : 0);
                                    out.println(id + " " + at + " " + asked.good + " " + asked.wanted + asked.bad);
                                }
                            }
                            room.release();
                        }, null, BookieProtocol.FLAG_NONE);
                    }
                }
            });
            room.acquire(window);
        }
        line("event", "raw", "ledgers", ledgers, "entries", entries.get(), "replicas", replicas.get(), "missing",
                missing.get(), "nowhere", none.get());
        return 0;
    }

    /** What is wrong with a replica's answer, if anything. */
    private static String judged(DigestManager digest, long ledger, long entry, LedgerMetadata m, ByteBuf buffer) {
        try {
            byte[] data = ByteBufUtil.getBytes(digest.verifyDigestAndReturnData(entry, buffer));
            return Arrays.equals(data, payload(ledger, entry, m)) ? null : "other content";
        } catch (Exception e) {
            return root(e);
        }
    }

    // ---- handles that are held ----------------------------------------------------------------------

    private int hold() throws Exception {
        boolean refresh = opts.containsKey("--refresh");
        Map<Long, LedgerHandle> handles = new TreeMap<>();
        Map<Long, LedgerMetadata> metadata = new HashMap<>();
        each((id, found) -> {
            handles.put(id, open(id, found.getValue(), refresh));
            metadata.put(id, found.getValue());
        });
        line("event", "held", "ledgers", handles.size());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String word = in.readLine(); word != null && !word.equals("quit"); word = in.readLine()) {
            long entries = 0;
            long errors = 0;
            String first = "";
            for (var held : handles.entrySet()) {
                long last = held.getValue().getLastAddConfirmed();
                for (long at = 0; at <= last; at += 8) {
                    try (LedgerEntries got = held.getValue().read(at, Math.min(at + 7, last))) {
                        for (LedgerEntry e : got) {
                            entries++;
                            if (!Arrays.equals(e.getEntryBytes(),
                                    payload(held.getKey(), e.getEntryId(), metadata.get(held.getKey())))) {
                                throw new Exception("other content");
                            }
                        }
                    } catch (Exception e) {
                        errors++;
                        first = first.isEmpty() ? "ledger " + held.getKey() + " from " + at + ": " + root(e) : first;
                    }
                }
            }
            line("event", word, "entries", entries, "errors", errors, "first", first);
        }
        return 0;
    }

    // ---- a live writer ------------------------------------------------------------------------------

    private final class Live {
        final WriteHandle handle;
        long sent;
        long flying;
        boolean retired;

        Live(WriteHandle handle) {
            this.handle = handle;
        }

        synchronized void add(int size, Phase phase, long due) {
            byte[] payload = payload(handle.getId(), sent, size);
            sent++;
            flying++;
            handle.appendAsync(payload).whenComplete((id, problem) -> {
                phase.note(System.nanoTime() - due, problem);
                synchronized (this) {
                    flying--;
                    endIfDone();
                }
            });
        }

        synchronized void retire() {
            retired = true;
            endIfDone();
        }

        private void endIfDone() {
            if (retired && flying == 0) {
                handle.closeAsync().whenComplete((x, problem) -> {
                    line("event", problem == null ? "closed" : "lost", "ledger", handle.getId(), "entries", sent);
                    closed.countDown();
                });
            }
        }

        final CountDownLatch closed = new CountDownLatch(1);
    }

    private static final class Phase {
        private final long began = System.nanoTime();
        private final List<Long> times = new ArrayList<>();
        private long errors;

        synchronized void note(long nanos, Throwable problem) {
            if (problem == null) {
                times.add(nanos);
            } else if (errors++ == 0) {
                line("event", "error", "why", root(problem));
            }
        }

        synchronized void tell(String name) {
            Collections.sort(times);
            line("event", "phase", "name", name, "seconds", (System.nanoTime() - began) / 1e9, "added", times.size(),
                    "errors", errors, "p50", at(0.5), "p99", at(0.99), "max", at(1));
        }

        /** In milliseconds. */
        private double at(double part) {
            return times.isEmpty() ? -1 : times.get((int) Math.min(times.size() - 1, part * times.size())) / 1e6;
        }
    }

    /** Latencies count from when an entry was due, so a pause of the client or its bookies is in every entry that it held up. */
    private int write() throws Exception {
        int count = (int) number("--ledgers", 2);
        long rate = number("--rate", 50);
        long roll = number("--roll", 500);
        opts.putIfAbsent("--size", "4096");
        opts.putIfAbsent("--kind", "3,2,2");
        int size = (int) number("--size", 4096);
        LinkedBlockingQueue<String> words = new LinkedBlockingQueue<>();
        Thread reader = new Thread(() -> new BufferedReader(new InputStreamReader(System.in)).lines().forEach(words::add));
        reader.setDaemon(true);
        reader.start();
        List<Live> live = new ArrayList<>();
        List<Live> all = new ArrayList<>();
        List<CompletableFuture<WriteHandle>> next = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            live.add(new Live(create(i, kind(i)).get()));
            all.add(live.get(i));
            next.add(null);
        }
        line("event", "writing", "ledgers", count);
        Phase phase = new Phase();
        long due = System.nanoTime();
        for (long n = 0;; n++) {
            String word = words.poll(Math.max(due - System.nanoTime(), 0), TimeUnit.NANOSECONDS);
            if (word != null) {
                Phase before = phase;
                phase = new Phase();
                before.tell(word.replaceFirst("^mark ", ""));
                if (word.equals("stop")) {
                    break;
                }
                continue;
            }
            int i = (int) (n % count);
            if (live.get(i).sent >= roll && next.get(i) == null) {
                next.set(i, create(i, kind(i)));
            }
            if (next.get(i) != null && next.get(i).isDone()) {
                Live old = live.get(i);
                live.set(i, new Live(next.get(i).get()));
                all.add(live.get(i));
                next.set(i, null);
                old.retire();
            }
            live.get(i).add(size, phase, due);
            due += TimeUnit.SECONDS.toNanos(1) / rate;
        }
        live.forEach(Live::retire);
        for (Live l : all) {
            l.closed.await(LIMIT_SECONDS, TimeUnit.SECONDS);
        }
        phase.tell("end");
        line("event", "stopped", "ledgers", all.size());
        return 0;
    }

    // ---- contents -----------------------------------------------------------------------------------

    private static byte[] payload(long ledger, long entry, LedgerMetadata m) {
        int size = Integer.parseInt(custom(m, "size"));
        return payload(ledger, entry, 0 <= size ? size : size(ledger, entry, Integer.parseInt(custom(m, "max"))));
    }

    private static long mix(long x) {
        x = (x ^ (x >>> 30)) * 0xBF58476D1CE4E5B9L;
        x = (x ^ (x >>> 27)) * 0x94D049BB133111EBL;
        return x ^ (x >>> 31);
    }

    /** Mostly small, some empty, few as long as can be: 21 KiB in the mean for 1 MiB. */
    private static int size(long ledger, long entry, int max) {
        long h = mix(ledger * 0xD1B54A32D192ED03L + entry * 0x8CB92BA72F3D8DD7L + 1) >>> 1;
        int part = (int) (h % 100);
        long most = part < 8 ? 0 : part < 50 ? 1 << 10 : part < 85 ? 1 << 14 : part < 98 ? 1 << 17 : 1 << 20;
        boolean whole = part == 99;
        return (int) Math.min(max, whole || most == 0 ? most : h / 100 % most);
    }

    private static byte[] payload(long ledger, long entry, int size) {
        byte[] out = new byte[size];
        long x = ledger * 0xD1B54A32D192ED03L + entry * 0x8CB92BA72F3D8DD7L;
        for (int i = 0; i < size; i += 8) {
            x += 0x9E3779B97F4A7C15L;
            long z = mix(x);
            for (int j = 0; j < 8 && i + j < size; j++) {
                out[i + j] = (byte) (z >>> (8 * j));
            }
        }
        return out;
    }

    private static String custom(LedgerMetadata m, String key) {
        byte[] value = m.getCustomMetadata().get(key);
        if (value == null) {
            throw new IllegalStateException("ledger " + m.getLedgerId() + " says no " + key);
        }
        return new String(value, StandardCharsets.UTF_8);
    }

    // ---- output -------------------------------------------------------------------------------------

    private record Raw(String json) {
    }

    private static void line(Object... pairs) {
        StringBuilder s = new StringBuilder("{");
        for (int i = 0; i < pairs.length; i += 2) {
            Object v = pairs[i + 1];
            s.append(i == 0 ? "" : ",").append('"').append(pairs[i]).append("\":");
            if (v instanceof Raw raw) {
                s.append(raw.json());
            } else if (v instanceof Number) {
                s.append(v);
            } else {
                s.append('"').append(v.toString().replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " "))
                        .append('"');
            }
        }
        synchronized (OUT) {
            OUT.println(s.append('}'));
            OUT.flush();
        }
    }

    private static String root(Throwable t) {
        while (t.getCause() != null) {
            t = t.getCause();
        }
        return t.getClass().getSimpleName() + ": " + t.getMessage();
    }
}
