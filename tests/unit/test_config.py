"""Settings come from flags, environment and files in a fixed order, and everything that is wrong is said at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from txtopo.config import Settings, load_settings
from txtopo.core import limits
from txtopo.core.connect_strings import zookeeper_address
from txtopo.errors import ConfigurationError


def load(
    cwd: Path,
    toml: str | None = None,
    *,
    flags: Mapping[str, object] | None = None,
    target: str | None = None,
    **environment: str,
) -> Settings:
    """Settings in a folder with that txtopo.toml."""
    if toml is not None:
        (cwd / "txtopo.toml").write_text(toml, "utf-8")
    return load_settings(flags or {}, cwd=cwd, environment=environment, target=target)


def refusal(cwd: Path, toml: str | None = None, **more: object) -> str:
    """The message of the ConfigurationError."""
    with pytest.raises(ConfigurationError) as caught:
        load(cwd, toml, **more)  # type: ignore[arg-type]
    return str(caught.value)


def test_without_any_source_the_limits_are_the_defaults(tmp_path: Path) -> None:
    """Promise: defaults come from core/limits.py."""
    settings = load(tmp_path)

    assert (settings.dsn, settings.zookeeper, settings.master, settings.conf, settings.once) == (
        None,
        None,
        None,
        {},
        False,
    )
    assert (settings.workers, settings.spout_pending_max, settings.attempts_max) == (
        limits.WORKERS,
        limits.SPOUT_PENDING_MAX,
        limits.ATTEMPTS_MAX,
    )
    assert (settings.wave_txids_max, settings.wave_bytes_max) == (limits.WAVE_TXIDS_MAX, limits.WAVE_BYTES_MAX)
    assert settings.run_txids_max == limits.RUN_TXIDS_MAX
    assert (settings.on_poison, settings.dead_letter_max, settings.ackers) == (
        "halt",
        limits.DEAD_LETTER_MAX,
        limits.ACKERS,
    )
    assert settings.source("workers") == "default"


def test_the_strongest_source_wins(tmp_path: Path) -> None:
    """Promise: flag, then TXTOPO_*, then the target, then [default], then pyproject.toml, then the default."""
    (tmp_path / "pyproject.toml").write_text(
        "[tool.txtopo]\nworkers = 2\nattempts_max = 2\nspout_poll_s = 2\npostgres_away_max_s = 2\nspout_pending_max = 2"
    )
    toml = (
        "[default]\nworkers = 3\nattempts_max = 3\nspout_poll_s = 3\npostgres_away_max_s = "
        "3\n[target.prod]\nworkers = 4\nattempts_max = 4\nspout_poll_s = 4"
    )

    settings = load(tmp_path, toml, target="prod", flags={"workers": 6}, TXTOPO_WORKERS="5", TXTOPO_ATTEMPTS_MAX="5")

    assert settings.workers == 6
    assert settings.attempts_max == 5
    assert settings.spout_poll_s == 4
    assert settings.postgres_away_max_s == 3
    assert settings.spout_pending_max == 2
    assert settings.message_timeout_s == limits.MESSAGE_TIMEOUT_S


def test_every_value_remembers_its_source(tmp_path: Path) -> None:
    """Promise: each value's source is remembered."""
    (tmp_path / "pyproject.toml").write_text("[tool.txtopo]\nattempts_max = 2")
    toml = "[default]\nmaster = 'local[2,4]'\n[target.prod]\nspout_poll_s = 4"

    settings = load(tmp_path, toml, flags={"zookeeper": "zk:1/a"}, TXTOPO_DSN="postgresql://h/d", TXTOPO_TARGET="prod")

    assert settings.sources == {
        "zookeeper": "flag --zk",
        "dsn": "environment TXTOPO_DSN",
        "spout_poll_s": f"{tmp_path}/txtopo.toml [target.prod]",
        "master": f"{tmp_path}/txtopo.toml [default]",
        "attempts_max": f"{tmp_path}/pyproject.toml [tool.txtopo]",
    }


