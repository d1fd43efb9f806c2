import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/**
 * Topics with a writer and a reader each, through whatever happens to the broker, until the stop file exists; then
 * everything that the broker acknowledged must have been read, or still come.
 */
final class Traffic {
    /** After the last message was sent, so long may the readers need to catch up: a broker may be on its way up. */
    private static final long CATCH_UP_SECONDS = 120;

    private Traffic() {
    }

    private static final class Lane {
        final String topic;
        final Set<String> owed = ConcurrentHashMap.newKeySet();
        final Set<String> read = ConcurrentHashMap.newKeySet();
        Producer<byte[]> writer;
        Consumer<byte[]> reader;

        Lane(String topic) {
            this.topic = topic;
        }

        Set<String> missing() {
            Set<String> missing = ConcurrentHashMap.newKeySet();
            missing.addAll(owed);
            missing.removeAll(read);
            return missing;
        }
    }

    static void run(PulsarClient client, String ns, int topics, long pauseMillis, Path stop) throws Exception {
        List<Lane> lanes = new ArrayList<>();
        for (int t = 0; t < topics; t++) {
            Lane lane = new Lane("persistent://" + ns + "/traffic" + t);
            lane.reader = client.newConsumer().topic(lane.topic).subscriptionName("reader")
                .subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .messageListener((c, m) -> read(lane, c, m)).subscribe();
            // No limit for a message: it is sent again when the broker is back.
            lane.writer = client.newProducer().topic(lane.topic).enableBatching(false).maxPendingMessages(200)
                .blockIfQueueFull(false).sendTimeout(0, TimeUnit.SECONDS).create();
            lanes.add(lane);
        }
        System.out.println("running " + topics);
        System.out.flush();
        for (long n = 0; !Files.exists(stop); n++) {
            for (Lane lane : lanes) {
                String word = "w" + n;
                lane.writer.newMessage().value(word.getBytes(StandardCharsets.UTF_8)).sendAsync()
                    .thenAccept(id -> lane.owed.add(word)).exceptionally(e -> null);
            }
            Thread.sleep(pauseMillis);
        }
        for (Lane lane : lanes) {
            lane.writer.flush();
        }
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(CATCH_UP_SECONDS);
        while (System.nanoTime() < end && lanes.stream().anyMatch(lane -> !lane.missing().isEmpty())) {
            Thread.sleep(200);
        }
        long owed = 0;
        long missing = 0;
        for (Lane lane : lanes) {
            owed += lane.owed.size();
            missing += lane.missing().size();
            if (!lane.missing().isEmpty()) {
                System.out.println(lane.topic + " misses " + lane.missing());
            }
        }
        System.out.println("owed " + owed + " missing " + missing);
    }

    private static void read(Lane lane, Consumer<byte[]> consumer, Message<byte[]> message) {
        lane.read.add(new String(message.getValue(), StandardCharsets.UTF_8));
        consumer.acknowledgeAsync(message);
    }
}
