"""Decimals in texts: every spelling is exactly the number that Python reads, or is refused."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.spouts.test_rejected_rows import sift
from txtopo.core.fields import parse_fields
from txtopo.formats import Json

DECLARED = ((5, 2), (38, 2), (38, 0), (38, 38), (10, 0))
NUMBERS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-", "+"]),
    st.one_of(st.text("019", min_size=1, max_size=6), st.text("09", min_size=34, max_size=90)),
    st.one_of(st.just(""), st.text("05", max_size=4).map(".{}".format), st.text("0", min_size=30).map(".5{}".format)),
    st.sampled_from(["", "", "", "e0", "e2", "E-3", "e-95", "e60"]),
)


def fits(text: str, precision: int, scale: int) -> bool:
    """Calculated with whole numbers alone."""
    sign, digits, exponent = Decimal(text).as_tuple()
    number = int("".join(map(str, digits)) or "0")
    shift = int(exponent) + scale
    shifted = number * 10**shift if shift >= 0 else number // 10**-shift
    is_exact = shift >= 0 or number % 10**-shift == 0
    return is_exact and shifted < 10**precision and sign in (0, 1)


def read(texts: list[str], precision: int, scale: int) -> tuple[list[Decimal | None], dict[int, str]]:
    """The values, and the indexes of those that are refused; both paths of JSON lines, in which decimals may be texts,
    give the same.
    """
    pair = Json()._pair(parse_fields(f"a decimal({precision},{scale})"))
    lines = [f'{{"a":"{text}"}}'.encode() for text in texts]
    whole, sifted = pair.whole(lines), pair.sift(lines)
    assert whole is None or (whole.equals(sifted.batch) and not sifted.refused)
    return sifted.batch.column(0).to_pylist(), sifted.refused


@pytest.mark.parametrize(("precision", "scale"), DECLARED)
def test_a_decimal_is_exactly_what_is_written_or_is_refused(precision: int, scale: int) -> None:
    @settings(deadline=None, max_examples=150)
    @given(st.lists(NUMBERS, min_size=1, max_size=5))
    def run(texts: list[str]) -> None:
        values, refused = read(texts, precision, scale)
        assert {*refused} == {at for at, text in enumerate(texts) if not fits(text, precision, scale)}
        assert values == [Decimal(text) for at, text in enumerate(texts) if at not in refused]

    run()


@pytest.mark.parametrize("digits", [39, 40, 1000, 10_000_000])
def test_a_number_of_many_digits_is_refused_and_ends_no_process(digits: int, tmp_path: Path) -> None:
    text = "9" * digits
    assert read([text, "1.5"], 38, 2)[0] == [Decimal("1.50")]
    rows, rejects = sift(tmp_path, f"a\n2.25\n{text}\n".encode(), "a decimal(38,2)")
    assert (rows, [reject.line for reject in rejects]) == ([(Decimal("2.25"),)], [3])


def test_zeros_do_not_change_a_number(tmp_path: Path) -> None:
    content = f"a\n{'0' * 40}1.5\n1.5{'0' * 40}\n-0.{'0' * 60}\n\n7\n".encode()
    rows, rejects = sift(tmp_path, content, "a decimal(10,2)")
    assert (rows, rejects) == ([(Decimal("1.50"),), (Decimal("1.50"),), (Decimal(0),), (Decimal(7),)], [])
