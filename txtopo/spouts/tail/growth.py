"""How long a growing file has had its size: bytes that are young may still change, and a file that is quiet ends."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Growth:
    """The sizes that one file was seen with. Times are of a clock that never goes back, in seconds."""

    size: int
    since_s: float
    """When it had this size at the latest."""
    settled: int = 0
    """Number of bytes that are old enough."""
    is_renamed: bool = False
    """True if it has a name now by which nobody looks for it."""
    _sample: int = 0
    _sample_s: float = 0.0

    def __post_init__(self) -> None:
        self._sample, self._sample_s = self.size, self.since_s

    def look(self, size: int, since_s: float, now_s: float, settled_s: float) -> None:
        """Note the size that it has now, and has had since `since_s`."""
        if size < self.size:
            self.settled, self._sample, self._sample_s = 0, size, since_s
        if size != self.size:
            self.size, self.since_s = size, since_s
        if now_s - self._sample_s >= settled_s:
            self.settled = max(self.settled, self._sample)
            self._sample, self._sample_s = size, now_s
        if now_s - self.since_s >= settled_s:
            self.settled = size

    def wait_s(self, now_s: float, settled_s: float) -> float:
        """Return after how many seconds more of it will have settled."""
        return max(0.0, min(self._sample_s, self.since_s) + settled_s - now_s)
