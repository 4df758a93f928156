import java.util.List;

/** Compares everything with everything. */
public final class NaivePeer implements PeerRun.AlertIndex {
  private List<PeerRun.Alert> alerts;

  @Override
  public void add(List<PeerRun.Alert> all) {
    alerts = all;
  }

  @Override
  public Object prepare(List<PeerRun.Post> posts) {
    return null;
  }

  @Override
  public void match(Object prepared, List<PeerRun.Post> posts, PeerRun.Pairs pairs) {
    for (PeerRun.Post post : posts) {
      for (PeerRun.Alert alert : alerts) {
        double[] box = alert.box();
        boolean inside = box[0] <= post.lon() && post.lon() <= box[2];
        inside &= box[1] <= post.lat() && post.lat() <= box[3];
        if (inside && post.words().containsAll(alert.words())) {
          pairs.add(alert.id(), post.id());
        }
      }
    }
  }
}
