import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.generated.KillOptions;
import org.apache.storm.task.IMetricsContext;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.trident.TridentTopology;
import org.apache.storm.trident.operation.TridentCollector;
import org.apache.storm.trident.operation.builtin.Count;
import org.apache.storm.trident.spout.ITridentSpout;
import org.apache.storm.trident.state.State;
import org.apache.storm.trident.state.StateFactory;
import org.apache.storm.trident.state.TransactionalValue;
import org.apache.storm.trident.state.map.IBackingMap;
import org.apache.storm.trident.state.map.TransactionalMap;
import org.apache.storm.trident.topology.TransactionAttempt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Values;

/**
 * Counts flights by carrier and origin into Postgres, exactly once, with Trident in a LocalCluster: one txid is a group of
 * daily files. System properties: url, days (a folder), per (files a batch), pending, passes. A line on stdin starts a pass;
 * its figures are a line of JSON on stdout. Storm's parts run in this JVM, so statics reach every task.
 */
public class TridentFlights {
    static final String URL = System.getProperty("url");
    static final int PER = Integer.getInteger("per", 1);
    static final int PENDING = Integer.getInteger("pending", 4);
    static final int PASSES = Integer.getInteger("passes", 3);
    static final long PASS_S_MAX = 400;
    static List<File> files;
    static int batches;
    static volatile Seen seen;

    /** What one pass saw. */
    static class Seen {
        final AtomicLong first = new AtomicLong();
        final AtomicLong committed = new AtomicLong();
        final Set<Long> done = ConcurrentHashMap.newKeySet();
        final CountDownLatch end = new CountDownLatch(1);
    }

    static class Spout implements ITridentSpout<Long> {
        public BatchCoordinator<Long> getCoordinator(String id, Map<String, Object> conf, TopologyContext context) {
            return new Coordinator();
        }

        public Emitter<Long> getEmitter(String id, Map<String, Object> conf, TopologyContext context) {
            return new FileEmitter();
        }

        public Map<String, Object> getComponentConfiguration() {
            return null;
        }

        public Fields getOutputFields() {
            return new Fields("carrier", "origin");
        }
    }

    /** The metadata of a batch is the number of its first file. */
    static class Coordinator implements ITridentSpout.BatchCoordinator<Long> {
        public Long initializeTransaction(long txid, Long previous, Long current) {
            seen.first.compareAndSet(0, System.nanoTime());
            return (txid - 1) * PER;
        }

        public void success(long txid) {
            if (seen.done.add(txid) && seen.done.size() == batches) seen.end.countDown();
        }

        public boolean isReady(long txid) {
            return txid <= batches;
        }

        public void close() { }
    }

    static class FileEmitter implements ITridentSpout.Emitter<Long> {
        public void emitBatch(TransactionAttempt attempt, Long from, TridentCollector out) {
            for (File file : files.subList(from.intValue(), Math.min(files.size(), from.intValue() + PER))) {
                try (BufferedReader in = Files.newBufferedReader(file.toPath())) {
                    List<String> header = Arrays.asList(in.readLine().split(",", -1));
                    int carrier = header.indexOf("carrier"), origin = header.indexOf("origin");
                    for (String line; (line = in.readLine()) != null; ) {
                        String[] values = line.split(",", -1);
                        out.emit(new Values(values[carrier], values[origin]));
                    }
                } catch (IOException error) {
                    throw new RuntimeException(error);
                }
            }
        }

        public void success(TransactionAttempt attempt) { }

        public void close() { }
    }

    /** One select and one batched upsert in one database transaction a batch; each row keeps the txid that changed it last. */
    static class Counts implements IBackingMap<TransactionalValue> {
        final Connection db;

        Counts() throws SQLException {
            db = DriverManager.getConnection(URL);
            db.setAutoCommit(false);
        }

