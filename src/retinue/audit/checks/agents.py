"""Checks of each agent: model, workspace, skills, memory index, sessions and sandbox."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.audit.facts import AgentFacts, CreateWorkspace, Facts, Finding, FixSessions, Severity, SkillFacts
from retinue.sandbox.confinement import SandboxLevel
from retinue.sandbox.sandboxes import INSTALL
from retinue.sessions.check import TranscriptFault

AUTH = "`retinue models auth list` shows the credentials, `retinue models auth add` stores another."


def check_models(facts: Facts) -> Iterator[Finding]:
    """Report problems of each agent's model, each only once."""
    reported: set[str] = set()
    for agent in facts.agents:
        for finding in _check_model(agent):
            if finding.what not in reported:
                reported.add(finding.what)
                yield finding


def _check_model(agent: AgentFacts) -> Iterator[Finding]:
    seen = agent.model
    silent = f"Agent '{agent.id}' cannot answer."
    for note in seen.notes:
        yield Finding("models", Severity.PROBLEM, note, "The credentials in it are not used.", AUTH)
    if seen.problem is not None:
        yield Finding(
            "models", Severity.PROBLEM, seen.problem, silent, "`retinue models list` shows the available models."
        )
        return
    if seen.chosen is None:
        yield Finding(
            "models",
            Severity.PROBLEM,
            f"There is no model for agent '{agent.id}'.",
            silent,
            "Set a key such as ANTHROPIC_API_KEY, start Ollama, or run `retinue models pull`.",
        )
        return
    if not seen.ready:
        yield Finding("models", Severity.PROBLEM, f"There is no credential for {seen.chosen}.", silent, AUTH)
    for text in seen.unreadable:
        yield Finding("models", Severity.PROBLEM, text, "The credential is not used.", AUTH)
    for profile in seen.profiles:
        for cooldown in profile.active_cooldowns:
            yield Finding(
                "models",
                Severity.WARNING,
                f"{profile.id} is cooling down for {cooldown.model} until {cooldown.until:%Y-%m-%d %H:%M} UTC "
                f"({cooldown.reason}).",
                "Another credential or model is used meanwhile, if there is one.",
                "Wait, or fix the cause; `retinue models test` sends a request now.",
            )
    for text in seen.failures:
        yield Finding("models", Severity.PROBLEM, text, silent, "`retinue models test` shows details.")


def check_workspaces(facts: Facts) -> Iterator[Finding]:
    """Report problems of each agent's workspace."""
    for agent in facts.agents:
        yield from _check_workspace(agent)


def _check_workspace(agent: AgentFacts) -> Iterator[Finding]:
    seen = agent.workspace
    if seen.problem is not None:
        yield Finding(
            "workspace",
            Severity.PROBLEM,
            seen.problem,
            f"Agent '{agent.id}' cannot run without it.",
            "`retinue workspace list` shows the workspaces of all agents.",
            (CreateWorkspace(agent.id),) if seen.absent else (),
        )
        return
    if not seen.trusted:
        yield Finding(
            "workspace",
            Severity.WARNING,
            f"{seen.path} was not created by Retinue and is not trusted.",
            f"Agent '{agent.id}' treats its files as data and does not use its skills and hooks.",
            f"If you trust its content: `retinue workspace trust --agent {agent.id}`.",
        )
    if seen.missing:
        yield Finding(
            "workspace",
            Severity.WARNING,
            f"{', '.join(seen.missing)} missing in {seen.path}.",
            "The prompt notes the missing files, and the agent works without their content.",
            f"`retinue workspace seed --agent {agent.id}` creates them from the templates.",
        )
    for file in seen.truncated:
        yield Finding(
            "workspace",
            Severity.WARNING,
            f"{file.name} of agent '{agent.id}' is shortened in the prompt from {file.raw} to {file.injected} "
            "characters.",
            "The agent does not see the omitted part.",
            "Move details into memory notes or a skill, or raise agents.defaults.bootstrapMaxChars.",
        )
    for fault in seen.faults:
        yield Finding(
            "workspace", Severity.PROBLEM, fault, "The agent does not read the file.", f"Correct it in {seen.path}."
        )
    if seen.leftover_ritual:
        yield Finding(
            "workspace",
            Severity.NOTE,
            f"BOOTSTRAP.md still exists in {seen.path}.",
            "The first conversation is complete, so the file is no longer used.",
            "Delete it.",
        )


def check_skills(facts: Facts) -> Iterator[Finding]:
    """Report problems of skills, each only once."""
    reported: set[str] = set()
    for agent in facts.agents:
        if agent.skills is None:
            continue
        for finding in _check_skill(agent.id, agent.skills):
            if finding.what not in reported:
                reported.add(finding.what)
                yield finding


