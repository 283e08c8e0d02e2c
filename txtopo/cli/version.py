"""`txtopo version`: what is installed."""

from __future__ import annotations

import platform

import click

from txtopo.cli.common import json_option, verb


@verb("version")
@json_option
def version(as_json: bool) -> None:
    """Show the versions of txtopo and of what it runs on. Starts nothing."""
    from txtopo.cli.versions import installed, java_version, own_version

    found = {
        "txtopo": own_version(),
        "python": platform.python_version(),
        "pyspark": installed("pyspark"),
        "pyarrow": installed("pyarrow"),
        "java": java_version(),
    }
    if as_json:
        import json

        click.echo(json.dumps({"schema": "txtopo.version/1", **found}, indent=2))
    else:
        for name, value in found.items():
            click.echo(f"{name:<8} {value or 'not found'}")
