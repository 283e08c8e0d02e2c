"""A growing log in the hands of a test, and a TailSpout that reads it without a driver."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

from txtopo import TailSpout
from txtopo.topology.components import SpoutContext, Tally


class Reading:
    """Plans batch after batch, as a driver does, and keeps what each emitted."""

    def __init__(self, path: Path | str, fields: str = "line string", *, once: bool = False, **settings: Any) -> None:
        self.spout = TailSpout(path, fields, **{"settled_s": 0, "rotated_s": 0, **settings})
        self.once = once
        self.now_s = 0.0
        self.age_s = 0.0
        self.said: list[str] = []
        self.plans: list[Any] = []
        self.rows: list[list[Any]] = []
        """Values of the first field, by batch."""
        self.tally = Tally()
        self.restart()

    def restart(self) -> None:
        """A new driver takes the lead."""
        self.coordinator: Any = self.spout.open_coordinator(self.context)

    @property
    def context(self) -> SpoutContext:
        return SpoutContext(
            topology="t",
            spout="log",
            consumed={},
            once=self.once,
            monotonic=lambda: self.now_s,
            say=self.said.append,
            previous=self.plans[-1] if self.plans else None,
            age_s=lambda stamp: self.age_s,
        )

    def look(self) -> bool:
        """Plan and read a batch, if there is one."""
        if not self.coordinator.is_ready():
            return False
        previous = self.plans[-1] if self.plans else None
        metadata = self.coordinator.initialize_transaction(len(self.plans) + 1, previous)
        self.plans.append(json.loads(json.dumps(metadata)))
        self.rows.append(self.emitted(-1))
        return True

    def look_all(self) -> list[Any]:
        """Plan and read all that is there; returns what is new."""
        before = len(self.rows)
        while self.look():
            assert len(self.rows) < 1000, "the source never ends"
        return [row for rows in self.rows[before:] for row in rows]

    def emitted(self, index: int, tally: Tally | None = None) -> list[Any]:
        """The values of the first field in a batch, read now."""
        metadata = self.plans[index]
        tally = self.tally if tally is None else tally
        return [
            value
            for part in self.spout.parts(metadata)
            for batch in self.spout.emit_part(metadata, part, tally)
            for value in batch.column(0).to_pylist()
        ]

    def replay_all(self) -> None:
        """Every batch has in another attempt what it had in the first."""
        for index, rows in enumerate(self.rows):
            assert self.emitted(index, Tally()) == rows, f"batch {index + 1}"

    @property
    def all_rows(self) -> list[Any]:
        return [row for rows in self.rows for row in rows]


class Log:
    """A program that writes lines, and what logrotate does with its file. Every line has a number of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written: list[str] = []

    def write(self, *lines: str, end: str = "\n") -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines)[:-1] + end)
        self.written += lines

    def name(self, number: int, ending: str = "") -> Path:
        return self.path.with_name(f"{self.path.name}.{number}{ending}")

    def shift(self) -> None:
        """Give every rotated file the next number."""
        for number in range(9, 0, -1):
            for ending in ("", ".gz"):
                if self.name(number, ending).exists():
                    self.name(number, ending).rename(self.name(number + 1, ending))

    def rename(self) -> None:
        """Rotate by renaming."""
        self.shift()
        if self.path.exists():
            self.path.rename(self.name(1))

    def copytruncate(self) -> None:
        """Rotate by copying and truncating."""
        self.shift()
        if self.path.exists():
            shutil.copyfile(self.path, self.name(1))
            with self.path.open("r+") as file:
                file.truncate(0)

    def compress(self, number: int) -> None:
        """Compress a rotated file, as gzip does: the original goes last."""
        with self.name(number).open("rb") as plain, gzip.open(self.name(number, ".gz"), "wb") as packed:
            shutil.copyfileobj(plain, packed)
        self.name(number).unlink()
