import java.io.BufferedReader;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;

/**
 * Runs an index over the queries and objects of alerts.py: java PeerRun PEER QUERIES OBJECTS BATCH
 * PASSES. Objects are built before each batch's time is taken. Prints one line of JSON for each
 * pass over the objects.
 */
public final class PeerRun {
  /** A query whose words must all be there, in a rectangle: west, south, east, north in degrees. */
  record Alert(int id, List<String> words, double[] box) {}

  /** An object: its words in ascending order, each once, and its position in degrees. */
  record Post(int id, List<String> words, double lon, double lat) {}

  /** Takes the pairs of a query and an object. */
  interface Pairs {
    void add(int query, int post);
  }

  /** An index to measure. */
  interface AlertIndex {
    void add(List<Alert> alerts) throws Exception;

    /** What match() takes; making it is part of the measured time only if `match` does it. */
    Object prepare(List<Post> posts) throws Exception;

    void match(Object prepared, List<Post> posts, Pairs pairs) throws Exception;
  }

  private static long digest;
  private static long count;

  private static void note(int query, int post) {
    long x = ((long) query << 32 | post) + 0x9E3779B97F4A7C15L;
    x = (x ^ x >>> 30) * 0xBF58476D1CE4E5B9L;
    x = (x ^ x >>> 27) * 0x94D049BB133111EBL;
    digest += x ^ x >>> 31;
    count++;
  }

  private static double cpuSeconds() {
    var bean = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    return bean.getProcessCpuTime() / 1e9;
  }

  public static void main(String[] args) throws Exception {
    var index = (AlertIndex) Class.forName(args[0]).getDeclaredConstructor().newInstance();
    double begun = cpuSeconds();
    index.add(readAlerts(Path.of(args[1])));
    double built = cpuSeconds() - begun;
    List<Post> posts = readPosts(Path.of(args[2]));
    int batch = Integer.parseInt(args[3]);
    for (int pass = Integer.parseInt(args[4]); pass > 0; pass--) {
      digest = count = 0;
      double spent = 0;
      for (int first = 0; first < posts.size(); first += batch) {
        List<Post> part = posts.subList(first, Math.min(first + batch, posts.size()));
        Object prepared = index.prepare(part);
        double before = cpuSeconds();
        index.match(prepared, part, PeerRun::note);
        spent += cpuSeconds() - before;
      }
      System.out.printf(
          Locale.ROOT, "{\"objects\": %d, \"cpu_s\": %.6f, \"build_cpu_s\": %.3f, \"matches\": %d, \"digest\": %s}%n",
          posts.size(), spent, built, count, Long.toUnsignedString(digest));
    }
    System.exit(0); // an index may have threads of its own
  }

  private static List<Alert> readAlerts(Path path) throws IOException {
    List<Alert> found = new ArrayList<>();
    try (BufferedReader lines = Files.newBufferedReader(path)) {
      for (String line; (line = lines.readLine()) != null; ) {
        String[] part = line.split("\t");
        double[] box = Arrays.stream(part, 0, 4).mapToDouble(Double::parseDouble).toArray();
        found.add(new Alert(found.size(), List.of(part[4].split(" ")), box));
      }
    }
    return found;
  }

  private static List<Post> readPosts(Path path) throws IOException {
    List<Post> found = new ArrayList<>();
    try (BufferedReader lines = Files.newBufferedReader(path)) {
      for (String line; (line = lines.readLine()) != null; ) {
        String[] part = line.split("\t");
        List<String> words = List.of(part[2].split(" "));
        found.add(new Post(found.size(), words, Double.parseDouble(part[0]), Double.parseDouble(part[1])));
      }
    }
    return found;
  }
}
