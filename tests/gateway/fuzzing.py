"""Requests that the OpenAPI document allows, and some that it does not, made up for every operation."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx2
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core import NotSet
from schemathesis.core.result import Ok

from retinue.gateway.auth.request_source import LOOPBACK_NAMES
from retinue.gateway.schema_docs import make_openapi

LEFT_OUT = frozenset({"/rpc/config.patch"})
"""What could change the very gateway that is being tried; it has tests of its own."""

LOCKS_OUT = "/pair"
"""Guessing at codes is answered with a lock-out, so it comes last."""


@dataclass
class Findings:
    """What came back: how often each status, and what should not have."""

    statuses: Counter[int] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    operations: int = 0


def fuzz(url: str, token: str, examples: int, *, chance: int | None = None) -> Findings:
    """Try every operation so many times; without a `chance`, the same requests each time."""
    assert any(name in url for name in LOOPBACK_NAMES), url
    findings = Findings()
    schema = schemathesis.openapi.from_dict(make_openapi())
    headers = {"Authorization": f"Bearer {token}"}
    with httpx2.Client(base_url=url, headers=headers, timeout=60) as client:
        operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
        for operation in sorted(operations, key=lambda operation: operation.path == LOCKS_OUT):
            if operation.path in LEFT_OUT:
                continue
            findings.operations += 1
            both = st.one_of(
                operation.as_strategy(generation_mode=GenerationMode.POSITIVE),
                operation.as_strategy(generation_mode=GenerationMode.NEGATIVE),
            )

            @settings(
                max_examples=examples,
                derandomize=chance is None,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=both, to_agent=st.booleans())
            def try_one(case: Case[Any], *, to_agent: bool) -> None:
                _try(client, case, findings, to_agent=to_agent)

            (try_one if chance is None else seed(chance)(try_one))()
    return findings


def _try(client: httpx2.Client, case: Case[Any], findings: Findings, *, to_agent: bool) -> None:
    content = _encode(case.body, to_agent=to_agent)
    headers = {"content-type": "application/json", **_sendable(case.headers)}
    path = case.formatted_path
    try:
        answer = client.request(case.method, path, params=dict(case.query or {}), content=content, headers=headers)
    except (httpx2.InvalidURL, httpx2.LocalProtocolError, UnicodeError, ValueError):
        return  # no client could send it
    findings.statuses[answer.status_code] += 1
    # 503 tells that too many sessions wait, or that the gateway ends; it is no crash, but must not happen here either.
    if answer.status_code >= 500:
        findings.broken.append(f"{case.method} {path} {content!r:.500}: {answer.status_code} {answer.text[:300]}")


def _encode(body: Any, *, to_agent: bool) -> bytes | None:
    if isinstance(body, NotSet):
        return None
    if to_agent and isinstance(body, dict) and isinstance(body.get("model"), str):
        body = body | {"model": "retinue"}  # or nearly every request would end at the name of a model
    if isinstance(body, bytes):
        return body
    return json.dumps(body, default=str).encode("utf-8", "replace")


def _sendable(headers: Any) -> dict[str, str]:
    return {
        name: value
        for name, value in dict(headers or {}).items()
        if name.lower() not in ("authorization", "content-type", "host", "content-length", "transfer-encoding")
        and isinstance(value, str)
        and value.isascii()
        and value.isprintable()
    }
