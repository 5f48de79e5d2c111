"""Validation by a JSON Schema from outside: of a plugin, an MCP server or a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema_rs import Validator

MAX_PATTERN_STEPS = 100_000


def make_validator(schema: Mapping[str, Any]) -> Validator:
    """Return what checks values; raise `ValueError` with one line if the schema cannot be used.

    The schema refers to no other documents, and its patterns give up after so many steps. The validator is slow to
    import, so only what uses a schema imports it.
    """
    from jsonschema_rs import FancyRegexOptions, validator_for

    patterns = FancyRegexOptions(backtrack_limit=MAX_PATTERN_STEPS)
    try:
        return validator_for(dict(schema), retriever=_refuse_reference, pattern_options=patterns)
    except ValueError as error:
        raise ValueError(str(error).splitlines()[0]) from None


def find_schema_faults(schema: Mapping[str, Any], value: Any) -> tuple[tuple[tuple[str | int, ...], str], ...]:
    """Return what a schema does not allow in a value: the path of each part, and a message.

    Raises `ValueError` if the schema cannot be used.
    """
    return tuple((tuple(fault.instance_path), fault.message) for fault in make_validator(schema).iter_errors(value))


def _refuse_reference(uri: str) -> Any:
    raise ValueError("references to other documents are not supported")
