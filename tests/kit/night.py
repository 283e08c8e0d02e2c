"""Repeats the suite in random orders and prints what differed: `python -m tests.kit.night ROUNDS [SEED]`.

The orders follow from the seed, which is printed: the same seed repeats the same night, and each order alone is
repeated by the line printed beside it.
"""

from __future__ import annotations

import os
import random
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from tests.kit.random_order import VARIABLE

ROOT = Path(__file__).resolve().parents[2]
Outcomes = Mapping[str, str]
"""Test -> passed, failed, error or skipped."""


def main(arguments: Sequence[str]) -> int:
    """Run all rounds; returns 0 where every test passed in each, or was skipped in each."""
    rounds = int(arguments[0])
    seed = int(arguments[1]) if len(arguments) > 1 else secrets.randbelow(10**6)
    print(f"{rounds} rounds; the same orders again: make test-night ROUNDS={rounds} SEED={seed}", flush=True)
    results: dict[int, Outcomes] = {}
    for number, order in enumerate(orders(seed, rounds), 1):
        print(f"round {number} of {rounds}; the same order again: {VARIABLE}={order} make test", flush=True)
        results[order] = run(order)
    lines = differences(results)
    print("\n".join(lines) if lines else f"nothing differed, and nothing failed, in {rounds} rounds", flush=True)
    return 1 if lines else 0


def orders(seed: int, rounds: int) -> list[int]:
    """One seed for each round, all different."""
    return random.Random(seed).sample(range(10**6), rounds)


def run(order: int) -> Outcomes:
    """The whole suite once, in this order; what it prints is shown as it comes."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        workers = ("--numprocesses", "3", "--dist", "loadfile", "--no-loadscope-reorder")
        command = [sys.executable, "-m", "pytest", "--quiet", *workers, f"--junitxml={report}"]
        code = subprocess.run(command, cwd=ROOT, env={**os.environ, VARIABLE: str(order)}, check=False).returncode
        outcomes = dict(read_report(report.read_text(encoding="utf-8"))) if report.exists() else {}
    if code and not {"failed", "error"} & set(outcomes.values()):
        outcomes["the run as a whole"] = "failed"
    return outcomes


def read_report(xml: str) -> Outcomes:
    """The outcome of each test of a JUnit report."""
    words = {"failure": "failed", "error": "error", "skipped": "skipped"}
    outcomes: dict[str, str] = {}
    for case in ElementTree.fromstring(xml).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        found = [words[child.tag] for child in case if child.tag in words]
        outcomes[name] = max([*found, outcomes.get(name, "passed")], key=_WORST.index)
    return outcomes


_WORST = ["passed", "skipped", "failed", "error"]
"""A test may be told twice: of its call and of its end."""


def differences(results: Mapping[int, Outcomes]) -> list[str]:
    """One line for each test that failed, or did not end alike in every round, with the orders of each outcome."""
    lines = []
    for test in sorted({test for outcomes in results.values() for test in outcomes}):
        by_outcome: dict[str, list[int]] = {}
        for order, outcomes in results.items():
            by_outcome.setdefault(outcomes.get(test, "not run"), []).append(order)
        if set(by_outcome) not in ({"passed"}, {"skipped"}):
            told = "; ".join(f"{word} in {', '.join(map(str, found))}" for word, found in sorted(by_outcome.items()))
            lines.append(f"{test}: {told}")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
