"""Settings of what wakes an agent up: heartbeat, cron, hooks and webhooks."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from retinue.providers.settings import SecretValue
from retinue.settings import Duration, Settings, key


class ActiveHours(Settings):
    """When the heartbeat may run."""

    start: str | None = key(None, pattern=r"^([01]?\d|2[0-3]):[0-5]\d$")
    """The start, such as `08:00`."""
    end: str | None = key(None, pattern=r"^(([01]?\d|2[0-3]):[0-5]\d|24:00)$")
    """The end (exclusive), such as `24:00`."""
    timezone: str = key("user")
    """`user`, `local` or a zone such as `Europe/Berlin`."""


class HeartbeatSettings(Settings):
    """How an agent wakes up by itself to look after things."""

    enabled: bool = key(True)
    """Whether there is a heartbeat at all."""
    every: Duration = key(timedelta(minutes=30))
    """Interval, such as `30m`; `0m` is never."""
    prompt: str | None = key(None)
    """The prompt. Default: follow HEARTBEAT.md."""
    target: str = key("last")
    """Where the answer goes: `last` (the last chat), `none`, or a channel."""
    to: str | None = key(None)
    """The recipient on that channel."""
    account_id: str | None = key(None)
    """The account that sends it, where a channel has several."""
    model: str | None = key(None)
    """Another model for heartbeats."""
    session: str = key("main")
    """The session that heartbeats belong to."""
    ack_max_chars: int = key(300, ge=0)
    """An answer with HEARTBEAT_OK and at most this much more is not delivered."""
    active_hours: ActiveHours = key(ActiveHours)
    """When the heartbeat may run."""
    direct_policy: Literal["allow", "block"] = key("allow")
    """Whether heartbeats may answer into direct chats on channels."""
    light_context: bool = key(False)
    """Whether a heartbeat prompt has only HEARTBEAT.md of the workspace files; best with `isolatedSession`."""
    isolated_session: bool = key(False)
    """Whether each heartbeat starts a fresh session."""
    include_reasoning: bool = key(False)
    """Whether the reasoning is delivered too."""
    include_system_prompt_section: bool = key(True)
    """Whether the system prompt tells the agent about heartbeats."""
    skip_when_busy: bool = key(True)
    """Whether a heartbeat is skipped while the agent is busy."""
    timeout_seconds: int | None = key(None, ge=1)
    """Time limit of a heartbeat in seconds. Default: the interval, at most 600."""


class CronSettings(Settings):
    """Jobs that run at set times."""

    enabled: bool = key(True, reload="restart")
    """Whether jobs run."""
    store: str | None = key(None, reload="restart")
    """Another database file for the jobs, in the home unless it is a full path; without it, the home's own."""
    max_concurrent_runs: int = key(1, reload="restart", ge=1)
    """How many jobs may run at once."""
    session_retention: Duration | Literal[False] = key(timedelta(hours=24))
    """How long the session of a finished run is kept; `false` keeps it for good."""
    webhook_token: SecretValue | None = key(None)
    """The token sent along when a job reports to an address."""


class HookEntry(Settings):
    """What is configured for one hook."""

    enabled: bool = key(True)
    """Whether the hook runs."""
    env: dict[str, str] = key({})
    """Environment variables of the hook."""
    allow_prompt_injection: bool = key(False)
    """Whether the hook may put more files of the workspace into the prompt."""
    messages: int = key(15, ge=1, le=200)
    """Of `session-memory`: how many of the last messages are kept."""
    paths: list[str] = key([])
    """Of `bootstrap-extra-files`: files of the workspace for the prompt, or patterns such as `docs/*/AGENTS.md`."""
    patterns: list[str] = key([])
    """The same as `paths`."""
    files: list[str] = key([])
    """The same as `paths`."""


class HookLoadSettings(Settings):
    """Where hooks come from."""

    extra_dirs: list[str] = key([])
    """More folders to look for hooks in."""


class InternalHooks(Settings):
    """Hook folders, which run inside Retinue."""

    enabled: bool = key(True)
    """Whether hook folders are used at all."""
    entries: dict[str, HookEntry] = key({})
    """Settings per hook, under its name."""
    load: HookLoadSettings = key(HookLoadSettings)
    """Where hooks come from."""


class HookMatch(Settings):
    """Which requests a mapping is for."""

    path: str | None = key(None)
    """The part of the address behind the hooks' path."""
    source: str | None = key(None)
    """The `source` field of the request."""


class HookTransform(Settings):
    """Code of the owner's that looks at a request first."""

    module: str = key()
    """Its file in `hooks.transformsDir`: Python, or a program."""
    export: str = key("transform", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """The function in a Python file."""


class HookMapping(Settings):
    """What becomes of a request to `/hooks/<name>`."""

    id: str | None = key(None)
    """A name for the mapping."""
    match: HookMatch = key(HookMatch)
    """Which requests it is for."""
    action: Literal["wake", "agent"] = key("agent")
    """`wake` nudges the main session, `agent` runs a turn of its own."""
    agent_id: str | None = key(None)
    """Which agent takes it."""
    wake_mode: Literal["now", "next-heartbeat"] = key("now")
    """When the agent looks at it: at once, or together with its next heartbeat."""
    name: str | None = key(None)
    """What the event is called in the session."""
    session_key: str | None = key(None)
    """The session it goes to; may hold fields of the request, as in `hook:mail-{{payload.id}}`."""
    message_template: str | None = key(None)
    """The message, with fields of the request as in `{{payload.subject}}`."""
    text_template: str | None = key(None)
    """The text of a `wake`, likewise."""
    deliver: bool = key(True)
    """Whether the answer is delivered."""
    channel: str | None = key(None)
    """Where the answer goes: a channel, `last` (as without it: the chat where the owner wrote last)."""
    to: str | None = key(None)
    """To whom it goes there."""
    model: str | None = key(None)
    """Another model for this."""
    thinking: Literal["off", "minimal", "low", "medium", "high", "xhigh"] | None = key(None)
    """How much the model reasons about it."""
    timeout_seconds: int | None = key(None, ge=1)
    """How long the turn may take."""
    transform: HookTransform | None = key(None)
    """Code that turns the request into a message."""
    allow_unsafe_external_content: bool = key(False)
    """Whether the text of the request is trusted like the owner's."""


class HooksSettings(Settings):
    """Hook folders and webhooks."""

    enabled: bool = key(False)
    """Whether webhooks are served."""
    token: SecretValue | None = key(None)
    """The token that requests must carry."""
    path: str = key("/hooks", reload="restart", pattern=r"^(/[A-Za-z0-9._~-]+)+$")
    """Where webhooks are served."""
    default_session_key: str | None = key(None)
    """The session of requests that name none."""
    allow_request_session_key: bool = key(False)
    """Whether a request may choose its session."""
    allowed_session_key_prefixes: list[str] = key([])
    """How a chosen session must start."""
    allowed_agent_ids: list[str] | None = key(None)
    """The agents that requests may name; without it, or with `*`, all."""
    max_body_bytes: int = key(262_144, ge=1)
    """The largest request."""
    presets: list[Literal["gmail"]] = key([])
    """Ready-made mappings to use, after your own."""
    transforms_dir: str | None = key(None)
    """Where the code of mappings is found: a folder inside the home, without it `hooks/transforms` there."""
    mappings: list[HookMapping] = key([])
    """What becomes of requests, by their address."""
    internal: InternalHooks = key(InternalHooks)
    """Hook folders, which run inside Retinue."""
