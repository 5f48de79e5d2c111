"""Webhooks: convert a request to `/hooks/…` to a task, or refuse it; and the store of accepted requests."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import Clock, format_moment, parse_moment
from retinue.core.codec import dump_json, from_plain, load_json, to_plain
from retinue.core.errors import RetinueError, UsageError
from retinue.core.keys import AgentId, RunId
from retinue.core.model import ReasoningEffort
from retinue.security.untrusted_text import TextSource, literal, wrap_untrusted
from retinue.storage.database import Database, Row
from retinue.structs.declare import Declared, declare
from retinue.structs.decode import DecodeError, decode

MAX_NAME_CHARS = 80
MAX_SESSION_PART_CHARS = 64
_FIELD = re.compile(r"\{\{\s*([A-Za-z0-9_.\[\]-]+)\s*\}\}")
_STEP = re.compile(r"[^.\[\]]+")
_NO_NAME = re.compile(r"[^a-z0-9._-]+")

_KEEP = "INSERT INTO hook_runs (run, body, accepted_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_FORGET = "DELETE FROM hook_runs WHERE run = ?"
_ALL = "SELECT run, body, accepted_at FROM hook_runs ORDER BY rowid"

Action = Literal["wake", "agent"]
WakeMode = Literal["now", "next-heartbeat"]
NewId = Callable[[], str]


class HookRefused(RetinueError):
    """A request was refused; the message says why, `status` is the HTTP status."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class TransformCall(Struct, frozen=True):
    """The transform of a mapping."""

    module: str
    export: str = "transform"


class WebhookMapping(Struct, frozen=True):
    """A row of the configuration's `hooks.mappings`."""

    path: str | None = None
    source: str | None = None
    action: Action = "agent"
    wake_mode: WakeMode = "now"
    agent: str | None = None
    name: str | None = None
    session: str | None = None
    message_template: str | None = None
    text_template: str | None = None
    deliver: bool = True
    channel: str | None = None
    to: str | None = None
    model: str | None = None
    thinking: ReasoningEffort | None = None
    timeout_seconds: int | None = None
    transform: TransformCall | None = None
    trusted: bool = False


PRESETS = {
    "gmail": WebhookMapping(
        path="gmail",
        name="Gmail",
        session="hook:gmail-{{messages[0].id}}",
        message_template=(
            "A mail arrived.\nFrom: {{messages[0].from}}\nSubject: {{messages[0].subject}}\n\n"
            "{{messages[0].snippet}}\n{{messages[0].body}}"
        ),
    )
}
"""Built-in mappings, by the names that `hooks.presets` accepts."""


class HookRules(Struct, frozen=True):
    """The configuration of all webhooks."""

    mappings: Sequence[WebhookMapping] = ()
    default_session: str | None = None
    may_choose_session: bool = False
    session_prefixes: Sequence[str] = ()
    agents: Sequence[str] | None = None


class HookTask(Struct, frozen=True):
    """The message that a request becomes, in the agent's main session (`wake`) or in another one."""

    action: Action
    text: str
    wake_mode: WakeMode = "now"
    agent: str | None = None
    session: str | None = None
    model: str | None = None
    thinking: ReasoningEffort | None = None
    timeout_seconds: int | None = None
    deliver: bool = True
    channel: str | None = None
    to: str | None = None
    trusted: bool = False
    """Whether its text counts as the owner's and not as untrusted."""
    key: str | None = None
    """The caller's idempotency key."""


_LINE = declare(None, min_length=1, max_length=500)


class HookFields(Declared, rename="camel"):
    """The fields of a request to `/hooks/agent` or `/hooks/wake`, or of the output of a transform."""

    accepts_attribute_names: ClassVar[bool] = True

    action: Action | None = None
    message: str | None = None
    text: str | None = None
    name: str | None = _LINE
    mode: WakeMode | None = None
    wake_mode: WakeMode | None = None
    agent_id: str | None = _LINE
    session_key: str | None = _LINE
    model: str | None = _LINE
    thinking: Literal["off", "minimal", "low", "medium", "high", "xhigh"] | None = None
    timeout_seconds: int | None = declare(None, ge=1, le=86_400)
    deliver: bool | None = None
    channel: str | None = _LINE
    to: str | None = _LINE
    idempotency_key: str | None = _LINE


def read_hook_fields(body: Mapping[str, Any]) -> HookFields:
    """Validate the fields of a request or a transform; raise `HookRefused` that names the problems."""
    try:
        return decode(HookFields, dict(body), strict=True)
    except DecodeError as error:
        problems = "; ".join(f"'{'.'.join(map(str, each.path))}': {each.message}" for each in error.faults[:5])
        raise HookRefused(f"The request is invalid: {problems}.") from None


