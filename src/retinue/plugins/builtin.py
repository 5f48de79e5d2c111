"""Retinue's own tools and providers, registered by the same door as anybody's."""

from __future__ import annotations

from retinue.core.extension import Lazy, ProviderFactory, Registrar, ToolFactory
from retinue.plugins.hookspecs import hookimpl
from retinue.providers.registry import ADAPTERS

TOOL_FAMILIES = ("files", "patch", "lookup", "shell", "process", "web", "status", "plan", "image")


@hookimpl
def retinue_register(register: Registrar) -> None:
    for family in TOOL_FAMILIES:
        register.tools(ToolFactory(family, Lazy(f"retinue.toolkit.{family}:make_tools")))
    for api, target in ADAPTERS.items():
        register.provider(ProviderFactory(api, Lazy(target)))
