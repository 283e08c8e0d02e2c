"""A CSV file in an encoding with several bytes for a character, as its format sees it: its text in UTF-8, from the
first byte to the last.
"""

from __future__ import annotations

import codecs

from txtopo.spouts.fingerprint import CHUNK_BYTES
from txtopo.spouts.formats.csv.encodings import MARKING, UTF_8
from txtopo.spouts.formats.format import Opened
from txtopo.spouts.unpacked_file import UNKNOWN_BYTES


class RecodedFile(Opened):
    """The text of a file. Offsets are those in the text; it can be read again until it is forgotten."""

    reads_once = True

    def __init__(self, opened: Opened, encoding: str) -> None:
        super().__init__(opened.path, self._read, UNKNOWN_BYTES)
        self._stored = opened
        self._stored_done = 0
        self._decoder = codecs.getincrementaldecoder(encoding)(MARKING)
        self._text = bytearray()
        self._forgotten = 0
        self._is_whole = False

    def _read(self, offset: int, size: int) -> bytes:
        start = offset - self._forgotten
        while not self._is_whole and len(self._text) < start + size:
            data = self._stored.read(self._stored_done, CHUNK_BYTES)
            self._stored_done += len(data)
            self._is_whole = len(data) < CHUNK_BYTES
            self._text += self._decoder.decode(data, self._is_whole).encode(UTF_8, "surrogatepass")
            self._stored.forget(self._stored_done)
        return bytes(self._text[start : start + size])

    def forget(self, before: int) -> None:
        """Let go of the text before this offset."""
        if before > self._forgotten:
            del self._text[: before - self._forgotten]
            self._forgotten = before
