"""Skills that agents propose or that changed: listed, shown and decided by the owner."""

from __future__ import annotations

from itertools import islice

import anyio.to_thread
from msgspec import convert

from retinue.core.errors import SkillError
from retinue.gateway.errors import RequestRefused
from retinue.gateway.gateway import Call
from retinue.gateway.methods.agents import describe_skill
from retinue.gateway.methods.registry import MethodRegistry
from retinue.runtime.agents.learning import HomeSkillLearning, describe_provenance
from retinue.runtime.agents.skill_review import HomeSkillReview, SkillReviewState
from retinue.skills.learning.proposals import SkillProposal
from retinue.wire import skills as wire
from retinue.wire.agents import OfAgent
from retinue.wire.frames import Nothing
from retinue.wire.protocol import ErrorCode

MAX_TEXT_CHARS = 200_000
MAX_FILES = 200

registry = MethodRegistry()


@registry.implements(wire.SHOW)
async def show_skill(call: Call, params: wire.OfSkill) -> wire.SkillDetails:
    workspace = call.runtime.agent(call.runtime.home.agent_id(params.agent)).workspace
    found = next((each for each in workspace.skills() if each.skill.name == params.name), None)
    if found is None:
        text = f"The agent has no skill '{params.name}'. `retinue skills list` shows its skills."
        raise RequestRefused(ErrorCode.NOT_FOUND, text)
    folder, location = found.skill.folder, found.skill.location

    def read() -> tuple[str, list[str]]:
        files = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
        names = [str(path.relative_to(folder)) for path in islice(files, MAX_FILES)]
        return location.read_text("utf-8", "replace")[:MAX_TEXT_CHARS], names

    text, files = await anyio.to_thread.run_sync(read)
    return wire.SkillDetails(describe_skill(found), call.runtime.shared.tools.hide(text), files)


@registry.implements(wire.REVIEW_LIST)
async def list_reviews(call: Call, params: OfAgent) -> wire.SkillReviewList:
    waiting = await anyio.to_thread.run_sync(_review(call, params).waiting)
    return wire.SkillReviewList([_describe_state(each) for each in waiting])


@registry.implements(wire.REVIEW_SHOW)
async def show_review(call: Call, params: wire.OfSkill) -> wire.SkillReviewDetails:
    shown = await anyio.to_thread.run_sync(_review(call, params).show, params.name)
    findings = [
        wire.ScanFinding(each.file, each.line, each.rule, str(each.severity), each.text) for each in shown.findings
    ]
    return wire.SkillReviewDetails(_describe_state(shown.skill), shown.digest, shown.diff, findings)


@registry.implements(wire.REVIEW_ACCEPT)
async def accept_skill(call: Call, params: wire.AcceptSkill) -> wire.SkillAccepted:
    review = _review(call, params)
    digest = review.accept(params.name, params.digest, by=call.principal.audited_as)
    return wire.SkillAccepted(_describe_state(review.show(params.name).skill), digest)


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


def _review(call: Call, params: OfAgent) -> HomeSkillReview:
    home = call.runtime.home
    return HomeSkillReview(home, home.agent_id(params.agent))


def _describe_state(skill: SkillReviewState) -> wire.ReviewedSkill:
    return wire.ReviewedSkill(skill.name, str(skill.path), skill.tier, skill.state, skill.reason)


def _describe(proposal: SkillProposal) -> wire.ProposedChange:
    return convert(proposal, wire.ProposedChange, from_attributes=True)
