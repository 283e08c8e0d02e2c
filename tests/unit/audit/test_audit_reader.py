"""The audit's own reader of CSV: against the standard library on hostile files, against the emitter value by value, and
by hand where both are silent.
"""

from __future__ import annotations

import csv
import hashlib
import io
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from txtopo.audit.readers import csv_records, reader
from txtopo.audit.readers.csv_records import CsvMarks, CsvRecord, csv_lines, read_records
from txtopo.audit.readers.known_readers import READERS
from txtopo.audit.readers.reader import HashedFile, TooLongError
from txtopo.audit.readers.text_values import cell_of, is_doubtful
from txtopo.audit.recount import Recounted, UnknownSourceError, recount
from txtopo.core.fields import parse_fields
from txtopo.spouts.formats.csv.values import BadValueError, Decoder


def records(content: bytes, delimiter: str = ",") -> list[CsvRecord]:
    return list(
        read_records(csv_lines(HashedFile(io.BytesIO(content)).chunks()), CsvMarks(delimiter=delimiter.encode()))
    )


def by_csv(content: bytes) -> list[list[str]]:
    text = content.decode("utf-8-sig")
    return [row for row in csv.reader(io.StringIO(text, newline="")) if row]


HOSTILE = {
    "plain": b"a,b\n1,2\n",
    "no line end": b"a,b\n1,2",
    "CRLF": b"a,b\r\n1,2\r\n",
    "CR": b"a,b\r1,2\r",
    "mixed line ends": b"a,b\r\n1,2\r3,4\n\r5,6\n\n\r\n7,8",
    "blank lines": b"\n\n\r\na,b\n\n\n1,2\n\n",
    "empty": b"",
    "only line ends": b"\n\r\n\r",
    "header only": b"a,b\n",
    "byte order mark": b"\xef\xbb\xbfa,b\n1,2\n",
    "byte order mark before a quote": b'\xef\xbb\xbf"a",b\n1,2\n',
    "only a byte order mark": b"\xef\xbb\xbf",
    "quoted": b'"a","b"\n"1","2"\n',
    "doubled quotes": b'a,b\n"say ""hi""",2\n"""",""\n',
    "quoted newlines": b'a,b\n"x\ny",2\r\n"p\r\nq\rr","\n\n"\n',
    "quoted delimiters": b'a,b\n",",",,"\n',
    "quotes within": b'a,b\nx"y,2"\n',
    "blank": b"a,b\n ,\t\n",
    "empty values": b'a,b\n,\n"",""\n',
    "separators of Unicode": "a,b\n\u2028,\u0085\x0b\x0c\x1c\n".encode(),
    "quote at the end": b'a,b\n1,"2"',
    "one column": b'a\n1\n\n""\n2\n',
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 7, 1 << 20])
def test_records_are_those_of_the_standard_library(
    name: str, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: RFC 4180, blank lines left out; wherever the file is cut into chunks."""
    monkeypatch.setattr(reader, "CHUNK_BYTES", chunk_bytes)

    found = [[field.decode() for field in record.fields] for record in records(HOSTILE[name])]

    assert found == by_csv(HOSTILE[name])


def scraps(seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    for _ in range(400):
        pieces = [
            chance.choice([b"a", b",", b'"', b"\n", b"\r\n", b"\r", b'""', b'","', b"\xc3\xa9", b" "])
            for _ in range(chance.randrange(1, 25))
        ]
        yield b"h,i\n" + b"".join(pieces)


@pytest.mark.parametrize("seed", range(5))
def test_random_scraps_are_read_as_the_standard_library_reads_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: the same records in any order of signs, unless a quote is never closed."""
    monkeypatch.setattr(reader, "CHUNK_BYTES", 5)
    compared = 0
    for content in scraps(seed):
        found = records(content)
        if all(record.closed for record in found):
            compared += 1
            assert [[field.decode() for field in record.fields] for record in found] == by_csv(content), content

    assert compared > 100


def test_an_unclosed_quote_costs_its_line_only() -> None:
    """Promise: it makes that line a reject, and reading goes on behind it."""
    found = records(b'a,b\n1,"x\n2,3\n4,y""\n6,7\n')

    assert [(record.line, record.closed) for record in found] == [
        (1, True),
        (2, False),
        (3, True),
        (4, True),
        (5, True),
    ]
    assert found[3].fields == [b"4", b'y""']


def test_text_behind_a_closing_quote_costs_its_line_only() -> None:
    """Promise: a quote that is missing swallows no lines up to the next one."""
    found = records(b'a,b\n"1,x\n2,y\n"3",z\n4,"x"y\n"5"\n')

    assert [(record.line, record.closed) for record in found] == [
        (1, True),
        (2, False),
        (3, True),
        (4, True),
        (5, False),
        (6, True),
    ]


def test_a_record_has_the_line_where_it_starts_and_knows_its_quotes() -> None:
    """Promise: lines count from 1; quoted and unquoted values differ."""
    found = records(b'a,b\n\n"x\ny",\n"",z\n')

    assert [(record.line, sorted(record.quoted)) for record in found] == [(1, []), (3, [0]), (5, [0])]


def test_every_byte_is_hashed_and_counted() -> None:
    """Promise: what is hashed is what is counted."""
    content = b"\xef\xbb\xbfa,b\n1,2\n"
    file = HashedFile(io.BytesIO(content))
    list(csv_lines(file.chunks()))

    assert (file.size, file.sha256) == (len(content), hashlib.sha256(content).hexdigest())


@pytest.mark.parametrize("content", [b"x" * 5000, b'"' + b"x\n" * 2500])
def test_a_record_without_end_is_not_read_into_memory(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: streaming, bounded."""
    monkeypatch.setattr(reader, "CHUNK_BYTES", 100)
    monkeypatch.setattr(csv_records, "RECORD_BYTES_MAX", 1000)

    with pytest.raises(TooLongError):
        records(content)


SEEDS = {
    "int": ["1", "-1", " 5", "+1", "1.0", "007", "2147483647", "2147483648", "", "1_0"],
    "tinyint": ["127", "128", "-128"],
    "bigint": ["9223372036854775807", "9223372036854775808", "-9223372036854775808"],
    "decimal(5,2)": ["1", "1.5", "1.500", "1.505", "1e2", "999.99", "1000", "-.5", "", "0.001", "100000e-3", "0e5"],
    "boolean": ["true", "True", "TRUE", "tRue", "1", "false", " true"],
    "date": ["2013-01-31", "2013-02-30", "2013-1-1", " 2013-01-31 "],
    "timestamp": [
        "2013-01-31",
        "2013-01-31 10:00",
        "2013-01-31T10:00:00Z",
        "2013-01-31T10:00:00.1234567",
        "2013-01-31T10:00:00+0130",
        "2013-01-31 25:00",
        "9999-12-31 23:00-02:00",
        "0001-01-01 01:00+02:00",
    ],
    "timestamp_ntz": ["2013-01-31", "2013-01-31 10:00:00.5", "2013-01-31T10:00:00Z"],
    "string": ["a", "NA", "null", " x ", "a\0b"],
    "double": ["1", "1.5", "1e5", "nan", "-inf", "x"],
    "binary": ["a", ""],
}


def by_emitter(kind: str, text: bytes, quoted: bool) -> Any:
    raw = b'x,"' + text + b'"\n' if quoted else b"x," + text + b"\n"
    try:
        (batch,) = Decoder(("w", "v"), parse_fields(f"v {kind}"), may_hold_nul=True).decode(raw)
    except (BadValueError, pa.ArrowInvalid):
        return ValueError
    return batch.column(0)[0].as_py()


def by_audit(kind: str, text: bytes, quoted: bool) -> Any:
    try:
        return cell_of(parse_fields(f"v {kind}").items[0], [""])(text, quoted)
    except ValueError:
        return ValueError


@pytest.mark.parametrize("kind", SEEDS)
def test_values_are_those_of_the_emitter(kind: str) -> None:
    """Promise: two readers that share no code accept the same spellings and mean the same by them (hexadecimal numbers
    are for the audit none).

    Where they may not, the audit knows that it may err.
    """
    chance = random.Random(7)
    column, compared = parse_fields(f"v {kind}").items[0], 0
    for _ in range(600):
        text = list(chance.choice(SEEDS[kind]))
        if chance.random() < 0.6:
            text.insert(chance.randint(0, len(text)), chance.choice("0123456789-.:eTZ "))
        value, quoted = "".join(text).encode(), chance.random() < 0.3
        right, found = by_emitter(kind, value, quoted), by_audit(kind, value, quoted)
        doubtful = is_doubtful(column, value)
        compared += not doubtful
        assert doubtful or found == right or (found != found and right != right), (value, quoted)
    assert compared > 300


@pytest.mark.parametrize(
    ("ddl", "text", "quoted", "value"),
    [
        ("v string", b"", False, None),
        ("v string", b"", True, ""),
        ("v string", b"NA", False, None),
        ("v string", b"NA", True, "NA"),
        ("v int", b"", True, ValueError),
        ("v int not null", b"", False, ValueError),
        ("v int", b"0x1F", False, ValueError),
        ("v decimal(38,0)", b"9" * 38, False, Decimal("9" * 38)),
        ("v decimal(38,0)", b"9" * 39, False, ValueError),
        ("v date", b"2013-01-31", False, date(2013, 1, 31)),
        ("v timestamp", b"2013-01-31T01:00:00+02:00", False, datetime(2013, 1, 30, 23, tzinfo=UTC)),
        ("v binary", b"\xff", False, b"\xff"),
        ("v string", b"\xff", False, ValueError),
        ("v string", b"a\0", False, ValueError),
    ],
)
def test_a_value_is_what_its_declared_type_says(ddl: str, text: bytes, quoted: bool, value: Any) -> None:
    """Promise: the documented dialect; NULL only unquoted, and only where it may be."""
    cell = cell_of(parse_fields(ddl).items[0], ["", "NA"])

    try:
        found: Any = cell(text, quoted)
    except ValueError:
        found = ValueError
    assert found == value


def test_the_recount_shares_no_code_with_what_it_checks() -> None:
    """Promise: no Spark, no pyarrow, none of the spouts' code, and no ZooKeeper; not even by way of another module."""
    program = (
        "import sys, txtopo.audit.recount, txtopo.audit.run_audit, txtopo.audit.audit_text, txtopo.reports.as_json\n"
        "from txtopo.audit.readers.known_readers import READERS\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('pyspark', 'pyarrow', 'kazoo') or "
        "name.startswith('txtopo.spouts')))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_every_reader_has_its_kind() -> None:
    """A plan finds its reader by the kind of its layout."""
    assert READERS and all(kind == one.kind for kind, one in READERS.items())


def test_a_layout_with_an_unknown_entry_is_not_recounted() -> None:
    """An option of a later release may change what every value means: UNVERIFIED, and never MISMATCH."""
    layout = {"kind": "csv", "delimiter": ",", "null_values": [""], "part_bytes": 9}
    plan = {"format": layout, "schema": "a int", "headers": [], "files": []}

    assert recount(plan, [], lambda path: iter(())) == (Recounted(), [])
    for other, words in (({"sideways": 1}, "does not know sideways"), ({"kind": "pairs"}, "'pairs' are not recounted")):
        with pytest.raises(UnknownSourceError, match=words):
            recount({**plan, "format": {**layout, **other}}, [], lambda path: iter(()))