def test_the_file_is_searched_upwards(tmp_path: Path) -> None:
    """Promise: txtopo.toml is searched upward from the working folder; the nearest is read."""
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "txtopo.toml").write_text("[default]\nworkers = 9")

    assert load(below).workers == 9
    assert load(below, "[default]\nworkers = 8").workers == 8


def test_a_pyproject_of_somebody_else_is_passed_by(tmp_path: Path) -> None:
    """Promise: only a pyproject.toml with [tool.txtopo] counts, also when it lies further up."""
    below = tmp_path / "a"
    below.mkdir()
    (below / "pyproject.toml").write_text("[project]\nname = 'x'")
    (tmp_path / "pyproject.toml").write_text("[tool.txtopo]\nworkers = 7")

    assert load(below).workers == 7


def test_a_named_file_is_read_instead(tmp_path: Path) -> None:
    """Promise: -c and TXTOPO_CONFIG name the file; a missing one is an error."""
    (tmp_path / "other.toml").write_text("[default]\nworkers = 9")

    assert load(tmp_path, "[default]\nworkers = 8", flags={"config": "other.toml"}).workers == 9
    assert load(tmp_path, TXTOPO_CONFIG="other.toml").workers == 9
    assert "missing.toml cannot be read" in refusal(tmp_path, flags={"config": "missing.toml"})


@pytest.mark.parametrize(
    "line", ["topology.max.spout.pending = 12", '"topology.max.spout.pending" = 12', "spout_pending_max = 12"]
)
def test_storms_names_are_accepted(tmp_path: Path, line: str) -> None:
    """Promise: Storm's names work as keys, quoted or not."""
    assert load(tmp_path, f"[default]\n{line}\ntopology.message.timeout.secs = 30").spout_pending_max == 12
    assert load(tmp_path).message_timeout_s == 30


@pytest.mark.parametrize(
    ("storm", "value", "name"),
    [
        ("topology.max.spout.pending", 7, "spout_pending_max"),
        ("topology.message.timeout.secs", 30.0, "message_timeout_s"),
        ("topology.acker.executors", 0, "ackers"),
    ],
)
def test_storms_names_are_accepted_in_a_file_and_in_a_topology(
    tmp_path: Path, storm: str, value: float, name: str
) -> None:
    """Promise: the reliability settings have Storm's names."""
    filed = load(tmp_path, f"[default]\n{storm} = {value}")
    own = Settings().with_topology({storm: value})

    assert getattr(filed, name) == getattr(own, name) == value
    assert filed.source(name) == f"{tmp_path}/txtopo.toml [default]"
    assert own.source(name) == "the topology's own config"


def test_waves_can_be_switched_off(tmp_path: Path) -> None:
    """Promise: `wave_bytes_max = 0` switches waves off."""
    assert load(tmp_path, "[default]\nwave_bytes_max = 0").wave_bytes_max == 0


def test_rows_that_fail_can_be_left_out(tmp_path: Path) -> None:
    """Promise: `on_poison = "dead_letter_rows"`, at most `dead_letter_max` a batch."""
    settings = load(tmp_path, TXTOPO_ON_POISON="dead_letter_rows", TXTOPO_DEAD_LETTER_MAX="5")

    assert (settings.on_poison, settings.dead_letter_max) == ("dead_letter_rows", 5)


def test_a_topologys_own_config_is_stronger_than_defaults_only(tmp_path: Path) -> None:
    """Promise: who runs a topology has the last word, in a file as well."""
    config = {"workers": 2, "attempts_max": 2, "topology.max.spout.pending": 2, "ackers": 2}

    settings = load(
        tmp_path, "[default]\nattempts_max = 3", flags={"workers": 4}, TXTOPO_SPOUT_PENDING_MAX="5"
    ).with_topology(config)

    assert (settings.workers, settings.attempts_max, settings.spout_pending_max, settings.ackers) == (4, 3, 5, 2)
    assert settings.source("attempts_max").endswith("[default]")


