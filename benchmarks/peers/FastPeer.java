import edu.purdue.cs.fast.baselines.fast.LFAST;
import edu.purdue.cs.fast.baselines.fast.helper.LSpatioTextualConstants;
import edu.purdue.cs.fast.baselines.fast.messages.LDataObject;
import edu.purdue.cs.fast.baselines.fast.messages.LMinimalRangeQuery;
import edu.purdue.cs.fast.models.Point;
import edu.purdue.cs.fast.models.Query;
import edu.purdue.cs.fast.models.Rectangle;
import java.util.ArrayList;
import java.util.List;

/** FAST, by the code of its authors; degrees are laid on its square linearly. */
public final class FastPeer implements PeerRun.AlertIndex {
  private static final double WIDTH = LSpatioTextualConstants.xMaxRange;
  private static final int GRANULARITY = 512;
  private static final int LEVELS = 9;
  private static final long ALWAYS = Long.MAX_VALUE;
  private final LFAST fast =
      new LFAST(new Rectangle(new Point(0.0, 0.0), new Point(WIDTH, WIDTH)), GRANULARITY, LEVELS);

  private static Point place(double lon, double lat) {
    return new Point((lon + 180) / 360 * WIDTH, (lat + 90) / 180 * WIDTH);
  }

  @Override
  public void add(List<PeerRun.Alert> alerts) {
    for (PeerRun.Alert alert : alerts) {
      double[] box = alert.box();
      Point low = place(box[0], box[1]);
      var region = new Rectangle(low, place(box[2], box[3]));
      List<String> words = new ArrayList<>(alert.words());
      fast.addContinousQuery(new LMinimalRangeQuery(alert.id(), words, low, region, null, 0, ALWAYS));
    }
  }

  @Override
  public Object prepare(List<PeerRun.Post> posts) {
    List<LDataObject> found = new ArrayList<>();
    for (PeerRun.Post post : posts) {
      Point here = place(post.lon(), post.lat());
      found.add(new LDataObject(post.id(), here, new ArrayList<>(post.words()), 0, ALWAYS));
    }
    return found;
  }

  @Override
  public void match(Object prepared, List<PeerRun.Post> posts, PeerRun.Pairs pairs) {
    for (Object each : (List<?>) prepared) {
      LDataObject post = (LDataObject) each;
      for (Query query : fast.getReleventSpatialKeywordRangeQueries(post, false)) {
        pairs.add(query.id, post.id);
      }
    }
  }
}
