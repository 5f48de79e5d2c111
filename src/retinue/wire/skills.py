"""Skills that agents propose or that changed, and the owner's decision about them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from retinue.wire.agents import OfAgent, SkillRow
from retinue.wire.frames import Method, Nothing, Params, Wire
from retinue.wire.protocol import Scope

ProposalId = Annotated[str, Meta(min_length=4, max_length=40)]


class ProposedChange(Wire, frozen=True):
    """A proposal of a new skill or of a change; `label` is the origin of what the conversation contained."""

    id: str
    name: str
    kind: Literal["new", "change"]
    agent: str
    reason: str
    state: Literal["pending", "accepted", "rejected"]
    session: str
    label: str
    untrusted: bool
    private: bool
    created_at: str
    files: dict[str, str | None]
    """New contents by name; null for a file to remove."""
    test: str = ""
    decided_by: str = ""
    because: str = ""


class UnusedSkillEntry(Wire, frozen=True):
    """An installed skill that was not used for a long time."""

    name: str
    path: str
    uses: int


class ProposalList(Wire, frozen=True):
    """All proposals, the oldest first, and skills that can be retired."""

    proposals: list[ProposedChange]
    unused: list[UnusedSkillEntry]


class ProposalDetails(Wire, frozen=True):
    """A proposal with the differences that accepting it makes; `problem` is why it cannot be accepted."""

    proposal: ProposedChange
    diff: str
    notes: list[str]
    problem: str = ""


class OfProposal(Params, frozen=True):
    """A proposal, by its id."""

    id: ProposalId


class AcceptProposal(OfProposal, frozen=True):
    """With `force`, findings of the scan do not prevent it."""

    force: bool = False


class RejectProposal(OfProposal, frozen=True):
    """A reason, for the owner's own record."""

    reason: Annotated[str, Meta(max_length=400)] = ""


class ProposalDecided(Wire, frozen=True):
    """What was done, as a sentence."""

    proposal: ProposedChange
    told: str


class ReviewedSkill(Wire, frozen=True):
    """A skill and the state of its content: off because it is new or was changed, or accepted; `reason` says more."""

    name: str
    path: str
    tier: str
    state: Literal["new", "changed", "accepted"]
    reason: str


class SkillReviewList(Wire, frozen=True):
    """The skills that are off until the owner accepts them."""

    skills: list[ReviewedSkill]


class ScanFinding(Wire, frozen=True):
    """A place in a skill that looks like an attack."""

    file: str
    line: int
    rule: str
    severity: str
    text: str


class SkillReviewDetails(Wire, frozen=True):
    """How a skill differs from the accepted content, as a unified diff; `digest` names the content that was shown."""

    skill: ReviewedSkill
    digest: str
    diff: str
    findings: list[ScanFinding]


class OfSkill(OfAgent, frozen=True, kw_only=True):
    """A skill of an agent, by its name."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]


class SkillDetails(Wire, frozen=True):
    """The text of a skill and the names of its files."""

    skill: SkillRow
    text: str
    files: list[str]


class AcceptSkill(OfSkill, frozen=True, kw_only=True):
    """`digest` is that of the content that was shown; if it changed since, nothing is accepted."""

    digest: Annotated[str, Meta(min_length=64, max_length=64)]


class SkillAccepted(Wire, frozen=True):
    """The skill as it is now."""

    skill: ReviewedSkill
    digest: str


SHOW = Method("skills.show", Scope.READ, OfSkill, SkillDetails, "Return the text of a skill and what it needs.")
REVIEW_LIST = Method(
    "skills.review.list", Scope.APPROVE, OfAgent, SkillReviewList, "List skills that are off until they are accepted."
)
REVIEW_SHOW = Method(
    "skills.review.show", Scope.APPROVE, OfSkill, SkillReviewDetails, "Show how a skill differs from what was accepted."
)
REVIEW_ACCEPT = Method(
    "skills.review.accept", Scope.APPROVE, AcceptSkill, SkillAccepted, "Accept the content of a skill.", changes=True
)
PROPOSALS_LIST = Method("skills.proposals.list", Scope.APPROVE, Nothing, ProposalList, "List proposed skills.")
PROPOSALS_SHOW = Method("skills.proposals.show", Scope.APPROVE, OfProposal, ProposalDetails, "Show a proposed skill.")
PROPOSALS_ACCEPT = Method(
    "skills.proposals.accept", Scope.APPROVE, AcceptProposal, ProposalDecided, "Accept a proposed skill.", changes=True
)
PROPOSALS_REJECT = Method(
    "skills.proposals.reject", Scope.APPROVE, RejectProposal, ProposalDecided, "Reject a proposed skill.", changes=True
)

METHODS = (
    SHOW,
    REVIEW_LIST,
    REVIEW_SHOW,
    REVIEW_ACCEPT,
    PROPOSALS_LIST,
    PROPOSALS_SHOW,
    PROPOSALS_ACCEPT,
    PROPOSALS_REJECT,
)
