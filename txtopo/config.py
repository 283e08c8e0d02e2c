"""Settings: flags, environment, TOML files and defaults, combined into one frozen value with the source of each."""

from __future__ import annotations

import difflib
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol, get_args

from txtopo.core import limits, setting_values
from txtopo.core.attribute_docs import attribute_docs
from txtopo.core.connect_strings import masked, zookeeper_address
from txtopo.core.slips import slip_in
from txtopo.core.state import PoisonPolicy
from txtopo.core.storm_settings import is_storms, why_nothing
from txtopo.errors import ConfigurationError

CONFIG_FILE = "txtopo.toml"
"""Looked for in the working folder, then in the folders above it."""
LOCAL_SERVICES = "local services"
"""Source of the values that `with_services` adds."""
TOPOLOGY_CONFIG = "the topology's own config"
"""Source of the values that `with_topology` adds."""
DEV_SESSION_S = 4.0
"""ZooKeeper session timeout on local services: short, so that a restarted driver soon gets the lead."""


@dataclass(frozen=True, slots=True)
class _Key:
    """How a setting is written: type, bounds, other names, environment variable."""

    kind: str
    """text, address, choice, number, seconds, bytes, flag, folder, names or pairs."""
    low: float | None = None
    high: float | None = None
    also: tuple[str, ...] = ()
    """Other accepted names in files, Storm's among them."""
    variable: str | None = None
    """Environment variable, if it is not `TXTOPO_` and the name."""
    option: str | None = None
    """Flag of the command line, if it is not the name."""
    choices: tuple[str, ...] = ()
    """The possible values of a choice."""


