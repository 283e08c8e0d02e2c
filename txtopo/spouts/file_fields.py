"""Declared fields that are not in the records of a file: the number of the record, what is known of the file, and keys
in the names of its folders, as Hive writes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from txtopo.core.fields import Fields
from txtopo.core.plan import Metadata
from txtopo.errors import TopologyError

if TYPE_CHECKING:
    import pyarrow as pa

FILE, MODIFIED = "_file", "_modified"
_TYPES = {FILE: ("string", "the path of the file"), MODIFIED: ("timestamp", "the time of its last change")}
_NULL = "__HIVE_DEFAULT_PARTITION__"
_KEY_IN_PATTERN = re.compile(r"([^=*?\[\]]+)=")
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds from 1970 to the first one of the year 1 and the last one of the year 9999."""


@dataclass(frozen=True, slots=True)
class FileFields:
    """All fields of a source of files, and which of them its format does not read."""

    fields: Fields
    about: tuple[str, ...] = ()
    """`_file`, `_modified` and the number of the record, as far as they are declared."""
    partitions: tuple[str, ...] = ()
    """Fields that are keys in names of folders."""

    @classmethod
    def declared(cls, fields: Fields, number_field: str | None, partitions: Sequence[str] = ()) -> FileFields:
        """`number_field` is the name that the format has for the number of a record. Raises TopologyError."""
        about = tuple(name for name in fields.names if name in _TYPES or name == number_field)
        found = cls(fields, about, tuple(partitions))
        found._check()
        return found

    @classmethod
    def planned(cls, fields: Fields, metadata: Metadata) -> FileFields:
        """Return those of a plan, whose schema is `fields`. A plan that names none has none: its format read all."""
        layout = metadata["format"]
        return cls(fields, tuple(layout.get("file_fields", ())), tuple(layout.get("partitions", ())))

    @property
    def layout(self) -> Mapping[str, Any]:
        """Return the entries of the layout in plans; nothing where the format reads all fields."""
        entries = {"file_fields": list(self.about), "partitions": list(self.partitions)}
        return {name: value for name, value in entries.items() if value}

    @property
    def within(self) -> Fields:
        """Return the fields that the format reads."""
        others = {*self.about, *self.partitions}
        if not others:
            return self.fields
        return Fields(tuple(field for field in self.fields.items if field.name not in others))

    @property
    def is_numbered(self) -> bool:
        """Return True if rows have the numbers of their records."""
        return any(name not in _TYPES for name in self.about)

    def check_file(self, path: str, mtime_ns: int) -> None:
        """Raise ValueError that says why the values of a file are none of the declared types."""
        if MODIFIED in self.about and not _FIRST_US <= mtime_ns // 1000 <= _LAST_US:
            raise ValueError("the time of its last change is outside of the years 1 to 9999")
        self._keys(path)

    def completed(
        self, batch: pa.RecordBatch, numbers: Sequence[int] | None, file: Mapping[str, Any]
    ) -> pa.RecordBatch:
        """Return rows with all fields. `batch` has those of the format, `numbers` those of its records, where rows are
        numbered.
        """
        if not self.about and not self.partitions:
            return batch
        import pyarrow as pa

        from txtopo.spouts.arrow_types import arrow_schema

        path = str(file["path"])
        known = dict(self._keys(path))
        known[FILE] = pa.array([path], pa.string())
        known[MODIFIED] = pa.array([int(file["mtime_ns"]) // 1000], pa.timestamp("us", tz="UTC"))
        first = pa.array([0], pa.int64()).take(pa.array([0] * batch.num_rows, pa.int64()))
        columns = []
        for field in self.fields.items:
            if field.name in self.partitions or (field.name in self.about and field.name in _TYPES):
                columns.append(known[field.name].take(first))
            elif field.name in self.about:
                columns.append(pa.array(numbers, pa.int64()))
            else:
                columns.append(batch.column(field.name))
        return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(self.fields))

    def _keys(self, path: str) -> Mapping[str, pa.Array]:
        """Return each key of a file as an array of one value. Raises ValueError that names a key that it does not have,
        or whose text is no value of the declared type.
        """
        if not self.partitions:
            return {}
        import pyarrow as pa

        from txtopo.spouts.formats.lines.typed_texts import sifted_batch

        texts = [_key(path, name) for name in self.partitions]
        keys = Fields(tuple(field for name in self.partitions if (field := self.fields.get(name)) is not None))
        batch, refused = sifted_batch(keys, [pa.array([text], pa.binary()) for text in texts])
        if refused:
            raise ValueError(f"in the names of its folders, {refused[0]}")
        return dict(zip(self.partitions, batch.columns, strict=True))

    def _check(self) -> None:
        for name in self.about:
            kind, words = _TYPES.get(name, ("bigint", f"the number of the {name[1:]}"))
            field = self.fields.get(name)
            if field is not None and field.type.kind != kind:
                raise TopologyError(f"{name} is {words}: declare it as {kind}, not {field.type}")
        for name in self.partitions:
            if self.fields.get(name) is None:
                raise TopologyError(f"partitions has {name!r}, which is no declared field")
            if name in self.about or self.partitions.count(name) > 1:
                raise TopologyError(f"partitions: {name!r} has two meanings")
        if not self.within.items:
            raise TopologyError(f"at least one field other than {', '.join((*self.about, *self.partitions))} is needed")


def chosen_partitions(chosen: object, path: str, fields: Fields) -> tuple[str, ...]:
    """Return the fields that a FileSpout is to take from names of folders: those that it was given by name, or with
    "hive" those that its path names. Raises TopologyError.
    """
    if chosen == "hive":
        named = dict.fromkeys(match[1] for part in path.split("/") if (match := _KEY_IN_PATTERN.match(part)))
        found = tuple(name for name in named if fields.get(name) is not None)
        if not found:
            raise TopologyError(
                f"FileSpout: partitions='hive', but path {path!r} has no folder such as day=* with the name of a "
                f"declared field: write it, or name the fields, e.g. partitions=['day']"
            )
        return found
    if isinstance(chosen, str) or not isinstance(chosen, Sequence) or not all(isinstance(one, str) for one in chosen):
        raise TopologyError(f"FileSpout: partitions {chosen!r} is neither 'hive' nor a list of declared fields")
    return tuple(chosen)


def _key(path: str, name: str) -> bytes | None:
    """Return the text of a key in the names of the folders of a path, None for NULL. Raises ValueError."""
    *folders, _ = path.split("/")
    found = {folder[len(name) + 1 :] for folder in folders if folder.startswith(f"{name}=")}
    if len(found) != 1:
        raise ValueError(
            f"no folder of its path is named {name}=…, where the value of the field stands"
            if not found
            else f"two folders of its path are named {name}=…"
        )
    (text,) = found
    return None if text == _NULL else unquote_to_bytes(text)
