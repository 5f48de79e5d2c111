"""The built-in plugins: Retinue's own tools, providers and backends, registered as any plugin registers its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from retinue.channels.services import SERVICES
from retinue.core.extension import Slot
from retinue.plugins.hookspecs import Registrar
from retinue.providers.registry import ADAPTERS

TOOL_FAMILIES = {
    "files": "retinue.toolkit.files.read_write:make_tools",
    "patch": "retinue.toolkit.files.patch:make_tools",
    "lookup": "retinue.toolkit.files.search:make_tools",
    "shell": "retinue.toolkit.processes.tools:make_exec_tool",
    "process": "retinue.toolkit.processes.tools:make_process_tool",
    "web": "retinue.toolkit.web.tools:make_tools",
    "memory": "retinue.toolkit.memory:make_tools",
    "status": "retinue.toolkit.sessions:make_status_tool",
    "sessions": "retinue.toolkit.sessions:make_tools",
    "cron": "retinue.toolkit.cron:make_tools",
    "message": "retinue.toolkit.message:make_tools",
    "owner": "retinue.toolkit.owner:make_tools",
    "skills": "retinue.toolkit.skills:make_tools",
    "gateway": "retinue.toolkit.gateway:make_tools",
    "plan": "retinue.toolkit.sessions:make_plan_tool",
    "image": "retinue.toolkit.files.read_write:make_image_tool",
    "mcp": "retinue.toolkit.mcp.tools:make_tools",
}
"""The built-in tools by family, in the order in which the prompt lists them."""
SEARCH_ENGINES = {
    name: f"retinue.toolkit.web.search_engines:{name.upper()}" for name in ("brave", "tavily", "searxng", "duckduckgo")
}


_REMOTE = ("openai", "openai-compatible", "gemini", "voyage", "mistral", "ollama")
EMBEDDERS = {
    "local": "retinue.runtime.memory.embedders:make_local",
    **dict.fromkeys(_REMOTE, "retinue.runtime.memory.embedders:make_remote"),
}


def _register_core(register: Registrar) -> None:
    for family, target in TOOL_FAMILIES.items():
        register.tools(family, target)
    for api, target in ADAPTERS.items():
        register.provider(api, target)
    for engine, target in SEARCH_ENGINES.items():
        register.search_engine(engine, target)
    for provider, target in EMBEDDERS.items():
        register.embeddings(provider, target)
    for backend in ("bubblewrap", "landlock"):
        register.sandbox(backend, f"retinue.sandbox.{backend}:make_backend")
    register.channel("http", "retinue.channels.http:make_channel")
    register.prompt("small-models", "retinue.context.prompt.contributions:contribute_for_small_models")


def _register_gpt5(register: Registrar) -> None:
    register.prompt("gpt-5", "retinue.context.prompt.contributions:contribute_for_gpt5")


def _register_service(name: str, register: Registrar) -> None:
    service = SERVICES[name]
    register.channel(name, service.make, settings=service.settings, capabilities=service.capabilities)


def _register_qmd(register: Registrar) -> None:
    register.memory("qmd", "retinue.memory.qmd.memory:make_memory")


def _register_docker(register: Registrar) -> None:
    for name in ("docker", "podman"):
        register.sandbox(name, "retinue.sandbox.docker:make_backend")


def _register_batches(register: Registrar) -> None:
    for provider in ("openai", "openai-compatible"):
        register.embedding_batches(provider, "retinue.providers.embeddings.batches:open_batches")


def _register_lossless(register: Registrar) -> None:
    register.context_engine("lossless", "retinue.context.lossless:make_engine")
    register.tools("lossless", "retinue.toolkit.lossless:make_tools")


class BuiltInPlugin(Struct, frozen=True):
    """A plugin that is part of Retinue."""

    id: str
    description: str
    register: Callable[[Registrar], None]
    slot: Slot | None = None
    """If set, it is off unless this slot names it."""


CORE = "retinue"
BUILT_IN = (
    BuiltInPlugin(CORE, "Tools, model APIs, embedding providers, sandboxes, search engines", _register_core),
    BuiltInPlugin("gpt-5", "Prompt text for GPT-5 models", _register_gpt5),
    BuiltInPlugin("qmd", "The QMD program as memory backend (memory.backend: qmd)", _register_qmd),
    BuiltInPlugin("docker", "Docker and Podman as sandbox backends (sandbox.backend)", _register_docker),
    BuiltInPlugin("batch-embeddings", "Batch APIs of OpenAI and compatible endpoints", _register_batches),
    *(BuiltInPlugin(name, f"The channel {name}", partial(_register_service, name)) for name in SERVICES),
    BuiltInPlugin(
        "lossless",
        "A context engine that keeps summaries as a tree, with tools that open them",
        _register_lossless,
        Slot.CONTEXT_ENGINE,
    ),
)

BUILT_IN_NAMES = frozenset(plugin.id for plugin in BUILT_IN)