def read_hook(path: str, body: Mapping[str, Any], rules: HookRules, new_id: NewId) -> HookTask:
    """Return the task of a request to `/hooks/wake` or `/hooks/agent`; raise `HookRefused` if it is not allowed."""
    fields = read_hook_fields(body)
    given = fields.text if path == "wake" else fields.message
    if not (given or "").strip():
        raise HookRefused(f"The request needs '{'text' if path == 'wake' else 'message'}', a text that is not empty.")
    mapped = WebhookMapping(action="wake" if path == "wake" else "agent", name=fields.name or "webhook")
    task = _apply(HookTask(mapped.action, given or "", key=fields.idempotency_key), fields)
    # The path of the request decides the action, not its body.
    task = replace(task, action=mapped.action)
    return _finish(task, mapped, path, rules, new_id, chosen=fields.session_key is not None)


def find_mapping(path: str, body: Mapping[str, Any], rules: HookRules) -> WebhookMapping:
    """Return the first mapping that matches a request; raise `HookRefused` if there is none."""
    for mapped in rules.mappings:
        named = mapped.path or mapped.source
        if named and mapped.path in (None, path) and mapped.source in (None, body.get("source")):
            return mapped
    raise HookRefused(f"There is no webhook '{literal(path, MAX_NAME_CHARS)}'. Add it to hooks.mappings.", 404)


def map_hook(
    mapped: WebhookMapping,
    path: str,
    body: Mapping[str, Any],
    rules: HookRules,
    new_id: NewId,
    changes: HookFields | None,
) -> HookTask:
    """Return the task of a request by a mapping and its transform; raise `HookRefused` if it is not allowed."""
    action = (changes.action if changes else None) or mapped.action
    template = mapped.text_template if action == "wake" else mapped.message_template
    text = fill_template(template, body) if template else json.dumps(body, ensure_ascii=False, indent=1)
    key = body.get("idempotencyKey")
    task = HookTask(
        action,
        text,
        mapped.wake_mode,
        mapped.agent,
        _fill_session(mapped.session, body, new_id) if mapped.session else None,
        mapped.model,
        mapped.thinking,
        mapped.timeout_seconds,
        mapped.deliver,
        mapped.channel,
        mapped.to,
        key=key if isinstance(key, str) and key.strip() else None,
    )
    if changes is None:
        return _finish(task, mapped, path, rules, new_id, chosen=False)
    given = changes.text if action == "wake" else changes.message
    task = _apply(replace(task, text=given or changes.message or changes.text or text), changes)
    named = replace(mapped, name=changes.name or mapped.name)
    return _finish(task, named, path, rules, new_id, chosen=changes.session_key is not None)


def _apply(task: HookTask, fields: HookFields) -> HookTask:
    """Return the task with the given fields; omitted fields stay unchanged."""
    return replace(
        task,
        action=fields.action or task.action,
        wake_mode=fields.wake_mode or fields.mode or task.wake_mode,
        agent=fields.agent_id or task.agent,
        session=fields.session_key or task.session,
        model=fields.model or task.model,
        thinking=ReasoningEffort(fields.thinking) if fields.thinking else task.thinking,
        timeout_seconds=fields.timeout_seconds or task.timeout_seconds,
        deliver=task.deliver if fields.deliver is None else fields.deliver,
        channel=fields.channel or task.channel,
        to=fields.to or task.to,
    )


def _finish(
    task: HookTask, mapped: WebhookMapping, path: str, rules: HookRules, new_id: NewId, *, chosen: bool
) -> HookTask:
    """Check that a task is allowed, and label its text as a webhook and as untrusted."""
    if rules.agents is not None and task.agent is not None and not {task.agent, "*"} & set(rules.agents):
        raise HookRefused(f"Webhooks may not reach the agent '{literal(task.agent, MAX_NAME_CHARS)}'.", 403)
    if chosen and not rules.may_choose_session:
        raise HookRefused("Requests may not choose a session (hooks.allowRequestSessionKey is off).", 403)
    prefixes = tuple(rules.session_prefixes)
    if chosen and prefixes and not (task.session or "").startswith(prefixes):
        raise HookRefused(f"The session must start with one of: {', '.join(prefixes)}.", 403)
    name = literal(mapped.name or path, MAX_NAME_CHARS)
    shown = task.text if mapped.trusted else wrap_untrusted(task.text, TextSource.WEBHOOK, new_id=new_id)
    return replace(
        task,
        text=f"[Webhook {name}; not written by a person]\n{shown}",
        session=task.session or rules.default_session,
        trusted=mapped.trusted,
    )


def fill_template(template: str, body: Mapping[str, Any]) -> str:
    """Replace `{{payload.a.b[0]}}` in a template by fields of the request; a missing field is empty."""
    return _FIELD.sub(lambda found: _field(found[1], body), template)


def _fill_session(template: str, body: Mapping[str, Any], new_id: NewId) -> str:
    """Return the session key of a mapping; values of the request are sanitised and cannot add key parts."""

    def part(found: re.Match[str]) -> str:
        plain = _NO_NAME.sub("-", _field(found[1], body).lower()).strip("-.")
        return plain[:MAX_SESSION_PART_CHARS] or new_id()

    return _FIELD.sub(part, template)


