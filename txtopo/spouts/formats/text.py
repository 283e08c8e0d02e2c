"""The format text: each line is the value of one field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from txtopo.core.fields import Fields
from txtopo.errors import TopologyError
from txtopo.spouts.formats.line_format import LineFormat

if TYPE_CHECKING:
    from txtopo.spouts.formats.lines.line_pair import LinePair


class Text(LineFormat):
    """Text files in UTF-8: each line is a row with one field of any name, of type string or binary. Lines end with LF
    or CRLF; an empty line is a row, too.

    >>> Text().layout()
    {}
    """

    kind = "text"

    def layout(self) -> Mapping[str, Any]:
        return {}

    def check(self, fields: Fields) -> None:
        own = fields.items
        if len(own) != 1 or own[0].type.kind not in ("string", "binary"):
            raise TopologyError(f"a line of text is one field of type string or binary, not {fields.ddl}")

    def _pair(self, fields: Fields) -> LinePair:
        from txtopo.spouts.formats.lines.text_lines import TextLines

        return TextLines(fields)

    def warm_up(self) -> None:
        super().warm_up()
        import txtopo.spouts.formats.lines.text_lines  # noqa: F401
