"""Files as people have them, written by chance with bad records among them, and counted twice: by a topology, and by
Python's own readers, which read the same bytes with no code of txtopo.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.formats import Csv, Format, Json, Parquet, Pattern
from txtopo.testing import TopologyHarness

Counted = tuple[dict[Any, tuple[Any, ...]], list[int]]
"""Key -> number of records and sum; and the numbers of the records that are none."""
SEEDS = (1, 2)


def counted(folder: Path, fields: str, format_: Format, keys: list[str], summed: str) -> Counted:
    """What a topology makes of the only file of a folder."""
    builder = TopologyBuilder("usual")
    builder.set_spout("rows", FileSpout(folder, fields, format=format_, settled_s=0, rejected_max=0.5))
    builder.set_committer_bolt("counts", CountCommitter("counts", keys, sums=[summed])).shuffle_grouping("rows")
    with TopologyHarness(builder.build()) as harness:
        harness.run()
        return dict(harness.table("counts")), [row.line for row in harness.rejects]


def added(records: Iterator[tuple[int, tuple[Any, Any] | None]]) -> Counted:
    """The same of records that were read otherwise: (number, key and value, or None for a record that is none)."""
    numbers, sums, bad = Counter[Any](), dict[Any, Any](), list[int]()
    for number, record in records:
        if record is None:
            bad.append(number)
            continue
        key, value = record
        numbers[key] += 1
        sums[key] = sums.get(key, 0) + (value or 0)
    return {key: (numbers[key], sums[key]) for key in numbers}, bad


AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36",
    r"say \"hi\"",
    r"C:\\Windows",
    "-",
    "",
    "é\u2028",
    "() { :; }; echo",
)
REQUESTS = (
    "GET / HTTP/1.1",
    "GET /search?q=a%20b&r=[1] HTTP/2.0",
    "POST /api/orders HTTP/1.1",
    r"\x16\x03\x01",
    "-",
    r"GET /\"quoted\" HTTP/1.1",
    "OPTIONS * RTSP/1.0",
)


def access_log(chance: random.Random) -> Iterator[bytes]:
    """Lines of a web server in the combined format."""
    for _ in range(1500):
        host = chance.choice(["10.0.0.7", "2001:db8::1", "crawl-66-249-66-1.googlebot.com", "::ffff:10.0.0.1"])
        user = chance.choice(["-", "-", "ann", "ann lee", "DOMAIN\\\\ann"])
        when = f"{chance.randint(1, 28):02}/Oct/2025:{chance.randint(0, 23):02}:07:{chance.randint(0, 59):02}"
        zone = chance.choice(["+0000", "-0700", "+0530"])
        status, size = chance.choice([200, 200, 304, 404, 499, 500]), chance.choice(["-", "0", "2326", "10737418240"])
        rest = f'"{chance.choice(REQUESTS)}" {status} {size} "-" "{chance.choice(AGENTS)}"'
        line = f"{host} - {user} [{when} {zone}] {rest}".encode()
        match chance.randint(1, 60):
            case 1:
                line = line[: chance.randint(1, len(line) - 1)]  # The disk was full.
            case 2:
                line = line.replace(b'"-"', b'"caf\xe9"')  # Not UTF-8.
            case 3:
                line = line.replace(b"/Oct/", b"/Okt/")
            case 4:
                line += line  # Two processes wrote at the same time.
            case 5:
                line = b""
        yield line


LOGGED = re.compile(
    r'(\S+) (\S+) (.+?) \[(\d\d/[A-Z][a-z]{2}/\d{4}(?::\d\d){3} [+-]\d{4})\] "((?:[^"\\]|\\.)*)" (\d{3}) (\d+|-)'
    r' "(?:[^"\\]|\\.)*" "(?:[^"\\]|\\.)*"'
)


def logged(data: bytes) -> Iterator[tuple[int, tuple[Any, Any] | None]]:
    """Day in UTC and status, and the size, of each line."""
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        if not line:
            continue
        try:
            match = LOGGED.fullmatch(line.decode())
            if match is None:
                raise ValueError
            when = datetime.strptime(match[4], "%d/%b/%Y:%H:%M:%S %z").astimezone(UTC)
        except ValueError:
            yield number, None
            continue
        yield (
            number,
            ((when.replace(hour=0, minute=0, second=0), int(match[6])), 0 if match[7] == "-" else int(match[7])),
        )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_an_access_log_is_counted_as_python_counts_it(seed: int, ending: str, tmp_path: Path) -> None:
    data = b"".join(line + b"\n" for line in access_log(random.Random(seed)))
    (tmp_path / f"access.log{ending}").write_bytes(gzip.compress(data) if ending else data)
    expected, bad = added(logged(data))
    by_status: dict[Any, tuple[Any, ...]] = {}
    for (_, status), (number, size) in expected.items():
        before = by_status.get((status,), (0, 0))
        by_status[status,] = before[0] + number, before[1] + size
    fields = "time timestamp, status int, size bigint, host string, agent string"
    found = counted(tmp_path, fields, Pattern("apache_combined"), ["status"], "size")
    assert found == (by_status, bad)
    assert bad and len(by_status) == 5


def json_log(chance: random.Random) -> Iterator[bytes]:
    """Lines as services log them, with keys that are missing, null, nested, repeated or of another type."""
    for number in range(1500):
        record: dict[str, Any] = {
            "ts": f"2026-02-{chance.randint(1, 28):02}T10:00:00.{chance.randint(0, 999):03}Z",
            "level": chance.choice(["info", "warn", 'é \u2028 "q"']),
            "amount": chance.choice([1, 2.50, -0.01, 12345678901234.25]),
            "user": chance.choice([None, {"id": number}, {"id": 2**63 - 1, "tags": ["a", {"b": []}]}, {}]),
            "more": {"level": "inside", "list": [1.0, True, None]},
        }
        if chance.random() < 0.1:
            del record[chance.choice(["ts", "level", "amount", "user"])]
        line = json.dumps(record, ensure_ascii=chance.random() < 0.5)
        match chance.randint(1, 60):
            case 1:
                line = line[: chance.randint(1, len(line) - 1)]
            case 2:
                line = '{"level":"x",' + line[1:]  # Twice, if it is there at all.
            case 3:
                line = line.replace('"amount": ', '"amount": "x')
            case 4:
                line = line.replace("2026-02-", "2026-13-")
            case 5:
                line = line + line
            case 6:
                line = " "
            case 7:
                line = line.replace('"user": ', '"user": [], "_": ')
        yield line.encode()


def from_json(data: bytes) -> Iterator[tuple[int, tuple[Any, Any] | None]]:
    """Level and amount of each line."""
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        if not line.strip():
            continue
        try:
            pairs = json.loads(line, object_pairs_hook=list, parse_float=Decimal)
            keys = [key for key, _ in pairs]
            record = dict(pairs)
            assert all(keys.count(key) <= 1 for key in ("ts", "level", "amount", "user"))
            user = record.get("user")
            # An object is a list of pairs here, and an empty array looks like an empty object.
            assert b'"user": []' not in line
            assert user is None or all(isinstance(one, tuple) for one in user)
            assert isinstance(record.get("level", ""), str) and isinstance(record.get("amount", 0), int | Decimal)
            if record.get("ts") is not None:
                datetime.fromisoformat(record["ts"])
        except (ValueError, AssertionError, TypeError):
            yield number, None
            continue
        amount = record.get("amount")
        yield number, ((record.get("level"),), Decimal(0) if amount is None else Decimal(amount))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_of_json_lines_is_counted_as_python_counts_it(seed: int, tmp_path: Path) -> None:
    data = b"".join(line + b"\n" for line in json_log(random.Random(seed)))
    (tmp_path / "service.jsonl").write_bytes(data)
    fields = "ts timestamp, level string, amount decimal(20,2), who bigint"
    expected, bad = added(from_json(data))
    found = counted(tmp_path, fields, Json(paths={"who": ("user", "id")}), ["level"], "amount")
    assert found == (expected, bad)
    assert bad and len(expected) >= 4


def export(chance: random.Random) -> Iterator[list[str]]:
    """Rows as a spreadsheet in Germany exports them."""
    for _ in range(1500):
        price = f"{chance.randint(0, 9_999_999):,}".replace(",", ".") + f",{chance.randint(0, 99):02}"
        row = [
            chance.choice(["Köln", "Straße; 7", 'das "Haus"', "zwei\nZeilen", "", "Łódź"[1:3]]),
            price,
            f"{chance.randint(1, 28):02}.{chance.randint(1, 12):02}.2025",
            chance.choice(["ja", "nein"]),
        ]
        match chance.randint(1, 60):
            case 1:
                row.pop()
            case 2:
                row[1] = chance.choice(["12.5", "1.23,00", "1,5 €".encode("cp1252").decode("latin-1"), "zwölf"])
            case 3:
                row[2] = "31.02.2025"
            case 4:
                row.append("")
        yield row


def from_csv(data: bytes) -> Iterator[tuple[int, tuple[Any, Any] | None]]:
    """Town and price of each record, by the line where it starts."""
    reader = csv.reader(io.StringIO(data.decode("latin-1"), newline=""), delimiter=";")
    line, width = 1, 0
    for row in reader:
        start, line = line, reader.line_num + 1
        if start == 1:
            width = len(row)
            continue
        try:
            town, price, day, _ = row
            assert len(row) == width
            assert re.fullmatch(r"\d{1,3}(\.\d{3})*,\d\d", price)
            datetime.strptime(day, "%d.%m.%Y")
        except (ValueError, AssertionError):
            yield start, None
            continue
        # Without quotes, an empty value is NULL.
        yield start, ((town or None,), Decimal(price.replace(".", "").replace(",", ".")))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_an_export_in_latin_1_is_counted_as_python_counts_it(seed: int, ending: str, tmp_path: Path) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=";", lineterminator="\r\n")
    writer.writerow(["Ort", "Preis", "Datum", "Bezahlt"])
    writer.writerows(export(random.Random(seed)))
    data = text.getvalue().encode("latin-1", "replace")
    (tmp_path / f"export.csv{ending}").write_bytes(gzip.compress(data) if ending else data)
    german = Csv(encoding="latin-1", delimiter=";", decimal=",", grouping=".", date_format="%d.%m.%Y", ignore_case=True)
    expected, bad = added(from_csv(data))
    found = counted(tmp_path, "ort string, preis decimal(12,2), datum date", german, ["ort"], "preis")
    assert found == (expected, bad)
    assert bad and len(expected) == 6


@pytest.mark.parametrize("seed", SEEDS)
def test_parquet_is_counted_as_what_was_written(seed: int, tmp_path: Path) -> None:
    """Values that the declared types do not have are among them; the columns are those of pandas and Spark."""
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = [
        {
            "shop": chance.choice(["Bern", "Basel", None, "n\0l" if chance.random() < 0.02 else "Köln"]),
            "pieces": chance.choice([0, 7, -1, 2**31 if chance.random() < 0.02 else 2**31 - 1, None]),
            "price": Decimal(chance.randint(-9999, 9999)) / 100 + (Decimal("0.001") if chance.random() < 0.02 else 0),
            "extra": chance.random(),
        }
        for _ in range(1500)
    ]
    schema = pa.schema(
        {"extra": pa.float64(), "price": pa.decimal128(18, 3), "shop": pa.large_string(), "pieces": pa.int64()}
    )
    parquet.write_table(
        pa.Table.from_pylist(rows, schema), tmp_path / "sales.parquet", row_group_size=400, compression="zstd"
    )

    def judged() -> Iterator[tuple[int, tuple[Any, Any] | None]]:
        for number, row in enumerate(rows, 1):
            is_bad = "\0" in (row["shop"] or "") or (row["pieces"] or 0) >= 2**31 or row["price"] * 100 % 1 != 0
            yield number, None if is_bad else ((row["shop"],), row["pieces"])

    expected, bad = added(judged())
    found = counted(tmp_path, "shop string, pieces int, price decimal(10,2)", Parquet(), ["shop"], "pieces")
    assert found == (expected, bad)
    assert bad and len(expected) == 4
