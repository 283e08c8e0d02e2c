"""Where tasks store large results, as the settings say (R10)."""

from __future__ import annotations

from txtopo.config import Settings
from txtopo.errors import ConfigurationError
from txtopo.ports import StagingPlace

_SECRETS = frozenset({"password", "sslpassword", "oauth_client_secret"})


def staging_place(settings: Settings) -> StagingPlace | None:
    """Return where tasks store large results; None: they are refused. Raises ConfigurationError for a connection string
    that has a secret: it is sent to tasks inside Spark's plan.
    """
    import psycopg2.extensions  # commands that only read settings start without it

    dsn = settings.staging_dsn
    if dsn is None:
        return None
    try:
        found = sorted(_SECRETS & psycopg2.extensions.parse_dsn(dsn).keys())
    except psycopg2.Error:  # its message may quote a password
        raise ConfigurationError("staging_dsn is not a connection string of Postgres") from None
    if found:
        raise ConfigurationError(
            f"staging_dsn has a secret ({', '.join(found)}), which Spark would show: put it into the password file of "
            "the hosts where tasks run (~/.pgpass or PGPASSFILE), or into a service of PGSERVICEFILE"
        )
    return StagingPlace(dsn=dsn, rows_max=settings.result_rows_max, connections=settings.staging_connections)
