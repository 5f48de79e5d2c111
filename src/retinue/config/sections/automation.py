"""Settings of automation: heartbeat, cron, hooks and webhooks."""

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
    """Heartbeat: periodic turns without a message."""

    enabled: bool = key(True)
    """Whether heartbeats run."""
    every: Duration = key(timedelta(minutes=30))
    """Interval, such as `30m`; `0m` means never."""
    prompt: str | None = key(None)
    """The prompt. Default: follow HEARTBEAT.md."""
    target: str = key("last")
    """Where the answer is sent: `last` (the last chat), `none`, or a channel."""
    to: str | None = key(None)
    """The recipient on that channel."""
    account_id: str | None = key(None)
    """The account that sends it, if the channel has several."""
    model: str | None = key(None)
    """The model for heartbeats."""
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
    """Whether each heartbeat starts a new session."""
    include_reasoning: bool = key(False)
    """Whether the reasoning is delivered too."""
    include_system_prompt_section: bool = key(True)
    """Whether the system prompt tells the agent about heartbeats."""
    slow_down: bool = key(True)
    """Whether the interval doubles after 12 heartbeats in a row without a report, and again after 24."""
    skip_when_busy: bool = key(True)
    """Whether a heartbeat is skipped while the agent is busy."""
    timeout_seconds: int | None = key(None, ge=1)
    """Time limit of a heartbeat in seconds. Default: the interval, at most 600."""


class CronSettings(Settings):
    """Scheduled jobs."""

    enabled: bool = key(True, reload="restart")
    """Whether jobs run."""
    store: str | None = key(None, reload="restart")
    """Database file of the jobs, absolute or relative to the home. Default: the database of the home."""
    max_concurrent_runs: int = key(1, reload="restart", ge=1)
    """Maximum number of concurrent jobs."""
    session_retention: Duration | Literal[False] = key(timedelta(hours=24))
    """How long the session of a finished run is kept; `false` means forever."""
    webhook_token: SecretValue | None = key(None)
    """The token that is sent with the report of a job to a webhook."""


class HookEntry(Settings):
    """Settings of one hook."""

    enabled: bool = key(True)
    """Whether the hook runs."""
    env: dict[str, str] = key({})
    """Environment variables of the hook."""
    allow_prompt_injection: bool = key(False)
    """Whether the hook may add workspace files to the prompt."""
    messages: int = key(15, ge=1, le=200)
    """For `session-memory`: how many of the last messages are saved."""
    paths: list[str] = key([])
    """For `bootstrap-extra-files`: workspace files for the prompt, or patterns such as `docs/*/AGENTS.md`."""
    patterns: list[str] = key([])
    """The same as `paths`."""
    files: list[str] = key([])
    """The same as `paths`."""


class HookLoadSettings(Settings):
    """Where hooks are found."""

    extra_dirs: list[str] = key([])
    """Additional folders with hooks."""


class InternalHooks(Settings):
    """Hook folders, which run inside Retinue."""

    enabled: bool = key(True)
    """Whether hook folders are used."""
    entries: dict[str, HookEntry] = key({})
    """Settings of each hook, by name."""
    load: HookLoadSettings = key(HookLoadSettings)
    """Where hooks are found."""


class HookMatch(Settings):
    """Which requests a mapping applies to."""

    path: str | None = key(None)
    """The part of the URL after the path of the webhooks."""
    source: str | None = key(None)
    """The `source` field of the request."""


class HookTransform(Settings):
    """Code of the owner that processes a request first."""

    module: str = key()
    """Its file in `hooks.transformsDir`: Python, or a program."""
    export: str = key("transform", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """The function in a Python file."""


class HookMapping(Settings):
    """How a request to `/hooks/<name>` is processed."""

    id: str | None = key(None)
    """A name for the mapping."""
    match: HookMatch = key(HookMatch)
    """Which requests it applies to."""
    action: Literal["wake", "agent"] = key("agent")
    """`wake` adds an event to the main session, `agent` runs a separate turn."""
    agent_id: str | None = key(None)
    """The agent that receives it."""
    wake_mode: Literal["now", "next-heartbeat"] = key("now")
    """When the agent processes it: at once, or with its next heartbeat."""
    name: str | None = key(None)
    """The name of the event in the session."""
    session_key: str | None = key(None)
    """The session; may contain fields of the request, such as `hook:mail-{{payload.id}}`."""
    message_template: str | None = key(None)
    """The message; may contain fields of the request, such as `{{payload.subject}}`."""
    text_template: str | None = key(None)
    """The text of a `wake`; may contain fields of the request."""
    deliver: bool = key(True)
    """Whether the answer is delivered."""
    channel: str | None = key(None)
    """Where the answer is sent: a channel, or `last` (the default), the chat in which the owner wrote last."""
    to: str | None = key(None)
    """The recipient on that channel."""
    model: str | None = key(None)
    """The model for these turns."""
    thinking: Literal["off", "minimal", "low", "medium", "high", "xhigh"] | None = key(None)
    """Reasoning effort of the model."""
    timeout_seconds: int | None = key(None, ge=1)
    """Time limit of the turn."""
    transform: HookTransform | None = key(None)
    """Code that converts the request to a message."""
    allow_unsafe_external_content: bool = key(False)
    """Whether the text of the request is trusted like text of the owner."""


class HooksSettings(Settings):
    """Hook folders and webhooks."""

    enabled: bool = key(False)
    """Whether webhooks are served."""
    token: SecretValue | None = key(None)
    """The token that requests must send."""
    path: str = key("/hooks", reload="restart", pattern=r"^(/[A-Za-z0-9._~-]+)+$")
    """The path of the webhooks."""
    default_session_key: str | None = key(None)
    """The session of requests that do not name one."""
    allow_request_session_key: bool = key(False)
    """Whether a request may choose its session."""
    allowed_session_key_prefixes: list[str] = key([])
    """Allowed prefixes of a session that a request chooses."""
    allowed_agent_ids: list[str] | None = key(None)
    """The agents that requests may name; `*` means all. Default: all."""
    max_body_bytes: int = key(262_144, ge=1)
    """The largest request."""
    presets: list[Literal["gmail"]] = key([])
    """Predefined mappings, used after your own."""
    transforms_dir: str | None = key(None)
    """The folder with the code of mappings, in the home. Default: `hooks/transforms`."""
    mappings: list[HookMapping] = key([])
    """How requests are processed, by path."""
    internal: InternalHooks = key(InternalHooks)
    """Hook folders, which run inside Retinue."""


class BackupSettings(Settings):
    """Backups that the gateway makes by itself."""

    every: Duration = key(timedelta(0))
    """How often the home is backed up while the gateway runs, such as `24h`; `0m` means never."""
    keep: int = key(7, ge=1)
    """How many backups are kept; older ones are removed."""
    folder: str | None = key(None)
    """The folder of the backups. Default: next to the home, with `-backups` added to its name."""
    passphrase: SecretValue | None = key(None)
    """The passphrase of encrypted backups, which need the extra `backup`."""
