"""Proposed skills over the protocol: listed, shown with their differences, accepted and rejected."""

from __future__ import annotations

import pytest

from retinue.skills.learning.proposals import ProposalStore, SkillProposal
from retinue.wire.protocol import Scope
from tests.gateway.conftest import Hall, raw_socket

pytestmark = pytest.mark.anyio

MANIFEST = "---\nname: {name}\ndescription: Does a thing.\n---\n\n# Steps\n"


def propose(hall: Hall, number: str, name: str) -> None:
    files: dict[str, str | None] = {"SKILL.md": MANIFEST.format(name=name)}
    made = SkillProposal(
        number, "main", name, "It comes again.", files, "2026-01-01T00:00:00+00:00", "agent:main:main", "r1", "agent"
    )
    ProposalStore(hall.home.path).add(made)


async def test_proposals_are_decided_over_the_protocol(hall: Hall) -> None:
    propose(hall, "0000aaaa", "tides")
    propose(hall, "0000bbbb", "winds")
    async with raw_socket(hall, hall.token(Scope.APPROVE)) as raw:
        listed = (await raw.result("skills.proposals.list"))["proposals"]
        assert [(each["id"], each["state"], each["kind"]) for each in listed] == [
            ("0000aaaa", "pending", "new"),
            ("0000bbbb", "pending", "new"),
        ]
        shown = await raw.result("skills.proposals.show", id="0000aaaa")
        assert "+name: tides" in shown["diff"]
        assert "Reason: It comes again." in shown["notes"]
        accepted = await raw.result("skills.proposals.accept", id="0000aaaa")
        assert accepted["proposal"]["state"] == "accepted"
        assert (hall.home.workspace / "skills/tides/SKILL.md").is_file()
        rejected = await raw.result("skills.proposals.reject", id="0000bbbb", reason="not needed")
        assert (rejected["proposal"]["state"], rejected["proposal"]["because"]) == ("rejected", "not needed")
        again = await raw.call("skills.proposals.accept", id="0000bbbb")
        assert "already" in again["error"]["message"]
        assert not (hall.home.workspace / "skills/winds").exists()
