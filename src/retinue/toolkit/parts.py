"""What the runtime hands to the tools it makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from retinue.core.clock import Clock, IdFactory
from retinue.security.secrets import Secrets
from retinue.toolkit.board import SessionBoard
from retinue.toolkit.memory import OpenNotebook
from retinue.toolkit.running import CommandTable
from retinue.toolkit.settings import ToolsSettings


@dataclass(frozen=True, slots=True)
class ToolParts:
    """The parts that tools are made from; one value for all agents of a runtime.

    `environment` is what this process inherited; commands get only the harmless names of it.
    """

    settings: ToolsSettings
    clock: Clock
    new_id: IdFactory
    commands: CommandTable
    board: SessionBoard
    environment: Mapping[str, str] = field(default_factory=dict)
    notebooks: OpenNotebook | None = None
    secrets: Secrets = field(default_factory=Secrets)
