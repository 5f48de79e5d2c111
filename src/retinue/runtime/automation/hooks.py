"""The hooks of a running Retinue: those of plugins, and the programs in hook folders."""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import anyio.to_thread
from msgspec import Struct, field
from msgspec.structs import replace

import retinue
from retinue.agent.calls import AFTER_TOOL, BEFORE_TOOL
from retinue.automation.hook_folders import (
    BOOTSTRAP as BOOTSTRAP_EVENT,
)
from retinue.automation.hook_folders import HookFolder, HookReply, find_folders, read_folder, run_hook
from retinue.config.sections.automation import HookEntry
from retinue.config.sections.gateway import PluginEntry
from retinue.context.points import AFTER_COMPACTION, BEFORE_COMPACTION, BEFORE_MODEL, BEFORE_PROMPT, Compacting
from retinue.core.envelope import Inbound, Outbound
from retinue.core.errors import RetinueError
from retinue.core.extension import HookSpec
from retinue.core.keys import SessionKey
from retinue.dispatch.hook_points import (
    COMMAND,
    MESSAGE_RECEIVED,
    MESSAGE_SENDING,
    SESSION_END,
    SESSION_START,
    TURN_END,
    CommandGiven,
    SessionChange,
    TurnEnded,
)
from retinue.hooks import DEFAULT_TIMEOUT_SECONDS, HookBus, HookPoint, HookQuery, Subscriber
from retinue.plugins.containment import call_contained
from retinue.plugins.manifest import PluginError
from retinue.runtime.agents.workspace import is_trusted, locate_workspace, open_sessions, path_in_workspace
from retinue.runtime.home import Home
from retinue.sessions.reset import ResetReason
from retinue.skills.library import make_context
from retinue.skills.requirements import find_unmet
from retinue.toolkit.processes.environment import base_environment, check_variables
from retinue.workspace.bootstrap import BOOTSTRAP, HOOK_FOLDERS, BootstrapFiles

if TYPE_CHECKING:
    from retinue.runtime.turns.sessions import Sessions

log = logging.getLogger(__name__)

SELF = Subscriber(HOOK_FOLDERS, timeout=60.0, permissions=frozenset({"prompt"}))
"""Each hook folder needs its own permission to change a prompt."""
BUNDLED = Path(retinue.__file__).parent / "automation" / "bundled"
ON_BY_ITSELF = frozenset({"boot-md"})
"""Bundled hooks that are enabled by default."""

HookSource = Literal["home", "extra", "bundled", "workspace"]
POINTS: dict[str, HookPoint[Any] | HookQuery[Any, Any]] = {
    point.name: point
    for point in (
        BOOTSTRAP,
        BEFORE_MODEL,
        BEFORE_PROMPT,
        BEFORE_TOOL,
        AFTER_TOOL,
        COMMAND,
        MESSAGE_RECEIVED,
        MESSAGE_SENDING,
        BEFORE_COMPACTION,
        AFTER_COMPACTION,
        SESSION_START,
        SESSION_END,
        TURN_END,
    )
}
"""All hook points that a plugin can subscribe to."""


class KnownHook(Struct, frozen=True):
    """A hook that was found: its owner, whether it is enabled, and why it cannot be used."""

    name: str
    source: HookSource
    folder: Path
    enabled: bool
    hook: HookFolder | None
    problems: tuple[str, ...] = ()

    @property
    def runs(self) -> bool:
        return self.enabled and self.hook is not None and not self.problems


def list_hooks(home: Home) -> Iterator[KnownHook]:
    """Return every hook of a home. The first of a name counts: the owner's, bundled ones, workspaces'."""
    for folder, source in _distinct(home):
        yield _read_hook(home, folder, source)


def is_hook_on(home: Home, name: str, *, own: bool = False) -> bool:
    """Return whether a hook is enabled; hooks in the home are, unless the configuration disables them."""
    settings = home.config.hooks.internal
    entry = settings.entries.get(name)
    return settings.enabled and (entry.enabled if entry is not None else own or name in ON_BY_ITSELF)


def bundled_on(home: Home) -> tuple[str, ...]:
    """Return the bundled hooks that are enabled and not replaced by one of the owner's."""
    configured = (*home.config.hooks.internal.entries, *ON_BY_ITSELF)
    names = sorted(name for name in set(configured) if (BUNDLED / name).is_dir() and is_hook_on(home, name))
    own = {folder.name for root in _own_roots(home) for folder in find_folders(root)} if names else set()
    return tuple(name for name in names if name not in own)


def _read_hook(home: Home, folder: Path, source: HookSource) -> KnownHook:
    enabled = is_hook_on(home, folder.name, own=source in ("home", "extra"))
    entry = home.config.hooks.internal.entries.get(folder.name) or HookEntry()
    try:
        check_variables(entry.env)
        hook = read_folder(folder, bundled=source == "bundled")
    except RetinueError as error:
        return KnownHook(folder.name, source, folder, enabled, None, (str(error),))
    context = make_context(
        home.config.skills,
        system=sys.platform,
        environment=home.environment,
        has_program=home.programs.on(home.environment.get("PATH", "")),
        config=home.plain_config,
    )
    unmet = tuple(find_unmet(hook.needs, context, {*context.env, *entry.env}, always=hook.always))
    return KnownHook(folder.name, source, folder, enabled, hook, unmet)