def _key(kind: str, low: float | None = None, high: float | None = None, **names: Any) -> dict[str, _Key]:
    return {"key": _Key(kind, low, high, **names)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a run or a command. `load_settings` makes it; `sources` has the source of each value."""

    dsn: str | None = field(default=None, metadata=_key("text"))
    """Postgres, `postgresql://user@host/database`. A password in it is never printed."""
    zookeeper: str | None = field(
        default=None, metadata=_key("address", also=("zk",), variable="TXTOPO_ZK", option="zk")
    )
    """ZooKeeper, `host:2181,host2:2181/chroot`."""
    master: str | None = field(default=None, metadata=_key("text"))
    """Spark master; if not given: this machine, with as many threads as it has cores."""
    conf: Mapping[str, str] = field(default_factory=dict, metadata=_key("pairs"))
    """Settings of Spark, NAME=VALUE."""
    py_files: tuple[str, ...] = field(default=(), metadata=_key("names"))
    """Modules, zips and wheels that the tasks need in addition to the topology's module."""
    once: bool = field(default=False, metadata=_key("flag"))
    """End when the input that exists now is committed."""
    workers: int = field(default=limits.WORKERS, metadata=_key("number", 1, 64))
    """Waves that are processed concurrently."""
    wave_txids_max: int = field(default=limits.WAVE_TXIDS_MAX, metadata=_key("number", 1, 1_024))
    """Batches that one Spark job may process together; 1: one job for each batch."""
    wave_bytes_max: int = field(default=limits.WAVE_BYTES_MAX, metadata=_key("bytes", 0, 64 * 1024**3))
    """Bytes of input that the batches of one Spark job may have together; 0 switches waves off."""
    run_txids_max: int = field(default=limits.RUN_TXIDS_MAX, metadata=_key("number", 1, limits.RUN_TXIDS_MAX))
    """Batches that are committed in one database transaction, if they are ready at the same moment; 1: each alone."""
    spout_pending_max: int = field(
        default=limits.SPOUT_PENDING_MAX, metadata=_key("number", 1, 10_000, also=("topology.max.spout.pending",))
    )
    """Maximum number of txids that are planned and not yet committed."""
    attempts_max: int = field(default=limits.ATTEMPTS_MAX, metadata=_key("number", 1, 1_000))
    """Data failures of a batch before `on_poison` decides."""
    on_poison: PoisonPolicy = field(default="halt", metadata=_key("choice", choices=get_args(PoisonPolicy)))
    """What happens to a batch that keeps failing: the topology halts, the batch is quarantined and later batches
    continue, or only its failing rows are skipped.
    """
    quarantined_in_row_max: int = field(
        default=limits.QUARANTINED_IN_ROW_MAX,
        metadata=_key("number", 1, 10_000, also=("topology.quarantined.in.row.max",)),
    )
    """The topology halts when this many batches in a row would be quarantined for one cause; 1: batches are quarantined
    only by an order.
    """
    dead_letter_max: int = field(default=limits.DEAD_LETTER_MAX, metadata=_key("number", 1, 10_000))
    """Rows of a batch that may go to `dead_letter` before its attempt fails; counts with `on_poison =
    "dead_letter_rows"`.
    """
    ackers: int = field(default=limits.ACKERS, metadata=_key("number", 0, 1_024, also=("topology.acker.executors",)))
    """Acker tasks where every tuple is tracked; 0 switches that off."""
    message_timeout_s: float = field(
        default=limits.MESSAGE_TIMEOUT_S,
        metadata=_key("seconds", 1, 86_400, also=("topology.message.timeout.secs",), option="message-timeout"),
    )
    """Time without progress after which an attempt is cancelled, such as 300 or 5m; its batch runs alone next time."""
    zookeeper_session_s: float = field(default=limits.ZOOKEEPER_SESSION_S, metadata=_key("seconds", 1, 600))
    """Seconds of silence after which ZooKeeper gives the lead to another driver."""
    postgres_away_max_s: float = field(default=limits.POSTGRES_AWAY_MAX_S, metadata=_key("seconds", 1, 3_600))
    """Seconds without Postgres after which this driver gives up the lead, so that another can take over (R16)."""
    spout_poll_s: float = field(default=limits.SPOUT_POLL_S, metadata=_key("seconds", 0.01, 3_600))
    """Seconds between two checks for new input."""
    results_bytes_max: int = field(default=limits.RESULTS_BYTES_MAX, metadata=_key("bytes", 1024 * 1024, 64 * 1024**3))
    """Bytes of all uncommitted results in the driver above which only the next batch to commit is processed."""
    staging_dsn: str | None = field(default=None, metadata=_key("text"))
    """Postgres for the tasks of Spark, without a password: then results with many keys do not go through the driver."""
    result_rows_max: int = field(default=limits.RESULT_ROWS_MAX, metadata=_key("number", 1, 100_000_000))
    """Result rows of one committer in one batch above which tasks store them in Postgres; counts with staging_dsn."""
    staging_connections: int = field(default=limits.STAGING_CONNECTIONS, metadata=_key("number", 1, 64))
    """Connections to Postgres that the tasks of this driver open together for results; counts with staging_dsn."""
    checkpoint_every_s: float = field(default=limits.CHECKPOINT_EVERY_S, metadata=_key("seconds", 0.01, 60))
    """Seconds by which ZooKeeper's counter may lag the ledger."""
    log_folder: Path | None = field(default=None, metadata=_key("folder"))
    """Folder of Spark's log; if not given: the folder `logs` of `$TXTOPO_HOME`, by default ~/.local/state/txtopo/logs.
    """
    quiet: bool = field(default=False, metadata=_key("flag"))
    """Print only results and errors."""
    verbose: int = field(default=0, metadata=_key("number", 0, 3))
    """Print more: 1 (-v), 2 (-vv) or 3."""
    debug: bool = field(default=False, metadata=_key("flag"))
    """Show traces of errors."""
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, metadata={})
    """Setting -> where its value came from; `conf.NAME` for each of Spark's settings. Absent: not given."""

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={masked(repr(getattr(self, name)))}" for name in _KEYS)
        return f"Settings({shown})"

    def source(self, name: str) -> str:
        """Return the source of the value of `name`, in words."""
        return self.sources.get(name, "default")

    def with_services(self, find: Callable[[], Services | None], *, zookeeper: bool = True) -> Settings:
        """Return these settings, completed from local services; `find` is called only if the DSN is missing.

        Given and local stores are never mixed: with a DSN, ZooKeeper must be given too. Raises ConfigurationError that
        says what to do.
        """
        if self.dsn is None:
            if zookeeper and self.zookeeper is not None:
                raise ConfigurationError(
                    f"ZooKeeper is given by {self.source('zookeeper')}, Postgres is not: pass --dsn or set TXTOPO_DSN"
                )
            return self._from_services(find())
        if zookeeper and self.zookeeper is None:
            raise ConfigurationError(
                "Postgres is given, but no ZooKeeper: pass --zk, set TXTOPO_ZK, or put zookeeper into txtopo.toml"
            )
        return self

    def with_topology(self, config: Mapping[str, Any]) -> Settings:
        """Return these settings, completed from the topology's own `config`, which overrides only defaults.

        Entries that are not settings belong to the components and are ignored. Raises ConfigurationError that says what
        is wrong.
        """
        values: dict[str, Any] = {}
        problems: list[str] = []
        for name, raw in _topology_layer(config, problems):
            try:
                value = _convert(_KEYS[name], raw, Path())
            except ValueError as error:
                problems.append(f"{TOPOLOGY_CONFIG}: {name} {error}")
                continue
            if name not in self.sources:
                values[name] = value
        _refuse(problems)
        return replace(self, **values, sources={**self.sources, **dict.fromkeys(values, TOPOLOGY_CONFIG)})

    def _from_services(self, services: Services | None) -> Settings:
        if services is None:
            raise ConfigurationError(
                "no Postgres given: pass --dsn, set TXTOPO_DSN, or start local services with `txtopo dev up`"
            )
        taken: dict[str, Any] = {"dsn": services.dsn, "zookeeper": zookeeper_address(services.zookeeper)}
        if "zookeeper_session_s" not in self.sources:
            taken["zookeeper_session_s"] = DEV_SESSION_S
        return replace(self, **taken, sources={**self.sources, **dict.fromkeys(taken, LOCAL_SERVICES)})


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingInfo:
    """The description of a setting, without its value."""

    name: str
    storm: str | None
    """Storm's name of the setting, if it has one: accepted in files and in a topology's own `config`."""
    variable: str
    """Environment variable."""
    unit: str | None
    """Unit: `s` or `bytes`; None for a plain number."""
    default: object
    meaning: str
    """Meaning, in one line."""


