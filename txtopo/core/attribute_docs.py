"""Reads the docstrings below the attributes of a class, which Python itself does not keep. Pure."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping


@functools.cache
def attribute_docs(source: str, owner: str) -> Mapping[str, str]:
    """Return attribute -> its docstring in one line, for the class `owner` in the text of a module. Each text is
    parsed once: a help asks for each of its flags.

    >>> attribute_docs('class A:\\n    b: int\\n    \"\"\"How\\n    many.\"\"\"', "A")
    {'b': 'How many.'}
    """
    (shown,) = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef) and node.name == owner)
    return {
        ast.unparse(field.target): " ".join(str(said.value.value).split())
        for field, said in zip(shown.body, shown.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(said, ast.Expr) and isinstance(said.value, ast.Constant)
    }
