"""What an error of Postgres came to, in one word: tests that plant errors compare it with what the rules say."""

from __future__ import annotations

from collections.abc import Callable

from txtopo.core.values import Aborted, Failure, Unknown
from txtopo.errors import ConfigurationError, Halted, InvariantBroken, PostgresUnavailable


def meaning_of(call: Callable[[], object]) -> tuple[str, str]:
    """Return waits, unknown, halt, bug, data or done, and the words. Any other exception is no verdict, and fails the
    test.
    """
    try:
        outcome = call()
    except PostgresUnavailable as error:
        return ("waits" if error.definite else "unknown"), str(error)
    except (Halted, ConfigurationError) as error:
        return "halt", str(error)
    except InvariantBroken as error:
        return "bug", str(error)
    match outcome:
        case Aborted(failure=Failure() as failure) | (Failure() as failure):
            return ("waits" if failure.kind == "infrastructure" else failure.kind), failure.message
        case Unknown(message=message):
            return "unknown", message
        case _:
            return "done", repr(outcome)