def known_settings() -> tuple[SettingInfo, ...]:
    """Return every setting, in the order of `Settings`."""
    made = Settings()
    return tuple(
        SettingInfo(
            name=name,
            storm=next((other for other in key.also if other.startswith("topology.")), None),
            variable=environment_variable(name),
            unit={"seconds": "s", "bytes": "bytes"}.get(key.kind),
            default=getattr(made, name),
            meaning=meanings()[name],
        )
        for name, key in _KEYS.items()
    )


@cache
def meanings() -> Mapping[str, str]:
    """Return setting -> its docstring in `Settings`, which `txtopo config show` and `txtopo run --help` print."""
    return attribute_docs(Path(__file__).read_text("utf-8"), Settings.__name__)


def storms_names() -> tuple[str, ...]:
    """Return Storm's names that mean a setting here."""
    return tuple(other for key in _KEYS.values() for other in key.also if is_storms(other))


class Services(Protocol):
    """Running local services, started by `txtopo dev up`."""

    @property
    def dsn(self) -> str:
        """Postgres URL."""

    @property
    def zookeeper(self) -> str:
        """ZooKeeper hosts with chroot."""


_KEYS: dict[str, _Key] = {item.name: item.metadata["key"] for item in fields(Settings) if "key" in item.metadata}
_NAMES: dict[str, str] = {name: name for name in _KEYS} | {
    other: name for name, key in _KEYS.items() for other in key.also
}
_OF_TOPOLOGY = frozenset(
    name for name, key in _KEYS.items() if key.kind in ("number", "seconds", "bytes", "choice") and name != "verbose"
)
"""Settings that a topology's own `config` may contain: how its batches run; no addresses, nothing about output."""
_RESERVED = frozenset({"config", "target"})
"""Flags that say where settings are read, and are not settings themselves."""


