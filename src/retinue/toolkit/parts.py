"""The dependencies of tools, which the runtime provides."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from retinue.core.clock import Clock, IdFactory
from retinue.sandbox.sandboxes import Sandboxes
from retinue.security.secrets import Secrets
from retinue.toolkit.processes.command_table import CommandTable
from retinue.toolkit.session_services import SessionServices
from retinue.toolkit.settings import ToolsSettings
from retinue.tools.shell.allowlist import CommandRuleStore, FixedCommandRules


class ToolParts(Struct, frozen=True):
    """The dependencies of tools; one value for all agents of a runtime.

    `environment` is that of this process, of which commands get only allowed variables. Without `sandboxes` commands
    are not sandboxed.
    """

    settings: ToolsSettings
    clock: Clock
    new_id: IdFactory
    commands: CommandTable
    services: SessionServices
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Secrets = field(default_factory=Secrets)
    rulebook: CommandRuleStore = field(default_factory=FixedCommandRules)
    sandboxes: Sandboxes | None = None
