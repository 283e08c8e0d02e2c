"""Searches all bytes of a CSV file for what decides how it is read: quotes, NUL bytes, hexadecimal numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RARE_LETTERS_MAX = 4096
"""Number of `x` in a chunk that are examined one by one."""
_ZERO = ord("0")
_DIGITS_AND_LETTERS = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


class ContentScan:
    """Implements `Scan`."""

    def __init__(self, *, hexadecimal: bool, special: tuple[bytes, ...] = (b'"',)) -> None:
        """`hexadecimal`: whether to search for hexadecimal numbers; `special`: what of quotes and escapes to search."""
        self._special = special
        self._quotes = self._nul = self._hexadecimal = False
        self._searches = hexadecimal
        self._last = b""

    def feed(self, data: bytearray, count: int) -> None:
        self._quotes = self._quotes or any(data.find(sign, 0, count) >= 0 for sign in self._special)
        self._nul = self._nul or data.find(b"\0", 0, count) >= 0
        if self._searches and not self._hexadecimal:
            split = self._last + data[:1] in (b"0x", b"0X")
            self._hexadecimal = split or may_hold_hexadecimal(data, count)
        self._last = bytes(data[count - 1 : count])

    def facts(self) -> Mapping[str, Any]:
        """Return `quotes`: True if the file contains a quote or escape character, so that line ends may be inside
        values; `nul`: a NUL byte; `hexadecimal`: `0x` or `0X` where a value may start, which the parser would read as a
        number (False if it was not searched for).
        """
        return {"quotes": self._quotes, "nul": self._nul, "hexadecimal": self._hexadecimal}


def may_hold_hexadecimal(data: bytes | bytearray, count: int) -> bool:
    """Return True if the first `count` bytes may contain a hexadecimal number; a tail number such as N930XJ does not
    count.

    One letter is found fifteen times as fast as `0x`, as long as it is rare. Every file is searched.
    """
    for letter in (b"x", b"X"):
        mark, left = letter, RARE_LETTERS_MAX
        at = data.find(mark, 0, count)
        while at >= 0:
            zero = at + len(mark) - 2
            if zero >= 0 and data[zero] == _ZERO and (zero == 0 or data[zero - 1] not in _DIGITS_AND_LETTERS):
                return True
            left -= 1
            mark = letter if left > 0 else b"0" + letter
            at = data.find(mark, zero + 2, count)
    return False
