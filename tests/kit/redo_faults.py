"""Faults planted in rejects, quarantines, redos, orders and actions, each with what the audit says of it."""

from __future__ import annotations

FAULTS: dict[str, tuple[str, set[int], list[str]]] = {
    "rejected row deleted": ("rejects.rows", {2}, ["delete from txtopo.rejected_row"]),
    "rejected row added": (
        "rejects.rows",
        {5},
        [
            (
                "insert into txtopo.rejected_row select topology, 5, spout, path, 7, reason, raw, raw_bytes from "
                "txtopo.rejected_row"
            )
        ],
    ),
    "rejected row of no batch": (
        "ledger.gaps",
        {77},
        [
            (
                "insert into txtopo.rejected_row select topology, 77, spout, path, 7, reason, raw, raw_bytes from "
                "txtopo.rejected_row"
            )
        ],
    ),
    "rejected row of a quarantined batch": (
        "quarantine.empty",
        {4},
        [
            (
                "insert into txtopo.rejected_row select topology, 4, spout, path, 7, reason, raw, raw_bytes from "
                "txtopo.rejected_row"
            )
        ],
    ),
    "rejected row handed to another file": ("rejects.rows", {2}, ["update txtopo.rejected_row set path = path || 'x'"]),
    "reverse row edited": (
        "redo.reversed",
        {8},
        [
            (
                "update order_totals_contribution set price = price - 1 where (txid, article, shop) = (8, 'a1', 'shop "
                "1') and reverses = 3"
            )
        ],
    ),
    "reverse row and table edited": (
        "redo.reversed",
        {8},
        [
            (
                "update order_totals_contribution set price = price - 1 where (txid, article, shop) = (8, 'a0', 'shop "
                "2') and reverses = 3"
            ),
            "update order_totals set price = price - 1 where (article, shop) = ('a0', 'shop 2')",
        ],
    ),
    "reverse row deleted": (
        "redo.reversed",
        {9},
        ["delete from order_totals_contribution where (txid, article, shop) = (9, 'a1', 'shop 9') and reverses = 8"],
    ),
    "reverse row of another batch": (
        "redo.reversed",
        {9},
        [
            (
                "update order_totals_contribution set reverses = 5 where (txid, article, shop) = (9, 'a1', 'shop 9') "
                "and "
                "reverses = 8"
            )
        ],
    ),
    "reversed edited": (
        "redo.reversed",
        {8},
        ["update txtopo.committer_count set reversed = reversed - 1 where txid = 8"],
    ),
    "redo of nothing takes back": (
        "redo.reversed",
        {7},
        ["insert into order_totals_contribution values (7, 4, 'shop 9', 'a1', -1, -1, -1)"],
    ),
    "contribution of a quarantined batch": (
        "contributions.known",
        {4},
        ["insert into order_totals_contribution values (4, null, 'shop 9', 'a1', 1, 1, 1)"],
    ),
    "counts of a quarantined batch": (
        "quarantine.empty",
        {4},
        ["insert into txtopo.committer_count values ('orders', 4, 'totals', 1, 1, 1, 1, 0, 0, 1)"],
    ),
    "redo_of edited": ("ledger.seal", {9}, ["update txtopo.ledger set redo_of = 5 where txid = 9"]),
    "redo_of removed": ("source.holes", {4}, ["update txtopo.ledger set redo_of = null where txid = 7"]),
    "redo_of ahead": (
        "redo.chain",
        {9},
        [
            "alter table txtopo.ledger drop constraint ledger_check3",
            "update txtopo.ledger set redo_of = 12 where txid = 9",
        ],
    ),
    "redone twice": (
        "redo.chain",
        {8, 9},
        ["drop index txtopo.redone_once", "update txtopo.ledger set redo_of = 3 where txid = 9"],
    ),
    "in effect twice": (
        "source.holes",
        {3, 8, 9},
        ["drop index txtopo.redone_once", "update txtopo.ledger set redo_of = 3 where txid = 9"],
    ),
    "redo quarantined": (
        "source.holes",
        {4},
        ["update txtopo.ledger set state = 'quarantined', reason = 'x', committers = 0 where txid = 7"],
    ),
    "plan kind edited": (
        "redo.chain",
        {8},
        [
            """update txtopo.plan set bytes = convert_to(replace(convert_from(bytes, 'UTF8'), '"redo"', '"cut"'), 'UTF8') where txid = 8"""  # noqa: E501
        ],
    ),
    "plan edited": ("plan.digest", {8}, ["update txtopo.plan set bytes = bytes || ' ' where txid = 8"]),
    "order removed from plan": (
        "redo.chain",
        {8},
        [
            """update txtopo.plan set bytes = convert_to(replace(convert_from(bytes, 'UTF8'), '"request_id":3', '"request_id":null'), 'UTF8') where txid = 8"""  # noqa: E501
        ],
    ),
    "files of the redo replaced": (
        "redo.chain",
        {8},
        ["update txtopo.source_file set path = path || 'x' where txid = 8"],
    ),
    "redo's files taken for new ones": (
        "plan.files",
        {8},
        ["drop index txtopo.consumed_once", "update txtopo.source_file set redo = false where txid = 8"],
    ),
    "files taken for a redo's": ("plan.files", {5}, ["update txtopo.source_file set redo = true where txid = 5"]),
    "quarantine not signed": ("actions.signed", {4}, ["delete from txtopo.action where txid = 4"]),
    "redo not signed": ("actions.signed", {9}, ["delete from txtopo.action where txid = 9"]),
    "action about another batch": ("actions.signed", {7}, ["update txtopo.action set txid = 1 where txid = 7"]),
    "action says otherwise": (
        "actions.signed",
        {4},
        ["""update txtopo.action set after = '{"state": "applied"}' where txid = 4"""],
    ),
    "action twice": (
        "actions.signed",
        {4},
        [
            (
                "insert into txtopo.action (topology, actor, host, command, reason, txid, before, after) select "
                "topology, actor, host, command, reason, txid, before, after from txtopo.action where txid = 4"
            )
        ],
    ),
    "action on a plain batch": (
        "actions.signed",
        {5},
        [
            """insert into txtopo.action (topology, actor, host, command, txid, before, after) values ('orders', 'eve', 'x', 'skip', 5, '{}', '{}')"""  # noqa: E501
        ],
    ),
    "action by another": ("actions.signed", {4}, ["update txtopo.action set actor = 'eve' where txid = 4"]),
    "order by another": ("actions.signed", {4}, ["update txtopo.request set actor = 'eve' where request_id = 1"]),
    "reason of an order edited": (
        "actions.signed",
        {8},
        ["update txtopo.request set reason = 'x' where request_id = 3"],
    ),
    "reason of an action edited": (
        "actions.signed",
        {4},
        ["""update txtopo.action set after = after || '{"reason": "x"}' where txid = 4"""],
    ),
    "action on another batch redone": (
        "actions.signed",
        {8},
        ["""update txtopo.action set before = before || '{"batch": 5}' where txid = 8"""],
    ),
    "order of a quarantine removed": ("actions.signed", {4}, ["delete from txtopo.request where request_id = 1"]),
    "action about no batch": ("actions.signed", {77}, ["update txtopo.action set txid = 77 where txid = 7"]),
    "order removed": ("actions.signed", {8}, ["delete from txtopo.request where request_id = 3"]),
    "reason edited": ("ledger.seal", {4}, ["update txtopo.ledger set reason = 'x' where txid = 4"]),
    "attempt of a quarantined batch applied": (
        "ledger.attempts",
        {4},
        [
            (
                "insert into txtopo.attempt (topology, txid, attempt, epoch, code_hash, state, ended_at) values "
                "('orders', 4, 0, 1, sha256('x'), 'applied', now())"
            )
        ],
    ),
    "plan of a hole removed": (
        "plan.digest",
        {4},
        [
            "update txtopo.ledger set redo_of = null where txid = 7",
            "update txtopo.fence set last_txid = 20",
            "delete from txtopo.plan where txid = 4",
        ],
    ),
}
"""Name -> the check that has to find it, txids that have to be named, what to do."""
