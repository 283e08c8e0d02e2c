"""A spout for text files: each line is a tuple. Files are selected, settled and recorded as by FileSpout."""

from __future__ import annotations

import os
from typing import Literal

from txtopo.core.limits import BYTES_PER_BATCH, FILE_SETTLED_S, FILES_PER_BATCH, PART_BYTES, REJECTED_MAX
from txtopo.spouts.file_spout import FileSpout
from txtopo.spouts.formats.text import Text


class TextSpout(FileSpout):
    """Reads UTF-8 text files; each line is a tuple with one field, `line string`. Every file is read once, as soon as
    it no longer changes.

    >>> TextSpout("/var/log/apache/access.log-*").fields.names
    ('line',)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        files_per_batch: int = FILES_PER_BATCH,
        bytes_per_batch: int = BYTES_PER_BATCH,
        settled_s: float = FILE_SETTLED_S,
        part_bytes: int = PART_BYTES,
        on_bad_line: Literal["reject", "fail"] = "reject",
        rejected_max: float = REJECTED_MAX,
        may_be_empty: bool = False,
    ) -> None:
        """Arguments and errors are those of FileSpout. Lines end with LF or CRLF; an empty line is a tuple too. A line
        that is not valid UTF-8 or contains NUL is rejected.
        """
        super().__init__(
            path,
            "line string not null",
            format=Text(),
            files_per_batch=files_per_batch,
            bytes_per_batch=bytes_per_batch,
            settled_s=settled_s,
            part_bytes=part_bytes,
            on_bad_line=on_bad_line,
            rejected_max=rejected_max,
            may_be_empty=may_be_empty,
        )
