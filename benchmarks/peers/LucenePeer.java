import java.util.ArrayList;
import java.util.List;
import org.apache.lucene.analysis.core.WhitespaceAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.LatLonPoint;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.Term;
import org.apache.lucene.monitor.Monitor;
import org.apache.lucene.monitor.MonitorConfiguration;
import org.apache.lucene.monitor.MonitorQuery;
import org.apache.lucene.monitor.MultiMatchingQueries;
import org.apache.lucene.monitor.QueryMatch;
import org.apache.lucene.monitor.TermFilteredPresearcher;
import org.apache.lucene.search.BooleanClause.Occur;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.TermQuery;

/** Lucene Monitor, with the presearcher that its documentation recommends. */
public final class LucenePeer implements PeerRun.AlertIndex {
  private static final int CHUNK = 10_000;
  private final Monitor monitor;

  public LucenePeer() throws Exception {
    monitor = new Monitor(new WhitespaceAnalyzer(), new TermFilteredPresearcher(), new MonitorConfiguration());
  }

  @Override
  public void add(List<PeerRun.Alert> alerts) throws Exception {
    List<MonitorQuery> chunk = new ArrayList<>();
    for (PeerRun.Alert alert : alerts) {
      var all = new BooleanQuery.Builder();
      alert.words().forEach(word -> all.add(new TermQuery(new Term("text", word)), Occur.MUST));
      double[] box = alert.box();
      all.add(LatLonPoint.newBoxQuery("place", box[1], box[3], box[0], box[2]), Occur.MUST);
      chunk.add(new MonitorQuery(Integer.toString(alert.id()), all.build()));
      if (chunk.size() == CHUNK) {
        monitor.register(chunk);
        chunk = new ArrayList<>();
      }
    }
    monitor.register(chunk);
  }

  @Override
  public Object prepare(List<PeerRun.Post> posts) {
    Document[] found = new Document[posts.size()];
    for (int i = 0; i < found.length; i++) {
      PeerRun.Post post = posts.get(i);
      found[i] = new Document();
      found[i].add(new TextField("text", String.join(" ", post.words()), Field.Store.NO));
      found[i].add(new LatLonPoint("place", post.lat(), post.lon()));
    }
    return found;
  }

  @Override
  public void match(Object prepared, List<PeerRun.Post> posts, PeerRun.Pairs pairs) throws Exception {
    MultiMatchingQueries<QueryMatch> found = monitor.match((Document[]) prepared, QueryMatch.SIMPLE_MATCHER);
    for (int i = 0; i < posts.size(); i++) {
      for (QueryMatch match : found.getMatches(i)) {
        pairs.add(Integer.parseInt(match.getQueryId()), posts.get(i).id());
      }
    }
  }
}
