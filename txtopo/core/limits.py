"""Every bound in one place, with its unit in the name. Settings may lower or raise those that `txtopo.config` lists;
the rest are fixed.
"""

from __future__ import annotations

METADATA_BYTES_MAX = 64 * 1024
"""Bytes of a plan's canonical JSON in ZooKeeper and Postgres; longer metadata goes to `plan_part` (Z9: a 1 MiB znode
cuts the connection).
"""

PLAN_PART_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of one batch's metadata in `plan_part`; more is refused when the batch is planned."""

MULTI_BYTES_MAX = 512 * 1024
"""Bytes of one ZooKeeper multi, counted as a whole (Z9)."""

NAME_PATTERN = r"[a-z][a-z0-9_]{0,40}"
"""Names of topologies and components (P15)."""

SPOUT_PENDING_MAX = 256
"""Txids planned and not yet committed (`topology.max.spout.pending`)."""

PLANS_PER_CUT_MAX = 64
"""Txids planned by one action of the machine."""

PLANS_PER_CUT_MIN = 16
"""If this many wait to be processed, no more are planned until there is room for as many: each planning costs a write
to ZooKeeper.
"""

WORKERS = 4
"""Waves that are processed concurrently."""

WAVE_TXIDS_MAX = 64
"""Batches that one Spark job may process together."""

WAVE_BYTES_MAX = 32 * 1024 * 1024
"""Bytes of input that they may have together, as many as one task reads with a plan that is made once; 0: one job for
each batch. Larger batches gain nothing from a common job.
"""

WAVE_SMALL_TXIDS = 16
WAVE_SMALL_BYTES = 4 * 1024 * 1024
"""Number of batches, with this many bytes of input, that are not worth a second job: reading them takes about as long
as Spark needs to start one.
"""

FIRST_WAVE_TXIDS_MAX = 2
"""Maximum number of batches of a wave until one wave was compared with separate runs of its batches."""

FIRST_WAVE_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of input of such a wave, which is processed twice. Larger batches run alone until smaller ones were compared.
"""

WAVE_GROWTH = ((FIRST_WAVE_TXIDS_MAX, 1), (16, 18))
"""(txids of a wave, while fewer batches than this were processed in waves): the first results should not wait for many
others.
"""

ACKERS = 1
"""Acker tasks if every tuple is tracked (`topology.acker.executors`); 0: no tuple is tracked."""

ATTEMPTS_MAX = 3
"""Data failures of a batch before `on_poison` decides."""

COMMIT_TRIES_MAX = 20
"""Number of times that the commit of one batch may fail because of the store while Postgres answers heartbeats; then
the topology halts. Locks do not count.
"""

EVENTS_MAX = 256
"""Largest number of events that one step of the machine takes in: more than one wave has."""
RUN_TXIDS_MAX = 64
"""Batches of one commit run (R20). Below the number of txids that a new leader tells the spouts of again."""

RUN_TXIDS_FIRST = 8
RUN_TXIDS_AGAIN = 2
"""Batches of the first commit run of a leader, and of the first one after a run that failed or was slow (R24, R25)."""

RUN_ALONE_MAX = 4096
"""Batches that are committed one by one after commit runs have failed again and again: 2, 4, 8, … up to this many."""

RUN_FAST_S = 0.1
RUN_SLOW_S = 0.25
"""Seconds from the lock of the fence row to the answer of COMMIT, less the round trips themselves: after less the runs
grow, after more they shrink.
"""

RUN_ROWS_MAX = 10_000
"""Result rows of one committer in a commit run, and counts of edges: they fit into one statement."""

RUN_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of all results of a commit run."""

RUN_RECORDS_MAX = 1_000
RUN_RECORDS_BYTES_MAX = 1024 * 1024
"""Rejected records and dead letters of a commit run, and their bytes."""

TIMEOUT_TRIES_MAX = 3
"""Number of times that a statement which applies a batch may exceed the server's time limit; then the batch is at
fault.
"""

QUARANTINED_IN_ROW_MAX = 3
"""The topology halts when this many batches in a row would be quarantined by `on_poison` for one cause
(`topology.quarantined.in.row.max`).
"""

RECENT_TXIDS = 20
"""Of this many batches with records, `on_poison` may quarantine half, for any causes; at one more the topology
halts.
"""

REJECTED_MAX = 0.1
"""Share of a batch's records that may be rejected; more fails the batch: a wrong schema must not commit empty counts.
"""

REJECTED_RAW_BYTES_MAX = 64 * 1024
"""Bytes of a rejected record that are stored; the complete record is in its file."""

