"""Compares the action log and the operators' orders with the ledger: every redo and every quarantine needs an
action.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from txtopo.audit.check_redos import batch_again
from txtopo.audit.verdicts import ActionTaken, Findings, OrderGiven

SIGNED = "actions.signed"
LISTED_MAX = 10_000
"""Number of actions, and of orders, in a report."""
_REDOING = frozenset({"redrive", "recompute"})
_MAKING = _REDOING | {"skip", "on_poison", "backfill"}
"""Commands that cause the redo or quarantine of a batch: exactly one, logged with it."""
_ANSWERED = frozenset({"retry", "replan"})
"""Commands whose action is written with the answer to their order."""
ANSWERED_WITHIN = timedelta(minutes=5)
"""Seconds after which a leader that is alive has answered an order that it carried out."""
_STATES = {"applied": "applied", "committed": "applied", "quarantined": "quarantined"}


class Actions:
    """The action log and the orders of a topology, for the audited range."""

    def __init__(self, actions: Iterable[Any], orders: Iterable[Any], first: int, last: int, whole: bool) -> None:
        """Read them. `whole`: everything, also what concerns no batch."""
        self._of: dict[int, list[ActionTaken]] = defaultdict(list)
        self._orders: dict[int, OrderGiven] = {row.order_id: _order(row) for row in orders}
        self._whole = whole
        self._named: set[int] = set()
        self.taken: list[ActionTaken] = []
        for row in actions:
            one = _action(row)
            if one.txid is not None:
                self._of[one.txid].append(one)
            if whole or (one.txid is not None and first <= one.txid <= last):
                self.taken.append(one)
                self._named.update(() if one.order_id is None else (one.order_id,))

    @property
    def given(self) -> list[OrderGiven]:
        """Return all orders; for a range, those that its batches and actions name."""
        return [one for key, one in sorted(self._orders.items()) if self._whole or key in self._named]

    def check(self, findings: Findings, row: Any, planned_order: int | None) -> None:
        """Check one batch. `planned_order`: the order that its plan names."""
        txid = row.txid
        actions = self._of.pop(txid, [])
        due = batch_again(row) is not None or row.state == "quarantined"
        made = [one.command for one in actions if one.command in _MAKING]
        if due or made:
            what = f"it redoes batch {row.redo_of}" if row.redo_of is not None else f"it is {row.state}"
            what = f"it backfills batch {row.backfills}" if row.backfills is not None else what
            log = f"the action log has {', '.join(made)} of it" if made else "no action says by whom and why"
            findings.equal(SIGNED, len(made) == int(due), f"{what}, but {log}", txid)
        for one in actions:
            self._check_words(findings, row, one)
        if planned_order is not None:
            self._named.add(planned_order)
            findings.equal(
                SIGNED,
                planned_order in self._orders,
                f"its plan names order {planned_order}, which does not exist",
                txid,
            )

    def _check_words(self, findings: Findings, row: Any, one: ActionTaken) -> None:
        """Compare what an action says about a batch with the ledger and the order."""
        said = _state(one.after)
        if said is not None:
            findings.equal(
                SIGNED, said == row.state, f"the action log says that it was {said}, the ledger {row.state}", row.txid
            )
        if said == "quarantined":
            reason = one.after.get("reason")
            findings.equal(
                SIGNED,
                reason == row.reason,
                f"quarantined for {row.reason!r}, by the action log for {reason!r}",
                row.txid,
            )
        if one.command in _REDOING:
            of = one.before.get("batch")
            findings.equal(
                SIGNED, of == row.redo_of, f"it redoes batch {row.redo_of}, by the action log {of}", row.txid
            )
        if one.command == "backfill":
            said_of = (one.before.get("batch"), one.before.get("committer"))
            findings.equal(
                SIGNED,
                said_of == (row.backfills, row.committer),
                f"it backfills batch {row.backfills} into {row.committer}, by the action log {said_of}",
                row.txid,
            )
        if one.order_id is None:
            return
        order = self._orders.get(one.order_id)
        if order is None:
            findings.wrong(SIGNED, f"an action on it names order {one.order_id}, which does not exist", row.txid)
            return
        self._check_signed(findings, one, order, "its action", row.txid)

    def _check_signed(self, findings: Findings, one: ActionTaken, order: OrderGiven, what: str, *txids: int) -> None:
        words = (one.actor, one.host, one.reason)
        ordered = (order.actor or "unknown", order.host or "unknown", order.reason or one.reason)
        findings.equal(
            SIGNED, words == ordered, f"{what} is of {_of(words)}, order {order.order_id} of {_of(ordered)}", *txids
        )

    def check_rest(self, findings: Findings, committed: int) -> None:
        """Check the actions on batches that were not read: after the ledger's end, no action can have had a permanent
        effect.
        """
        for txid, actions in sorted(self._of.items()):
            if txid > committed and (state := _state(actions[-1].after)) is not None:
                findings.wrong(SIGNED, f"the action log says that it was {state}, the ledger has no such batch", txid)

    def check_orders(self, findings: Findings) -> None:
        """Compare an order with the sealed log: its kind, its batches, and its author if the action concerns no single
        batch.
        """
        for one in self.taken:
            if one.order_id is None:
                continue
            order = self._orders.get(one.order_id)
            txids = () if one.txid is None else (one.txid,)
            if order is None:
                if one.txid is None:  # Findings about a batch are reported with the batch.
                    findings.wrong(SIGNED, f"action {one.action_id} names order {one.order_id}, which does not exist")
                continue
            findings.equal(
                SIGNED,
                order.kind == one.command,
                f"order {order.order_id} is a {order.kind}, carried out was a {one.command}",
                *txids,
            )
            if one.txid is None:
                self._check_signed(findings, one, order, f"action {one.action_id}")
            if one.command == "retry":
                named = one.before.get("failed")
                findings.equal(
                    SIGNED,
                    named == list(order.txids),
                    f"order {order.order_id} names batches {list(order.txids)}, carried out was it for {named}",
                )
            elif one.command == "skip":
                findings.equal(
                    SIGNED,
                    one.txid in order.txids,
                    f"it was skipped by order {order.order_id}, which names {list(order.txids)}",
                    *txids,
                )

    def check_open(self, findings: Findings, state: str | None, heartbeat_at: datetime | None) -> None:
        """Check open orders. An order is open only until its leader has answered it: with the action if both are
        written together, otherwise soon after the last of its batches.
        """
        acts: dict[int, list[ActionTaken]] = defaultdict(list)
        for one in self.taken:
            if one.order_id is not None:
                acts[one.order_id].append(one)
        for order in self._orders.values():
            done = acts.get(order.order_id, ())
            if order.state != "open" or not done:
                continue
            with_answer = any(one.command in _ANSWERED for one in done)
            whole = bool(order.txids) and len({one.txid for one in done}) >= len(order.txids)
            last = max(one.at for one in done)
            seen = heartbeat_at is not None and (
                heartbeat_at - last > ANSWERED_WITHIN or (state == "finished" and heartbeat_at >= last)
            )
            findings.equal(
                SIGNED,
                not (with_answer or (whole and seen)),
                f"order {order.order_id} is open, but action {done[-1].action_id} of {last} carried it out: "
                f"somebody opened it again",
                *(one.txid for one in done if one.txid is not None),
            )


def _state(after: Mapping[str, Any]) -> str | None:
    """Return the ledger's word for the state in an action; None if the action has no state of the ledger."""
    state = after.get("state")
    return _STATES.get(state) if isinstance(state, str) else None


def _of(words: tuple[str, str, str | None]) -> str:
    return f"{words[0]}@{words[1]} for {words[2]!r}"


def _action(row: Any) -> ActionTaken:
    return ActionTaken(
        action_id=row.action_id,
        at=row.at,
        actor=row.actor,
        host=row.host,
        command=row.command,
        txid=row.txid,
        reason=row.reason,
        order_id=row.order_id,
        before=row.before if isinstance(row.before, Mapping) else {"": row.before},
        after=row.after if isinstance(row.after, Mapping) else {"": row.after},
    )


def _order(row: Any) -> OrderGiven:
    arguments = row.arguments if isinstance(row.arguments, Mapping) else {}
    txids = arguments.get("txids", ())
    return OrderGiven(
        order_id=row.order_id,
        kind=row.kind,
        txids=tuple(one for one in txids if isinstance(one, int)) if isinstance(txids, list) else (),
        at=row.created_at,
        actor=row.actor,
        host=row.host,
        reason=row.reason,
        state=row.state,
        answer=row.answer,
    )