def _distinct(home: Home) -> Iterator[tuple[Path, HookSource]]:
    seen: set[str] = set()
    for folder, source in _folders(home):
        if folder.name not in seen:
            seen.add(folder.name)
            yield folder, source


def _folders(home: Home) -> Iterator[tuple[Path, HookSource]]:
    own, *extra = _own_roots(home)
    yield from ((folder, "home") for folder in find_folders(own))
    for root in extra:
        yield from ((folder, "extra") for folder in find_folders(root))
    yield from ((folder, "bundled") for folder in find_folders(BUNDLED))
    for agent in home.config.agents.ids:
        if is_trusted(home, agent):
            own = locate_workspace(home, agent) / "hooks"
            yield from ((folder, "workspace") for folder in find_folders(own))


def _own_roots(home: Home) -> tuple[Path, ...]:
    extra = home.config.hooks.internal.load.extra_dirs
    return (home.paths.path / "hooks", *(Path(path).expanduser() for path in extra))


class HookFolders(Struct, frozen=True):
    """The programs of enabled hooks, with the environment of each."""

    hooks: tuple[tuple[HookFolder, Mapping[str, str]], ...]
    home: Home
    _added: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    """The files that each hook added to a session's prompt last, so that the audit log records only changes."""

    async def run_hooks(self, event: str, session: SessionKey | None = None, **context: Any) -> tuple[str, ...]:
        """Run every hook that subscribes to an event, one after the other, so that they see events in order.

        Returns their messages for the person, each under its hook's name.
        """
        replies = [(hook, await self._run_hook(hook, event, session, context)) for hook in self._listeners(event)]
        return tuple(f"[{hook.name}] {text}" for hook, reply in replies for text in reply.messages)

    def _listeners(self, event: str) -> Iterator[HookFolder]:
        return (hook for hook, _ in self.hooks if hook.wants(event))

    async def _run_hook(
        self, hook: HookFolder, event: str, session: SessionKey | None, context: Mapping[str, Any]
    ) -> HookReply:
        kind, _, action = event.partition(":")
        payload = {
            "type": kind,
            "action": action,
            "sessionKey": str(session) if session else None,
            "sessionId": context.get("sessionId") or self._session_id(session),
            "workspaceDir": str(locate_workspace(self.home, session.agent)) if session else None,
            "timestamp": self.home.clock.now().isoformat(),
            "context": {
                name: self.home.redactor.redact(value) if isinstance(value, str) else value
                for name, value in context.items()
            },
        }
        environment = next(variables for known, variables in self.hooks if known is hook)
        try:
            return await run_hook(hook, payload, environment)
        except RetinueError as error:  # a failing hook affects nothing else
            log.warning("%s", error)
            return HookReply()

    def _session_id(self, session: SessionKey | None) -> str | None:
        found = open_sessions(self.home, session.agent).find(session) if session else None
        return str(found.id) if found else None

    def listen(self, bus: HookBus) -> None:
        """Subscribe to the events of sessions."""
        bus.subscribe(MESSAGE_RECEIVED, self._received, SELF)
        bus.subscribe(MESSAGE_SENDING, self._sent, SELF)
        bus.subscribe(COMMAND, self._commanded, SELF)
        bus.subscribe(SESSION_START, self._started, SELF)
        bus.subscribe(SESSION_END, self._ended, SELF)
        bus.subscribe(TURN_END, self._turn_over, SELF)
        bus.subscribe(BEFORE_COMPACTION, partial(self._compacting, "session:compact:before"), SELF)
        bus.subscribe(AFTER_COMPACTION, partial(self._compacting, "session:compact:after"), SELF)
        if any(self._may_add_files(hook) for hook in self._listeners(BOOTSTRAP_EVENT)):
            bus.subscribe(BOOTSTRAP, self._bootstrap, SELF)

    async def _received(self, event: Inbound) -> None:
        await self.run_hooks("message:received", event.session, text=event.text, source=event.source.value)

    async def _sent(self, event: Outbound) -> None:
        await self.run_hooks("message:sent", event.session, text=event.text, status=event.status.value)

    async def _commanded(self, event: CommandGiven) -> CommandGiven:
        messages = await self.run_hooks(
            f"command:{event.name}", event.session, arguments=event.rest, sender=event.sender
        )
        return replace(event, messages=(*event.messages, *messages))

    async def _started(self, event: SessionChange) -> None:
        await self.run_hooks("session:start", event.session, sessionId=event.session_id, reason=event.reason)
        if event.reason in tuple(ResetReason):
            await self.run_hooks("session:auto-reset", event.session, sessionId=event.session_id, reason=event.reason)

    async def _ended(self, event: SessionChange) -> None:
        await self.run_hooks("session:end", event.session, sessionId=event.session_id, reason=event.reason)

    async def _turn_over(self, event: TurnEnded) -> None:
        await self.run_hooks("agent:turn-end", event.session, status=event.finished.status.value)

    async def _compacting(self, name: str, event: Compacting) -> Compacting:
        tokens = {"tokensBefore": event.tokens_before, "tokensAfter": event.tokens_after}
        return replace(event, messages=(*event.messages, *await self.run_hooks(name, event.session, **tokens)))

    async def _bootstrap(self, event: BootstrapFiles) -> BootstrapFiles:
        """Let permitted hooks name more files for a prompt; only paths inside the workspace are accepted."""
        workspace = locate_workspace(self.home, event.session.agent)
        names = [file.name for file in event.files]
        context = {"workspaceDir": str(workspace), "agentId": event.session.agent, "bootstrapFiles": names}
        extra = list(event.extra)
        for hook in self._listeners(BOOTSTRAP_EVENT):
            if not self._may_add_files(hook):
                log.warning("the hook %s may not change prompts (allowPromptInjection)", hook.name)
                continue
            reply = await self._run_hook(hook, BOOTSTRAP_EVENT, event.session, context)
            added = tuple(filter(None, (path_in_workspace(path, workspace) for path in reply.bootstrap_files)))
            self._audit(hook, event.session, added)
            extra += added
        return replace(event, extra=tuple(dict.fromkeys(extra)))

    def _may_add_files(self, hook: HookFolder) -> bool:
        entry = self.home.config.hooks.internal.entries.get(hook.name)
        return entry is not None and entry.allow_prompt_injection

    def _audit(self, hook: HookFolder, session: SessionKey, added: tuple[str, ...]) -> None:
        if self._added.get((hook.name, session.text), ()) != added:
            self._added[hook.name, session.text] = added
            details = {"session": str(session), "files": list(added)}
            self.home.audit.record("prompt_change", f"hook:{hook.name}", details)