def _check_skill(agent: str, skills: SkillFacts) -> Iterator[Finding]:
    for problem in (*skills.found.problems, *skills.found.limits):
        yield Finding(
            "skills",
            Severity.WARNING,
            f"{problem.path}: {problem.message}",
            "No agent can use this skill.",
            "Correct the file, then run `retinue skills check`.",
        )
    off = [item for item in skills.judged if not item.gate.eligible]
    if off:
        named = "; ".join(f"{item.skill.name} ({', '.join(item.gate.reasons)})" for item in off)
        yield Finding(
            "skills",
            Severity.NOTE,
            f"Disabled: {named}.",
            "These skills are not in the agents' prompts.",
            "Provide what a skill requires if you want to use it; see `retinue skills info NAME`.",
        )
    for item in skills.found.shadowed:
        yield Finding(
            "skills",
            Severity.NOTE,
            f"{item.skill.location} is hidden by {item.by.location}, which has the same name.",
            "Only the first of two skills with one name is used.",
            "Rename or remove one of them if this is not intended.",
        )
    if skills.omitted:
        yield Finding(
            "skills",
            Severity.WARNING,
            f"{len(skills.omitted)} skills do not fit into the prompt of agent '{agent}': {', '.join(skills.omitted)}.",
            "The agent does not see them.",
            "Disable skills that you do not need, or raise skills.limits.maxSkillsPromptChars.",
        )


def check_memory(facts: Facts) -> Iterator[Finding]:
    """Report problems of each agent's memory index."""
    for agent in facts.agents:
        seen = agent.memory
        if seen is None:
            continue
        index = f"`retinue memory index --agent {agent.id}`"
        if seen.problem is not None:
            yield Finding(
                "memory", Severity.PROBLEM, seen.problem, f"Agent '{agent.id}' cannot find notes.", f"{index} --force."
            )
        elif not seen.exists:
            yield Finding(
                "memory",
                Severity.NOTE,
                f"There is no index of the notes of agent '{agent.id}' yet.",
                "The first search creates it.",
                f"{index} creates it now.",
            )
        elif seen.dirty:
            yield Finding(
                "memory",
                Severity.NOTE,
                f"Notes of agent '{agent.id}' changed since they were indexed.",
                "The next search or turn updates the index.",
                f"{index} creates it now.",
            )
        if seen.problem is None and seen.exists and seen.wants_vectors and (seen.reason or not seen.provider):
            yield Finding(
                "memory",
                Severity.WARNING,
                f"Notes of agent '{agent.id}' are searched by keywords only"
                f"{f': {seen.reason}' if seen.reason else '.'}",
                "Notes with different wording are not found.",
                "`retinue memory status` shows the embedder; see agents.defaults.memorySearch.",
            )
        for text in seen.unreadable:
            yield Finding("memory", Severity.WARNING, text, "A search cannot find the note.", "Correct the file.")


def check_sessions(facts: Facts) -> Iterator[Finding]:
    """Report what `retinue sessions check` finds, except files that were set aside earlier."""
    for agent in facts.agents:
        for found in agent.sessions.findings:
            if found.fault is TranscriptFault.LEFTOVER:
                continue
            yield Finding(
                "sessions",
                Severity.PROBLEM if found.fault.is_problem else Severity.NOTE,
                f"{found.path.name} of agent '{agent.id}': {found.text}",
                "A session, or a part of it, may be missing from lists and from the model's context.",
                f"It {found.remedy.value}." if found.remedy else "`retinue sessions check` shows the whole file.",
                (FixSessions(agent.id),) if found.remedy else (),
            )
        unread = sum(not checked.is_read for checked in agent.sessions.transcripts)
        if unread:
            yield Finding(
                "sessions",
                Severity.NOTE,
                f"{unread:,} older transcripts of agent '{agent.id}' have the expected size and were not read.",
                "Reading them takes long; a damaged line in one of them would not be found here.",
                "`retinue sessions check` reads all of them.",
            )


def check_sandboxes(facts: Facts) -> Iterator[Finding]:
    """Report agents whose commands are not sandboxed as configured, and those where a better level is possible."""
    for agent in facts.agents:
        seen = agent.sandbox
        failed = [candidate for candidate in seen.candidates if candidate.problem is not None]
        tried = "; ".join(f"{candidate.name}: {candidate.problem}" for candidate in failed)
        remedies = " ".join(candidate.remedy for candidate in failed if candidate.remedy)
        if seen.works and seen.level is SandboxLevel.LANDLOCK and failed:
            yield Finding(
                "sandbox",
                Severity.NOTE,
                f"Commands of agent '{agent.id}' are sandboxed at the level landlock, not namespaces: {tried}.",
                "Commands that need the network then run outside the sandbox, after approval.",
                remedies,
            )
        elif not seen.works and not seen.required:
            yield Finding(
                "sandbox",
                Severity.WARNING,
                f"Commands of agent '{agent.id}' are not sandboxed: {tried}.",
                "All but simple ones need approval.",
                remedies,
            )
        elif not seen.works:
            yield Finding(
                "sandbox",
                Severity.PROBLEM,
                f"Sessions of agent '{agent.id}' must be sandboxed ({seen.because}), but no backend works: {tried}.",
                "Their commands are refused.",
                INSTALL,
            )
