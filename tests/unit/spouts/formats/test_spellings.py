"""Numbers and times in other spellings: what is accepted, by the emitter and by the audit, and that both agree."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from txtopo.audit.readers.spelled_values import plain_of
from txtopo.core.fields import Field, parse_fields
from txtopo.errors import TopologyError
from txtopo.spouts.formats.csv.respelled import NO_VALUE, usual_texts
from txtopo.spouts.formats.csv.spellings import Spellings

FIELDS = parse_fields(
    "price decimal(10,2), part double, n bigint, day date, at timestamp, local timestamp_ntz, name string, ok boolean"
)
GERMAN = Spellings(decimal=",", grouping=".", date_format="%d.%m.%Y", timestamp_format="%d.%m.%Y %H:%M:%S")


def field(name: str) -> Field:
    """Return a declared column."""
    return next(one for one in FIELDS.items if one.name == name)


def plain(spellings: Spellings, name: str, *texts: str | None) -> list[str | None]:
    """Return the texts in the usual spelling, the same whether they are known to be UTF-8 or not."""
    found: list[str | None] = usual_texts(spellings, field(name), pa.array(texts, pa.string())).to_pylist()
    raw = pa.array([None if text is None else text.encode() for text in texts], pa.binary())
    assert [
        None if text is None else text.decode() for text in usual_texts(spellings, field(name), raw).to_pylist()
    ] == found
    return found


def audited(spellings: Spellings, name: str, text: str) -> str:
    """Return what the audit makes of a text."""
    read = plain_of(field(name), spellings.layout())
    assert read is not None
    try:
        return read(text.encode()).decode()
    except ValueError:
        return NO_VALUE


@pytest.mark.parametrize(
    ("text", "usual"),
    [
        ("1,5", "1.5"), ("1.000,25", "1000.25"), ("-1.234.567,8", "-1234567.8"), ("1000,1", "1000.1"), (" 7\t", "7"),
        ("1.5", NO_VALUE), ("1.00,1", NO_VALUE), ("1000.000", NO_VALUE), (".100", NO_VALUE), ("1,000.5", NO_VALUE),
        ("1..000", NO_VALUE), ("1e3", "1e3"), ("1,5e3", "1.5e3"), ("1,5e1.000", NO_VALUE), ("nan", "nan"),
    ],
)  # fmt: skip
def test_a_decimal_comma_and_groups_of_three_digits(text: str, usual: str) -> None:
    assert plain(GERMAN, "price", text, None) == [usual, None]
    assert plain(GERMAN, "part", text) == [usual]
    assert audited(GERMAN, "price", text) == usual


@pytest.mark.parametrize(
    ("text", "usual"),
    [("1.000", "1000"), ("-12.345", "-12345"), ("1000", "1000"), ("1,0", NO_VALUE), ("10.00", NO_VALUE),
     ("+1.000", NO_VALUE)],
)  # fmt: skip
def test_whole_numbers_in_groups(text: str, usual: str) -> None:
    assert plain(GERMAN, "n", text) == [usual]
    assert audited(GERMAN, "n", text) in (usual, "+1000")  # The sign is refused where the number is read.


@pytest.mark.parametrize(
    ("format_", "text", "usual"),
    [
        ("%d.%m.%Y", "31.01.2024", "2024-01-31"),
        ("%d.%m.%Y", " 1.2.2024 ", "2024-02-01"),
        ("%d.%m.%Y", "2024-01-31", NO_VALUE),
        ("%d.%m.%Y", "31.01.24", NO_VALUE),
        ("%d.%m.%Y", "31.01.20245", NO_VALUE),
        ("%d.%m.%Y", "311.01.2024", NO_VALUE),
        ("%d.%m.%Y", "31x01.2024", NO_VALUE),
        ("%m/%d/%y", "1/31/68", "2068-01-31"),
        ("%m/%d/%y", "12/1/69", "1969-12-01"),
        ("%Y%m%d", "20240131", "2024-01-31"),
        ("%Y%m%d", "2024131", NO_VALUE),
        ("%d-%b-%Y", "31-JAN-2024", "2024-01-31"),
        ("%d-%b-%Y", "31-Okt-2024", NO_VALUE),
        ("%F", "2024-01-31", "2024-01-31"),
        ("%Y%%%m %d", "2024%01 31", "2024-01-31"),
    ],
)
def test_dates_in_a_format(format_: str, text: str, usual: str) -> None:
    spellings = Spellings(date_format=format_)
    spellings.check()
    assert plain(spellings, "day", text, None) == [usual, None]
    assert audited(spellings, "day", text) == usual


@pytest.mark.parametrize(
    ("format_", "text", "usual"),
    [
        ("%d/%b/%Y:%H:%M:%S %z", "10/Oct/2000:13:55:36 -0700", "2000-10-10T13:55:36-0700"),
        ("%d/%b/%Y:%H:%M:%S %z", "1/MAY/2000:13:55:36 Z", "2000-05-01T13:55:36Z"),
        ("%d/%b/%Y:%H:%M:%S %z", "10/Oct/2000:13:55:36", NO_VALUE),
        ("%m/%d/%Y %H:%M", "1/2/2024 3:04", "2024-01-02T03:04"),
        ("%Y%m%d%H%M%S.%f", "20240102030405.012", "2024-01-02T03:04:05.012"),
        ("%Y%m%d%H%M%S.%f", "20240102030405.0123456", NO_VALUE),
        ("%d.%m.%Y %T", "31.01.2024 1:02:03", "2024-01-31T01:02:03"),
    ],
)
def test_timestamps_in_a_format(format_: str, text: str, usual: str) -> None:
    spellings = Spellings(timestamp_format=format_)
    spellings.check()
    assert plain(spellings, "at", text, None) == [usual, None]
    assert audited(spellings, "at", text) == usual


def test_a_quoted_empty_value_is_null_only_where_that_is_chosen_and_the_column_holds_no_text() -> None:
    chosen = Spellings(empty_is_null=True)
    for name in ("price", "n", "day", "at", "ok"):
        assert chosen.change(field(name))
        assert plain(chosen, name, "", "x", None) == [None, "x", None]
    assert plain(chosen, "name", "") == [""]
    assert not Spellings().change(field("n"))


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"decimal": ";"}, "decimal ';' is neither"),
        ({"decimal": ",", "grouping": ","}, "grouping ',' is none of"),
        ({"grouping": "1"}, "grouping '1' is none of"),
        ({"date_format": "%d.%m."}, "it has no year"),
        ({"date_format": "%d.%m.%Y %H"}, "a date has no hour"),
        ({"date_format": "%d.%m.%Y %d"}, "it has the day twice"),
        ({"timestamp_format": "%d.%m.%Y %I:%M %p"}, "%I is none of"),
        ({"timestamp_format": "%d.%m.%Y %M"}, "it has the minute without the hour"),
        ({"timestamp_format": "%d.%m.%Y%z"}, "it has an offset without the hour"),
        ({"date_format": "%d.%m.%Y%"}, "% is none of"),
        ({"date_format": 7}, "it is no text"),
        ({"empty_is_null": 1}, "empty_is_null 1 is neither"),
    ],
)
def test_an_invalid_setting_is_refused(settings_: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Spellings(**settings_).check()


def test_an_offset_cannot_be_given_without_a_zone() -> None:
    with pytest.raises(TopologyError, match="column 'local' is declared timestamp_ntz"):
        Spellings(timestamp_format="%d.%m.%Y %H:%M%z").check_fields(FIELDS)
    GERMAN.check_fields(FIELDS)


def test_the_layout_has_what_is_not_usual() -> None:
    assert Spellings().layout() == {}
    assert Spellings(decimal=",", empty_is_null=True).layout() == {"decimal": ",", "empty_is_null": True}


NUMBERS = st.text("0123456789.,+-e ", max_size=12)


@settings(deadline=None, max_examples=300)
@given(NUMBERS, st.sampled_from([",", "."]), st.sampled_from([None, " ", "'", ".", ","]))
@example("-1.000", ",", ".")
@example("1e", ",", None)
def test_emitter_and_audit_agree_on_numbers(text: str, decimal: str, grouping: str | None) -> None:
    if grouping == decimal:
        grouping = None
    spellings = Spellings(decimal=decimal, grouping=grouping)
    for name in ("price", "n"):
        if not spellings.change(field(name)):
            continue
        usual, found = plain(spellings, name, text)[0], audited(spellings, name, text)
        if NO_VALUE not in (usual, found):
            assert usual == found
        else:  # The other one refuses it where the number is read.
            assert not _is_number({usual, found}, whole=name == "n")


def _is_number(texts: set[str | None], *, whole: bool) -> bool:
    (text,) = texts - {NO_VALUE} or {NO_VALUE}
    assert text is not None
    try:
        (int if whole else float)(text)
    except ValueError:
        return False
    return not whole or not text.startswith("+")


@settings(deadline=None, max_examples=300)
@given(
    st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)),
    st.integers(-14 * 60, 14 * 60),
    st.sampled_from(["%d.%m.%Y %H:%M:%S.%f %z", "%Y%m%d%H%M%S%z", "%m/%d/%Y %H:%M %z", "%d/%b/%Y:%H:%M:%S %z"]),
)
def test_every_time_that_python_writes_is_read(when: datetime, minutes: int, format_: str) -> None:
    spellings = Spellings(timestamp_format=format_)
    zoned = when.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    text = zoned.strftime(format_.replace("%Y", f"{when.year:04}"))
    (usual,) = plain(spellings, "at", text)
    assert usual is not None
    parsed = datetime.fromisoformat(usual)
    assert parsed == datetime.strptime(text, format_)
    assert audited(spellings, "at", text) == usual
