"""Creates or updates schema `txtopo` with Alembic, configured in code. Two processes may do it at the same time."""

from __future__ import annotations

import io
from importlib.resources import files
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from txtopo._version import __version__
from txtopo.committers.postgres.connect import check_version_and_encoding, make_engine
from txtopo.committers.postgres.sql_errors import translating
from txtopo.errors import ConfigurationError

_VERSION_TABLE = {"version_table": "schema_version", "version_table_schema": "txtopo"}
_LOCK = 0x7478746F706F  # "txtopo": a migration holds this advisory lock until its database transaction ends


def migrate(dsn: str) -> list[str]:
    """Apply missing migrations in one database transaction. Returns the revisions applied, oldest first; empty if none
    was missing. Raises ConfigurationError if a newer release has migrated the database.
    """
    applied: list[str] = []
    engine = make_engine(dsn, "txtopo/migrate", pooled=False)
    config = _config(on_version_apply=lambda *, step, **_: applied.append(step.up_revision_id))
    with translating("migrating"), engine.begin() as connection:
        check_version_and_encoding(connection)
        connection.exec_driver_sql(f"select pg_advisory_xact_lock({_LOCK})")
        _refuse_newer(connection)
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return applied


def pending(dsn: str) -> list[str]:
    """Return the revisions that `migrate` would apply, oldest first. Changes nothing. Raises ConfigurationError if a
    newer release has migrated the database.
    """
    return pending_on(make_engine(dsn, "txtopo/migrate", pooled=False))


def pending_on(engine: Engine) -> list[str]:
    """Like `pending`, on a connection of `engine`."""
    with translating("looking at the schema"), engine.connect() as connection:
        check_version_and_encoding(connection)
        _refuse_newer(connection)
        found = set(_heads(connection))
    script = ScriptDirectory.from_config(_config())
    missing: list[str] = []
    for revision in script.walk_revisions():  # newest first
        if revision.revision in found:
            break
        missing.append(revision.revision)
    return missing[::-1]


def migration_sql() -> str:
    """Return all migrations as SQL, for an administrator who runs it with `psql -1 -f`."""
    text = io.StringIO()
    command.upgrade(_config(output_buffer=text), "head", sql=True)
    return text.getvalue()


def newer_than_release(connection: Connection) -> str | None:
    """Return in words, with what to do, that a newer release has migrated the database; None if none has."""
    known = [revision.revision for revision in ScriptDirectory.from_config(_config()).walk_revisions()]
    unknown = sorted(set(_heads(connection)) - set(known))
    if not unknown:
        return None
    return (
        f"the database was migrated by a newer release of txtopo: it is at revision {', '.join(unknown)}, and the last "
        f"one that release {__version__} knows is {known[0]}; upgrade txtopo here to the release that migrated it"
    )


def _refuse_newer(connection: Connection) -> None:
    if (newer := newer_than_release(connection)) is not None:
        raise ConfigurationError(newer)


def _heads(connection: Connection) -> tuple[str, ...]:
    return MigrationContext.configure(connection, opts=dict(_VERSION_TABLE)).get_current_heads()


def _config(output_buffer: io.StringIO | None = None, **attributes: Any) -> Config:
    # The path of the package is right in a checkout, where the folder is elsewhere, and in an installed wheel.
    config = Config(output_buffer=output_buffer, attributes=attributes)
    config.set_main_option("script_location", str(files("txtopo") / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
