"""Whether a command may start: by the rules, or because a person agreed to exactly what is then started."""

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
from retinue.storage.files import Root
from retinue.toolkit.agreement import TAINTED
from retinue.toolkit.control import find_control_word
from retinue.toolkit.environment import may_be_set
from retinue.toolkit.launches import Launch
from retinue.toolkit.programs import ProgramFolders, locate_programs
from retinue.toolkit.repositories import distrust_repository
from retinue.toolkit.scripts import read_scripts
from retinue.tools.allowlist import ArgvPattern, AskWhen, CommandRules, Rulebook, Security
from retinue.tools.commands import (
    Allow,
    Consult,
    Decision,
    Deny,
    Ground,
    Segment,
    decide,
    refuse_text,
    show_exactly,
    show_on_one_line,
)
from retinue.tools.elevated import lift_rules
from retinue.tools.explanation import explain
from retinue.tools.filenames import FolderListing
from retinue.tools.inline import shell_only
from retinue.tools.syntax import Analysed, Joiner, NotAnalysable, Place, Step, analyse
from retinue.tools.tool import ToolContext

SHELLS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")
_READ_ONLY = frozenset({Ground.HARMLESS, Ground.SAFE_BIN})


class Wish(Struct, frozen=True):
    """What a call wants to run: a launch without programs, the variables it adds, and the folder, which is open.

    `programs` are the folders to look in. `confinement` names the sandbox that the command would run in; without one
    it is unconfined.
    """

    draft: Launch
    variables: Mapping[str, str]
    folder: int
    shown_folder: str
    programs: ProgramFolders

    @property
    def confinement(self) -> str | None:
        enclosure = self.draft.enclosure
        return None if enclosure is None else enclosure.confinement.name


async def permit(wish: Wish, context: ToolContext, rulebook: Rulebook, new_id: IdFactory) -> Launch:
    """The launch with its programs and variables, once the rules or a person allow it; raises where neither does."""
    rules = lift_rules(rulebook.rules(context.agent), context.elevated)
    reading, decision = await to_thread.run_sync(assess, wish, rules, context.workspace)
    if context.is_wary and isinstance(decision, Allow):
        decision = _be_wary(decision, wish, rules)
    match decision:
        case Deny(because):
            raise ToolFailed(because)
        case Allow():
            launch = _prepare(wish, context, decision)
            _note_use(decision, context, rulebook, wish.draft.text)
            return launch
        case Consult():
            return await _consult(wish, context, rulebook, new_id, reading, decision)
        case unknown:
            assert_never(unknown)


def assess(wish: Wish, rules: CommandRules, root: Root) -> tuple[Analysed | NotAnalysable, Decision]:
    """What a call wants to run, as far as it can be read, and whether the rules let it; nobody is asked yet."""
    text = wish.draft.text
    impossible = refuse_text(text)
    if impossible is not None:
        return NotAnalysable(impossible), Deny(impossible)
    home = None if wish.confinement else wish.draft.environment.get("HOME")
    reading = analyse(text, Place(home, FolderListing(wish.folder)))
    decision = decide(reading, rules)
    return reading, _recheck(decision, wish, rules, root) if isinstance(decision, Allow) else decision


def _recheck(decision: Allow, wish: Wish, rules: CommandRules, root: Root) -> Decision:
    """What the rules allow, unless it names a control file, sets variables, or starts something else than it says."""
    control = find_control_word(decision.grounds, wish.shown_folder, root)
    if control is not None:
        because = f"`{control}` decides what may run, or belongs to Retinue or another agent"
    elif rules.security is Security.FULL:
        return decision
    elif wish.variables:
        because = "it sets variables"
    elif doubt := _doubt_repository(decision, wish):
        because = doubt
    elif decision.command is None or locate_programs(decision.command, decision.grounds, wish.programs) is None:
        because = "a program was not found in the system's folders"
    else:
        return decision
    if rules.ask is AskWhen.OFF:
        why = f"The command was not run, and nobody is asked (`tools.exec.ask` is `off`): {because}."
        return Deny(why, decision.segments)
    return Consult(decision.segments, because, decision.command)


def _be_wary(decision: Allow, wish: Wish, rules: CommandRules) -> Decision:
    """A question where text from outside may have suggested what the rules allow.

    Not about what only reads or cannot leave its sandbox, nor where nobody is asked anything.
    """
    if wish.confinement is not None or rules.ask is AskWhen.OFF or _only_reads(decision.grounds):
        return decision
    return Consult(decision.segments, TAINTED, decision.command)


def _only_reads(grounds: Sequence[Segment]) -> bool:
    return bool(grounds) and all(segment.ground in _READ_ONLY for segment in grounds)


def _doubt_repository(decision: Allow, wish: Wish) -> str | None:
    """Why git must not read here unasked; in a sandbox it may, whatever it starts."""
    if wish.confinement is not None:
        return None
    return distrust_repository(decision.grounds, wish.folder, wish.draft.environment)