REJECTED_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of the rejected records of one part that a task keeps; more fail the batch."""

DEAD_LETTER_MAX = 100
"""Rows of a batch that may go to `dead_letter` (`on_poison="dead_letter_rows"`); one more fails the attempt."""

SUSPECT_RUNS_ALONE_MAX = 3
"""Times a suspect runs alone before it counts as a data failure."""

BACKOFF_FIRST_S = 0.2
BACKOFF_FACTOR = 2.0
BACKOFF_MAX_S = 30.0
SOURCE_TRIES_MAX = 20
"""Number of tries of the same file, while others are read, before a failure that might pass counts as permanent."""

MESSAGE_TIMEOUT_S = 300.0
"""Seconds without progress after which an attempt is a suspect (`topology.message.timeout.secs`)."""

EXECUTOR_SILENT_MAX_S = 60.0
"""Seconds without an answer from the executor after which it counts as lost (K11); longer than a JVM pauses to collect
garbage.
"""

ZOOKEEPER_SESSION_S = 6.0
"""Seconds without a ping after which ZooKeeper ends the session of a driver. A client pings so often that pauses up to
two thirds of it cost nothing: 4 s. docs/operating.md says how that was measured.
"""
SUSPENDED_SHARE_MAX = 0.6
"""Share of the session during which new commits continue while ZooKeeper is silent (Z5: suspended is not lost)."""

POSTGRES_AWAY_MAX_S = 30.0
"""Seconds without Postgres after which the lead is given up (R16)."""

STATEMENT_TIMEOUT_MS = 60_000
LOCK_TIMEOUT_MS = 2_000
IDLE_IN_TRANSACTION_TIMEOUT_MS = 5_000

RESULTS_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of all uncommitted results in the driver; a single batch beyond it halts."""

RESULT_ROWS_MAX = 200_000
"""Result rows of one committer in one batch above which tasks store them in Postgres, if they may."""
ROWS_LOST_MAX = 3
"""Number of times that stored rows of a batch may be gone when it is committed; then the topology halts."""
STAGING_CONNECTIONS = 4
"""Connections to Postgres that the tasks of one driver open together for results."""
STAGING_IDLE_TIMEOUT_MS = 60_000
"""The server ends a database transaction of a task that sends nothing for so long: a task may be paused."""

TURN_TUPLES_MAX = 1_000_000
"""Maximum number of tuples that committers, and bolts downstream of them, emit together in the commit of a batch: they
are in the driver, and a lock is held meanwhile.
"""

FILES_PER_BATCH = 1
BYTES_PER_BATCH = 256 * 1024 * 1024
PART_BYTES = 64 * 1024 * 1024
"""A larger file without quotes is read in parts of this many bytes."""
KAFKA_RECORDS_PER_BATCH = 100_000
KAFKA_WAIT_S = 0.5
"""A batch of Kafka offsets that is not full waits for more so long."""
TABLE_ROWS_PER_BATCH = 200_000
TABLE_BYTES_PER_BATCH = 64 * 1024 * 1024
"""Of the rows of a table, as JSON."""
LAGGING_NAMED_MAX = 20
"""Partitions that a heartbeat names, those where most records wait."""

METADATA_KEPT_TXIDS = 10
METADATA_KEPT_S = 60.0
METADATA_KEPT_TXIDS_MAX = 10_000
"""K of R8 (metadata is removed only below K txids): the larger of the first two, at most the third."""

CHECKPOINT_EVERY_S = 1.0
"""The counter in ZooKeeper lags the ledger by at most this."""

SPOUT_POLL_S = 0.5
SPOUT_POLL_MIN_S = 0.01
"""A source is never asked sooner than this after it had nothing, whatever it says of itself."""
SOURCE_AWAY_MAX_S = 300.0
"""Seconds for which a run with an end (`--once`, an order) waits for a source that cannot be read, or that gives no
input for a batch that was planned before; then it halts. A run without an end continues to wait.
"""
FILES_COMPARED_MAX = 10_000
"""Approximate and maximum number of files of the last batches that a new driver compares with their plans, by size and
mtime.
"""
FILE_SETTLED_S = 2.0
"""A file is input if it has not changed for this many seconds, see docs/files.md."""

HEARTBEAT_EVERY_S = 2.0
"""Seconds between two heartbeats of the leader, and between two checks for orders."""

LEADER_SILENT_S = 2 * HEARTBEAT_EVERY_S
"""A driver that does not lead records a halt of the topology only if no leader was alive for this many seconds."""

STALLED_AFTER_S = 30.0
"""Seconds after which `status` reports STALLED for an old heartbeat."""
