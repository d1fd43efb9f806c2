// Asks BookKeeper's own DiskChecker, with BookKeeper's default thresholds, about the directories that standard input
// names: one line "NUMBER PATH" each, answered by one line "NUMBER ANSWER". Each question has a thread of its own, so
// that a directory which does not answer holds up no other.
//
//   java -cp bookkeeper-server.jar:slf4j-api.jar DiskCheckerProbe.java

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import org.apache.bookkeeper.util.DiskChecker;

public final class DiskCheckerProbe {
    private static final float USAGE_THRESHOLD = 0.95f;
    private static final float WARN_THRESHOLD = 0.90f;

    private DiskCheckerProbe() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] question = line.split(" ", 2);
            Thread thread = new Thread(() -> answer(question[0], question[1]));
            thread.setDaemon(true);
            thread.start();
        }
    }

    private static void answer(String number, String path) {
        String text;
        try {
            float usage = new DiskChecker(USAGE_THRESHOLD, WARN_THRESHOLD).checkDir(new File(path));
            text = "good, usage " + usage;
        } catch (Throwable problem) {
            text = problem.getClass().getSimpleName() + ": " + problem.getMessage();
        }
        synchronized (System.out) {
            System.out.println(number + " " + text.replace('\n', ' '));
            System.out.flush();
        }
    }
}
