"""The built-in plugin: Retinue's own tools and providers, registered like those of any other plugin."""

from __future__ import annotations

from retinue.core.extension import Lazy, ProviderFactory, Registrar, ToolFactory
from retinue.plugins.hookspecs import hookimpl
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
    "gateway": "retinue.toolkit.gateway:make_tools",
    "plan": "retinue.toolkit.sessions:make_plan_tool",
    "image": "retinue.toolkit.files.read_write:make_image_tool",
}
"""The built-in tools by family, in the order in which the prompt lists them."""


@hookimpl
def retinue_register(register: Registrar) -> None:
    for family, target in TOOL_FAMILIES.items():
        register.tools(ToolFactory(family, Lazy(target)))
    for api, target in ADAPTERS.items():
        register.provider(ProviderFactory(api, Lazy(target)))
