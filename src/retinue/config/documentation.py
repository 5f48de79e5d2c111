"""The documentation of keys: the docstrings under the keys of settings, read from the source."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from textwrap import dedent

from retinue.settings import Settings


@cache
def documentation_of(section: type[Settings]) -> Mapping[str, str]:
    """What the docstrings say about each key of a section, by the name of its attribute."""
    found: dict[str, str] = {}
    for base in reversed(section.__mro__):
        if issubclass(base, Settings) and base is not Settings:
            found.update(_field_docstrings(base))
    return found


def _field_docstrings(section: type[Settings]) -> Iterator[tuple[str, str]]:
    declaration = ast.parse(dedent(inspect.getsource(section))).body[0]
    assert isinstance(declaration, ast.ClassDef)
    for statement, following in zip(declaration.body, declaration.body[1:], strict=False):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, inspect.cleandoc(text)
            case _:
                pass
