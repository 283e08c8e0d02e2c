"""Reads values in the compact protocol of Thrift, in which Parquet writes its footers and the headers of its pages."""

from __future__ import annotations

import struct
from typing import Any

NESTED_MAX = 16
_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)
_SIZES = {_BYTE: 1, _DOUBLE: struct.calcsize("d")}
_LONG_LIST = 15
"""Stands for the size of a list that has at least so many values."""


class CompactError(ValueError):
    """Bytes that are no such values."""


class CutOffError(CompactError):
    """The bytes end before the value does."""


class CompactValues:
    """Values one after the other, of which numbers and what has numbers in it are kept."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0
        """Number of bytes that were read."""

    def fields(self, depth: int = 0) -> dict[int, Any]:
        """Return number -> value of the fields of a struct; None for a value that is neither a number, nor a list, nor
        a struct. Raises CompactError.
        """
        if depth > NESTED_MAX:
            raise CompactError("nested too deep")
        found: dict[int, Any] = {}
        number = 0
        while (first := self._byte()) & 0x0F != _STOP:
            number = number + (first >> 4) if first >> 4 else self._integer()
            found[number] = self._value(first & 0x0F, depth)
        return found

    def _value(self, kind: int, depth: int, *, is_listed: bool = False) -> Any:
        if kind in (_I16, _I32, _I64):
            return self._integer()
        if kind == _STRUCT:
            return self.fields(depth + 1)
        if kind in (_BYTE, _DOUBLE, _BINARY):
            self._take(_SIZES.get(kind) or self._varint())
        elif kind in (_LIST, _SET):
            first = self._byte()
            return self._values(first >> 4 if first >> 4 < _LONG_LIST else self._varint(), (first & 0x0F,), depth)
        elif kind == _MAP:
            if number := self._varint():
                kinds = self._byte()
                self._values(number, (kinds >> 4, kinds & 0x0F), depth)
        elif kind in (_TRUE, _FALSE):
            self._take(1 if is_listed else 0)
        else:
            raise CompactError(f"a value of kind {kind}")
        return None

    def _values(self, number: int, kinds: tuple[int, ...], depth: int) -> list[Any]:
        return [self._value(kind, depth + 1, is_listed=True) for _ in range(number) for kind in kinds]

    def _integer(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise CompactError("a number of more than 64 bits")
        return value | byte << shift

    def _byte(self) -> int:
        self._take(1)
        return self._data[self.at - 1]

    def _take(self, size: int) -> None:
        if size > len(self._data) - self.at:
            raise CutOffError("no end")
        self.at += size
