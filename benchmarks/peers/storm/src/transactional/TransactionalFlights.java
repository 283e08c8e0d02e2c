import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.math.BigInteger;
import java.nio.file.Files;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.coordination.BatchOutputCollector;
import org.apache.storm.generated.KillOptions;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseBatchBolt;
import org.apache.storm.topology.base.BaseComponent;
import org.apache.storm.topology.base.BaseTransactionalBolt;
import org.apache.storm.transactional.ICommitter;
import org.apache.storm.transactional.ITransactionalSpout;
import org.apache.storm.transactional.TransactionAttempt;
import org.apache.storm.transactional.TransactionalTopologyBuilder;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/**
 * The job of TridentFlights with Storm 1.2.4's TransactionalTopologyBuilder, whose committer bolt commits in txid order. The
 * same system properties, stdin and stdout.
 */
public class TransactionalFlights {
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

    static class Spout extends BaseComponent implements ITransactionalSpout<Integer> {
        public Coordinator<Integer> getCoordinator(Map conf, TopologyContext context) {
            return new FileCoordinator();
        }

        public Emitter<Integer> getEmitter(Map conf, TopologyContext context) {
            return new FileEmitter();
        }

        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("tx", "carrier", "origin"));
        }
    }

    /** The metadata of a batch is the number of its first file. */
    static class FileCoordinator implements ITransactionalSpout.Coordinator<Integer> {
        int next = 0;

        public Integer initializeTransaction(BigInteger txid, Integer previous) {
            seen.first.compareAndSet(0, System.nanoTime());
            return PER * next++;
        }

        public boolean isReady() {
            return next < batches;
        }

        public void close() { }
    }

    static class FileEmitter implements ITransactionalSpout.Emitter<Integer> {
        public void emitBatch(TransactionAttempt attempt, Integer from, BatchOutputCollector out) {
            for (File file : files.subList(from, Math.min(files.size(), from + PER))) {
                try (BufferedReader in = Files.newBufferedReader(file.toPath())) {
                    List<String> header = Arrays.asList(in.readLine().split(",", -1));
                    int carrier = header.indexOf("carrier"), origin = header.indexOf("origin");
                    for (String line; (line = in.readLine()) != null; ) {
                        String[] values = line.split(",", -1);
                        out.emit(new Values(attempt, values[carrier], values[origin]));
                    }
                } catch (IOException error) {
                    throw new RuntimeException(error);
                }
            }
        }

        public void cleanupBefore(BigInteger txid) { }

        public void close() { }
    }

    /** Counts its share of a batch, and emits it when the batch is finished. */
    static class Partial extends BaseBatchBolt<Object> {
        BatchOutputCollector out;
        Object id;
        final Map<List<String>, Long> counts = new HashMap<>();

        public void prepare(Map conf, TopologyContext context, BatchOutputCollector collector, Object attempt) {
            out = collector;
            id = attempt;
        }

        public void execute(Tuple tuple) {
            counts.merge(Arrays.asList(tuple.getString(1), tuple.getString(2)), 1L, Long::sum);
        }

        public void finishBatch() {
            counts.forEach((key, n) -> out.emit(new Values(id, key.get(0), key.get(1), n)));
        }

        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("tx", "carrier", "origin", "n"));
        }
    }

    /** finishBatch runs only in the commit phase, in txid order; a row that already has this txid stays as it is. */
    static class Commit extends BaseTransactionalBolt implements ICommitter {
        static Connection db;
        TransactionAttempt id;
        final Map<List<String>, Long> counts = new HashMap<>();

        public void prepare(Map conf, TopologyContext context, BatchOutputCollector out, TransactionAttempt attempt) {
            id = attempt;
        }

        public void execute(Tuple tuple) {
            counts.merge(Arrays.asList(tuple.getString(1), tuple.getString(2)), tuple.getLong(3), Long::sum);
        }

        public void finishBatch() {
            long txid = id.getTransactionId().longValue();
            try {
                if (db == null) {
                    db = DriverManager.getConnection(URL);
                    db.setAutoCommit(false);
                }
                add(txid);
            } catch (SQLException error) {
                throw new RuntimeException(error);
            }
            seen.committed.set(System.nanoTime());
            if (seen.done.add(txid) && seen.done.size() == batches) seen.end.countDown();
        }

        void add(long txid) throws SQLException {
            List<List<String>> keys = new ArrayList<>(counts.keySet());
            Map<List<String>, long[]> known = new HashMap<>();
            try (PreparedStatement select = db.prepareStatement("select t.carrier, t.origin, t.n, t.txid"
                    + " from unnest(?::text[], ?::text[]) k(c, o) join storm_counts t on t.carrier = k.c and t.origin = k.o")) {
                select.setArray(1, db.createArrayOf("text", keys.stream().map(key -> key.get(0)).toArray()));
                select.setArray(2, db.createArrayOf("text", keys.stream().map(key -> key.get(1)).toArray()));
                try (ResultSet rows = select.executeQuery()) {
                    while (rows.next()) {
                        known.put(Arrays.asList(rows.getString(1), rows.getString(2)), new long[] {rows.getLong(3), rows.getLong(4)});
                    }
                }
            }
            try (PreparedStatement insert = db.prepareStatement("insert into storm_counts values (?, ?, ?, ?)"
                    + " on conflict (carrier, origin) do update set n = excluded.n, txid = excluded.txid")) {
                for (List<String> key : keys) {
                    long[] before = known.get(key);
                    if (before != null && before[1] == txid) continue;
                    insert.setString(1, key.get(0));
                    insert.setString(2, key.get(1));
                    insert.setLong(3, (before == null ? 0 : before[0]) + counts.get(key));
                    insert.setLong(4, txid);
                    insert.addBatch();
                }
                insert.executeBatch();
                db.commit();
            }
        }

        public void declareOutputFields(OutputFieldsDeclarer declarer) { }
    }

    public static void main(String[] arguments) throws Exception {
        File[] all = new File(System.getProperty("days")).listFiles((folder, name) -> name.endsWith(".csv"));
        Arrays.sort(all);
        files = Arrays.asList(all);
        batches = (files.size() + PER - 1) / PER;
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        LocalCluster cluster = new LocalCluster();
        for (int pass = 1; pass <= PASSES && asked.readLine() != null; pass++) {
            try (Connection db = DriverManager.getConnection(URL)) {
                db.createStatement().execute("drop table if exists storm_counts; create table storm_counts"
                    + " (carrier text, origin text, n bigint, txid bigint, primary key (carrier, origin))");
            }
            seen = new Seen();
            Commit.db = null;
            TransactionalTopologyBuilder builder = new TransactionalTopologyBuilder("flights" + pass, "spout", new Spout(), 1);
            builder.setBolt("partial", new Partial(), 1).shuffleGrouping("spout");
            builder.setCommitterBolt("commit", new Commit(), 1).globalGrouping("partial");
            Config conf = new Config();
            conf.setMaxSpoutPending(PENDING);
            conf.setNumWorkers(1);
            cluster.submitTopology("flights" + pass, conf, builder.buildTopology());
            if (!seen.end.await(PASS_S_MAX, TimeUnit.SECONDS)) System.exit(1);
            double wall = (seen.committed.get() - seen.first.get()) / 1e9;
            System.out.printf("{\"wall_s\": %.3f, \"batches\": %d}%n", wall, seen.done.size());
            KillOptions now = new KillOptions();
            now.set_wait_secs(0);
            cluster.killTopologyWithOpts("flights" + pass, now);
            Thread.sleep(3000);  // Its tasks end meanwhile.
        }
        System.exit(0);
    }
}
