"""The driver's book of signatures, apart from Spark: what it remembers and for how long, and whom it suspects."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import TaskContext

from txtopo.errors import InvariantBroken
from txtopo.spark.plan_copies import Copies
from txtopo.spark.session import used_workers
from txtopo.spark.signatures import (
    NOTHING,
    ORDER_PROPERTY,
    REMEMBERED_MAX,
    NoBatchError,
    Signature,
    Signatures,
    Signer,
    new_copy,
    property_of,
)


def _many(book: Signatures) -> None:
    for _ in range(2 * REMEMBERED_MAX):
        with book.order("batch 3"):
            pass


def test_an_order_that_goes_on_while_thousands_end_is_still_compared() -> None:
    """A batch may take hours while others are searched, tried again and committed: its order must stay known to its
    end.
    """
    book = Signatures()
    book.open("1:0/1")
    with book.order("batch 1", ["1:0/1"]) as mine, book.held(7, mine), book.order("batch 2") as strange:
        _many(book)
        book.receive(Signature(copy=7, leaf="source", made_for=None, order=strange))

        doubt = book.doubt("1:0/1", complete=True)
    assert doubt is not None and "a task of batch 1 ran with the order of batch 2" in doubt


def test_an_order_that_goes_on_while_thousands_end_must_still_be_signed_for() -> None:
    book = Signatures()
    book.open("1:0/1")
    with book.order("batch 1", ["1:0/1"]) as mine, book.held(7, mine, ["source"]):
        _many(book)

    assert book.doubt("1:0/1", complete=True) == "no task read source for it"


@pytest.mark.parametrize("leaf", ["source", "other"])
def test_a_leaf_is_signed_for_by_its_own_tasks(leaf: str) -> None:
    """Those of another spout say nothing of this one, which may have read nothing at all."""
    book = Signatures()
    book.open("1:0/1")
    with book.order("batch 1", ["1:0/1"]) as mine, book.held(7, mine, ["source"]):
        book.receive(Signature(copy=7, leaf=leaf, made_for=None, order=mine))

    assert book.doubt("1:0/1", complete=True) == (None if leaf == "source" else "no task read source for it")


def test_nothing_is_kept_of_what_ended_long_ago() -> None:
    book = Signatures()
    for number in range(2 * REMEMBERED_MAX):
        run = f"{number}:0/{number}"
        book.open(run)
        with book.order(f"batch {number}", [run]) as order, book.held(number, order, ["source"]):
            book.receive(Signature(copy=number, leaf="source", made_for=None, order=order + 1))
        assert book.doubt(run, complete=False) is not None
        book.forget(run)
        book.receive(Signature(copy=number, leaf="source", made_for=None, order=order))

    kept = {name: len(kept) for name, kept in vars(book).items() if hasattr(kept, "__len__") and len(kept)}
    assert kept == {"_orders": REMEMBERED_MAX, "_ended": REMEMBERED_MAX}


class Book:
    """Batches 7 and 8 under way, each with an order that holds a copy of its own."""

    def __init__(self) -> None:
        self.signatures = Signatures()
        self.stack = contextlib.ExitStack()
        self.numbers: dict[str, int] = {}
        self.copies: dict[str, int] = {}
        for run in ("7:0", "8:0"):
            self.signatures.open(run)
            self.numbers[run] = self.stack.enter_context(self.signatures.order(f"batch {run[0]}", [run]))
            self.copies[run] = new_copy()
            self.stack.enter_context(self.signatures.held(self.copies[run], self.numbers[run]))

    def doubted(self) -> list[str]:
        return [run for run in self.numbers if self.signatures.doubt(run, complete=False)]

    def words(self, run: str) -> str:
        return self.signatures.doubt(run, complete=False) or ""

    def sign(self, copy: int, order: int, made_for: str | None = None) -> None:
        self.signatures.receive(Signature(copy, "s", made_for, order))


@pytest.fixture
def book() -> Iterator[Book]:
    made = Book()
    with made.stack:
        yield made


def test_a_copy_that_ran_with_another_order_makes_both_batches_doubtful(book: Book) -> None:
    """Rows of the one may be among the other's, and nobody can say which of the two has lost them."""
    book.sign(book.copies["7:0"], book.numbers["8:0"])

    assert book.doubted() == ["7:0", "8:0"]
    book.signatures.forget("7:0")
    assert book.doubted() == ["8:0"]


def test_a_plan_that_nobody_runs_makes_the_batch_of_the_order_doubtful(book: Book) -> None:
    """Its rows went nowhere that is known, with an order that was to be read once."""
    book.sign(new_copy(), book.numbers["8:0"])

    assert book.doubted() == ["8:0"]
    assert book.words("8:0").startswith("a task of a plan that nobody runs ran with the order of batch 8: ")


