"""Called by Alembic: runs the migrations on the connection that `txtopo.committers.postgres.migrate` passes, or
offline, printing SQL.
"""

from __future__ import annotations

from alembic import context

SCHEMA = "txtopo"
# Only if it is missing: CREATE SCHEMA IF NOT EXISTS needs the privilege to create one even if it exists.
CREATE_SCHEMA = f"do $$ begin if to_regnamespace('{SCHEMA}') is null then create schema {SCHEMA}; end if; end $$"

options = {
    "version_table": "schema_version",
    "version_table_schema": SCHEMA,
    "on_version_apply": context.config.attributes.get("on_version_apply") or (),
}

if context.is_offline_mode():
    context.configure(dialect_name="postgresql", dialect_opts={"paramstyle": "named"}, **options)
    with context.begin_transaction():
        context.execute(CREATE_SCHEMA)
        context.run_migrations()
else:
    connection = context.config.attributes["connection"]
    connection.exec_driver_sql(CREATE_SCHEMA)
    context.configure(connection=connection, **options)
    with context.begin_transaction():
        context.run_migrations()
