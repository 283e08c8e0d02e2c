"""The format JSON: a record a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from txtopo.core.fields import Fields
from txtopo.errors import TopologyError
from txtopo.spouts.formats.field_paths import FieldPaths, check_paths, field_paths
from txtopo.spouts.formats.format import Opened
from txtopo.spouts.formats.line_format import LineFormat

if TYPE_CHECKING:
    from txtopo.spouts.formats.lines.line_pair import LinePair


class Json(LineFormat):
    """JSON lines (NDJSON) in UTF-8: each line is an object; a line of blanks is skipped.

    >>> Json(paths={"buyer": ("user", "id")}).layout()
    {'paths': {'buyer': ['user', 'id']}}
    """

    kind = "json"

    def __init__(self, *, paths: Mapping[str, str | tuple[str, ...]] = MappingProxyType({})) -> None:
        """`paths` says where the value of a field stands, if not under the key of its name: a tuple has the keys from
        outside in, a text is one key, also with dots in it.

        Raises TopologyError for an invalid path.
        """
        self.paths: FieldPaths = field_paths(paths)

    def layout(self) -> Mapping[str, Any]:
        return {"paths": {name: list(path) for name, path in self.paths.items()}}

    def check(self, fields: Fields) -> None:
        check_paths(self.paths, fields)
        for field in fields.items:
            if field.type.kind == "binary":
                raise TopologyError(f"JSON has no bytes: declare {field.name} as string")

    def describe(self, opened: Opened, fields: Fields) -> Mapping[str, Any]:
        described = super().describe(opened, fields)
        first = opened.start[described["data"] :].lstrip(b" \t\r\n").partition(b"\n")[0]
        if first.startswith(b"[") and not _is_json(first):
            raise ValueError("it is a JSON array over several lines; only a record a line is read (docs/files.md)")
        return described

    def _pair(self, fields: Fields) -> LinePair:
        from txtopo.spouts.formats.lines.json_lines import JsonLines

        return JsonLines(fields, self.paths)

    def warm_up(self) -> None:
        super().warm_up()
        import txtopo.spouts.formats.lines.json_lines  # noqa: F401


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
