"""Webhooks: what becomes of a request to `/hooks/…`. Pure: a request and the settings give a message, or a refusal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from retinue.core.errors import RetinueError
from retinue.security.content import Source, wrap_untrusted
from retinue.security.literals import literal

LONGEST_NAME = 80
_FIELD = re.compile(r"\{\{\s*([A-Za-z0-9_.\[\]-]+)\s*\}\}")
_STEP = re.compile(r"[^.\[\]]+")

NewId = Callable[[], str]


class HookRefused(RetinueError):
    """A request that no message comes of; the text says why, `status` is the HTTP status."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Mapped:
    """A row of the configuration's `hooks.mappings`."""

    path: str | None = None
    source: str | None = None
    action: Literal["wake", "agent"] = "agent"
    agent: str | None = None
    name: str | None = None
    session: str | None = None
    message_template: str | None = None
    text_template: str | None = None
    deliver: bool = True
    model: str | None = None
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class HookRules:
    """What the configuration says about all webhooks."""

    mappings: Sequence[Mapped] = ()
    default_session: str | None = None
    may_choose_session: bool = False
    session_prefixes: Sequence[str] = ()
    agents: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class HookTask:
    """What a request asks for: a message to an agent, in its main session (`wake`) or in one of its own."""

    action: Literal["wake", "agent"]
    text: str
    agent: str | None = None
    session: str | None = None
    model: str | None = None
    deliver: bool = True
    key: str | None = None
    """The caller's idempotency key."""


def read_hook(path: str, body: Mapping[str, Any], rules: HookRules, new_id: NewId) -> HookTask:
    """What a request to `/hooks/<path>` means; raises `HookRefused` where it means nothing or may not be."""
    match path:
        case "wake":
            task = HookTask("wake", _text(body, "text"), _optional(body, "agentId"), _optional(body, "sessionKey"))
            mapped = Mapped(name="wake")
        case "agent":
            mapped = Mapped(name=_optional(body, "name") or "webhook")
            task = HookTask(
                "agent",
                _text(body, "message"),
                _optional(body, "agentId"),
                _optional(body, "sessionKey"),
                _optional(body, "model"),
                body.get("deliver") is not False,
            )
        case _:
            mapped = _find(path, body, rules)
            template = mapped.text_template if mapped.action == "wake" else mapped.message_template
            text = fill(template, body) if template else json.dumps(body, ensure_ascii=False, indent=1)
            task = HookTask(mapped.action, text, mapped.agent, mapped.session, mapped.model, mapped.deliver)
    _check(task, mapped, rules)
    return HookTask(
        task.action,
        _label(task.text, mapped, path, new_id),
        task.agent,
        task.session or rules.default_session,
        task.model,
        task.deliver,
        _optional(body, "idempotencyKey"),
    )


def fill(template: str, body: Mapping[str, Any]) -> str:
    """A template with `{{payload.a.b[0]}}` replaced by fields of the request; what is not there is left empty."""
    return _FIELD.sub(lambda found: _field(found[1], body), template)


def _field(path: str, body: Mapping[str, Any]) -> str:
    steps = _STEP.findall(path)
    value: Any = body
    for step in steps[1:] if steps and steps[0] == "payload" else steps:
        match value:
            case Mapping():
                value = value.get(step)
            case list() if step.isdigit() and int(step) < len(value):
                value = value[int(step)]
            case _:
                return ""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _find(path: str, body: Mapping[str, Any], rules: HookRules) -> Mapped:
    for mapped in rules.mappings:
        if (
            mapped.path in (None, path)
            and mapped.source in (None, body.get("source"))
            and (mapped.path or mapped.source)
        ):
            return mapped
    raise HookRefused(f"There is no webhook '{literal(path, LONGEST_NAME)}'. Add it to hooks.mappings.", 404)


def _check(task: HookTask, mapped: Mapped, rules: HookRules) -> None:
    if rules.agents is not None and task.agent is not None and task.agent not in rules.agents:
        raise HookRefused(f"Webhooks may not reach the agent '{literal(task.agent, LONGEST_NAME)}'.", 403)
    chosen = task.session is not None and task.session != mapped.session
    if chosen and not rules.may_choose_session:
        raise HookRefused("A request may not choose its session (hooks.allowRequestSessionKey).", 403)
    prefixes = tuple(rules.session_prefixes)
    if chosen and prefixes and not (task.session or "").startswith(prefixes):
        raise HookRefused(f"The session must begin with one of: {', '.join(prefixes)}.", 403)


def _label(text: str, mapped: Mapped, path: str, new_id: NewId) -> str:
    """The message as the model reads it: whose it is, and that what it says comes from outside."""
    name = literal(mapped.name or path, LONGEST_NAME)
    shown = text if mapped.trusted else wrap_untrusted(text, Source.WEBHOOK, new_id=new_id)
    return f"[Webhook {name}; not written by a person]\n{shown}"


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value.strip():
        raise HookRefused(f"The request needs '{name}', a text that is not empty.")
    return value


def _optional(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    raise HookRefused(f"'{name}' must be a text that is not empty.")
