"""Every value that crosses a border comes back as it was, in every field.

The strategies are derived from the declarations, so a new field is covered without a change here. Texts include lone
surrogates, and floats include NaN and infinity.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import fields, replace

from retinue.automation.jobs import Job, decode_job, encode_job
from retinue.automation.webhooks import WebhookDelivery, decode_delivery, encode_delivery
from retinue.context.prompt.report import PromptReport
from retinue.core.clock import EPOCH
from retinue.core.codec import dump_json, from_plain, load_json, to_plain
from retinue.core.envelope import Inbound, Origin, Outbound, OutgoingMessage
from retinue.core.keys import AgentId, SessionId, SessionKey
from retinue.core.labels import Label
from retinue.core.messages import AssistantMessage, ToolResult, Usage, UserMessage
from retinue.core.model import ModelRef
from retinue.dispatch.envelope_codec import (
    decode_inbound,
    decode_outbound,
    encode_inbound,
    encode_outbound,
)
from retinue.dispatch.outbox import decode_outgoing, encode_outgoing
from retinue.dispatch.subagents import Child, decode_child, encode_child
from retinue.sandbox.sandboxes import SandboxStamp
from retinue.sessions.entries import Body, EntryId, Header, TranscriptEntry, Unknown
from retinue.sessions.index import decode_index, encode_row
from retinue.sessions.jsonl.codec import decode_line, encode_line
from retinue.sessions.jsonl.message_codec import decode_message, encode_message
from retinue.sessions.session import Session
from retinue.sessions.usage import UsageRecord, decode_record, encode_record
from retinue.storage.process_locks import InstanceFacts
from retinue.tools.approvals.store import Approval, decode_approval, encode_approval
from retinue.workspace.state import TrustedFolder, WorkspaceState

TEXTS = st.text(st.characters(exclude_categories=()), max_size=20)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | TEXTS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(TEXTS, below, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(
    (
        SessionKey.parse("agent:main:main"),
        SessionKey.parse("agent:work:telegram:bot:group:!room:example.org:thread:7"),
        SessionKey.parse("hook:mail", default_agent=AgentId("research")),
    )
)

NAMES = TEXTS.filter(bool)

# The readers count a negative number of tokens, and a cost that is no finite amount, as nothing.
USAGES = st.builds(Usage, *[st.integers(0, 2**40)] * 4, cost=st.floats(0, 1e9))
MOMENTS = st.integers(0, 10**14).map(lambda milliseconds: EPOCH + timedelta(milliseconds=milliseconds))
DURATIONS = st.integers(1, 10**9).map(lambda milliseconds: timedelta(milliseconds=milliseconds))
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: st.integers(-(2**63), 2**63),
    float: st.floats(),
    bool: st.booleans(),
    NoneType: st.none(),
    Any: JSON_VALUES,
    datetime: MOMENTS,
    timedelta: DURATIONS,
    SessionKey: KEYS,
    Usage: USAGES,
    Label: st.builds(Label, st.sampled_from(("owner", "agent", "contact:http:ada", "untrusted")), st.booleans()),
    # Ids of sessions are names of files, those of entries and the names of models are not empty.
    SessionId: st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True).map(SessionId),
    EntryId: NAMES.map(EntryId),
    ModelRef: st.builds(ModelRef, NAMES, NAMES),
    # The settings of a session.
    tuple[tuple[str, str], ...]: st.dictionaries(TEXTS, TEXTS, max_size=3).map(lambda named: tuple(named.items())),
}


def values_of(hint: Any, plain: Mapping[Any, st.SearchStrategy[Any]] = PLAIN) -> st.SearchStrategy[Any]:
    """Any value of a declared type; every field of a declaration is set. `plain` has the values of simple types."""
    known = plain.get(hint)
    if known is not None:
        return known
    if isinstance(hint, NewType):
        return values_of(hint.__supertype__, plain)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return st.one_of(*(values_of(each, plain) for each in arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(values_of(arguments[0], plain), max_size=3).map(tuple)
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(*(values_of(each, plain) for each in arguments), max_size=3)
    if issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    assert issubclass(hint, Struct), hint
    hints = get_type_hints(hint)
    return st.builds(hint, **{field.name: values_of(hints[field.name], plain) for field in fields(hint)})


def is_writable(value: Any) -> bool:
    """Whether a transcript accepts a value: it contains no number that JSON does not have."""
    if isinstance(value, Struct):
        return not isinstance(value, Unknown) and all(
            is_writable(getattr(value, field.name)) for field in fields(value)
        )
    if isinstance(value, Mapping):
        return all(map(is_writable, value.values()))
    if isinstance(value, list | tuple):
        return all(map(is_writable, value))
    return not isinstance(value, float) or math.isfinite(value)


PLAIN[Body] = st.one_of(*(values_of(kind) for kind in get_args(Body) if kind is not Unknown)).filter(is_writable)


def is_same(one: Any, other: Any) -> bool:
    """Equality that looks at every field, also of a session key, and in which NaN equals itself."""
    if isinstance(one, Struct):
        return type(one) is type(other) and all(
            is_same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one)
        )
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(is_same, one, other))
    return type(one) is type(other) and bool(one == other)


def through_codec(value: Struct) -> Struct:
    """Encode and decode a value that has no codec besides its declaration."""
    return from_plain(load_json(dump_json(to_plain(value))), type(value))


def through_json(data: object) -> Any:
    return json.loads(json.dumps(data))


BORDERS: dict[type[Struct], Callable[[Any], Any]] = {
    Inbound: lambda value: decode_inbound(encode_inbound(value)),
    Outbound: lambda value: decode_outbound(encode_outbound(value)),
    Origin: lambda value: from_plain(through_json(to_plain(value)), Origin),
    OutgoingMessage: lambda value: decode_outgoing(value.key, encode_outgoing(value)),
    Job: lambda value: decode_job(encode_job(value)),
    Child: lambda value: decode_child(encode_child(value)),
    WebhookDelivery: lambda value: decode_delivery(encode_delivery(value)),
    Approval: lambda value: decode_approval(encode_approval(value)),
    UserMessage: lambda value: decode_message(through_json(encode_message(value))),
    AssistantMessage: lambda value: decode_message(through_json(encode_message(value))),
    ToolResult: lambda value: decode_message(through_json(encode_message(value))),
    Header: lambda value: decode_line(encode_line(value)),
    TranscriptEntry: lambda value: decode_line(encode_line(value)),
    Session: lambda value: decode_index(f"{{{encode_row(value)}}}".encode())[value.key],
    UsageRecord: lambda value: decode_record(encode_record(value)),
    PromptReport: lambda value: from_plain(through_json(to_plain(value)), PromptReport),
    InstanceFacts: through_codec,
    WorkspaceState: through_codec,
    TrustedFolder: through_codec,
    SandboxStamp: through_codec,
}
"""Values that are stored, each with what encodes and decodes it."""


def approvals() -> st.SearchStrategy[Approval]:
    """Approvals of an agent for its own session. The columns are texts of SQLite, which has no lone surrogates."""
    texts = PLAIN | {str: st.text(max_size=20)}
    return values_of(Approval, texts).map(
        lambda value: replace(value, request=replace(value.request, agent=value.request.session.agent))
    )


LIMITED: dict[type[Struct], st.SearchStrategy[Any]] = {Approval: approvals()}
"""Strategies of values that are stored with limits."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", BORDERS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_value_comes_back_in_every_field(kind: type[Struct], data: st.DataObject) -> None:
    value = data.draw(LIMITED[kind] if kind in LIMITED else values_of(kind))
    assert is_same(BORDERS[kind](value), value)
