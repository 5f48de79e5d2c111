"""What the runtime hands to the tools it makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from retinue.core.clock import Clock, IdFactory
from retinue.sandbox.sandboxes import Sandboxes
from retinue.security.secrets import Secrets
from retinue.toolkit.board import SessionBoard
from retinue.toolkit.delegation import OpenCompany
from retinue.toolkit.jobdesk import OpenJobs
from retinue.toolkit.memory import OpenNotebook
from retinue.toolkit.running import CommandTable
from retinue.toolkit.settings import ToolsSettings
from retinue.tools.allowlist import FixedRules, Rulebook

if TYPE_CHECKING:
    from retinue.toolkit.gateway import OpenSteward
    from retinue.toolkit.message import OpenMessenger


class ToolParts(Struct, frozen=True):
    """The parts that tools are made from; one value for all agents of a runtime.

    `environment` is what this process inherited; commands get only the harmless names of it. Without `sandboxes`
    nothing is confined.
    """

    settings: ToolsSettings
    clock: Clock
    new_id: IdFactory
    commands: CommandTable
    board: SessionBoard
    environment: Mapping[str, str] = field(default_factory=dict)
    notebooks: OpenNotebook | None = None
    jobs: OpenJobs | None = None
    company: OpenCompany | None = None
    messenger: OpenMessenger | None = None
    steward: OpenSteward | None = None
    secrets: Secrets = field(default_factory=Secrets)
    rulebook: Rulebook = field(default_factory=FixedRules)
    sandboxes: Sandboxes | None = None
