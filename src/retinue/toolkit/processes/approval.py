"""Approval of commands: a command starts if the rules allow it, or a person approved exactly what is started."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.clock import IdFactory
from retinue.core.errors import ToolFailed
from retinue.core.sinks import Sink
from retinue.sandbox.sandboxes import BackedSandbox
from retinue.storage.files import Root
from retinue.toolkit.processes.command_checks import find_control_word, find_word_outside, repository_objection
from retinue.toolkit.processes.environment import ProgramFolders, is_settable_variable, locate_programs
from retinue.toolkit.processes.grants import SandboxView, find_needs, git_environment, grant, harden_text
from retinue.toolkit.processes.launch import Launch
from retinue.toolkit.processes.scripts import bind_patterns, find_changed, hash_scripts
from retinue.tools.elevated import elevate_rules
from retinue.tools.shell.allowlist import (
    ANY_FURTHER,
    Argv,
    ArgvPattern,
    AskWhen,
    CommandRules,
    CommandRuleStore,
    Security,
)
from retinue.tools.shell.analysis import (
    AnalysedCommand,
    CommandLocation,
    Joiner,
    NotAnalysable,
    OpenFolderListing,
    PipelineStep,
    analyse,
)
from retinue.tools.shell.code_execution_flags import find_shell_builtin
from retinue.tools.shell.decision import (
    Allow,
    CommandDecision,
    Deny,
    NeedsApproval,
    Segment,
    decide_command,
    find_text_problem,
)
from retinue.tools.shell.explanation import describe_risk, explain_command, show_compactly, show_on_one_line
from retinue.tools.shell.needs import UNSANDBOXED, Need, NeedKind, split_roughly
from retinue.tools.shell.wrappers import innermost
from retinue.tools.sinks import TAINTED_REASON
from retinue.tools.tool import ToolContext

SHELLS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")


class LaunchRequest(Struct, frozen=True):
    """A command that a call asks to run: a launch without programs, its variables, and its open working folder.

    `programs` are the folders to search for programs. `readable` is the folder that the session is restricted to, if it
    is not the whole workspace. `named` are needs beyond the sandbox that the call names; a command that `stays_inside`
    cannot leave the sandbox, not even with approval. `confinement` is the name of the sandbox that the command would
    run in, or None if it would run unconfined.
    """

    draft: Launch
    variables: Mapping[str, str]
    folder: int
    shown_folder: str
    programs: ProgramFolders
    readable: Root | None = None
    named: tuple[Need, ...] = ()
    stays_inside: bool = False

    @property
    def confinement(self) -> str | None:
        enclosure = self.draft.enclosure
        return None if enclosure is None else enclosure.confinement.name


async def approve_launch(
    request: LaunchRequest, context: ToolContext, rule_store: CommandRuleStore, new_id: IdFactory
) -> Launch:
    """Return the launch with its programs and variables; raises `ToolFailed` unless the rules or a person allow it."""
    rules = elevate_rules(rule_store.rules(context.agent), context.elevated)
    assessment = await to_thread.run_sync(assess_launch, request, rules, context.workspace)
    request = assessment.request
    if context.asks_at(Sink.COMMANDS) and isinstance(assessment.decision, Allow):
        assessment = replace(assessment, decision=_recheck_tainted(assessment, assessment.decision))
    match assessment.decision:
        case Deny(because):
            raise ToolFailed(because)
        case Allow() as decision:
            launch = _prepare(assessment, context, decision)
            for pattern in dict.fromkeys(segment.pattern for segment in decision.grounds if segment.pattern):
                rule_store.record_use(context.agent, pattern, request.draft.text)
            return launch
        case NeedsApproval() as decision:
            return await _ask_approval(assessment, context, rule_store, new_id, decision)
        case unknown:
            assert_never(unknown)


class Assessment(Struct, frozen=True):
    """The analysis of a command and the decision on it.

    `request` has the sandbox in which the command would run after the decision, and `needs` are what it gets there
    beyond its own sandbox.
    """

    request: LaunchRequest
    reading: AnalysedCommand | NotAnalysable
    decision: CommandDecision
    needs: tuple[Need, ...] = ()

    @property
    def shares_variables(self) -> bool:
        """Whether a command that does more than read gets the variables of skills, which may be secrets.

        A sandboxed one does if it is granted more than its sandbox, such as the host that a key is for.
        """
        return self.request.confinement is None or bool(self.needs)


def assess_launch(request: LaunchRequest, rules: CommandRules, root: Root) -> Assessment:
    """Return the analysis of a command and the decision of the rules; nobody is asked yet."""
    impossible = find_text_problem(request.draft.text)
    if impossible is not None:
        return Assessment(request, NotAnalysable(impossible), Deny(impossible))
    enclosure = request.draft.enclosure
    if enclosure is None:
        return _assess_unconfined(request, rules, root)
    return _assess_sandboxed(request, rules, root, enclosure)


def _assess_sandboxed(request: LaunchRequest, rules: CommandRules, root: Root, enclosure: BackedSandbox) -> Assessment:
    """Assess a command of a sandboxed session: without needs it runs; with needs, the rules or a person allow them."""
    text = request.draft.text
    reading = analyse(text, CommandLocation(None, OpenFolderListing(request.folder)))
    commands = reading.commands if isinstance(reading, AnalysedCommand) else split_roughly(text)
    scope = SandboxView(enclosure, request.draft.environment.get("HOME", "/"), root.closed)
    needs = find_needs(commands, text, scope, _all_named(request, commands, rules))
    if request.stays_inside:
        refused = [need for need in request.named if grant((need,), scope) is None]
        if refused:
            because = f"The command was not run: the sandbox of this session never gives {refused[0].describe()}."
            return Assessment(request, reading, Deny(because), needs)
        needs = tuple(need for need in needs if grant((need,), scope) is not None)
    if not needs:
        return Assessment(request, reading, decide_command(reading, rules, sandboxed=True))
    wider = replace(request, draft=replace(request.draft, enclosure=grant(needs, scope)))
    # a rule for any further words was not written with this command in mind: it allows nothing outside the sandbox
    strict = replace(rules, patterns=tuple(each for each in rules.patterns if each.words[-1] != ANY_FURTHER))
    assessed = _assess_unconfined(wider, strict, root)
    decision = assessed.decision
    if isinstance(decision, NeedsApproval):
        decision = replace(decision, because=f"it needs {_join_needs(needs)}")
    if wider.confinement is not None and isinstance(decision, Allow | NeedsApproval):
        decision = replace(decision, command=None)
    return Assessment(wider, assessed.reading, decision, needs)


def _all_named(request: LaunchRequest, commands: Sequence[Argv], rules: CommandRules) -> tuple[Need, ...]:
    """Return the needs that the call names, and that of a skill's program for the variables of its skill."""
    if any(innermost(argv)[0] in rules.skill_bins for argv in commands):
        return (*request.named, UNSANDBOXED)
    return request.named