def load_hook_folders(home: Home) -> HookFolders:
    """Return the enabled hook programs of a home; an enabled one that cannot be used is logged."""
    found = []
    for folder, source in _distinct(home):
        if source == "bundled" or not is_hook_on(home, folder.name, own=source in ("home", "extra")):
            continue
        known = _read_hook(home, folder, source)
        if known.hook is None or known.problems:
            log.warning("the hook %s cannot be used: %s", known.name, "; ".join(known.problems))
            continue
        entry = home.config.hooks.internal.entries.get(known.name) or HookEntry()
        found.append((known.hook, {**base_environment(home.environment), **entry.env}))
    return HookFolders(tuple(found), home)


def open_bus(home: Home) -> HookBus:
    """Return a bus with the hooks of plugins and of hook folders; one that cannot be loaded is logged and skipped."""
    bus = HookBus()
    for spec in tuple(home.registry.hooks):
        subscriber = _subscriber(spec, home.config.plugins.entries.get(spec.plugin))
        bus.subscribe(POINTS[spec.hook], _PluginHook(home, spec), subscriber)
    if home.registry.programs:
        from retinue.runtime.automation.bundle_hooks import listen_to_bundles

        listen_to_bundles(home, bus)
    folders = load_hook_folders(home)
    if folders.hooks:
        folders.listen(bus)
    return bus


class _PluginHook:
    """The handler of a plugin, imported at the first event. If that fails, its plugin is switched off."""

    def __init__(self, home: Home, spec: HookSpec) -> None:
        self._home = home
        self._spec = spec
        self._handler: Callable[[Any], Awaitable[Any]] | None = None

    async def __call__(self, event: Any) -> Any:
        if self._handler is None:
            if self._spec not in self._home.registry.hooks:
                return None  # the plugin was switched off
            try:
                self._handler = await anyio.to_thread.run_sync(call_contained, self._spec.handler.load)
            except PluginError as error:
                self._home.registry.switch_off(
                    self._spec.plugin, f"its hook {self._spec.hook} cannot be loaded: {error}"
                )
                return None
        assert self._handler is not None
        return await self._handler(event)


def attach_bundled(sessions: Sessions) -> None:
    """Subscribe the enabled bundled hooks; they need the sessions, which are created after the bus."""
    names = [name for name in bundled_on(sessions.home) if name not in ON_BY_ITSELF]
    if names:
        from retinue.runtime.automation.bundled_hooks import BUNDLED_HOOKS

        for name in names:
            BUNDLED_HOOKS[name](sessions)


def _subscriber(spec: HookSpec, entry: PluginEntry | None) -> Subscriber:
    """Return the plugin with its permissions from the configuration."""
    rules = (entry or PluginEntry()).hooks
    granted = {"prompt": rules.allow_prompt_injection, "model": rules.allow_model_override}
    milliseconds = rules.timeouts.get(spec.hook, rules.timeout_ms)
    return Subscriber(
        spec.plugin,
        spec.priority,
        frozenset(name for name, given in granted.items() if given),
        milliseconds / 1000 if milliseconds else DEFAULT_TIMEOUT_SECONDS,
    )
