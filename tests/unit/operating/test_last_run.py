"""Orders that are carried out without a leader go on as the last run was set by hand."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit.applications import orders_topology
from txtopo.app import Driver
from txtopo.config import Settings, load_settings
from txtopo.driver.application_names import in_its_folder, own_script
from txtopo.driver.console import Reporter
from txtopo.driver.signals import StopSignals
from txtopo.operating.last_run import LAST_RUN, given_by_hand, with_last_run
from txtopo.reports.model import how_to_run


def settings_of(folder: Path, **flags: Any) -> Settings:
    """Settings with a file that says something of its own."""
    (folder / "txtopo.toml").write_text(
        "[default]\nattempts_max = 9\non_poison = 'quarantine_batch'\nmaster = 'local[1]'"
    )
    return load_settings(flags, cwd=folder, environment={"TXTOPO_WORKERS": "2"})


def test_what_was_given_by_hand_is_kept_and_nothing_else(tmp_path: Path) -> None:
    """Files are read again anyway; addresses, secrets and what is printed are never kept."""
    given = settings_of(
        tmp_path, on_poison="dead_letter_rows", dsn="postgresql://a:hush@b/c", quiet=True, conf=["spark.a=b"]
    )

    assert given_by_hand(given) == {"on_poison": "dead_letter_rows", "workers": 2}


def test_the_last_run_is_stronger_than_files_and_weaker_than_this_command(tmp_path: Path) -> None:
    """A flag of this command wins; a file that says otherwise than the last run's flag does not."""
    stored = {"on_poison": "dead_letter_rows", "attempts_max": 5, "dsn": "postgresql://x/y", "of another release": 1}

    plain, flagged = (
        with_last_run(settings_of(tmp_path), stored),
        with_last_run(settings_of(tmp_path, on_poison="halt"), stored),
    )

    assert (plain.on_poison, plain.attempts_max, plain.dsn) == ("dead_letter_rows", 5, None)
    assert (plain.source("on_poison"), flagged.on_poison, flagged.attempts_max) == (LAST_RUN, "halt", 5)
    assert plain.with_topology({"on_poison": "halt"}).on_poison == "dead_letter_rows"
    assert given_by_hand(plain) == {
        "attempts_max": 5,
        "on_poison": "dead_letter_rows",
        "workers": 2,
    }  # and so for the order after it
    assert with_last_run(settings_of(tmp_path), {"on_poison": "nonsense"}).on_poison == "quarantine_batch"


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_run_for_an_order_takes_no_lead_once_the_order_is_answered(tmp_path: Path, is_wanted: bool) -> None:
    """Two terminals: the second waits as standby, and would use up attempts of other batches for an order that is
    carried out.
    """
    with StopSignals() as signals:
        driver = Driver(
            orders_topology(tmp_path),
            "a.py:t",
            Settings(),
            b"c",
            Reporter("orders", quiet=True),
            signals,
            cut=False,
            is_wanted=lambda: is_wanted,
        )

        ledger: Any = None
        assert driver._wait_for_turn(lambda _: True, lambda: None, ledger) is is_wanted
        if not is_wanted:
            assert driver._wait_for_turn(lambda _: False, lambda: "another driver", ledger) is False


def test_a_standby_has_no_connection_to_postgres_while_it_waits(tmp_path: Path) -> None:
    """It takes the lead with a new one: an old one may have died, or lead to a server that is a standby by then."""
    turns = iter([False, False, True])
    closed: list[bool] = []

    class Ledger:
        def disconnect(self) -> None:
            closed.append(True)

    with StopSignals() as signals:
        driver = Driver(orders_topology(tmp_path), "a.py:t", Settings(), b"c", Reporter("orders", quiet=True), signals)
        ledger: Any = Ledger()

        assert driver._wait_for_turn(lambda _: next(turns), lambda: "another driver", ledger) is True
    assert closed == [True]


def test_a_script_is_proposed_with_its_folder_and_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: `next` can be run as it stands; a password among the arguments is hidden."""
    folder = tmp_path / "two words"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["all/run.py", "birds", "semi colon", "postgresql://me:hush@h/d"])

    assert (
        how_to_run(own_script("birds"))
        == f"cd '{folder}' && python all/run.py birds 'semi colon' 'postgresql://me:***@h/d'"
    )
    assert own_script("birds").startswith("python ")
    assert how_to_run("python run.py") == "python run.py"  # as earlier releases kept it


def test_a_notebook_user_is_told_what_to_do_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """No command of a shell repeats a run of a notebook; a database of release 0.1.0 has other words for it."""
    monkeypatch.setattr(builtins, "get_ipython", object, raising=False)
    again = "call txtopo.run(…) again in the notebook or session that has birds"

    assert how_to_run(own_script("birds")) == again
    assert own_script("birds").startswith("python ")  # nothing that a command could start by itself
    assert how_to_run("python  # run it again in the notebook or session that has birds") == again


def test_a_file_is_proposed_with_the_folder_that_it_was_named_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: `next` can be run as it stands, wherever it is read, and whatever the file is called."""
    folder = tmp_path / "two words"
    folder.mkdir()
    monkeypatch.chdir(folder)
    kept = in_its_folder("my app.py:topology")

    assert how_to_run(kept) == "txtopo run 'my app.py:topology'"
    monkeypatch.chdir(tmp_path)
    assert how_to_run(kept) == f"cd '{folder}' && txtopo run 'my app.py:topology'"
    assert in_its_folder("/srv/app.py:topology") == "/srv/app.py:topology"
    assert in_its_folder("package.module:topology") == "package.module:topology"
    assert how_to_run(None) == "txtopo run APP"
