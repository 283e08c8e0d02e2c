"""The ZooKeeper side: who stands first, and what each batch consists of before anything is emitted.

**Who is the authority.** Postgres. Its fence row decides who may write (R4) and its ledger decides what is committed.
ZooKeeper holds three things
that must be durable *before* work starts: the queue of candidates (`election`), the epoch (`batches`, R2) and the
metadata and attempt ids of
uncommitted batches (R3). `currtx`, the mark, may lag behind the ledger and is never taken for the truth; it only tells
when Postgres has lost commits.

**What a fencing token is.** The epoch: a number that Postgres hands out under the lock of the fence row (R1), written
here by compare-and-set. Each later
write is one multi that first checks the version of the epoch node, so a driver whose epoch is old changes nothing.
Being first in the queue is a hint
that decides who tries, never a right to write; sequence numbers overflow and start again, and serve for nothing but the
order of the queue (Z10).

**How long a belief may be trusted.** CONNECTED proves nothing: a driver that was paused past its session still believes
it leads (Z1). SUSPENDED is not
LOST, and LOST is told only after a reconnect (Z5). So every write asks again, and reads are trusted only after the
epoch write on the same session (Z8).

**What happens when things break.**

* *A reply is lost.* `ZooKeeperUnavailable`; the write may have happened. What is create-only is read back and compared
  byte by byte; the epoch is too.
* *The session is lost.* It is never used again: the client ends with its first session, and what it had not sent is
  never sent (Z2, Z4, Z6). The driver
  steps down, and campaigns again with a new session and a new nonce (R15).
* *ZooKeeper was wiped.* Nothing there reads as "no incarnation"; the new leader writes its epoch and puts plans, mark
  and attempt ids back from Postgres (R11).
* *ZooKeeper was restored, or is another one.* Another incarnation, or a node without the others that belong to it,
  halts the topology with the path (R11, Z13).
* *A node cannot be read.* It halts the topology with the path; it never reads as "no state" (Z14).

Rooms: `paths` and `codec` say where and how things are written, `reading` reads them back; `zookeeper` is a session on
kazoo, `memory` one without a server; `election` and
`batches` are written against `txtopo.ports.CoordinatorSession` only, so the same code runs on both.
"""
