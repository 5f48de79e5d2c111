"""Answers in JSON: the instructions for the model, and the check of an answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from retinue.core.envelope import AnswerFormat
from retinue.core.errors import UsageError
from retinue.structs.schema_validator import find_schema_faults, make_validator

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
    try:
        make_validator(schema)
    except ValueError as error:
        raise UsageError(f"The JSON Schema cannot be used: {error}") from None


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
    for path, message in find_schema_faults(wanted.schema, value):
        place = "/".join(map(str, path))
        faults.append(f"{f'at {place}: ' if place else ''}{message}")
    return f"{'; '.join(faults[:MAX_SHOWN_FAULTS])}." if faults else None
