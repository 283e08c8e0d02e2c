"""The driver's book of signatures, apart from Spark: what it remembers, and for how long."""

from __future__ import annotations

from txtopo.spark.signatures import REMEMBERED_MAX, Signature, Signatures


def _many(book: Signatures) -> None:
    for _ in range(2 * REMEMBERED_MAX):
        with book.order("batch 3"):
            pass


def test_an_order_that_goes_on_while_thousands_end_is_still_compared() -> None:
    """A batch may take hours while others are searched, tried again and committed: its order must stay known to its end."""
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

    assert sum(len(kept) for kept in vars(book).values() if hasattr(kept, "__len__")) <= 2 * REMEMBERED_MAX
