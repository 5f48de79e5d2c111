"""`retinue skills proposals`: what agents learned, and the owner's decision about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, pass_invocation, table
from retinue.cli.skill_access import cli_actor, open_owner_home

if TYPE_CHECKING:
    from retinue.runtime.agents.learning import HomeSkillLearning
    from retinue.skills.learning.proposals import SkillProposal


@click.group(cls=Group)
def proposals() -> None:
    """Review the skills that agents propose, and find those that nobody uses."""


@proposals.command("list")
@click.option("--all", "everything", is_flag=True, help="Include proposals that were decided.")
@pass_invocation
def list_proposals(invocation: Invocation, everything: bool) -> None:
    """List the proposals that wait for a decision, and skills that were not used for a long time."""
    learning = _open(invocation)
    shown = [each for each in learning.store.list() if everything or each.state == "pending"]
    unused = learning.unused()
    data = {
        "proposals": [_summarise(each) for each in shown],
        "unused": [
            {"name": each.name, "path": str(each.folder), "uses": each.use.count if each.use else 0} for each in unused
        ],
    }
    rows = [(each.id, each.kind, each.name, each.agent, each.state, each.reason[:60]) for each in shown]
    texts = [table(rows, header=("id", "kind", "skill", "agent", "state", "reason")) if rows else "No proposals wait."]
    if unused:
        names = "\n".join(f"  {each.name}  retinue skills remove {each.name}" for each in unused)
        texts.append(f"Not used for two months:\n{names}")
    invocation.show(data, "\n\n".join(texts))


@proposals.command("show")
@click.argument("proposal")
@pass_invocation
def show_proposal(invocation: Invocation, proposal: str) -> None:
    """Show what a proposal changes, where it comes from, and its test."""
    from retinue.core.errors import SkillError
    from retinue.runtime.agents.learning import describe_provenance

    learning = _open(invocation)
    found = learning.store.find(proposal)
    diff, problem, notes = "", "", [f"Reason: {found.reason}"]
    if found.state == "pending":
        try:
            reviewed = learning.review(found)
            diff, notes = reviewed.diff, describe_provenance(reviewed)
        except SkillError as error:
            problem = str(error)
    data = _summarise(found) | {"diff": diff, "problem": problem, "notes": notes, "test": found.test}
    invocation.show(data, "\n".join((*notes, *([problem] if problem else ()), "", diff)), exact=True)


@proposals.command("accept")
@click.argument("proposal")
@click.option("--force", is_flag=True, help="Accept in spite of findings of the scan.")
@pass_invocation
def accept_proposal(invocation: Invocation, proposal: str, force: bool) -> None:
    """Run the test of a proposal, and put the skill in place if it passes."""
    _decide(invocation, proposal, accepted=True, because="", force=force)


@proposals.command("reject")
@click.argument("proposal")
@click.option("--reason", default="", help="Why; the agent does not see it.")
@pass_invocation
def reject_proposal(invocation: Invocation, proposal: str, reason: str) -> None:
    """Reject a proposal."""
    _decide(invocation, proposal, accepted=False, because=reason)


def _decide(invocation: Invocation, proposal: str, *, accepted: bool, because: str, force: bool = False) -> None:
    from functools import partial

    import anyio

    learning = _open(invocation, owner=True)
    decide = partial(learning.decide, proposal, accepted=accepted, by=cli_actor(), because=because, force=force)
    text = anyio.run(decide)
    invocation.show(_summarise(learning.store.find(proposal)), text)


def _open(invocation: Invocation, *, owner: bool = False) -> HomeSkillLearning:
    from retinue.runtime.agents.learning import HomeSkillLearning

    return HomeSkillLearning(open_owner_home(invocation) if owner else invocation.load_home())


def _summarise(proposal: SkillProposal) -> dict[str, Any]:
    return {
        "id": proposal.id,
        "name": proposal.name,
        "kind": proposal.kind,
        "agent": proposal.agent,
        "reason": proposal.reason,
        "state": proposal.state,
        "session": proposal.session,
        "run": proposal.run,
        "label": proposal.label,
        "untrusted": proposal.untrusted,
        "private": proposal.private,
        "createdAt": proposal.created_at,
        "files": list(proposal.files),
        "tested": None if proposal.tested is None else proposal.tested.passed,
        "decidedBy": proposal.decided_by,
        "because": proposal.because,
        "digest": proposal.digest,
    }
