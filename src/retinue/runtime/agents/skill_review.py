"""The owner's review of skills that are new or were changed: what waits, what is different, and accepting it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct

from retinue.core.errors import RetinueError, UsageError
from retinue.core.keys import AgentId
from retinue.runtime.agents.workspace import open_workspace
from retinue.runtime.home import Home
from retinue.security.injection_rules import RiskLevel
from retinue.skills.integrity.contents import digest_of, hash_files, read_folder
from retinue.skills.integrity.differences import compare
from retinue.skills.integrity.store import SkillStore
from retinue.skills.scan import SkillFinding, scan_files
from retinue.skills.skill import Skill

USAGE = "Usage: /skills, /skills diff <name>, /skills accept <name> [digest]"
IN_COMMAND = "A command that an agent runs cannot install or accept skills. Do it yourself."
MAX_CHAT_CHARS = 6_000
_SHOWN_DIGEST = 12
_SHOWN_FINDINGS = 5


class SkillReviewState(Struct, frozen=True):
    """A skill that its content switched off, and why."""

    name: str
    path: Path
    tier: str
    state: Literal["new", "changed", "accepted"]
    reason: str


class SkillDifference(Struct, frozen=True):
    """What accepting a skill would allow: the differences from the accepted content, and what the scan found."""

    skill: SkillReviewState
    digest: str
    diff: str
    findings: tuple[SkillFinding, ...]

    @property
    def suspicion(self) -> str:
        """The severe findings on one line; empty if there are none."""
        severe = [each for each in self.findings if each.severity is RiskLevel.HIGH]
        return "; ".join(f"{each.file}:{each.line} {each.rule}" for each in severe[:_SHOWN_FINDINGS])


class HomeSkillReview(Struct, frozen=True):
    """The review of one agent's skills."""

    home: Home
    agent: AgentId

    @property
    def store(self) -> SkillStore:
        return SkillStore(self.home.paths.path, self.home.clock)

    def waiting(self) -> list[SkillReviewState]:
        """Return the skills that are off until the owner accepts them."""
        return [self._describe(skill) for skill in self._skills() if skill.held]

    def find(self, name: str) -> Skill:
        """Return the skill with a name, or in a folder with this name."""
        for skill in self._skills():
            folder = skill.folder
            named = (skill.name, skill.key, folder.name, f"{folder.parent.name}/{folder.name}")
            if name.casefold() in map(str.casefold, named):
                return skill
        raise UsageError(f"There is no skill '{name}'. `retinue skills list` shows them all.")

    def show(self, name: str) -> SkillDifference:
        """Return how a skill differs from its accepted content; hidden characters are escaped."""
        skill = self.find(name)
        present = read_folder(skill.folder)
        text = compare(self.store.accepted_files(skill.folder), present)
        return SkillDifference(self._describe(skill), digest_of(hash_files(present)), text, scan_files(present))

    def accept(self, name: str, digest: str, *, by: str) -> str:
        """Accept the present content of a skill, with a digest only that content; return what was accepted."""
        if self.home.is_in_command:
            raise UsageError(IN_COMMAND)
        skill = self.find(name)
        entry = self.store.accept(skill.folder, digest)
        self.home.audit.record("skill_accept", by, {"name": entry.name, "digest": entry.installed, "accepted": True})
        return entry.accepted

    def _skills(self) -> tuple[Skill, ...]:
        with open_workspace(self.home, self.agent) as room:
            return room.library.load().skills

    def _describe(self, skill: Skill) -> SkillReviewState:
        known = self.store.find(skill.folder)
        changed: Literal["new", "changed"] = "changed" if known is not None and known.accepted else "new"
        return SkillReviewState(
            skill.name, skill.folder, str(skill.tier), changed if skill.held else "accepted", skill.held
        )


def answer_skills(home: Home, agent: AgentId, rest: str, who: str) -> str:
    """Answer `/skills`: list what waits, show the differences of one skill, or accept it."""
    try:
        return _answer(HomeSkillReview(home, agent), rest, who)
    except RetinueError as error:
        return str(error)


def _answer(review: HomeSkillReview, rest: str, who: str) -> str:
    verb, _, words = rest.partition(" ")
    name, _, digest = words.strip().partition(" ")
    match verb.lower():
        case "" | "list":
            return _list_waiting(review.waiting())
        case "diff" if name and not digest:
            return _format_difference(review.show(name))
        case "accept" if name:
            shown = review.show(name)
            if not shown.digest.startswith(digest.strip()):
                raise UsageError(f"'{name}' changed while it was reviewed. Look at /skills diff {name} again.")
            if shown.suspicion and not digest:
                raise UsageError(
                    f"The scan of '{name}' found what attacks look like: {shown.suspicion}. Read /skills diff "
                    f"{name}, then /skills accept {name} {shown.digest[:_SHOWN_DIGEST]} accepts exactly that."
                )
            accepted = review.accept(name, shown.digest, by=who)
            return f"Accepted {shown.skill.name} ({accepted[:_SHOWN_DIGEST]}). Agents may use exactly this content."
    return USAGE


def _list_waiting(waiting: list[SkillReviewState]) -> str:
    if not waiting:
        return "No skill waits for your review. `retinue skills check` shows why others are off."
    lines = [f"{each.name} ({each.state}, {each.tier}): {each.path}" for each in waiting]
    return "\n".join(
        (
            "These skills are off until you accept them:",
            *lines,
            "",
            "/skills diff <name> shows one, /skills accept <name> accepts it.",
        )
    )


def _format_difference(shown: SkillDifference) -> str:
    name, digest = shown.skill.name, shown.digest[:_SHOWN_DIGEST]
    if not shown.diff:
        return f"{name} has the accepted content."
    text = shown.diff
    if len(text) > MAX_CHAT_CHARS:
        left = len(text) - MAX_CHAT_CHARS
        text = f"{text[:MAX_CHAT_CHARS]}\n… and {left:,} more characters: `retinue skills diff {name}`"
    found = [f"The scan found {each.rule} in {each.file}, line {each.line}." for each in shown.findings[:10]]
    return "\n".join((f"```diff\n{text}\n```", *found, f"/skills accept {name} {digest} accepts exactly this."))
