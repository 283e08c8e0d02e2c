"""What the machine knows of its stores: which one is unavailable and since when. Pure."""

from __future__ import annotations

from txtopo.core.events import Moment, Store
from txtopo.core.replacing import replace
from txtopo.core.state import State

SUSPENDED = "ZooKeeper does not answer; nothing new is planned"


def store_away(state: State, store: Store, message: str, moment: Moment) -> State:
    """Record that a call to this store failed, and the time of the first such call to Postgres (R16)."""
    if store != "postgres":
        return replace(state, problem=f"{store}: {message}")
    since = moment.now if state.postgres_away_since is None else state.postgres_away_since
    return replace(state, problem=message, postgres_away_since=since)


def postgres_back(state: State) -> State:
    """Postgres has answered."""
    return state if state.postgres_away_since is None else replace(state, postgres_away_since=None, problem=None)


def zookeeper_seen(state: State, suspended: bool, moment: Moment) -> State:
    """The session of ZooKeeper is suspended, or connected again (Z5)."""
    if not suspended:
        if state.suspended_since is None:
            return state
        return replace(without(state, SUSPENDED, "zookeeper: "), suspended_since=None)
    since = moment.now if state.suspended_since is None else state.suspended_since
    return replace(state, suspended_since=since, problem=SUSPENDED)


def without(state: State, *beginnings: str) -> State:
    """Remove the message that begins so; other waits remain."""
    return replace(state, problem=None) if (state.problem or "").startswith(beginnings) else state
