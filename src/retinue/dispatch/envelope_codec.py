"""Inbound and outbound messages as JSON that another process or a later start can read.

The declarations of `core.envelope` are the format. Three parts differ from them: a session is stored with its agent,
because a webhook's key does not name one, and usage and tool results have the shape that transcripts use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retinue.core.codec import dump_json, from_plain, load_json, to_plain
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.errors import UsageError
from retinue.core.keys import AgentId, SessionKey
from retinue.core.messages import ToolResult, Usage
from retinue.core.model import Failure, ReasoningEffort
from retinue.sessions.jsonl.message_codec import decode_message, decode_usage, encode_message, parse_enum


def encode_inbound(inbound: Inbound) -> str:
    data = to_plain(inbound) | _encode_key(inbound.session)
    return dump_json(data | {"results": [encode_message(result) for result in inbound.results]})


def decode_inbound(text: str) -> Inbound:
    """Return the message in `text`; raise `ValueError` if it cannot be read.

    A message counts as the owner's only if it says so. An unknown source or effort of a later version is read as
    unknown.
    """
    data = load_json(text)
    results = [decode_message(result) for result in data.get("results", ())]
    changes = {
        "session": _decode_key(data),
        "owner": data.get("owner") is True,
        "source": parse_enum(Source, data.get("source")) or Source.OTHER,
        "thinking": parse_enum(ReasoningEffort, data.get("thinking")),
        "results": tuple(result for result in results if isinstance(result, ToolResult)),
    }
    return from_plain(data | changes, Inbound)


def encode_outbound(outbound: Outbound) -> str:
    return dump_json(to_plain(outbound) | _encode_key(outbound.session) | {"usage": encode_usage(outbound.usage)})


def decode_outbound(text: str) -> Outbound:
    """Return the result in `text`; raise `ValueError` if it cannot be read."""
    data = load_json(text)
    changes = {
        "session": _decode_key(data),
        "usage": decode_usage(data.get("usage")),
        "failure": parse_enum(Failure, data.get("failure")),
    }
    return from_plain(data | changes, Outbound)


def encode_usage(usage: Usage) -> dict[str, Any]:
    """Return usage in the format of transcripts, with the cost as an object."""
    return to_plain(usage) | {"cost": {"total": usage.cost}}


def _encode_key(key: SessionKey) -> dict[str, str]:
    return {"session": key.text, "agent": key.agent}


def _decode_key(data: Mapping[str, Any]) -> SessionKey:
    session, agent = data.get("session"), data.get("agent")
    if not isinstance(session, str) or not isinstance(agent, str):
        raise ValueError("`session` or `agent` is missing")
    try:
        return SessionKey.parse(session, default_agent=AgentId(agent))
    except UsageError as error:
        raise ValueError(str(error)) from error