def test_a_topologys_config_holds_more_than_settings() -> None:
    """Components have settings of their own in it, whose names may be those of what a run says; None is Storm's "not
    given".
    """
    config = {
        "limit": 3,
        "source_dsn": "postgresql://elsewhere/d",
        "verbose": 2,
        "debug": True,
        "worker": 1,
        "batch_max": 4,
        "conf": {},
        "dsn": None,
        "topology.tick.tuple.freq.secs": 5,
        "topology.max.spout.pending": None,
    }

    assert Settings().with_topology(config) == Settings()


def test_a_slip_in_one_of_storms_names_is_not_passed_over() -> None:
    """The default would be in force, and nobody would know."""
    with pytest.raises(ConfigurationError) as caught:
        Settings().with_topology({"topology.message.timeout.sec": 5, "topology.enable.message.timeouts": True})

    said = str(caught.value)
    assert "unknown key topology.message.timeout.sec: did you mean topology.message.timeout.secs?" in said
    assert "enable" not in said, "one that txtopo does not have is a component's own"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *(
            (name, "did you mean on_poison?")
            for name in ("on-poison", "onpoison", "onPoison", "on.poison", "on_poisn", "txtopo.on_poison")
        ),
        ("attempt_max", "did you mean attempts_max?"),
        ("Workers", "did you mean workers?"),
        ("message-timeout-s", "did you mean message_timeout_s?"),
        ("dsn", "is no setting of a topology: give it by --dsn, TXTOPO_DSN or txtopo.toml"),
        ("postgres_dsn", "give it by --dsn"),
        ("zk", "give it by --zk"),
        ("master", "give it by --master"),
        ("once", "give it by --once"),
    ],
)
def test_a_slip_in_one_of_txtopos_names_is_refused_in_a_topologys_config(name: str, words: str) -> None:
    """With `on-poison` a topology halted where it was to go on, and nobody was told."""
    with pytest.raises(ConfigurationError) as caught:
        Settings().with_topology({name: "quarantine_batch"})

    assert f"the topology's own config: unknown key {name}: {words}" in str(caught.value) or (
        f"{name} is no setting of a topology" in str(caught.value) and words in str(caught.value)
    )


def test_everything_wrong_in_a_topologys_config_is_said_at_once() -> None:
    """Promise: never guess which of two was meant; an error names the source, also where a flag would be stronger."""
    config = {"topology.max.spout.pending": 2, "spout_pending_max": 2, "workers": "many", "attempts_max": 0}

    with pytest.raises(ConfigurationError) as caught:
        Settings(workers=3, sources={"workers": "flag --workers"}).with_topology(config)

    said = str(caught.value)
    assert "the topology's own config: spout_pending_max is given twice, under two names" in said
    assert "the topology's own config: workers must be a number" in said
    assert "the topology's own config: attempts_max must be from 1" in said


def test_one_setting_under_two_names_is_refused(tmp_path: Path) -> None:
    """Promise: never guess which of two was meant."""
    assert "spout_pending_max is given twice" in refusal(
        tmp_path, "[default]\nspout_pending_max = 1\ntopology.max.spout.pending = 2"
    )


def test_all_unknown_keys_are_listed_at_once_with_suggestions(tmp_path: Path) -> None:
    """Promise: every unknown key of the file is listed at once with a did-you-mean, also in targets that are not
    chosen.
    """
    said = refusal(
        tmp_path,
        "zookeper = 'zk'\n[default]\nworker = 2\nqqqqqq = 1\n[target.prod]\ntopology.max.spout.pendin = "
        "3\n[defualt]\nworkers = 1",
    )

    assert "unknown key worker: did you mean workers?" in said
    assert "[default]: unknown key qqqqqq" in said
    assert "unknown key topology.max.spout.pendin: did you mean topology.max.spout.pending?" in said
    assert "unknown table [defualt]: did you mean default?" in said
    assert "zookeper" in said


def test_a_table_of_another_name_is_told_which_there_are(tmp_path: Path) -> None:
    """`[semi]` for the topology of that name is what people try first."""
    said = refusal(tmp_path, "[semi]\non_poison = 'quarantine_batch'")

    assert "unknown table [semi]; there are [default] and [target.NAME], which --target NAME chooses" in said
    assert "one topology's own settings stand in its builder, config={…}" in said


