"""The sorted arrays of states of files say what a dictionary says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txtopo.spouts import file_states
from txtopo.spouts.file_states import UNSEEN, FileStates, keys_of, state_of
from txtopo.spouts.fingerprint import FileStat

NAMES = [f"/in/{number}" for number in range(12)]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("note"), st.sampled_from(NAMES), st.integers(1, 4)),
        st.tuples(st.just("leave"), st.sets(st.sampled_from(NAMES), min_size=1), st.integers(1, 4)),
        st.tuples(st.just("forget"), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("begin"), st.just(""), st.just(0)),
        st.tuples(st.just("drop"), st.sets(st.sampled_from(NAMES)), st.just(0)),
    ),
    max_size=25,
)


def stat(number: int) -> FileStat:
    return FileStat(size=number, mtime_ns=number, inode=2**63 + number, ctime_ns=number)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(steps=STEPS, pending=st.sampled_from([1, 3, 1000]))
def test_they_say_what_a_dictionary_says(steps: list[tuple[str, object, int]], pending: int) -> None:
    states, expected = FileStates(), dict[str, tuple[int, int]]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_states, "PENDING_MIN", pending)
        for step, named, number in steps:
            if step == "note":
                states.note(str(named), stat(number))
                expected[str(named)] = (stat(number).inode, state_of(stat(number)))
            elif step == "forget":
                states.forget(str(named))
                expected[str(named)] = (0, -1)
            elif step == "begin":
                states.begin()
            else:
                assert isinstance(named, set)
                paths = sorted(named)
                if step == "leave":
                    states.leave(keys_of(paths), np.full(len(paths), number, np.uint64))
                    for path in paths:
                        expected.setdefault(path, (number, UNSEEN))
                else:
                    states.begin()
                    known, _, _ = states.look_up(keys_of(paths))
                    assert known.tolist() == [path in expected for path in paths]
                    states.drop_others()
                    expected = {path: value for path, value in expected.items() if path in named}

        assert len(states) == len(expected)
        assert [states.state(path) for path in NAMES] == [expected.get(path, (0, None))[1] for path in NAMES]
        known, inodes, found = states.look_up(keys_of(NAMES))
        assert known.tolist() == [path in expected for path in NAMES]
        assert {
            path: (int(inode), int(state))
            for path, is_known, inode, state in zip(NAMES, known, inodes, found, strict=True)
            if is_known
        } == expected


def test_what_was_asked_for_one_by_one_is_kept_too() -> None:
    """A source of one path is not listed."""
    states = FileStates()
    for number, path in enumerate(NAMES):
        states.note(path, stat(number))
    states.begin()
    states.state(NAMES[3])
    states.note(NAMES[5], stat(9))
    states.drop_others()

    assert (
        len(states) == 2 and states.state(NAMES[3]) == state_of(stat(3)) and states.state(NAMES[5]) == state_of(stat(9))
    )
