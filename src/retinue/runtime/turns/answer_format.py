"""Answers in JSON: the instructions for the model, and the check of an answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from retinue.core.envelope import AnswerFormat
from retinue.core.errors import UsageError

if TYPE_CHECKING:
    from jsonschema_rs import Validator

MAX_SHOWN_FAULTS = 3
_FENCE = re.compile(r"\s*```(?:json)?[ \t]*\n(?P<inside>.*?)\n?\s*```\s*", re.DOTALL | re.IGNORECASE)


def describe_format(wanted: AnswerFormat) -> str:
    """Return the instructions for the model."""
    lead = "Answer with one JSON object and nothing else: no explanation before or after it, and no code fence."
    if wanted.schema is None:
        return lead
    return f"{lead} It must be valid by this JSON Schema:\n\n{json.dumps(wanted.schema, ensure_ascii=False)}"


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raise `UsageError` if a schema cannot be used."""
    _make_validator(schema)


def extract_json(text: str) -> str:
    """Return the JSON of an answer without the code fence that some models put around it."""
    fenced = _FENCE.fullmatch(text)
    return fenced["inside"] if fenced else text.strip()


def find_fault(wanted: AnswerFormat | None, text: str) -> str | None:
    """Return why an answer does not have the format, as a sentence; None if it has."""
    if wanted is None:
        return None
    try:
        value = json.loads(extract_json(text))
    except (ValueError, RecursionError) as error:
        return f"It is not JSON ({error})."
    if wanted.schema is None:
        return None if isinstance(value, dict) else "It is not a JSON object."
    faults = []
    for fault in _make_validator(wanted.schema).iter_errors(value):
        place = "/".join(map(str, fault.instance_path))
        faults.append(f"{f'at {place}: ' if place else ''}{fault.message}")
    return f"{'; '.join(faults[:MAX_SHOWN_FAULTS])}." if faults else None


def _make_validator(schema: Mapping[str, Any]) -> Validator:
    from jsonschema_rs import RegexOptions, validator_for

    try:
        # The engine without look-around has no patterns that take exponential time.
        return validator_for(dict(schema), retriever=_refuse_reference, pattern_options=RegexOptions())
    except ValueError as error:
        raise UsageError(f"The JSON Schema cannot be used: {str(error).splitlines()[0]}") from None


def _refuse_reference(uri: str) -> Any:
    raise ValueError("references to other documents are not supported")
