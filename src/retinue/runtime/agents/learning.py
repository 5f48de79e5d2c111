"""Learning of skills in a home: storing proposals, testing them, and carrying out the owner's decisions."""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import datetime
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import random_id
from retinue.core.errors import SkillError, UsageError
from retinue.core.keys import AgentId, SessionKey, parse_agent_id
from retinue.runtime.agents.confinement import make_sandboxes
from retinue.runtime.agents.workspace import locate_workspace
from retinue.runtime.home import Home
from retinue.sandbox.confinement import Access, Network, SandboxUnavailable
from retinue.sandbox.sandboxes import BackedSandbox
from retinue.security.injection_rules import RiskLevel
from retinue.skills.integrity.contents import SkillContent, digest_of, hash_files
from retinue.skills.integrity.lock import SkillOrigin, read_lock
from retinue.skills.integrity.store import SkillStore
from retinue.skills.learning.proposals import (
    ProposalReview,
    ProposalStore,
    SkillProposal,
    SkillTestResult,
    read_base,
    review,
)
from retinue.skills.learning.uses import SkillUse, is_unused, read_uses
from retinue.toolkit.processes.command_table import CommandTable
from retinue.toolkit.processes.environment import base_environment
from retinue.toolkit.processes.launch import CommandOutcome, Launch, NotifyWhen
from retinue.toolkit.skills import ProposeArguments, ProposedSkill
from retinue.tools.shell.analysis import Joiner, PipelineStep
from retinue.tools.tool import ToolContext

TEST_SECONDS = 120.0
MAX_OUTPUT = 4_000


class UnusedSkill(Struct, frozen=True):
    """An installed skill that was not used for a long time."""

    name: str
    folder: Path
    use: SkillUse | None


