"""Files that grow, shrink or are replaced while they are planned and read: with real commands, on real stores."""

from __future__ import annotations

import hashlib
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.drivers import World, wait_until
from tests.kit.orders import recount
from tests.kit.site import Site

pytestmark = pytest.mark.attack


@pytest.fixture
def site(world: World) -> Site:
    return Site(world)


def grow(path: Path) -> None:
    with path.open("a") as out:
        out.write("9001,shop 7,a7,1,1.00\n")


def truncate(path: Path) -> None:
    os.truncate(path, path.read_bytes().rindex(b"\n", 0, -1) + 1)


def replace(path: Path) -> None:
    new = path.with_name("_new")
    new.write_text(path.read_text() + "9001,shop 7,a7,1,1.00\n")
    new.replace(path)


@pytest.mark.parametrize("change", [grow, truncate, replace])
@pytest.mark.parametrize("moment", ["metadata_written", "attempt_begun"])
def test_a_file_that_changes_between_plan_and_reading_is_refused_and_counts_once_planned_anew(
    site: Site, change: Callable[[Path], None], moment: str
) -> None:
    """Exit code 1 with both fingerprints and nothing of the file counted; `replan` takes it as it is now."""
    driver = site.start("run", site.application, "--once", TXTOPO_FAILPOINTS=f"{moment}=stop@1")
    wait_until(lambda: driver.is_stopped, "the pause")
    path = site.world.folder / "order_0001.csv"
    change(path)
    driver.wake()

    assert driver.wait() == 1, driver.output()
    assert "the source changed after it was planned: planned" in driver.output() and str(path) in driver.output()
    assert site.states() == []
    site.run("replan", "orders", "--reason", "the file was not finished", code=0)
    site.drive()
    assert site.is_whole()


@pytest.mark.parametrize("settled_s", ["0.05", "0.3"])
def test_logs_that_grow_in_bursts_all_the_time_are_counted_whole_or_told(site: Site, settled_s: str) -> None:
    """Writers that pause for longer than a file takes to settle: what is not counted in the end was refused, left or
    told, by name.
    """
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance, done = random.Random(seed), threading.Event()
    Path(site.application.partition(":")[0]).write_text(
        "from pathlib import Path\nfrom tests.kit.applications import orders_topology\n"
        f"topology = orders_topology(Path({str(site.world.folder)!r}), settled_s={settled_s})\n"
    )
    paths = sorted(site.world.folder.glob("*.csv"))

    def write() -> None:
        while not done.wait(chance.uniform(0.0, 0.2)):
            chance.choice([grow, grow, grow, truncate, replace])(chance.choice(paths))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        runs = []
        for _ in range(5):
            driver = site.start("run", site.application, "--once")
            runs.append((driver.wait(), driver.output()))
            if runs[-1][0] == 1:
                site.start("replan", "orders", "--reason", "it grew").wait()
    finally:
        done.set()
        writer.join()

    for _ in range(3):
        driver = site.start("run", site.application, "--once")
        runs.append((driver.wait(), driver.output()))
        if runs[-1][0] == 0:
            break
        site.start("replan", "orders", "--reason", "it grew").wait()
    assert runs[-1][0] == 0, runs
    assert {code for code, _ in runs} <= {0, 1}, runs
    for path in paths:
        (counted,) = site.world.query(
            f"select encode(fingerprint, 'hex') from txtopo.source_file where path = '{path}' order by txid desc "
            f"limit 1"
        )[0:1] or [("",)]
        if hashlib.sha256(path.read_bytes()).hexdigest() != counted[0]:
            assert f"{str(path)!r} was read before and" in runs[-1][1], (path, runs[-1])
    if "was read before" not in runs[-1][1]:
        assert site.world.totals() == recount(site.world.folder)
