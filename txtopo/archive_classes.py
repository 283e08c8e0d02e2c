"""`python -m txtopo.archive_classes` writes the archive of Spark's classes, for an image for example; a run that ended
starts it in the background.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from txtopo.local.java import java_environment
from txtopo.spark.session.class_archive import ASIDE, write


def main(arguments: Sequence[str]) -> int:
    """Write the archive, at the lowest priority if an argument is ASIDE. Returns the exit code, 1 with the reason on
    stderr if there is none.
    """
    if ASIDE in arguments:
        os.nice(19)
        with contextlib.suppress(OSError):  # Where memory runs out, this process ends first, and no driver.
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    os.environ.update(java_environment())
    reason = write()
    if reason is not None:
        print(f"no archive of classes: {reason}", file=sys.stderr)
    return 0 if reason is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