def test_an_order_that_has_ended_is_named_as_such(book: Book) -> None:
    """The operator reads whose rows came late; a number that no order ever had is called unknown."""
    with book.signatures.order("batch 6") as ended:
        pass
    book.sign(book.copies["7:0"], ended)
    book.sign(book.copies["8:0"], 0)

    assert "ran with the order of an earlier job of batch 6" in book.words("7:0")
    assert "ran with the order of no batch that is known" in book.words("8:0")


def test_a_missing_signature_matters_only_where_everything_is_believed_to_be_read() -> None:
    """A batch that failed for a reason of its own may have ended before its tasks on a leaf began."""
    signatures = Signatures()
    signatures.open("7:0")
    with signatures.order("batch 7", ["7:0"]) as order, signatures.held(new_copy(), order, ["source"]):
        pass

    assert signatures.doubt("7:0", complete=True) is not None
    assert signatures.doubt("7:0", complete=False) is None


class Reported:
    """The accumulator of a task."""

    def __init__(self) -> None:
        self.signed: list[Signature] = []

    def add(self, signatures: list[Signature]) -> None:
        self.signed += signatures


@pytest.mark.parametrize(
    ("given", "inside", "found"),
    [
        (property_of(5, "the order"), None, (5, "the order")),
        (property_of(5, None), "in the plan", (5, "in the plan")),
        (property_of(5, NOTHING), "in the plan", (5, None)),
    ],
    ids=["of the job", "inside the plan", "over no rows"],
)
def test_a_task_signs_for_each_leaf_before_it_has_its_order(
    monkeypatch: pytest.MonkeyPatch, given: str, inside: str | None, found: tuple[int, str | None]
) -> None:
    """Also where it emits nothing: a leaf that no task signed for is not believed to be empty."""
    begun: list[str] = []
    monkeypatch.setattr(used_workers, "begins", lambda: begun.append("begun"))
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(getLocalProperty={ORDER_PROPERTY: given}.get))
    reported = Reported()
    signer = Signer(reports=reported, made_for="7:0")  # type: ignore[arg-type]

    assert signer.order(inside, ["one", "two"]) == found
    assert reported.signed == [Signature(signer.copy, leaf, "7:0", 5) for leaf in ("one", "two")]
    assert begun == ["begun"]


def test_a_task_without_an_order_emits_nothing_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job from a thread that a bolt started carries no property; in the driver itself there is no task."""
    reported = Reported()
    signer = Signer(reports=reported)  # type: ignore[arg-type]
    assert signer.order("in the plan") == (0, "in the plan")

    monkeypatch.setattr(used_workers, "begins", lambda: None)
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(getLocalProperty={}.get))
    with pytest.raises(NoBatchError, match="start it with pyspark"):
        signer.order("in the plan")
    assert reported.signed == []


def test_rows_that_were_made_for_another_batch_make_both_doubtful(book: Book) -> None:
    """A DataFrame that a function has kept: copy and order fit, and the rows are those of batch 7."""
    book.sign(book.copies["8:0"], book.numbers["8:0"], made_for="8:0")
    assert book.doubted() == []
    book.sign(book.copies["8:0"], book.numbers["8:0"], made_for="7:0")

    assert book.doubted() == ["7:0", "8:0"]


def test_results_that_another_order_or_copy_brought_make_both_doubtful(book: Book) -> None:
    """A driver thread that got what another thread asked for."""
    book.signatures.mixed(book.numbers["7:0"], book.numbers["8:0"])
    assert book.doubted() == ["7:0", "8:0"]

    again = Book()
    with again.stack:
        again.signatures.mixed_copies(again.numbers["7:0"], again.copies["8:0"])
        assert again.doubted() == ["7:0", "8:0"]
        again.signatures.forget("7:0")
        again.signatures.open("7:0")
        again.signatures.mixed_copies(again.numbers["7:0"], new_copy())
        assert again.doubted() == ["7:0", "8:0"]


def test_a_copy_serves_one_order_at_a_time(book: Book) -> None:
    """Else a signature of it could be either's."""
    with (
        pytest.raises(InvariantBroken, match="serves two jobs at the same time"),
        book.signatures.held(book.copies["7:0"], book.numbers["8:0"]),
    ):
        pass


class Compiled:
    def __init__(self) -> None:
        self.copy = new_copy()


def test_threads_at_once_have_copies_of_their_own_and_hand_them_back() -> None:
    """One that is free is used again: compiling costs the user's functions a call."""
    made: list[Compiled] = []

    def make(runs: Any) -> Compiled:
        made.append(Compiled())
        return made[-1]

    first = Compiled()
    copies = Copies(SimpleNamespace(), first, make, cores=2)  # type: ignore[arg-type]
    with copies.taken() as one, copies.taken() as two:
        assert (one, two) == (first, made[0])
    with copies.taken() as again, copies.taken() as more:
        assert {again, more} == {first, made[0]}
    assert len(made) == 1