class HomeSkillLearning(Struct, frozen=True):
    """The proposals of a home; implements `SkillLearning`."""

    home: Home

    @property
    def store(self) -> ProposalStore:
        return ProposalStore(self.home.paths.path)

    async def propose(self, arguments: ProposeArguments, context: ToolContext) -> ProposedSkill:
        """Store a proposal, and apply it if the owner lets this agent do that; never after untrusted text."""
        mode = self.home.config.agents.resolve(context.agent).skill_learning
        if mode == "off":
            raise UsageError("The owner switched learning of skills off for this agent (`skillLearning`).")
        changes: dict[str, str | None] = {**arguments.files, **dict.fromkeys(arguments.remove)}
        _, base = read_base(self._folder(context.agent, arguments.name))
        proposal = SkillProposal(
            random_id().replace("-", "")[:8],
            context.agent,
            arguments.name,
            arguments.reason,
            changes,
            self.home.clock.now().isoformat(),
            str(context.session),
            context.run,
            context.label.origin,
            untrusted=context.tainted,
            private=context.label.private,
            base=base,
            test=arguments.test,
        )
        reviewed = self.review(proposal)
        self.store.add(proposal)
        applied = ""
        if mode == "auto" and not context.tainted and not _severe(reviewed):
            applied = await self.decide(
                proposal.id, accepted=True, by="the configuration", because="skillLearning: auto"
            )
        title = f"The agent proposes {'a change of' if base else 'a new'} skill '{proposal.name}' ({proposal.id})"
        return ProposedSkill(proposal.id, title, reviewed.diff, tuple(describe_provenance(reviewed)), applied)

    def review(self, proposal: SkillProposal) -> ProposalReview:
        """Return what accepting a proposal would do."""
        return review(proposal, self._folder(parse_agent_id(proposal.agent), proposal.name))

    async def decide(self, proposal: str, *, accepted: bool, by: str, because: str = "", force: bool = False) -> str:
        """Accept or reject a proposal, and return what was done."""
        found = self.store.find(proposal)
        if found.state != "pending":
            raise UsageError(f"Proposal {found.id} was {found.state} by {found.decided_by} already.")
        decided = replace(found, decided_by=by, decided_at=self.home.clock.now().isoformat(), because=because)
        if not accepted:
            self.store.write(replace(decided, state="rejected"))
            self._record("skill_proposal_rejected", decided, by)
            return f"Proposal {found.id} was rejected{f': {because}' if because else ''}."
        reviewed = self.review(found)
        if (severe := _severe(reviewed)) and not force:
            raise SkillError(
                f"The scan found what attacks look like: {'; '.join(severe)}. Read the diff; --force accepts it."
            )
        tested = await self.run_test(reviewed) if found.test else None
        if tested is not None and not tested.passed:
            self.store.write(replace(found, tested=tested))
            raise SkillError(f"Its test failed with code {tested.code}, so it was not accepted:\n{tested.output}")
        digest = digest_of(hash_files(reviewed.files))
        version = f"proposal-{found.id}"
        origin = SkillOrigin("proposal", found.id, version)
        store = SkillStore(self.home.paths.path, self.home.clock)
        if found.base and store.find(reviewed.folder) is None:
            store.accept(reviewed.folder, found.base)  # so that a rollback finds the version before
        store.install(reviewed.folder, reviewed.files, origin, accept=True)
        self.store.write(replace(decided, state="accepted", digest=digest, tested=tested))
        self._record("skill_proposal_accepted", decided, by)
        return f"The skill '{found.name}' was {'changed' if found.base else 'added'} ({digest[:12]})."

    async def run_test(self, reviewed: ProposalReview) -> SkillTestResult:
        """Run the test of a proposal in a copy of the skill, in the sandbox of the agent's commands without network."""
        agent = parse_agent_id(reviewed.proposal.agent)
        session = SessionKey.parse(f"agent:{agent}:skill-test")
        staging = Path(tempfile.mkdtemp(prefix="retinue-skill-test-"))
        try:
            _write_files(staging, reviewed.files)
            enclosure = self._enclose(session, staging)
            return await self._run(agent, session, staging, reviewed.proposal.test, enclosure)
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _enclose(self, session: SessionKey, folder: Path) -> BackedSandbox | None:
        sandboxes = make_sandboxes(self.home)
        decision = sandboxes.decide(session)
        if not decision.confined:
            return None
        try:
            usual = sandboxes.confinement_of(session, apart=True)
            confinement = replace(usual, folder=folder, access=Access.WRITE, network=Network.OFF)
            enclosure = sandboxes.with_backend(confinement, session)
        except SandboxUnavailable as error:
            if decision.required:
                raise SkillError(f"The test needs a sandbox. {error}") from error
            return None
        sandboxes.open(confinement, session)
        return enclosure

    async def _run(
        self, agent: AgentId, session: SessionKey, folder: Path, test: str, enclosure: BackedSandbox | None
    ) -> SkillTestResult:
        shell = shutil.which("sh", path=self.home.environment.get("PATH")) or "/bin/sh"
        launch = Launch(
            agent,
            session,
            "the test of a skill",
            (PipelineStep(Joiner.ALWAYS, ((shell, "-c", test),), ((),)),),
            {**base_environment(self.home.environment), "PATH": self.home.environment.get("PATH", os.defpath)},
            TEST_SECONDS,
            notify=NotifyWhen.NEVER,
            enclosure=enclosure,
        )
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            async with CommandTable(self.home.clock, random_id) as commands:
                command = await commands.start(launch, descriptor)
                await command.wait(TEST_SECONDS + 10)
        finally:
            os.close(descriptor)
        end = command.end
        passed = end is not None and end.outcome is CommandOutcome.EXITED and end.code == 0
        output = command.output.last(MAX_OUTPUT)
        return SkillTestResult(passed, -1 if end is None else end.code, output, enclosure is not None)

    def unused(self) -> list[UnusedSkill]:
        """Return the installed skills that were not used for a long time."""
        now, uses = self.home.clock.now(), read_uses(self.home.paths.path)
        found = []
        for key, entry in read_lock(self.home.paths.path).skills.items():
            folder = self.home.paths.path / key
            if entry.versions and folder.is_dir():
                use = uses.get(str(folder))
                if is_unused(datetime.fromisoformat(entry.versions[-1].at), use, now):
                    found.append(UnusedSkill(entry.name, folder, use))
        return found

    def _folder(self, agent: AgentId, name: str) -> Path:
        return locate_workspace(self.home, agent) / "skills" / name

    def _record(self, kind: str, proposal: SkillProposal, by: str) -> None:
        details = {"id": proposal.id, "name": proposal.name, "agent": proposal.agent, "session": proposal.session}
        self.home.audit.record(kind, by, details)


def describe_provenance(reviewed: ProposalReview) -> list[str]:
    """Say where a proposal comes from, what its test is, and what the scan found."""
    proposal = reviewed.proposal
    lines = [f"Reason: {proposal.reason}", f"From the session {proposal.session}, label {proposal.label}."]
    if proposal.untrusted:
        lines.append("The conversation contained untrusted text, which may have suggested it.")
    if proposal.private:
        lines.append("The conversation contained private notes; check that the skill repeats none.")
    lines.append(f"Test: {proposal.test}" if proposal.test else "It has no test.")
    lines += [f"The scan found {each.rule} in {each.file}, line {each.line}." for each in reviewed.findings[:10]]
    return lines


def _severe(reviewed: ProposalReview) -> list[str]:
    return [f"{each.file}:{each.line} {each.rule}" for each in reviewed.findings if each.severity is RiskLevel.HIGH]


def _write_files(place: Path, files: dict[str, SkillContent]) -> None:
    for name, file in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