def test_a_setting_outside_a_table_is_told_where_it_belongs(tmp_path: Path) -> None:
    """Promise: an error says what to do."""
    assert "workers is outside of every table: put it below [default]" in refusal(tmp_path, "workers = 2")


def test_an_unknown_flag_of_a_call_is_refused(tmp_path: Path) -> None:
    """Promise: topology.run(worker=3) does not run with another number."""
    assert "unknown key worker: did you mean workers?" in refusal(tmp_path, flags={"worker": 3})


def test_an_unknown_target_lists_the_targets(tmp_path: Path) -> None:
    """Promise: -t without such a table is an error, not the default."""
    assert "no [target.prd]: did you mean prod?" in refusal(tmp_path, "[target.prod]\nworkers = 2", target="prd")


def test_a_target_without_a_file_is_refused(tmp_path: Path) -> None:
    """Promise: nobody runs against the default while believing in a target."""
    assert "target 'prod' needs a txtopo.toml" in refusal(tmp_path, target="prod")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("workers", '"many"'),
        ("workers", "0"),
        ("workers", "65"),
        ("workers", "true"),
        ("workers", "1.5"),
        ("workers", "nan"),
        ("workers", "inf"),
        ("attempts_max", "-1"),
        ("spout_poll_s", '"fast"'),
        ("spout_poll_s", "0"),
        ("spout_poll_s", "nan"),
        ("message_timeout_s", '"3 weeks"'),
        ("results_bytes_max", '"1TB"'),
        ("results_bytes_max", "1"),
        ("once", '"perhaps"'),
        ("dsn", '""'),
        ("dsn", "7"),
        ("py_files", '"a.py"'),
        ("py_files", "[1]"),
        ("zookeeper", '"zk:99999999"'),
        ("zookeeper", '"zk:70000"'),
        ("zookeeper", '"zk:0"'),
        ("zookeeper", '"zk/a//b"'),
        ("zookeeper", '"zk/../x"'),
        ("zookeeper", '"a b"'),
        ("zookeeper", '"zk,"'),
        ("wave_txids_max", "0"),
        ("wave_bytes_max", "-1"),
        ("run_txids_max", "0"),
        ("run_txids_max", "65"),
        ("dead_letter_max", "0"),
        ("ackers", "-1"),
        ("on_poison", '"dead_letters"'),
        ("conf", '"spark.x=1"'),
        ("conf", '{"hadoop.x" = "1"}'),
        ("conf", '{"spark.x" = [1]}'),
        ("log_folder", "7"),
        ("verbose", "9"),
    ],
)
def test_wrong_types_and_ranges_name_their_source(tmp_path: Path, key: str, value: str) -> None:
    """Promise: wrong types and ranges are ConfigurationErrors naming the source."""
    assert f"{tmp_path}/txtopo.toml [default]: {key} " in refusal(tmp_path, f"[default]\n{key} = {value}")


def test_a_wrong_variable_names_the_variable(tmp_path: Path) -> None:
    """Promise: the source is named, whichever it is, and all that is wrong is listed at once."""
    said = refusal(tmp_path, TXTOPO_WORKERS="x", TXTOPO_ONCE="y", flags={"attempts_max": "z"})

    assert "environment TXTOPO_WORKERS: workers must be a number such as 4, not 'x'" in said
    assert "environment TXTOPO_ONCE: once must be true or false" in said
    assert "flag --attempts-max: attempts_max" in said


@pytest.mark.parametrize(("text", "seconds"), [("30", 30), ("5m", 300), ("1.5s", 1.5), ("1500ms", 1.5), ("2 h", 7200)])
def test_times_may_have_a_unit(tmp_path: Path, text: str, seconds: float) -> None:
    """Promise: times accept 15m, 2h."""
    assert load(tmp_path, TXTOPO_MESSAGE_TIMEOUT_S=text).message_timeout_s == seconds


def test_sizes_may_have_a_binary_unit(tmp_path: Path) -> None:
    """Promise: byte sizes are binary."""
    settings = load(tmp_path, '[default]\nresults_bytes_max = "512 MiB"')

    assert settings.results_bytes_max == 512 * 1024**2
    assert isinstance(settings.results_bytes_max, int)