def _field(path: str, body: Mapping[str, Any]) -> str:
    steps = _STEP.findall(path)
    value: Any = body
    for step in steps[1:] if steps and steps[0] == "payload" else steps:
        match value:
            case Mapping():
                value = value.get(step)
            case list() if step.isdecimal() and int(step) < len(value):
                value = value[int(step)]
            case _:
                return ""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class WebhookDelivery(Struct, frozen=True):
    """Where to deliver the answer to a webhook; `timeout_seconds` is the time limit of the turn."""

    agent: AgentId
    session: str
    deliver: bool = True
    channel: str | None = None
    to: str | None = None
    timeout_seconds: int | None = None


class WebhookRun(Struct, frozen=True):
    """A webhook request that an agent is processing."""

    run: RunId
    delivery: WebhookDelivery
    accepted_at: datetime


def encode_delivery(delivery: WebhookDelivery) -> str:
    return dump_json(to_plain(delivery))


def decode_delivery(text: str) -> WebhookDelivery:
    """Return the delivery that `encode_delivery` wrote; raise `ValueError` if it cannot be read."""
    return from_plain(load_json(text), WebhookDelivery)


class WebhookStore:
    """The unfinished webhook requests of a home; a starting gateway resumes them."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def keep(self, run: RunId, delivery: WebhookDelivery) -> WebhookRun:
        now = self._clock.now()
        with self._database.change(durable=True) as base:
            base.execute(_KEEP, (run, encode_delivery(delivery), format_moment(now)))
        return WebhookRun(run, delivery, now)

    def forget(self, run: RunId) -> None:
        with self._database.change(durable=True) as base:
            base.execute(_FORGET, (run,))

    def unfinished(self) -> tuple[WebhookRun, ...]:
        """Return the accepted and unfinished requests, oldest first."""
        return tuple(
            WebhookRun(RunId(row["run"]), decode_delivery(row["body"]), parse_moment(row["accepted_at"]))
            for row in self._database.read(_ALL)
        )


_CREATED = "SELECT name, agent, body, token_hash, created_at, used_at FROM webhooks ORDER BY name"
_CREATE = "INSERT INTO webhooks (name, agent, body, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"


class CreatedWebhook(Struct, frozen=True):
    """A webhook that an agent created and the owner approved; without a token it refuses every request."""

    name: str
    agent: AgentId
    template: str
    wake_mode: WakeMode
    created_at: datetime
    used_at: datetime | None = None
    token_hash: str | None = None

    @property
    def mapping(self) -> WebhookMapping:
        return WebhookMapping(
            path=self.name,
            name=self.name,
            agent=self.agent,
            message_template=self.template or None,
            wake_mode=self.wake_mode,
        )


class CreatedWebhookStore:
    """The webhooks that agents created; of a token only its hash is stored."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def list(self) -> tuple[CreatedWebhook, ...]:
        """Return all webhooks by name."""
        return tuple(_read_created(row) for row in self._database.read(_CREATED))

    def find(self, name: str) -> CreatedWebhook | None:
        return next((hook for hook in self.list() if hook.name == name), None)

    def get(self, name: str) -> CreatedWebhook:
        """Return a webhook; raise `UsageError` with the known ones if there is none."""
        found = self.find(name)
        if found is None:
            known = ", ".join(hook.name for hook in self.list()) or "none"
            raise UsageError(f"There is no webhook '{literal(name, MAX_NAME_CHARS)}'. Created by agents: {known}.")
        return found

    def create(self, agent: AgentId, name: str, template: str, wake_mode: WakeMode) -> None:
        """Store a webhook without a token; raise `UsageError` if there is one of this name."""
        body = dump_json({"template": template, "wakeMode": wake_mode})
        with self._database.change(durable=True) as base:
            if base.execute(_CREATE, (name, agent, body, format_moment(self._clock.now()))).rowcount != 1:
                raise UsageError(f"There is a webhook '{name}' already.")

    def renew_token(self, name: str) -> str:
        """Return a new token of a webhook; an earlier one is no longer valid."""
        token = secrets.token_urlsafe(32)
        self.get(name)
        with self._database.change(durable=True) as base:
            base.execute("UPDATE webhooks SET token_hash = ? WHERE name = ?", (hash_token(token), name))
        return token

    def record_use(self, name: str) -> None:
        with self._database.change() as base:
            base.execute("UPDATE webhooks SET used_at = ? WHERE name = ?", (format_moment(self._clock.now()), name))

    def revoke(self, name: str) -> CreatedWebhook:
        """Delete a webhook, and its token with it."""
        found = self.get(name)
        with self._database.change(durable=True) as base:
            base.execute("DELETE FROM webhooks WHERE name = ?", (name,))
        return found


def hash_token(token: str) -> str:
    """Return the stored form of a token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def _read_created(row: Row) -> CreatedWebhook:
    body = load_json(row["body"])
    return CreatedWebhook(
        row["name"],
        AgentId(row["agent"]),
        str(body.get("template") or ""),
        "next-heartbeat" if body.get("wakeMode") == "next-heartbeat" else "now",
        parse_moment(row["created_at"]),
        parse_moment(row["used_at"]) if row["used_at"] else None,
        row["token_hash"],
    )
