"""At which sinks an agent acts without approval after it read untrusted text."""

from __future__ import annotations

from retinue.config.schema import Config
from retinue.config.sections.agents import AgentSettings
from retinue.config.sections.tools import TaintedSinks
from retinue.core.sinks import ALL_SINKS, Sink


def unasked_sinks(config: Config, settings: AgentSettings) -> frozenset[Sink]:
    """Return the sinks without approval after untrusted text: all if the agent may run any command unasked.

    A map that switches off every sink has no effect: the protection as a whole is not one of its switches.
    """
    if is_unrestricted(config, settings):
        return ALL_SINKS
    off = switched_off(config.tools.ask_when_tainted)
    return frozenset() if off == ALL_SINKS else off


def is_unrestricted(config: Config, settings: AgentSettings) -> bool:
    """Return whether an agent may run any command without approval."""
    shared, own = config.tools.exec, settings.tools.exec
    return (own.security or shared.security) == "full" and (own.ask or shared.ask) == "off"


def switched_off(sinks: TaintedSinks) -> frozenset[Sink]:
    """Return the sinks that the configuration switches off."""
    asked = {
        Sink.FETCH: sinks.fetch,
        Sink.SEARCH: sinks.search,
        Sink.MESSAGES: sinks.messages,
        Sink.INSTRUCTION_FILES: sinks.instruction_files,
        Sink.FILES_OUTSIDE: sinks.files_outside,
        Sink.COMMANDS: sinks.commands,
        Sink.PLUGIN_TOOLS: sinks.plugin_tools,
        Sink.AUTOMATION: sinks.automation,
        Sink.CONFIGURATION: sinks.configuration,
    }
    return frozenset(sink for sink, is_asked in asked.items() if not is_asked)
