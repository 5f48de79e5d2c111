"""Skills that agents propose: listed, shown and decided by the owner."""

from __future__ import annotations

from msgspec import convert

from retinue.core.errors import SkillError
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.runtime.agents.learning import HomeSkillLearning, describe_provenance
from retinue.skills.learning.proposals import SkillProposal
from retinue.wire import skills as wire
from retinue.wire.frames import Nothing

registry = MethodRegistry()


@registry.implements(wire.PROPOSALS_LIST)
async def list_proposals(call: Call, params: Nothing) -> wire.ProposalList:
    learning = HomeSkillLearning(call.runtime.home)
    unused = [
        wire.UnusedSkillEntry(name=each.name, path=str(each.folder), uses=each.use.count if each.use else 0)
        for each in learning.unused()
    ]
    return wire.ProposalList([_describe(each) for each in learning.store.list()], unused)


@registry.implements(wire.PROPOSALS_SHOW)
async def show_proposal(call: Call, params: wire.OfProposal) -> wire.ProposalDetails:
    learning = HomeSkillLearning(call.runtime.home)
    found = learning.store.find(params.id)
    if found.state != "pending":
        return wire.ProposalDetails(_describe(found), "", [])
    try:
        reviewed = learning.review(found)
    except SkillError as error:
        return wire.ProposalDetails(_describe(found), "", [], str(error))
    return wire.ProposalDetails(_describe(found), reviewed.diff, describe_provenance(reviewed))


@registry.implements(wire.PROPOSALS_ACCEPT)
async def accept_proposal(call: Call, params: wire.AcceptProposal) -> wire.ProposalDecided:
    learning = HomeSkillLearning(call.runtime.home)
    told = await learning.decide(params.id, accepted=True, by=call.principal.audited_as, force=params.force)
    return wire.ProposalDecided(_describe(learning.store.find(params.id)), told)


@registry.implements(wire.PROPOSALS_REJECT)
async def reject_proposal(call: Call, params: wire.RejectProposal) -> wire.ProposalDecided:
    learning = HomeSkillLearning(call.runtime.home)
    told = await learning.decide(params.id, accepted=False, by=call.principal.audited_as, because=params.reason)
    return wire.ProposalDecided(_describe(learning.store.find(params.id)), told)


def _describe(proposal: SkillProposal) -> wire.ProposedChange:
    return convert(proposal, wire.ProposedChange, from_attributes=True)
