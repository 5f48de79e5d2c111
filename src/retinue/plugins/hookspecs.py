"""All extension points: what a plugin can register, and the hook in which it does.

Each method of `Registrar` takes a name and a target, `package.module:attribute`. The attribute is imported when it is
used for the first time. A plugin may list the same things in its manifest instead; then nothing of it is imported at
start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pluggy

from retinue.core.envelope import Capabilities

NAME = "retinue"

HOOK_NAMES = (
    "agent:bootstrap",
    "before_model_resolve",
    "before_prompt_build",
    "before_tool_call",
    "after_tool_call",
    "command",
    "message_received",
    "message_sending",
    "before_compaction",
    "after_compaction",
    "session_start",
    "session_end",
    "turn_end",
)
"""The lifecycle hooks that a plugin can subscribe to; docs/plugins.md has the event of each."""

hookspec = pluggy.HookspecMarker(NAME)
hookimpl = pluggy.HookimplMarker(NAME)


class Registrar(Protocol):
    """Registers what a plugin provides. Registering a name twice is an error."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The plugin's settings: the defaults of its manifest, replaced by `plugins.entries.<name>.config`."""
        ...

    def tools(self, family: str, make: str) -> None:
        """Add tools: `make` takes a `ToolParts` (`retinue.toolkit.parts`) and returns a tuple of `Tool`."""
        ...

    def provider(self, api: str, make: str) -> None:
        """Add a model API for `models.providers.*.api`: `make` takes an `Endpoint` and returns the provider."""
        ...

    def embeddings(self, provider: str, make: str) -> None:
        """Add an embedding provider for `memorySearch.provider`.

        `make` takes an `EmbeddingParts` (`retinue.memory.embedding`) and returns an `Embedder`.
        """
        ...

    def embedding_batches(self, provider: str, make: str) -> None:
        """Add bulk embedding for an embedding provider with the API of OpenAI.

        `make` takes a `BatchParts` (`retinue.providers.embeddings.batches`) and returns a `BatchEmbedder`.
        """
        ...

    def channel(
        self,
        channel: str,
        make: str,
        *,
        settings: str | Mapping[str, Any] | None = None,
        capabilities: Capabilities = ...,
    ) -> None:
        """Add a chat service: `make` takes a `ChannelParts` (`retinue.channels.channel`) and returns a `Channel`.

        `settings` describes its own keys under `channels.<channel>` and in its accounts: the target of a class of
        settings, or a JSON Schema.
        """
        ...

    def command(self, name: str, run: str, *, summary: str, usage: str = "", owner_only: bool = False) -> None:
        """Add a slash command: `run` is an async function of a `CommandCall` that returns the answer's text."""
        ...

    def cli(self, name: str, command: str, *, summary: str) -> None:
        """Add a command of the command line: `command` is a click command."""
        ...

    def route(self, path: str, handle: str, *, scope: str, verbs: Sequence[str] = ("GET",)) -> None:
        """Add an HTTP route, `/plugins/<plugin>/<path>`: `handle` is an async function of starlette's `Request`."""
        ...

    def method(self, name: str, call: str, *, scope: str) -> None:
        """Add a gateway method, `<plugin>.<name>`: `call` is an async function of the parameters, a mapping.

        What it returns is sent as `value`.
        """
        ...

    def service(self, name: str, run: str) -> None:
        """Add a background service of the gateway: `run` is an async function of a `PluginContext`.

        It runs until it is cancelled, and is started again if it fails.
        """
        ...

    def skills(self, path: Path) -> None:
        """Add a folder of skills."""
        ...

    def hook(self, name: str, handler: str, *, priority: int = 0) -> None:
        """Subscribe to a lifecycle hook: `handler` is an async function of the event."""
        ...

    def memory(self, name: str, make: str) -> None:
        """Add a memory backend for the slot `memory`.

        `make` takes a `MemoryParts` (`retinue.memory.backend`) and returns a `Memory`.
        """
        ...

    def sandbox(self, name: str, make: str) -> None:
        """Add a sandbox backend for the slot `sandbox` and `sandbox.backend`.

        `make` takes a `SandboxParts` and returns a `Backend` (`retinue.sandbox.confinement`).
        """
        ...

    def context_engine(self, name: str, make: str) -> None:
        """Add a context engine for its slot: `make` takes an `EngineParts` and returns a `ContextEngine`."""
        ...

    def search_engine(self, name: str, engine: str) -> None:
        """Add a web search engine for `tools.web.search.provider`: `engine` is a `SearchEngine`."""
        ...

    def prompt(self, name: str, contribute: str) -> None:
        """Add prompt text for a model: `contribute` takes a `ModelInfo` and returns a `Contribution` or None."""
        ...

    def lifecycle(self, *, init: str | None = None, shutdown: str | None = None) -> None:
        """Run an async function of a `PluginContext` when the gateway starts or stops."""
        ...


class Hooks:
    """The hooks that Retinue calls on a plugin."""

    @hookspec
    def retinue_register(self, register: Registrar) -> None:
        """Register what the plugin provides. Runs once, at start; import nothing heavy here."""