def _prepare(wish: Wish, context: ToolContext, decision: Allow | Consult) -> Launch:
    """The launch: without a shell where every program is known, else with the exact text under a plain bash."""
    grounds = decision.grounds
    located = None
    if decision.command is not None and not any(map(shell_only, decision.segments)):
        located = locate_programs(decision.command, grounds, wish.programs)
    environment = dict(wish.draft.environment)
    if not _only_reads(grounds) and wish.confinement is None:  # what skills know stays outside the sandbox
        environment |= {name: value for name, value in context.environment.items() if may_be_set(name)}
    environment |= wish.variables
    steps = located.steps if located is not None else (Step(Joiner.ALWAYS, (_shell(wish.draft.text),)),)
    return replace(wish.draft, steps=steps, environment=environment)


def _shell(text: str) -> tuple[str, ...]:
    shell = next((path for path in SHELLS if os.access(path, os.X_OK)), None)
    if shell is None:
        raise ToolFailed("bash is not installed, and only simple commands run without it.")
    return (shell, "--noprofile", "--norc", "-c", "--", text)


async def _consult(
    wish: Wish,
    context: ToolContext,
    rulebook: Rulebook,
    new_id: IdFactory,
    reading: Analysed | NotAnalysable,
    decision: Consult,
) -> Launch:
    launch = _prepare(wish, context, decision)
    patterns = () if wish.variables else decision.remember
    scripts = read_scripts(reading, wish.folder)
    request = ApprovalRequest(
        id=new_id(),
        tool="exec",
        title=f"Run a command in the {wish.confinement} sandbox"
        if wish.confinement
        else "Run a command on this machine, unconfined",
        detail=_detail(wish, context, decision.because),
        agent=context.agent,
        session=context.session,
        remember=tuple(pattern.words for pattern in patterns),
        binding=bind(launch, wish.folder, scripts),
        explanation=(*explain(reading, wish.draft.text, show_exactly), *_warn(scripts, patterns)),
    )
    answer = await context.ask(request)
    _settle(answer, decision, context, rulebook)
    if bind(launch, wish.folder, read_scripts(reading, wish.folder)) != request.binding:
        raise ToolFailed("The command was not run: it is no longer what was agreed to.")
    if answer.verdict is Verdict.ALLOW_ALWAYS and patterns:
        rulebook.remember(context.agent, patterns, wish.draft.text, answer.by)
    return launch


def _settle(answer: ApprovalDecision, decision: Consult, context: ToolContext, rulebook: Rulebook) -> None:
    """Go on where the answer lets it, by the rules as they are now; raises where it does not."""
    rules = lift_rules(rulebook.rules(context.agent), context.elevated)
    nobody = not answer.allowed and not answer.by
    allowed = answer.allowed
    if nobody:
        allowed = rules.ask_fallback is Security.FULL or (rules.ask_fallback is Security.ALLOWLIST and decision.listed)
    if rules.security is Security.DENY:
        raise ToolFailed("The command was not run: commands were switched off meanwhile.")
    if not allowed:
        raise ToolFailed(f"The command was not run: {answer.because}. (It needs approval because {decision.because}.)")


def _detail(wish: Wish, context: ToolContext, because: str) -> str:
    lines = [f"Folder: {wish.shown_folder}", f"Asked because {because}."]
    if wish.draft.enclosure is not None:
        lines.insert(1, f"Sandbox: {wish.draft.enclosure.confinement.describe()}.")
    lines += [f"Variable: {name}={value}" for name, value in wish.variables.items()]
    if wish.draft.takes_input:
        lines.append("Input: the agent can type into it while it runs.")
    if context.environment and wish.confinement is None:
        lines.append(f"Variables of skills: {', '.join(sorted(context.environment))}")
    return "\n".join([*map(show_on_one_line, lines), "", show_exactly(wish.draft.text)])


def _warn(scripts: Mapping[str, str], patterns: tuple[ArgvPattern, ...]) -> Iterator[str]:
    """What whoever would allow it for good should know of the scripts that it runs."""
    if patterns:
        yield from (f"Always allowing it allows whatever {show_on_one_line(name)} says by then" for name in scripts)


def bind(launch: Launch, folder: int, scripts: Mapping[str, str] | None = None) -> str:
    """A hash over what is agreed to.

    Text, programs, the scripts they run, the folder, the names of variables, input, for whom, confined or not.
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
    )
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()


def _note_use(decision: Allow, context: ToolContext, rulebook: Rulebook, text: str) -> None:
    for pattern in _patterns(decision.grounds):
        rulebook.used(context.agent, pattern, text)


def _patterns(grounds: tuple[Segment, ...]) -> tuple[ArgvPattern, ...]:
    return tuple(dict.fromkeys(segment.pattern for segment in grounds if segment.pattern is not None))