        public List<TransactionalValue> multiGet(List<List<Object>> keys) {
            String query = "select t.n, t.txid from unnest(?::text[], ?::text[]) with ordinality k(c, o, i)"
                + " left join storm_counts t on t.carrier = k.c and t.origin = k.o order by k.i";
            try (PreparedStatement select = db.prepareStatement(query)) {
                select.setArray(1, db.createArrayOf("text", keys.stream().map(key -> key.get(0)).toArray()));
                select.setArray(2, db.createArrayOf("text", keys.stream().map(key -> key.get(1)).toArray()));
                List<TransactionalValue> found = new ArrayList<>(keys.size());
                try (ResultSet rows = select.executeQuery()) {
                    while (rows.next()) {
                        long n = rows.getLong(1);
                        found.add(rows.wasNull() ? null : new TransactionalValue<>(rows.getLong(2), n));
                    }
                }
                return found;
            } catch (SQLException error) {
                throw new RuntimeException(error);
            }
        }

        public void multiPut(List<List<Object>> keys, List<TransactionalValue> values) {
            String upsert = "insert into storm_counts values (?, ?, ?, ?)"
                + " on conflict (carrier, origin) do update set n = excluded.n, txid = excluded.txid";
            try (PreparedStatement insert = db.prepareStatement(upsert)) {
                for (int i = 0; i < keys.size(); i++) {
                    insert.setString(1, (String) keys.get(i).get(0));
                    insert.setString(2, (String) keys.get(i).get(1));
                    insert.setLong(3, (Long) values.get(i).getVal());
                    insert.setLong(4, values.get(i).getTxid());
                    insert.addBatch();
                }
                insert.executeBatch();
                db.commit();
            } catch (SQLException error) {
                throw new RuntimeException(error);
            }
            seen.committed.set(System.nanoTime());
        }
    }

    static class CountsFactory implements StateFactory {
        public State makeState(Map<String, Object> conf, IMetricsContext metrics, int part, int parts) {
            try {
                return TransactionalMap.<Long>build(new Counts());
            } catch (SQLException error) {
                throw new RuntimeException(error);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        File[] all = new File(System.getProperty("days")).listFiles((folder, name) -> name.endsWith(".csv"));
        Arrays.sort(all);
        files = Arrays.asList(all);
        batches = (files.size() + PER - 1) / PER;
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        try (LocalCluster cluster = new LocalCluster()) {
            for (int pass = 1; pass <= PASSES && asked.readLine() != null; pass++) {
                try (Connection db = DriverManager.getConnection(URL)) {
                    db.createStatement().execute("drop table if exists storm_counts; create table storm_counts"
                        + " (carrier text, origin text, n bigint, txid bigint, primary key (carrier, origin))");
                }
                seen = new Seen();
                TridentTopology topology = new TridentTopology();
                // The coordinator's state in ZooKeeper is kept by this id, not by the topology's name: a new id a pass.
                topology.newStream("flights" + pass, new Spout()).groupBy(new Fields("carrier", "origin"))
                    .persistentAggregate(new CountsFactory(), new Count(), new Fields("n"));
                Config conf = new Config();
                conf.setMaxSpoutPending(PENDING);
                // The default of 500 ms would allow two batches a second; 0 is refused.
                conf.put(Config.TOPOLOGY_TRIDENT_BATCH_EMIT_INTERVAL_MILLIS, 1);
                cluster.submitTopology("flights" + pass, conf, topology.build());
                if (!seen.end.await(PASS_S_MAX, TimeUnit.SECONDS)) System.exit(1);
                double wall = (seen.committed.get() - seen.first.get()) / 1e9;
                System.out.printf("{\"wall_s\": %.3f, \"batches\": %d}%n", wall, seen.done.size());
                KillOptions now = new KillOptions();
                now.set_wait_secs(0);
                cluster.killTopologyWithOpts("flights" + pass, now);
                Thread.sleep(3000);  // Its tasks end meanwhile.
            }
        }
        System.exit(0);
    }
}