def load_settings(
    flags: Mapping[str, object], *, cwd: Path, environment: Mapping[str, str], target: str | None = None
) -> Settings:
    """Return all settings. Sources, strongest first: flag, `TXTOPO_*`, `txtopo.toml` (target, then default),
    `pyproject.toml`, default.

    A flag that is None counts as not given; the flag `config` names the file to read. Raises ConfigurationError, which
    lists everything that is wrong.
    """
    named = flags.get("config") or environment.get("TXTOPO_CONFIG") or None
    layers = [
        *_flag_layer(flags),
        *_environment_layer(environment),
        *_file_layers(cwd, Path(str(named)) if named else None, target or environment.get("TXTOPO_TARGET") or None),
        *_pyproject_layer(cwd),
    ]
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    problems: list[str] = []
    for name, raw, source, base in layers:
        try:
            value: Any = _convert(_KEYS[name], raw, base)
        except ValueError as error:
            problems.append(f"{source}: {name} {error}")
            continue
        if name == "conf":
            stronger = values.get(
                "conf", {}
            )  # Spark's settings are merged one by one: a flag changes one setting and keeps the others.
            values["conf"] = {**value, **stronger}
            sources.update({f"conf.{key}": source for key in value if key not in stronger})
        elif name not in values:
            values[name] = value
            sources[name] = source
    _refuse(problems)
    return Settings(**values, sources=sources)


_Layer = tuple[str, object, str, Path]
"""Setting, raw value, source, the folder that relative paths start from."""


def _flag_layer(flags: Mapping[str, object]) -> Iterator[_Layer]:
    given = {name: value for name, value in flags.items() if value is not None and name not in _RESERVED}
    _refuse([_unknown(name, "settings") for name in given if name not in _KEYS])
    for name, value in given.items():
        option = (_KEYS[name].option or name).replace("_", "-")
        yield name, value, f"flag --{option}", Path()


def _environment_layer(environment: Mapping[str, str]) -> Iterator[_Layer]:
    for name, key in _KEYS.items():
        variable = environment_variable(name)
        if environment.get(variable):  # Shells and CI files write "not given" as an empty variable.
            yield name, _listed(key, environment[variable]), f"environment {variable}", Path()


def environment_variable(name: str) -> str:
    """Return the environment variable that sets `name`."""
    return _KEYS[name].variable or f"TXTOPO_{name.upper()}"


def _listed(key: _Key, text: str) -> object:
    if key.kind == "pairs":
        return shlex.split(text)
    return text.split(",") if key.kind == "names" else text


def _file_layers(cwd: Path, named: Path | None, target: str | None) -> Iterator[_Layer]:
    path = cwd / named if named is not None else _upwards(cwd, CONFIG_FILE)
    if path is None:
        if target is not None:
            raise ConfigurationError(f"target {target!r} needs a {CONFIG_FILE}, and there is none in {cwd} or above")
        return
    tables = _read_toml(path)
    targets = tables.get("target", {})
    if not isinstance(targets, dict) or not all(
        isinstance(table, dict) for table in [tables.get("default", {}), *targets.values()]
    ):
        raise ConfigurationError(f"{path}: write settings into tables, [default] and [target.NAME]")
    problems: list[str] = [
        _outside(path, name, value) for name, value in tables.items() if name not in ("default", "target")
    ]
    named_tables = {
        "default": tables.get("default", {}),
        **{f"target.{name}": table for name, table in targets.items()},
    }
    flat = {name: list(_flatten(table, f"{path} [{name}]", problems)) for name, table in named_tables.items()}
    _refuse(problems)
    if target is not None and target not in targets:
        raise ConfigurationError(
            f"{path} has no [target.{target}]"
            + _did_you_mean(target, targets)
            + f"; it has {', '.join(targets) or 'no targets'}"
        )
    for table in ([f"target.{target}"] if target is not None else []) + ["default"]:
        for name, value in flat[table]:
            yield name, value, f"{path} [{table}]", path.parent


def _pyproject_layer(cwd: Path) -> Iterator[_Layer]:
    path = _upwards(cwd, "pyproject.toml", contains="[tool.txtopo")
    if path is None:
        return
    table = _read_toml(path).get("tool", {}).get("txtopo", {})
    problems: list[str] = []
    flat = list(_flatten(table, f"{path} [tool.txtopo]", problems))
    _refuse(problems)
    for name, value in flat:
        yield name, value, f"{path} [tool.txtopo]", path.parent


