"""What a session may do and why, from the functions that decide it during a turn; nothing is run or contacted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import random_id
from retinue.core.envelope import UNATTENDED, Inbound
from retinue.core.errors import ToolFailed, WorkspaceError
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.model import ModelInfo, ModelRef
from retinue.core.people import Person
from retinue.runtime.agents.chats import tools_of_group
from retinue.runtime.agents.confinement import make_sandboxes
from retinue.runtime.agents.mcp import make_mcp_servers
from retinue.runtime.agents.policy import elevation_of, session_layers
from retinue.runtime.agents.workspace import list_closed, locate_workspace, open_sessions, open_workspace
from retinue.runtime.approvals import ConfiguredAllowRules
from retinue.runtime.dispatcher.dispatcher import Dispatcher
from retinue.runtime.home import Home
from retinue.runtime.models import make_access
from retinue.runtime.session_services import make_home_tools
from retinue.runtime.turns.permissions import make_context
from retinue.sandbox.confinement import Confinement
from retinue.security.network import MODEL_CHOSEN, NetworkFailed, check_url
from retinue.security.secrets import Secrets
from retinue.sessions.session import Session, person_of, working_folder
from retinue.storage.database import DATABASE_NAME
from retinue.storage.files import Root
from retinue.toolkit.files.paths import locate_readable, locate_writable, storage_errors_explained
from retinue.toolkit.processes.approval import assess_launch
from retinue.toolkit.processes.command_table import CommandTable
from retinue.toolkit.processes.environment import base_environment
from retinue.toolkit.processes.tools import ExecArguments, enclose, make_launch_request, open_workdir
from retinue.tools.elevated import Elevation, elevate_rules
from retinue.tools.policy import Caller, Effect, Layers, ToolDecision, decide_tool
from retinue.tools.shell.allowlist import FixedCommandRules
from retinue.tools.shell.decision import Allow, Deny, NeedsApproval
from retinue.tools.tool import ToolContext
from retinue.tools.toolset import Toolset

_EFFECTS = {Allow: Effect.ALLOW, NeedsApproval: Effect.ASK, Deny: Effect.DENY}

READING = frozenset({"read", "image"})
WRITING = frozenset({"write", "edit", "apply_patch"})


class Explained(Struct, frozen=True):
    """The decision, its reason, and further details."""

    effect: Effect
    because: str
    more: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"decision": str(self.effect), **self.more, "because": self.because, "reason": self.because}


class SessionStanding(Struct, frozen=True):
    """A session as the policy judges it, for messages of one sender."""

    home: Home
    session: SessionKey
    model: ModelRef | None
    layers: Layers
    elevated: Elevation
    below: str = ""
    """The folder of the workspace that the session is restricted to."""
    person: Person | None = None
    """The person for whom it would be, if that is not the owner."""

    def judge_tool(self, tool: str, *, owner_only: bool = False) -> ToolDecision:
        return decide_tool(tool, self.layers, owner_only=owner_only)

    def judge_listed(self, tool: str, *, owner_only: bool = False) -> ToolDecision:
        """Return whether the session's list contains a tool, for any caller."""
        return decide_tool(tool, replace(self.layers, caller=None), owner_only=owner_only)

    @contextmanager
    def commands(self) -> Iterator[Callable[[str], Explained]]:
        """Return the judge of commands, with the agent's current rules and its workspace."""
        home, agent = self.home, self.session.agent
        settings = home.config.tools.exec
        base = base_environment(home.environment, settings.path_prepend)
        sandboxes = make_sandboxes(home)
        confinement = sandboxes.confine(self.session) if self.elevated is Elevation.OFF else None
        with _standing_root(home, agent, confinement) as root, _open_rule_store(home) as rule_store:
            rules = elevate_rules(rule_store.rules(agent), self.elevated)
            context = ToolContext(agent, self.session, RunId(""), "", root, owner=False, elevated=self.elevated)
            workdir = self.below if self.below and (root.path / self.below).is_dir() else "."
            with open_workdir(context, workdir) as folder:
                try:
                    enclosure = None if confinement is None else enclose(sandboxes, context, workdir)
                except ToolFailed as failure:
                    refused = self._under_policy(
                        "exec", Effect.DENY, str(failure), {"segments": [], "sandboxed": False, "needs": []}
                    )
                    yield lambda text: refused
                    return

                stays = enclosure is not None and sandboxes.decide(self.session).required

                def judge(text: str) -> Explained:
                    call = ExecArguments(command=text, workdir=workdir)
                    launch = make_launch_request(call, context, folder, settings, base, rules, enclosure)
                    launch = replace(launch, stays_inside=stays)
                    assessed = assess_launch(launch, rules, root)
                    more = {
                        "segments": [list(argv) for argv in assessed.decision.segments],
                        "sandboxed": assessed.request.confinement is not None,
                        "needs": list(map(str, assessed.needs)),
                    }
                    return self._under_policy(
                        "exec", _EFFECTS[type(assessed.decision)], assessed.decision.because, more
                    )

                yield judge

    def judge_path(self, tool: str, path: str) -> Explained:
        """Return whether a tool may use a file, by the checks of the tool; the file is checked, never read."""
        with open_workspace(self.home, self.session.agent) as workspace:
            try:
                context = make_context(workspace, self.session, self.elevated, self.below, self.person)
                found, note = _find_readable(context, path) if tool in READING else _find_writable(context, path)
            except (ToolFailed, WorkspaceError) as failure:
                return self._under_policy(tool, Effect.DENY, str(failure), {"path": path})
        return self._under_policy(tool, Effect.ALLOW, note, {"path": found})

    async def judge_url(self, tool: str, url: str) -> Explained:
        """Return whether a page may be fetched: its host is resolved and each address checked; nothing is contacted."""
        try:
            addresses = await check_url(url, MODEL_CHOSEN)
        except NetworkFailed as refusal:
            return self._under_policy(tool, Effect.DENY, str(refusal), {"url": url, "addresses": []})
        spelled = [str(address) for address in addresses]
        return self._under_policy(tool, Effect.ALLOW, "every address is public", {"url": url, "addresses": spelled})

    def _under_policy(self, tool: str, effect: Effect, because: str, more: Mapping[str, Any]) -> Explained:
        """Return a decision about one call, combined with the policy for the tool itself."""
        decision = self.judge_tool(tool)
        if decision.denied:
            return Explained(Effect.DENY, f"`{tool}` is not allowed: {decision.because}", more)
        if decision.effect is Effect.ASK and effect is Effect.ALLOW:
            return Explained(Effect.ASK, decision.because, more)
        return Explained(effect, because, more)


