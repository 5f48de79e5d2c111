"""What a plugin can provide, as values; nothing is imported before it is used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from retinue.core.envelope import Capabilities

if TYPE_CHECKING:
    from retinue.core.api import Assistant
    from retinue.core.keys import SessionKey


class ExtensionPoint(StrEnum):
    """The places where a plugin can extend Retinue, by their names in a manifest."""

    TOOLS = "tools"
    PROVIDERS = "providers"
    EMBEDDINGS = "embeddings"
    EMBEDDING_BATCHES = "embeddingBatches"
    CHANNELS = "channels"
    COMMANDS = "commands"
    CLI = "cli"
    HTTP = "http"
    METHODS = "gateway"
    SERVICES = "services"
    SKILLS = "skills"
    HOOKS = "hooks"
    MEMORY = "memory"
    SANDBOX = "sandbox"
    CONTEXT_ENGINES = "contextEngines"
    SEARCH_ENGINES = "webSearch"
    PROMPT = "prompt"
    LIFECYCLE = "lifecycle"


class Slot(StrEnum):
    """Roles that one plugin at a time can have; the built-in implementation has them otherwise."""

    MEMORY = "memory"
    SANDBOX = "sandbox"
    BROWSER = "browser"
    CONTEXT_ENGINE = "contextEngine"


class Lazy(Struct, frozen=True):
    """A reference to an object by its name, such as `package.module:attribute`; it is imported on first use."""

    target: str

    def load(self) -> Any:
        module, _, attribute = self.target.partition(":")
        return getattr(importlib.import_module(module), attribute)


class Extension(Struct, frozen=True):
    """Something that a plugin provides under a name, for example a family of tools.

    `make` is the function or object of the plugin; the extension point defines what it takes and returns.
    """

    name: str
    plugin: str
    make: Lazy


class HookSpec(Struct, frozen=True):
    """A subscription of a plugin to a hook by its name; subscribers with a higher priority are called first."""

    hook: str
    plugin: str
    handler: Lazy
    priority: int = 0


class CommandExtension(Extension, frozen=True, kw_only=True):
    """A slash command or a command of the command line."""

    summary: str
    usage: str = ""
    owner_only: bool = False
    """For slash commands: whether only the owner may use it."""


class RouteExtension(Extension, frozen=True, kw_only=True):
    """An HTTP route below `/plugins/<plugin>/`, or a gateway method; `scope` is required of the caller."""

    scope: str
    verbs: tuple[str, ...] = ("GET",)
    """HTTP methods; a gateway method has none."""


class ChannelExtension(Extension, frozen=True, kw_only=True):
    """A chat service; its settings are under `channels.<name>`."""

    capabilities: Capabilities = Capabilities()
    settings: Lazy | Mapping[str, Any] | None = None
    """Its own keys: a class of settings, or a JSON Schema."""


class SkillRoot(Struct, frozen=True):
    """A folder of skills of a plugin; with `flat`, of Markdown files that are commands."""

    path: Path
    plugin: str
    flat: bool = False


class PluginContext(Struct, frozen=True):
    """What services and lifecycle functions of a plugin receive."""

    plugin: str
    config: Mapping[str, Any]
    """Its settings, as `Registrar.config` has them."""
    data: Path
    """A folder for its own files; the plugin creates it."""
    assistant: Assistant
    """The agents of the home: send a message, and wait for the answer."""


class CommandCall(Struct, frozen=True):
    """A slash command of a plugin that a message contains."""

    rest: str
    """The text after the command's name."""
    session: SessionKey
    sender: str
    is_owner: bool