def is_setting(key: str) -> bool:
    """Return True if a topology's own `config` sets a setting of txtopo under this name: a name of Storm's, or a name
    of txtopo's for how a batch runs.
    """
    return key in _NAMES and (is_storms(key) or key in _OF_TOPOLOGY)


def _topology_layer(config: Mapping[str, Any], problems: list[str]) -> Iterator[tuple[str, object]]:
    """Return the settings in a topology's `config`. Storm writes None for "not given"."""
    seen: set[str] = set()
    for key, value in config.items():
        if value is None:
            continue
        if not is_setting(key):
            # Otherwise it is a setting of a component, unless it is a misspelt name.
            if (slip := slip_in(key, _NAMES, _OF_TOPOLOGY)) is not None:
                problems.append(f"{TOPOLOGY_CONFIG}: {slip}")
            continue
        name = _NAMES[key]
        if name in seen:
            problems.append(f"{TOPOLOGY_CONFIG}: {name} is given twice, under two names")
        seen.add(name)
        yield name, value


def _upwards(start: Path, name: str, contains: str = "") -> Path | None:
    for folder in (start.absolute(), *start.absolute().parents):
        path = folder / name
        if path.is_file() and (not contains or contains in path.read_text("utf-8", errors="replace")):
            return path
    return None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not readable TOML: {error}") from error


def _flatten(
    table: Mapping[str, Any], where: str, problems: list[str], prefix: str = "", seen: set[str] | None = None
) -> Iterator[tuple[str, object]]:
    """Return the settings of a table. TOML reads a bare `topology.max.spout.pending` as nested tables: they are joined
    again.
    """
    seen = set() if seen is None else seen
    for key, value in table.items():
        name = _NAMES.get(f"{prefix}{key}")
        if name is not None and name in seen:
            problems.append(f"{where}: {name} is given twice, under two names")
        elif name is not None:
            seen.add(name)
            yield name, value
        elif isinstance(value, dict) and value:
            yield from _flatten(value, where, problems, f"{prefix}{key}.", seen)
        else:
            problems.append(_unknown(f"{prefix}{key}", where))


def _outside(path: Path, name: str, value: object) -> str:
    if name in _NAMES and not isinstance(value, dict):
        return f"{path}: {name} is outside of every table: put it below [default]"
    known = (
        "there are [default] and [target.NAME], which --target NAME chooses; one topology's own settings stand "
        "in its builder, config={…}"
    )
    return f"{path}: unknown table [{name}]" + (_did_you_mean(name, ("default", "target")) or f"; {known}")


def _unknown(name: str, where: str) -> str:
    if (why := why_nothing(name)) is not None:
        return f"{where}: {name} means nothing here: {why}"
    return f"{where}: unknown key {name}" + _did_you_mean(name, _NAMES)


def _did_you_mean(word: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f": did you mean {near[0]}?" if near else ""


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ConfigurationError(
            masked("\n  ".join(problems if len(problems) == 1 else ["the settings are wrong:", *problems]))
        )


# ----------------------------------------------------------------------------------------------------------------------


def _convert(key: _Key, raw: object, base: Path) -> object:
    match key.kind:
        case "number" | "seconds" | "bytes":
            return _bounded(key, setting_values.measure(key.kind, raw))
        case "flag":
            return setting_values.flag(raw)
        case "pairs":
            return setting_values.pairs_of(raw)
        case "names":
            return tuple(str(base / name) for name in setting_values.texts_of(raw))
        case "folder":
            return base / Path(setting_values.text_of(str(raw) if isinstance(raw, Path) else raw)).expanduser()
        case "address":
            return zookeeper_address(setting_values.text_of(raw))
        case "choice":
            return _choice(key, setting_values.text_of(raw))
        case _:
            return setting_values.text_of(raw)


def _bounded(key: _Key, value: float) -> float:
    if (key.low is not None and value < key.low) or (key.high is not None and value > key.high):
        raise ValueError(f"must be from {key.low:g} to {key.high:g}, not {value:g}")
    return value


def _choice(key: _Key, text: str) -> str:
    if text not in key.choices:
        raise ValueError(f"must be {' or '.join(key.choices)}, not {text!r}{_did_you_mean(text, key.choices)}")
    return text
