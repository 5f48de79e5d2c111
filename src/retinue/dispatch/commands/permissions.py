"""Commands about approvals, elevated mode and the shell."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.core.approval import Verdict
from retinue.core.errors import RetinueError
from retinue.dispatch.commands.command import Answer, CommandTarget, SlashCommand, pick
from retinue.tools.approvals.broker import format_outcome
from retinue.tools.approvals.store import Approval
from retinue.tools.approvals.view import approval_json, format_approval
from retinue.tools.elevated import Elevation

APPROVE_USAGE = "/approve [id] allow-once|allow-always|deny"
ALLOWLIST_USAGE = "/allowlist list | add <pattern> | remove <id>"

ELEVATED_USAGE = f"/elevated {'|'.join(Elevation)}"
BASH_USAGE = "/bash <command>, or ! <command>"

_WORDS = {
    Verdict.ALLOW_ONCE: ("allow-once", "once", "allow", "yes", "y"),
    Verdict.ALLOW_ALWAYS: ("allow-always", "always", "a"),
    Verdict.DENY: ("deny", "no", "n", "reject"),
}
_VERDICTS = {word: verdict for verdict, words in _WORDS.items() for word in words}


def _approve(target: CommandTarget, rest: str) -> Answer:
    words = rest.split()
    code = words.pop(0) if words and words[0].lower() not in _VERDICTS else None
    verdict = _VERDICTS.get(words[0].lower()) if words else None
    if words and verdict is None:
        return Answer(f"'{words[0]}' is not a valid verdict. Usage: {APPROVE_USAGE}")
    waiting = target.questions() if target.owner else ()
    if verdict is None or (code is None and len(waiting) != 1):
        return _show(target, waiting, code)
    try:
        decided = target.decide(code or waiting[0].id, verdict, " ".join(words[1:]))
    except RetinueError as error:
        return Answer(str(error))
    return Answer(f"{decided.id} is {format_outcome(decided)}.", approval_json(decided))


def _show(target: CommandTarget, waiting: Sequence[Approval], code: str | None) -> Answer:
    """Return the approval request with a code, or all that are pending in this conversation."""
    if not target.owner:
        return Answer("/approve is only for the owner of this assistant.")
    if code is not None:
        found = next((item for item in waiting if item.id == code.lower()), None)
        if found is None:
            return Answer(
                f"'{code}' is neither a verdict nor a pending approval in this conversation. Usage: {APPROVE_USAGE}"
            )
        waiting = (found,)
    if not waiting:
        return Answer(f"No approvals are pending in this conversation. Usage: {APPROVE_USAGE}", [])
    text = "\n\n".join(format_approval(item, target.now()) for item in waiting)
    return Answer(text, [approval_json(item) for item in waiting])


def _allowlist(target: CommandTarget, rest: str) -> Answer:
    verb, _, words = rest.partition(" ")
    words = words.strip()
    try:
        match verb.lower() or "list":
            case "list" if not words:
                return Answer(target.allowlist())
            case "add" if words:
                return Answer(target.allow(words))
            case "remove" if words:
                return Answer(target.disallow(words))
    except RetinueError as error:
        return Answer(str(error))
    return Answer(f"Usage: {ALLOWLIST_USAGE}")


def _elevated(target: CommandTarget, rest: str) -> Answer:
    if not rest:
        return Answer(f"{target.elevate(None)} Usage: {ELEVATED_USAGE}")
    chosen = pick(rest, list(Elevation), ELEVATED_USAGE)
    return chosen if isinstance(chosen, Answer) else Answer(target.elevate(Elevation(chosen)))


async def _bash(target: CommandTarget, rest: str) -> Answer:
    return Answer(await target.run_shell(rest) if rest else f"Usage: {BASH_USAGE}")


COMMANDS = (
    SlashCommand("approve", "Answer an approval request.", _approve, APPROVE_USAGE),
    SlashCommand(
        "allowlist", "Show or change the commands that need no approval.", _allowlist, ALLOWLIST_USAGE, owner_only=True
    ),
    SlashCommand("elevated", "Show or change whether commands run outside the sandbox.", _elevated, ELEVATED_USAGE),
    SlashCommand("bash", "Run a shell command.", _bash, BASH_USAGE, owner_only=True),
)
