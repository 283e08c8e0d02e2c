"""What the migrations make of schema `txtopo`, read from their own SQL: functions, triggers, constraints and indexes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.resources import files

_FUNCTION = re.compile(r"create (?:or replace )?function txtopo\.(\w+)\(.*?\) returns .*? as \$\$(.*?)\$\$", re.DOTALL)
_BLOCK = re.compile(r"do \$\$.*?\$\$", re.DOTALL)
_TEXT = re.compile(r"'(?:[^']|'')*'")
_TRIGGER = re.compile(
    r"create (?P<constraint>constraint )?trigger (?P<name>\w+) (?P<when>before|after) (?P<events>.+?) on txtopo\.(?P<table>\w+)\b(?P<rest>.*?)"
    r"for each (?P<level>row|statement)(?P<condition> when \(.*\))? execute function txtopo\.(?P<function>\w+)\(\)$"
)
_TABLE = re.compile(r"create table txtopo\.(\w+) \((.*)\)$")
_ALTER = re.compile(r"alter table txtopo\.(\w+) (.*)$")
_INDEX = re.compile(r"create (?:unique )?index (\w+) on txtopo\.")
_DROP = re.compile(r"drop (trigger|function|index) (?:if exists )?(?:txtopo\.)?(\w+)(?:\(.*\))?(?: on txtopo\.(\w+))?$")
_CONSTRAINTS = {"p": r"\bprimary key\b", "u": r"\bunique\b", "c": r"\bcheck \(", "f": r"\breferences\b"}
_SUFFIXES = {"_pkey": "p", "_key": "u", "_check": "c", "_fkey": "f"}
_EVENTS = {"insert": 4, "delete": 8, "update": 16, "truncate": 32}


@dataclass(frozen=True, slots=True)
class Trigger:
    """One trigger, as the server's catalog has it."""

    function: str
    kind: int
    """Bits: 1 for each row, 2 before, 4 insert, 8 delete, 16 update, 32 truncate."""
    deferred: bool
    conditional: bool


@dataclass(slots=True)
class Schema:
    """What there has to be."""

    functions: dict[str, str] = field(default_factory=dict)
    """Name -> body."""
    triggers: dict[tuple[str, str], Trigger] = field(default_factory=dict)
    """By table and name."""
    constraints: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By table and kind: p primary key, u unique, c check, f foreign key. Their names are the server's own."""
    indexes: set[str] = field(default_factory=set)

    def apply(self, migration: str) -> None:
        """One migration's SQL."""
        for name, body in _FUNCTION.findall(migration):
            self.functions[name] = body
        for statement in _statements(_BLOCK.sub("", _FUNCTION.sub("", migration))):
            self._apply(statement)

    def _apply(self, statement: str) -> None:
        if found := _TRIGGER.fullmatch(statement):
            events = sum(bit for word, bit in _EVENTS.items() if re.search(rf"\b{word}\b", found["events"]))
            kind = events + 2 * (found["when"] == "before") + (found["level"] == "row")
            deferred = "initially deferred" in found["rest"]
            self.triggers[found["table"], found["name"]] = Trigger(found["function"], kind, deferred, bool(found["condition"]))  # fmt: skip
        elif found := _TABLE.fullmatch(statement):
            self._count(found[1], found[2])
        elif found := _ALTER.fullmatch(statement):
            if dropped := re.fullmatch(r"drop constraint (?:if exists )?(\w+)", found[2]):
                kind_of = next(kind for suffix, kind in _SUFFIXES.items() if re.search(rf"{suffix}\d*$", dropped[1]))
                self.constraints[found[1], kind_of] -= 1
            else:
                self._count(found[1], found[2])
        elif found := _INDEX.match(statement):
            self.indexes.add(found[1])
        elif found := _DROP.fullmatch(statement):
            self._drop(found[1], found[2], found[3])

    def _drop(self, what: str, name: str, table: str | None) -> None:
        if what == "trigger" and table is not None:
            self.triggers.pop((table, name), None)
        elif what == "function":
            self.functions.pop(name, None)
        else:
            self.indexes.discard(name)

    def _count(self, table: str, text: str) -> None:
        for kind, pattern in _CONSTRAINTS.items():
            if number := len(re.findall(pattern, text)):
                self.constraints[table, kind] += number


def schema_at(revision: str) -> Schema | None:
    """What all migrations up to this revision make; None where it is not one of this release."""
    schema, is_known = Schema(), False
    for name, text in migrations():
        if name[:4] <= revision:
            schema.apply(text)
            is_known = is_known or name[:4] == revision
    return schema if is_known else None


def migrations() -> Iterator[tuple[str, str]]:
    """Name and SQL of each migration, oldest first."""
    folder = files("txtopo") / "migrations" / "versions"
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        if entry.name.endswith(".sql"):
            yield entry.name, entry.read_text("utf-8")


def _statements(text: str) -> Iterable[str]:
    bare = _TEXT.sub("''", re.sub(r"--[^\n]*", "", text))
    return (" ".join(statement.split()) for statement in bare.split(";") if statement.strip())
