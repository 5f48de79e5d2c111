"""The JSON codec of the wire, derived from the declarations of its values.

Types of this package declare what the protocol adds and refer to values of `core` by their own types. The JSON form of
a value of `core` is derived from its declaration by four rules: names are camelCase, a run is `runId`, a session key is
`sessionKey` together with `agent`, and members of a union have a `type`. A new field of a value is therefore sent and
read without a change here.

JSON has no NaN and no infinity: a float field that holds one is sent as 0, and inside untyped data it is sent as null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Struct, UnsetType

from retinue.core import approval, envelope, events, labels, messages
from retinue.core.errors import UsageError
from retinue.core.keys import AgentId, SessionKey
from retinue.wire.frames import SparseWire, Time, Wire

T = TypeVar("T")

NAMES: dict[type, tuple[str, str | None]] = {
    messages.Usage: ("WireUsage", None),
    messages.Text: ("WireText", "text"),
    messages.Image: ("WireImage", "image"),
    messages.Thinking: ("WireThinking", "thinking"),
    messages.ToolCall: ("WireCall", "call"),
    messages.AssistantMessage: ("WireAnswer", None),
    messages.ToolResult: ("WireResult", None),
    labels.Label: ("WireLabel", None),
    approval.ApprovalRequest: ("WireApproval", None),
    approval.ApprovalDecision: ("WireDecision", None),
    envelope.CallSummary: ("WireCallSummary", None),
    envelope.Outbound: ("WireOutbound", None),
    events.Accepted: ("AcceptedEvent", "accepted"),
    events.TurnStarted: ("TurnStartedEvent", "turn_started"),
    events.TextDelta: ("SpokenEvent", "spoken"),
    events.ReasoningDelta: ("ThoughtEvent", "thought"),
    events.MessageFinished: ("AnsweredEvent", "answered"),
    events.ToolStarted: ("ToolStartedEvent", "tool_started"),
    events.ToolProgress: ("ToolProgressEvent", "tool_progress"),
    events.ToolFinished: ("ToolFinishedEvent", "tool_finished"),
    events.ApprovalAsked: ("ApprovalAskedEvent", "approval_asked"),
    events.ApprovalGiven: ("ApprovalGivenEvent", "approval_given"),
    events.Notice: ("NoticeEvent", "notice"),
    events.TurnFinished: ("TurnFinishedEvent", "turn_finished"),
}
"""The sent values of `core`: the name in the published schema, and the `type` that distinguishes them in a union."""

RENAMED = {"run": "run_id", "session": "session_key"}


class _Field:
    """A field of a declaration and its counterpart on the wire."""

    def __init__(self, field: msgspec.structs.FieldInfo, hint: Any, *, sparse: bool) -> None:
        self.name = field.name
        self.wire_name = (
            RENAMED.get(field.name, field.name) if hint is SessionKey or field.name == "run" else field.name
        )
        self.is_session = hint is SessionKey
        self.is_float = hint is float
        self.wire_type = str if self.is_session else _wire_type(hint, sparse=sparse)
        self.is_nested = self.wire_type != hint and not self.is_session
        self.is_omitted_if_none = sparse and field.default is None
        self.default = UNSET if self.is_omitted_if_none else field.default
        self.factory = field.default_factory
        if self.is_omitted_if_none:
            self.wire_type = Union[self.wire_type, UnsetType]  # noqa: UP007 - the types are only known here
        self.is_changed = self.is_session or self.is_float or self.is_nested or self.is_omitted_if_none

    def declare(self, *, sparse: bool) -> Any:
        """The field as `msgspec.defstruct` takes it."""
        if self.default is not msgspec.NODEFAULT:
            return self.wire_name, self.wire_type, _to_form(self.default, sparse=sparse)
        if self.factory is not msgspec.NODEFAULT:
            factory = self.factory
            make = (lambda: _to_form(factory(), sparse=sparse)) if self.is_nested else factory
            return self.wire_name, self.wire_type, msgspec.field(default_factory=make)
        return self.wire_name, self.wire_type


class _Form:
    """The wire form of one declared type: a Struct that msgspec encodes and decodes."""

    def __init__(self, kind: type[Struct], *, sparse: bool) -> None:
        if kind not in NAMES and kind.__module__.startswith("retinue.core"):
            raise TypeError(f"{kind.__name__} has no name on the wire; add it to NAMES")
        hints = get_type_hints(kind, include_extras=True)
        self.kind = kind
        self.fields = [_Field(field, hints[field.name], sparse=sparse) for field in msgspec.structs.fields(kind)]
        self.changed = [field for field in self.fields if field.is_changed or field.wire_name != field.name]
        self.is_identity = kind not in NAMES and not any(field.is_changed for field in self.fields)
        self.adds_agent = any(field.is_session for field in self.fields) and "agent" not in kind.__struct_fields__
        self.struct = kind if self.is_identity else self._define(sparse=sparse)
        self.decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(self.struct)

    def _define(self, *, sparse: bool) -> type[Struct]:
        name, tag = NAMES.get(self.kind, (self.kind.__name__, None))
        fields = [field.declare(sparse=sparse) for field in self.fields]
        if self.adds_agent:
            fields.append(("agent", str))
        return msgspec.defstruct(
            name,
            fields,
            namespace={"__doc__": self.kind.__doc__},
            module=__name__,
            frozen=True,
            kw_only=True,
            rename="camel",
            tag=tag,
            tag_field="type" if tag else None,
            forbid_unknown_fields=self.kind.__struct_config__.forbid_unknown_fields,
        )

    def write(self, value: Struct, *, sparse: bool) -> Struct:
        written: dict[str, Any] = msgspec.structs.asdict(value)
        for field in self.changed:
            part = written.pop(field.name)
            if field.is_session:
                if self.adds_agent:
                    written["agent"] = part.agent
                part = part.text
            elif part is None and field.is_omitted_if_none:
                continue
            elif field.is_nested:
                part = _to_form(part, sparse=sparse)
            elif field.is_float and not math.isfinite(part):
                part = 0.0
            written[field.wire_name] = part
        return self.struct(**written)

    def read(self, form: Struct) -> Struct:
        found: dict[str, Any] = {}
        for field in self.fields:
            part = getattr(form, field.wire_name)
            if field.is_session:
                part = _read_session(part, form.agent)  # type: ignore[attr-defined]  # a form with a session has it
            elif part is UNSET:
                continue
            elif field.is_nested:
                part = _from_form(part)
            found[field.name] = part
        return self.kind(**found)


_FORMS: dict[tuple[type, bool], _Form] = {}
_BY_STRUCT: dict[type, _Form] = {}


def _form_of(kind: type[Struct], *, sparse: bool) -> _Form:
    form = _FORMS.get((kind, sparse))
    if form is None:
        form = _FORMS[kind, sparse] = _Form(kind, sparse=sparse)
        if not form.is_identity:
            _BY_STRUCT[form.struct] = form
    return form


def _wire_type(hint: Any, *, sparse: bool) -> Any:
    """The type of a field on the wire; the same object if nothing in it differs."""
    if hint in (datetime, Time):
        return Time
    if isinstance(hint, type) and issubclass(hint, Struct):
        return _form_of(hint, sparse=sparse).struct
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        found = _wire_type(inner[0], sparse=sparse)
        return hint if found is inner[0] else Annotated[found, *inner[1:]]
    if origin in (tuple, list, dict, Mapping, Sequence, Union, UnionType):
        parts = tuple(_wire_type(each, sparse=sparse) for each in inner)
        if all(part is each for part, each in zip(parts, inner, strict=True)):
            return hint
        return Union[parts] if origin in (Union, UnionType) else origin[parts]  # noqa: UP007
    return hint


def _to_form(value: Any, *, sparse: bool) -> Any:
    match value:
        case Struct():
            form = _form_of(type(value), sparse=sparse)
            return value if form.is_identity else form.write(value, sparse=sparse)
        case tuple() | list():
            return type(value)(_to_form(each, sparse=sparse) for each in value)
        case dict():
            return {name: _to_form(each, sparse=sparse) for name, each in value.items()}
    return value


def _from_form(value: Any) -> Any:
    match value:
        case Struct():
            form = _BY_STRUCT.get(type(value))
            return value if form is None else form.read(value)
        case tuple() | list():
            return type(value)(map(_from_form, value))
        case dict():
            return {name: _from_form(each) for name, each in value.items()}
    return value


def _read_session(text: str, agent: str) -> SessionKey:
    try:
        return SessionKey.parse(text, default_agent=AgentId(agent))
    except UsageError as error:
        raise msgspec.ValidationError(str(error)) from error


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} cannot be sent")


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def encode(value: Wire) -> str:
    """The JSON text of a value."""
    form = _to_form(value, sparse=isinstance(value, SparseWire))
    try:
        return _encoder.encode(form).decode()
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8; JSON can escape it. msgspec does not, the standard library does.
        return json.dumps(msgspec.to_builtins(form, enc_hook=_plain), separators=(",", ":"))


def to_plain(value: Wire) -> dict[str, Any]:
    """A value as plain data, for a field of the type `dict[str, Any]`."""
    form = _to_form(value, sparse=isinstance(value, SparseWire))
    plain: dict[str, Any] = msgspec.to_builtins(form, enc_hook=_plain)
    return plain


def decode(text: bytes | str, kind: type[T]) -> T:
    """The value in a JSON text; raises `msgspec.DecodeError`, or its subclass `ValidationError` for a wrong type."""
    form = _form_of(kind, sparse=False)  # type: ignore[arg-type]  # every T is a Struct; a bound would lose its fields
    found: T = _from_form(form.decoder.decode(text))
    return found


def convert(plain: object, kind: type[T]) -> T:
    """The value in plain data; raises `msgspec.ValidationError`."""
    form = _form_of(kind, sparse=False)  # type: ignore[arg-type]
    found: T = _from_form(msgspec.convert(plain, form.struct))
    return found


def read_json(text: bytes | str) -> Any:
    """The plain data in a JSON text of a peer, lone surrogates included; raises `ValueError`."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)


def allowed_values(kind: type, path: Sequence[str]) -> list[str]:
    """The values of the field at a path if the field has an enumerated type, for error messages; otherwise none."""
    nodes, components = describe([kind], "{name}")

    def resolve(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        found = components[node["$ref"]] if "$ref" in node else node
        for each in found.get("anyOf", ()):
            yield from resolve(each)
        yield found

    for step in path:
        inner = [each for node in nodes for each in resolve(node)]
        nodes = [each["items"] for each in inner if "items" in each and step.isdecimal()]
        nodes += [each["properties"][step] for each in inner if step in each.get("properties", ())]
    return [repr(value) for node in nodes for each in resolve(node) for value in each.get("enum", ())]


def describe(kinds: Sequence[type[Struct]], ref_template: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The JSON schema of some types: a reference to each, and the components that these name."""
    structs = [_form_of(kind, sparse=False).struct for kind in kinds]
    schemas = msgspec.json.schema_components(structs, ref_template=ref_template)
    # Defaults that are tuples or enums become the JSON values that a reader of the document gets.
    references, components = msgspec.json.decode(msgspec.json.encode(schemas))
    return references, components