def _join_needs(needs: Sequence[Need]) -> str:
    return " and ".join(need.describe() for need in needs)


def _assess_unconfined(request: LaunchRequest, rules: CommandRules, root: Root) -> Assessment:
    home = request.draft.environment.get("HOME")
    reading = analyse(request.draft.text, CommandLocation(home, OpenFolderListing(request.folder)))
    segments = reading.commands if isinstance(reading, AnalysedCommand) else ()
    changed = find_changed(rules.patterns, segments, request.folder)
    decision = decide_command(reading, replace(rules, patterns=_without(rules.patterns, changed)))
    if changed and isinstance(decision, NeedsApproval):
        decision = replace(decision, because=f"the code that it runs has changed since `{changed[0]}` was allowed")
    if isinstance(decision, Allow):
        decision = _recheck(decision, request, rules, root)
    return Assessment(request, reading, decision)


def _without(patterns: Sequence[ArgvPattern], dropped: Sequence[ArgvPattern]) -> tuple[ArgvPattern, ...]:
    return tuple(pattern for pattern in patterns if pattern not in dropped)


def _recheck(decision: Allow, request: LaunchRequest, rules: CommandRules, root: Root) -> CommandDecision:
    """Check what the rules allow for control files, variables, repository settings and programs that are not found."""
    control = find_control_word(decision.grounds, request.shown_folder, root)
    if control is not None:
        because = f"`{control}` is a control file, or belongs to Retinue or another agent"
    elif rules.security is Security.FULL:
        return decision
    elif outside := find_word_outside(decision.grounds, request.shown_folder, request.readable or root):
        because = f"`{outside}` leads outside the workspace, or to what belongs to Retinue or another agent"
    elif request.variables:
        because = "it sets variables"
    elif objection := repository_objection(decision.grounds, request.folder, request.draft.environment):
        because = objection
    elif decision.command is None or locate_programs(decision.command, decision.grounds, request.programs) is None:
        because = "a program was not found in the system folders"
    else:
        return decision
    if rules.ask is AskWhen.OFF:
        why = f"The command was not run: {because}. Approval is disabled (`tools.exec.ask` is `off`)."
        return Deny(why, decision.segments)
    return NeedsApproval(decision.segments, because, decision.command)


