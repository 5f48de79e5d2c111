"""The built-in plugins: Retinue's own tools, providers and backends, registered as any plugin registers its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from retinue.channels.services import SERVICES
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


def _register_core(register: Registrar) -> None:
    for family, target in TOOL_FAMILIES.items():
        register.tools(family, target)
    for api, target in ADAPTERS.items():
        register.provider(api, target)
    for engine, target in SEARCH_ENGINES.items():
        register.search_engine(engine, target)
    register.channel("http", "retinue.channels.http:make_channel")
    register.prompt("small-models", "retinue.context.prompt.contributions:contribute_for_small_models")


def _register_gpt5(register: Registrar) -> None:
    register.prompt("gpt-5", "retinue.context.prompt.contributions:contribute_for_gpt5")


def _register_service(name: str, register: Registrar) -> None:
    service = SERVICES[name]
    register.channel(name, service.make, settings=service.settings, capabilities=service.capabilities)


BUILT_IN: Mapping[str, Callable[[Registrar], None]] = {
    "retinue": _register_core,
    "gpt-5": _register_gpt5,
    **{name: partial(_register_service, name) for name in SERVICES},
}
"""The functions that register the built-in plugins, by the names of the plugins."""

BUILT_IN_NAMES = frozenset(BUILT_IN)
