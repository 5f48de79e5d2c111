"""Names in the configuration that refer to nothing: tools, agents, plugins, skills and context engines.

A misspelled name in a list of denied tools would silently deny nothing. Which names exist is known only once plugins
are loaded, so this is not part of validating the file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache

from msgspec import Struct

from retinue.config.keypath import Step, format_key_path
from retinue.config.keys import Key
from retinue.config.sections.gateway import GatewayTools
from retinue.config.sections.tools import AllowRules
from retinue.config.sources import Located, Problem
from retinue.config.validation import known_keys
from retinue.context.settings import PruningTools
from retinue.core.errors import RetinueError
from retinue.core.extension import ExtensionPoint
from retinue.runtime.agents.workspace import open_workspace
from retinue.runtime.home import Home
from retinue.runtime.inspect.explain import every_tool
from retinue.runtime.memory.backend_choice import BUILT_IN_MEMORY, NO_MEMORY
from retinue.runtime.memory.embedders import NO_PROVIDERS
from retinue.runtime.turns.sessions import DEFAULT_ENGINES
from retinue.toolkit.settings import ToolsSettings
from retinue.tools.policy import ALIASES, GROUPS, OWNER_TOOLS, TOOL_CALL, TOOL_SEARCH

_TOOL_RULES = (AllowRules, ToolsSettings, GatewayTools, PruningTools)


class _Kind(Struct, frozen=True):
    """What a name refers to, the names that exist, and where a person finds them."""

    noun: str
    names: Callable[[], Collection[str] | None]
    """Returns None if they cannot be determined."""
    listed_by: str


def find_unknown_names(home: Home) -> tuple[Problem, ...]:
    """Return a warning for each name in the configuration that does not exist, with the nearest one."""
    kinds = _Kinds(home)
    found: list[Problem] = []
    for path, key, node in known_keys(home.loaded.tree):
        kind = kinds.of(path, key)
        if kind is not None:
            found += filter(None, (_check(kind, place, item) for place, item in _items(path, node)))
    return tuple(found)


class _Kinds:
    """The kinds of names of one home; each is collected when the configuration first uses it."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._tools = _Kind("tool", cache(self._list_tools), "`retinue tools list` lists the tools")
        self._agents = _Kind("agent", lambda: home.config.agents.ids, "`retinue agents list` lists the agents")
        self._skills = _Kind("skill", cache(self._list_skills), "`retinue skills list` lists the skills")
        plugins = [plugin.name for plugin in (*home.registry.built_in, *home.registry.plugins)]
        self._plugins = _Kind("plugin", lambda: plugins, "`retinue plugins list` lists the plugins")
        self._engines = _Kind(
            "context engine",
            lambda: (*DEFAULT_ENGINES, *home.registry.engines),
            "`retinue plugins list` shows who has one",
        )
        extensions = home.registry.extensions
        self._apis = _Kind("model API", lambda: home.registry.providers, "See docs/models.md")
        self._embedders = _Kind(
            "embedding provider",
            lambda: (*NO_PROVIDERS, *extensions[ExtensionPoint.EMBEDDINGS]),
            "`retinue config explain memorySearch.provider` lists the built-in ones",
        )
        self._memories = _Kind(
            "memory backend",
            lambda: (*BUILT_IN_MEMORY, NO_MEMORY, *extensions[ExtensionPoint.MEMORY]),
            "`retinue plugins list` shows who has one",
        )
        self._sandboxes = _Kind(
            "sandbox backend",
            lambda: extensions[ExtensionPoint.SANDBOX],
            "`retinue plugins list` shows who has one",
        )
        self._searches = _Kind(
            "search engine",
            lambda: extensions[ExtensionPoint.SEARCH_ENGINES],
            "`retinue config explain tools.web.search.provider` lists the built-in ones",
        )

    def of(self, path: tuple[Step, ...], key: Key) -> _Kind | None:
        """Return what the value of a key names; None for other values."""
        match path:
            case ("plugins", "slots", "contextEngine"):
                return self._engines
            case ("plugins", "slots", "memory") | ("memory", "backend"):
                return self._memories
            case ("plugins", "slots", "sandbox") | ("agents", *_, "sandbox", "backend"):
                return self._sandboxes
            case ("agents", *_, "memorySearch", "provider" | "fallback"):
                return self._embedders
            case ("models", "providers", _, "api"):
                return self._apis
            case ("tools", "web", "search", "provider"):
                return self._searches
            case ("plugins", "allow" | "deny"):
                return self._plugins
            case ("tools", "agentToAgent", "allow") | ("hooks", "allowedAgentIds"):
                return self._agents
            case ("bindings" | "hooks", *_, "agentId") | ("agents", *_, "subagents", "allowAgents"):
                return self._agents
            case ("agents", "defaults", "skills") | ("agents", "list", int(), "skills") | ("skills", "allowBundled"):
                return self._skills
            case (*_, "allow" | "alsoAllow" | "deny") if key.section and issubclass(key.section, _TOOL_RULES):
                return self._tools
        return None

    def _list_tools(self) -> Collection[str]:
        grouped = [name for names in GROUPS.values() for name in names if "*" not in name]
        special = (*ALIASES, *OWNER_TOOLS, TOOL_SEARCH, TOOL_CALL)
        return {*every_tool(self._home), *grouped, *special, *GROUPS}

    def _list_skills(self) -> Collection[str] | None:
        found: set[str] = set()
        for agent in self._home.config.agents.ids:
            try:
                with open_workspace(self._home, agent) as workspace:
                    judged = workspace.skills()
            except RetinueError:
                return None  # The workspace may have skills of its own; another check reports that it is missing.
            found.update(name for each in judged for name in (each.skill.name, each.skill.key))
        return found


def _items(path: tuple[Step, ...], node: Located) -> Iterator[tuple[tuple[Step, ...], Located]]:
    if isinstance(node.value, list):
        yield from (((*path, index), item) for index, item in enumerate(node.value))
    else:
        yield path, node


def _check(kind: _Kind, path: tuple[Step, ...], node: Located) -> Problem | None:
    name = node.value.strip().lower() if isinstance(node.value, str) else ""
    known = kind.names() if name and not name.startswith("group:") else None  # Validation reports unknown groups.
    if known is None:
        return None
    names = {each.lower(): each for each in known}
    if any(fnmatchcase(each, name) for each in names):
        return None
    near = get_close_matches(name, names, n=1)
    hint = f"Did you mean {names[near[0]]}?" if near else f"{kind.listed_by}."
    message = f"There is no {kind.noun} '{node.value}', so this has no effect. {hint}"
    return Problem("warning", format_key_path(path), node.file, node.line, message)