def test_numbers_from_text_are_whole_numbers(tmp_path: Path) -> None:
    """Promise: the type of a setting does not depend on where it came from."""
    assert isinstance(load(tmp_path, TXTOPO_WORKERS="5").workers, int)
    assert isinstance(load(tmp_path, flags={"spout_poll_s": 5}).spout_poll_s, float)


def test_an_empty_variable_is_not_given(tmp_path: Path) -> None:
    """Promise: `TXTOPO_DSN= txtopo …` means no DSN."""
    assert load(tmp_path, TXTOPO_DSN="", TXTOPO_WORKERS="").sources == {}


def test_settings_of_spark_are_merged_one_by_one(tmp_path: Path) -> None:
    """Promise: a flag changes one setting of Spark and keeps the others of the file."""
    toml = '[default.conf]\nspark.executor.memory = "1g"\nspark.ui.enabled = false\n"spark.sql.shuffle.partitions" = 4'

    settings = load(tmp_path, toml, flags={"conf": ("spark.executor.memory=2g", "spark.x=a=b")})

    assert settings.conf == {
        "spark.executor.memory": "2g",
        "spark.x": "a=b",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
    }
    assert settings.sources["conf.spark.executor.memory"] == "flag --conf"
    assert settings.sources["conf.spark.ui.enabled"].endswith("[default]")


def test_settings_of_spark_in_a_variable(tmp_path: Path) -> None:
    """Promise: every option has a variable."""
    assert load(tmp_path, TXTOPO_CONF="spark.a=1 'spark.b=x y'").conf == {"spark.a": "1", "spark.b": "x y"}


def test_paths_of_a_file_start_where_the_file_lies(tmp_path: Path) -> None:
    """Promise: the same file means the same, whichever folder below it the command is typed in."""
    below = tmp_path / "below"
    below.mkdir()
    (tmp_path / "txtopo.toml").write_text('[default]\nlog_folder = "logs"\npy_files = ["helpers.py"]')

    settings = load(below)

    assert settings.log_folder == tmp_path / "logs"
    assert settings.py_files == (str(tmp_path / "helpers.py"),)


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("zk", "zk:2181/txtopo"),
        ("zk1:1,zk2:2/a/b", "zk1:1,zk2:2/a/b"),
        ("zk1, zk2", "zk1:2181,zk2:2181/txtopo"),
        ("[::1]:2181/x/", "[::1]:2181/x"),
    ],
)
def test_an_address_is_completed(given: str, full: str) -> None:
    """Promise: hosts with chroot, so that topologies never lie in somebody else's root."""
    assert zookeeper_address(given) == full
    assert zookeeper_address(full) == full


@pytest.mark.parametrize("text", ["[default", "[default]\nworkers = ", "default = 3", "[target]\nprod = 3"])
def test_an_unreadable_file_is_named(tmp_path: Path, text: str) -> None:
    """Promise: an error names the file."""
    assert str(tmp_path / "txtopo.toml") in refusal(tmp_path, text)


def test_the_connection_string_of_tasks_has_no_secret() -> None:
    """Spark shows it in its plans: the password is in a file of the hosts where tasks run."""
    from txtopo.committers.postgres.staging_settings import staging_place

    place = staging_place(Settings(staging_dsn="service=stager", result_rows_max=7, staging_connections=2))

    assert place is not None and (place.dsn, place.rows_max, place.connections) == ("service=stager", 7, 2)
    assert staging_place(Settings()) is None
    for dsn in ("postgresql://ann:kanari@db/sales", "host=db sslpassword=kanari", "host=db password=kanari"):
        with pytest.raises(ConfigurationError, match="which Spark would show") as refused:
            staging_place(Settings(staging_dsn=dsn))
        assert "kanari" not in str(refused.value)
    with pytest.raises(ConfigurationError, match="is not a connection string") as refused:
        staging_place(Settings(staging_dsn="password kanari"))
    assert "kanari" not in str(refused.value)
