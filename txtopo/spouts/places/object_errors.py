"""What an error of an object store means: a number of the operating system, so that the same party is at fault for it
as for a file (`txtopo/core/os_errors.py`).

Of an answer only its status and its code are shown: the rest may hold the name of an access key.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_URL = re.compile(r"https?://\S+")
_WORDS_MAX = 200
_OF_THE_HOST = "http://169.254."
"""Where hosts of a cloud give credentials: the client asks there if it finds no others."""
_REFUSALS = frozenset({301, 307, 400, 401, 403})
"""Answers of a store that no later request would change: wrong region, credentials or rights."""


class ObjectChangedError(Exception):
    """The object of this name is another one than the request is for."""


@contextmanager
def told(url: str) -> Iterator[None]:
    """Raise an error of one request as OSError with a number and the URL; ObjectChangedError if its condition is not
    met.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        raise _as_os_error(error, url) from None
    except Exception as error:
        if not type(error).__module__.startswith("obstore"):
            raise
        if type(error).__name__ == "PreconditionError":
            raise ObjectChangedError(url) from None
        raise _as_os_error(error, url) from None


def _as_os_error(error: Exception, url: str) -> OSError:
    if isinstance(error, OSError) and isinstance(error.errno, int):
        return type(error)(error.errno, error.strerror, url)
    text, kind = str(error), type(error).__name__
    found, code = _STATUS.search(text), _CODE.search(text)
    status = int(found[1]) if found else None
    words = f"{status}{f' {code[1]}' if code else ''}" if status else _URL.sub("…", text.partition("\n")[0])
    words = words[:_WORDS_MAX]
    if _OF_THE_HOST in text:
        words = f"no credentials in the environment, and the host gives none (docs/remote.md): {words}"
        return OSError(errno.EIO, words, url)
    if code and code[1] == "NoSuchBucket":
        return PermissionError(errno.EACCES, "there is no such bucket", url)
    if kind in ("FileNotFoundError", "NotFoundError") or status == 404:
        return FileNotFoundError(errno.ENOENT, "there is no such object", url)
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or status in _REFUSALS:
        return PermissionError(errno.EACCES, f"the store refuses it: {words}", url)
    if kind == "InvalidPathError" or isinstance(error, ValueError):
        return OSError(errno.EINVAL, f"a name that cannot be read: {words}", url)
    return OSError(errno.EIO, f"the store cannot be reached, or fails: {words}", url)
