"""Ends or pauses this process at named crash points, for tests. `TXTOPO_FAILPOINTS="committed=exit@3"` acts when the
point is reached for the third time.

Has an effect only with `TXTOPO_TESTING=1`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from txtopo.core.crash_points import CrashPoint, listen


def arm_from_environment(environment: Mapping[str, str] = os.environ) -> bool:
    """Arm the points named in `TXTOPO_FAILPOINTS` (`point=action@n;…`, action `exit` or `stop`). Returns False if there
    are none or testing is off. Raises ValueError for an unknown point or action.
    """
    text = environment.get("TXTOPO_FAILPOINTS", "")
    if not text or environment.get("TXTOPO_TESTING") != "1":
        return False
    armed = [_parse(part) for part in text.split(";") if part]
    counts = dict.fromkeys((point for point, _, _ in armed), 0)

    def act(point: CrashPoint, txid: int | None) -> None:
        if point not in counts:
            return
        counts[point] += 1
        for armed_point, action, at in armed:
            if armed_point is point and counts[point] == at:
                os.kill(os.getpid(), signal.SIGKILL if action == "exit" else signal.SIGSTOP)

    listen(act)
    return True


def _parse(part: str) -> tuple[CrashPoint, str, int]:
    name, _, rest = part.partition("=")
    action, _, at = rest.partition("@")
    if action not in ("exit", "stop"):
        raise ValueError(f"failpoint action {action!r} is not exit or stop")
    return CrashPoint(name.strip()), action, int(at or "1")