def _recheck_tainted(assessment: Assessment, decision: Allow) -> CommandDecision:
    """Require approval for a command of a tainted request that the rules, or elevated mode, allow.

    Commands that only read or run in a sandbox without network need none, unless they need more than the sandbox.
    """
    enclosure = assessment.request.draft.enclosure
    isolated = enclosure is not None and not enclosure.reaches_network
    stays_inside = not assessment.needs and (isolated or _only_reads(decision.grounds))
    if stays_inside:
        return decision
    return NeedsApproval(decision.segments, TAINTED_REASON, decision.command)


def _only_reads(grounds: Sequence[Segment]) -> bool:
    return bool(grounds) and all(segment.only_reads for segment in grounds)


def _prepare(assessment: Assessment, context: ToolContext, decision: Allow | NeedsApproval) -> Launch:
    """Return the launch: without a shell if every program is known, else the exact text under bash."""
    request, grounds = assessment.request, decision.grounds
    text = request.draft.text
    located = None
    if decision.command is not None and not any(map(find_shell_builtin, decision.segments)):
        located = locate_programs(decision.command, grounds, request.programs)
    environment = dict(request.draft.environment)
    if not _only_reads(grounds) and assessment.shares_variables:
        environment |= {name: value for name, value in context.environment.items() if is_settable_variable(name)}
    if request.confinement is not None and not assessment.needs:
        environment |= git_environment(assessment.reading, request.folder)
        text = harden_text(assessment.reading) or text
    environment |= request.variables
    steps = located.steps if located is not None else (PipelineStep(Joiner.ALWAYS, (_shell(text),)),)
    return replace(request.draft, steps=steps, environment=environment)


def _shell(text: str) -> tuple[str, ...]:
    shell = next((path for path in SHELLS if os.access(path, os.X_OK)), None)
    if shell is None:
        raise ToolFailed("bash is not installed; only simple commands run without it.")
    return (shell, "--noprofile", "--norc", "-c", "--", text)


async def _ask_approval(
    assessment: Assessment,
    context: ToolContext,
    rule_store: CommandRuleStore,
    new_id: IdFactory,
    decision: NeedsApproval,
) -> Launch:
    request = assessment.request
    launch = _prepare(assessment, context, decision)
    remember = () if request.variables else decision.remember
    patterns = bind_patterns(remember, decision.segments, request.folder) or ()
    scripts = hash_scripts(decision.segments, request.folder)
    question = ApprovalRequest(
        id=new_id(),
        tool="exec",
        title=_title(assessment),
        detail=show_compactly(request.draft.text),
        agent=context.agent,
        session=context.session,
        remember=tuple(pattern.words for pattern in patterns),
        binding=compute_binding(launch, request.folder, scripts),
        explanation=(
            *_facts(assessment, context, decision),
            *explain_command(assessment.reading, request.draft.text),
            *_script_warnings(scripts, patterns),
        ),
    )
    answer = await context.ask(question)
    _check_answer(answer, decision, context, rule_store)
    if compute_binding(launch, request.folder, hash_scripts(decision.segments, request.folder)) != question.binding:
        raise ToolFailed("The command was not run: it changed after it was approved.")
    if answer.verdict is Verdict.ALLOW_ALWAYS and patterns:
        rule_store.add_patterns(context.agent, patterns, request.draft.text, answer.by)
    return launch


