"""What plugins add to a gateway: methods of the protocol, background services, and functions at its start and end."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import anyio

from retinue.core.extension import Extension, ExtensionPoint, PluginContext, RouteExtension
from retinue.gateway.errors import RequestRefused
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodBinding
from retinue.plugins.containment import INIT_SECONDS, SHUTDOWN_SECONDS, await_contained, call_contained
from retinue.plugins.manifest import PluginError
from retinue.runtime.open import Runtime
from retinue.wire.frames import Method, Nothing, Wire
from retinue.wire.protocol import ErrorCode, Scope

log = logging.getLogger(__name__)

METHOD_SECONDS = 60.0
RESTART_DELAYS = (1.0, 5.0, 30.0, 120.0)
"""How long a service that failed waits before it is started again; after the last one its plugin is switched off."""


class PluginValue(Wire, frozen=True):
    """The result of a method of a plugin."""

    value: Any


def plugin_methods(extensions: Iterable[Extension]) -> Mapping[str, MethodBinding]:
    """Return the methods of plugins."""
    return {each.name: _bind(each) for each in extensions if isinstance(each, RouteExtension)}


def _bind(extension: RouteExtension) -> MethodBinding:
    async def act(call: Call, params: dict[str, Any]) -> PluginValue:
        return PluginValue(await _call_plugin(extension, params))

    summary = f"A method of the plugin '{extension.plugin}'."
    method: Method[Any, Any] = Method(
        extension.name, Scope(extension.scope), Nothing, PluginValue, summary, changes=True
    )
    return MethodBinding(method, act, takes_mapping=True)


async def _call_plugin(extension: Extension, *arguments: Any) -> Any:
    try:
        handler = await anyio.to_thread.run_sync(call_contained, extension.make.load)
        return await await_contained(handler, *arguments, seconds=METHOD_SECONDS)
    except PluginError as error:
        raise RequestRefused(ErrorCode.FAILED, f"The plugin '{extension.plugin}' failed: {error}.") from None


async def run_plugins(runtime: Runtime) -> None:
    """Call the `init` of plugins, run their services until cancelled, and call their `shutdown`."""
    await _run_lifecycle(runtime, "init", INIT_SECONDS)
    try:
        async with anyio.create_task_group() as tasks:
            for service in tuple(runtime.home.registry.extensions[ExtensionPoint.SERVICES].values()):
                tasks.start_soon(_run_service, runtime, service)
            await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await _run_lifecycle(runtime, "shutdown", SHUTDOWN_SECONDS)


async def _run_lifecycle(runtime: Runtime, name: str, seconds: float) -> None:
    registry = runtime.home.registry
    for extension in tuple(registry.extensions[ExtensionPoint.LIFECYCLE].values()):
        if extension.name.rpartition(".")[2] != name:
            continue
        try:
            function = await anyio.to_thread.run_sync(call_contained, extension.make.load)
            await await_contained(function, _make_context(runtime, extension.plugin), seconds=seconds)
        except PluginError as error:
            registry.switch_off(extension.plugin, f"its {name} failed: {error}")


async def _run_service(runtime: Runtime, service: Extension) -> None:
    """Run a service; start it again after a pause if it fails."""
    registry = runtime.home.registry
    for delay in (*RESTART_DELAYS, None):
        if service.name not in registry.extensions[ExtensionPoint.SERVICES]:
            return  # something else of the plugin failed, so it is switched off
        try:
            run = await anyio.to_thread.run_sync(call_contained, service.make.load)
            await run(_make_context(runtime, service.plugin))
        except (Exception, SystemExit) as error:  # border: a plugin is foreign code, and may also exit
            log.warning("the service '%s' of the plugin '%s' failed", service.name, service.plugin, exc_info=error)
            if delay is None:
                registry.switch_off(
                    service.plugin, f"its service '{service.name}' failed {len(RESTART_DELAYS) + 1} times"
                )
                return
            await anyio.sleep(delay)
        else:
            return


def _make_context(runtime: Runtime, plugin: str) -> PluginContext:
    config = runtime.home.plugin_config(plugin, runtime.shared.secrets)
    return PluginContext(plugin, config, runtime.home.paths.plugin_data(plugin), runtime)