def _find_readable(context: ToolContext, path: str) -> tuple[str, str]:
    root, relative = locate_readable(context, path)
    with storage_errors_explained():
        there = root.identify(relative) is not None
    where = "the workspace" if root is context.root else str(root.path)
    return str(root.path / relative), f"it is in {where}" + ("" if there else ", which has no such file yet")


def _find_writable(context: ToolContext, path: str) -> tuple[str, str]:
    root, relative = locate_writable(context, path)
    with storage_errors_explained():
        root.check_write(relative)
    where = "the workspace" if root is context.root else str(root.path)
    return str(root.path / relative), f"it is in {where} and is not a control file"


@contextmanager
def _standing_root(home: Home, agent: AgentId, confinement: Confinement | None) -> Iterator[Root]:
    """Return the working folder of commands, or an empty one if it is not created yet."""
    closed = list_closed(home, agent)
    path = confinement.folder if confinement else locate_workspace(home, agent)
    if path.is_dir():
        with Root.open(path, closed=closed) as root:
            yield root
        return
    with TemporaryDirectory() as empty, Root.open(Path(empty), closed=closed) as root:
        yield root


@contextmanager
def _open_rule_store(home: Home) -> Iterator[ConfiguredAllowRules]:
    """Return the rules of the agents; a home without stored rules is not changed."""
    with TemporaryDirectory() as empty:
        has_none = bool(home.state_files) and not home.state_files[0].exists()
        database = home.open_state(Path(empty) / DATABASE_NAME if has_none else None)
        with closing(database):
            rule_store = ConfiguredAllowRules(home.config, database, home.audit, home.clock)
            rule_store.attach_skills(partial(_skill_programs, home))
            yield rule_store


def _skill_programs(home: Home, agent: AgentId) -> frozenset[str]:
    try:
        with open_workspace(home, agent) as workspace:
            return workspace.skill_programs()
    except WorkspaceError:
        return frozenset()


def inspect_session(
    home: Home, session: SessionKey, *, model: ModelRef | None = None, sender: Inbound | None = None
) -> SessionStanding:
    """Return the state of a session for a sender, by default its owner."""
    settings = home.config.agents.resolve(session.agent)
    inbound = sender or Inbound("", session)
    stored = find_session(home, session)
    elevated = elevation_of(home.config, settings, stored, inbound)
    person = person_of(stored, inbound)
    group = tools_of_group(home.config, session, inbound)
    layers = session_layers(home.config, settings, session, model, person, group)
    layers = replace(layers, caller=Caller(inbound.owner, elevated, inbound.source in UNATTENDED))
    return SessionStanding(home, session, model, layers, elevated, working_folder(stored), person)


def find_session(home: Home, session: SessionKey) -> Session | None:
    """Return the stored facts of a session; creates nothing."""
    store = open_sessions(home, session.agent)
    return store.find(session) if store.exists else None


def depends_on_model(home: Home, session: SessionKey) -> bool:
    """Return whether any rule of the policy depends on a provider or model."""
    tools, own = home.config.tools, home.config.agents.resolve(session.agent).tools
    return bool(tools.by_provider or own.by_provider or tools.exec.apply_patch.allow_models)


async def choose_model(home: Home, session: SessionKey, wanted: str | None) -> ModelInfo | None:
    """Return the model that the session's next turn would use."""
    access = make_access(home, session.agent)
    stored = find_session(home, session)
    choice = await access.choose(access.resolve(wanted) if wanted else (stored.model if stored else None))
    return access.info(choice.ref) if choice else None


def every_tool(home: Home) -> Toolset:
    """Return all tools, for inspection only."""
    secrets = Secrets(home.environment, home.redactor)
    table = CommandTable(home.clock, random_id)

    def find_dispatcher() -> Dispatcher:
        raise AssertionError("tools for inspection cannot be run")

    mcp = make_mcp_servers(home, table, secrets)
    tools = make_home_tools(home, find_dispatcher, table, secrets, FixedCommandRules(), mcp=mcp, controls_gateway=False)
    return tools.toolset