def _check_answer(
    answer: ApprovalDecision, decision: NeedsApproval, context: ToolContext, rule_store: CommandRuleStore
) -> None:
    """Raise `ToolFailed` unless the answer allows the command under the current rules."""
    rules = elevate_rules(rule_store.rules(context.agent), context.elevated)
    allowed = answer.allowed
    if not allowed and not answer.by and not context.asks_at(Sink.COMMANDS):  # no person answered
        allowed = rules.ask_fallback is Security.FULL or (rules.ask_fallback is Security.ALLOWLIST and decision.listed)
    if rules.security is Security.DENY:
        raise ToolFailed("The command was not run: commands were disabled in the meantime.")
    if not allowed:
        raise ToolFailed(f"The command was not run: {answer.because}. (It needs approval because {decision.because}.)")


def _title(assessment: Assessment) -> str:
    """Return what is needed and the risk, on one line."""
    enclosure, text = assessment.request.draft.enclosure, assessment.request.draft.text
    what = f"Needs {_join_needs(assessment.needs)}: run a command" if assessment.needs else "Run a command"
    if enclosure is None:
        return f"{what} on this machine, unconfined: {describe_risk(text)}"
    if not assessment.needs:
        return f"{what} in the sandbox {enclosure.confinement.describe()}"
    risks = {need.kind: _RISKS[need.kind] for need in assessment.needs}
    return f"{what} in the sandbox with it; {' and '.join(risks.values())}"


_RISKS = {
    NeedKind.NETWORK: "it can send workspace files there and run what it loads",
    NeedKind.PATH: "it can read what is there, including secrets",
}


def _facts(assessment: Assessment, context: ToolContext, decision: NeedsApproval) -> Iterator[str]:
    request = assessment.request
    yield f"Folder: {request.shown_folder}"
    if not assessment.needs or decision is not assessment.decision:  # the title names the needs
        yield f"Asked because {decision.because}."
    yield from (f"Variable: {name}={value}" for name, value in request.variables.items())
    if request.draft.takes_input:
        yield "Input: the agent can write to its input while it runs."
    if context.environment and assessment.shares_variables:
        yield f"Variables of skills: {', '.join(sorted(context.environment))}"


def _script_warnings(scripts: Mapping[str, str], patterns: tuple[ArgvPattern, ...]) -> Iterator[str]:
    """Tell to which files a permanent permission is bound."""
    if patterns and scripts:
        names = ", ".join(map(show_on_one_line, sorted(scripts)))
        yield f"Always allowing it ends when one of these files changes: {names}"


def compute_binding(launch: Launch, folder: int, scripts: Mapping[str, str] | None = None) -> str:
    """Return a hash of everything that is approved.

    It covers the text, programs, scripts, folder, names of variables, input, agent and session, and the sandbox.
    """
    place = os.fstat(folder)
    what = (
        launch.text,
        [(step.joiner, step.pipeline) for step in launch.steps],
        (place.st_dev, place.st_ino),
        sorted(launch.environment),
        launch.takes_input,
        sorted((scripts or {}).items()),
        (launch.agent, str(launch.session)),
        launch.enclosure and launch.enclosure.confinement.describe(),
        launch.enclosure and [launch.enclosure.confinement.hosts, list(map(str, launch.enclosure.confinement.shown))],
    )
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()
