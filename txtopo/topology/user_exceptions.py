"""What the user's code raises: told apart from what ends the process, and put into words."""

from __future__ import annotations

import threading


def said(error: BaseException) -> str:
    """Its words, where it has some: a `__str__` that raises has none. Of a group the first of its errors too."""
    try:
        words = str(error)
    except Exception:
        return ""
    if isinstance(error, BaseExceptionGroup):
        first = error.exceptions[0]
        words = f"{words}: {type(first).__name__}: {said(first)}".rstrip(": ")
    return words


def is_of_code(error: BaseException) -> bool:
    """True if the user's code, or a library that it calls, raised it. Ctrl-C and SIGTERM, which come to the main
    thread, are nobody's code.

    `sys.exit()` is: taken for an order to end the process it would end a run with exit code 0.
    """
    if isinstance(error, KeyboardInterrupt):
        return threading.current_thread() is not threading.main_thread()
    own = type(error).__module__.partition(".")[0] == __name__.partition(".")[0]
    return isinstance(error, Exception) or not own
