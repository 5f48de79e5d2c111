"""The message that opens a turn: the text that is added before it, and the results of tools that its client ran."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from retinue.context.compaction import agents_sections
from retinue.context.prompt.inputs import RecalledPassage
from retinue.core.envelope import Inbound, Source
from retinue.core.keys import RunId
from retinue.core.labels import Label, mix
from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolResult, UserMessage
from retinue.core.people import Role
from retinue.runtime.agents.agent import Agent
from retinue.runtime.memory.pool import trust_of_files
from retinue.runtime.turns.plan import TurnPlan, local_time
from retinue.security.untrusted_text import sanitise_line
from retinue.sessions.entries import Body, Compacted, MessageAdded, Noted, SettingChanged
from retinue.sessions.protocol import StoredTranscript
from retinue.sessions.repair import find_unanswered
from retinue.sessions.session import PERSON, PERSON_NAME, Session, person_of
from retinue.tools.toolset import unwrap_call
from retinue.workspace.daily_notes import daily_notes, note_paths, should_quote_notes

MAX_NAME_CHARS = 60
FRESH_START = "retinue:fresh-start"
INSTRUCTIONS = "[Instructions of the program that sends this message, for this conversation:]"


def record_person(session: Session | None, transcript: StoredTranscript, inbound: Inbound) -> None:
    """Record in the session that it is a person's other than the owner, or a group's, before the first turn for them.

    What is sent there later by jobs, other sessions or the end of a command has the person's rights only.
    """
    person = person_of(session, inbound)
    if person is None:
        return
    if session is None or session.setting(PERSON) != str(person):
        transcript.append(SettingChanged(PERSON, str(person)))
    name = sanitise_line((inbound.origin.sender_name if inbound.origin else None) or "")[:MAX_NAME_CHARS]
    is_one = person.role is not Role.MEMBER
    if is_one and name and (session is None or session.setting(PERSON_NAME) != name):
        transcript.append(SettingChanged(PERSON_NAME, name))


def open_message(
    inbound: Inbound,
    parts: Agent,
    transcript: StoredTranscript,
    plan: TurnPlan,
    recollections: Sequence[RecalledPassage] = (),
) -> UserMessage:
    """Return a message as the model gets it, with the text that is added before it.

    The plan's prompt contains the `recollections`.
    """
    notes, origin = _fresh_notes(parts, transcript, inbound)
    preface = [
        plan.prompt.turn.text,
        instructions_of(inbound),
        notes,
        *_truncation_notice(parts, transcript, plan),
        *_rules_after_summary(parts, transcript),
    ]
    message = as_message(inbound, "\n\n".join(filter(None, preface)))
    recalled = [Label(each.label.origin) for each in recollections if each.label.is_foreign]
    return replace(message, label=mix([message.label, origin, *recalled]))


def instructions_of(inbound: Inbound) -> str:
    """Return a client's instructions for its message as the model reads them; empty if there are none."""
    return f"{INSTRUCTIONS}\n\n{inbound.instructions}" if inbound.instructions else ""


def as_message(inbound: Inbound, preface: str = "") -> UserMessage:
    """Return a message as the model gets it; one with untrusted text is untrusted, another person's is theirs."""
    label = Label.OWNER if inbound.owner and inbound.source is Source.CHAT else Label.AGENT
    if inbound.foreign:
        label = Label.UNTRUSTED
    elif inbound.person is not None:
        label = Label.of_person(inbound.person)
    return UserMessage((Text(inbound.text), *inbound.images), inbound.sender, preface, label, inbound.exchange)


def _fresh_notes(parts: Agent, transcript: StoredTranscript, inbound: Inbound) -> tuple[str, Label]:
    """Return the latest daily notes for the first message after a bare `/new` or `/reset`, and their origin.

    Only the owner's sessions get them.
    """
    workspace = parts.workspace
    for_others = inbound.session.kind.is_shared or person_of(parts.store.peek(inbound.session), inbound) is not None
    if transcript.messages or for_others:
        return "", Label.OWNER
    for entry in transcript.tree.path:
        match entry.body:
            case Noted(kind, {"by": "new" | "reset" as by}) if kind == FRESH_START:
                startup = workspace.settings.startup_context
                if should_quote_notes(by, startup):
                    today = local_time(parts).date()
                    paths = list(note_paths(workspace.root, today, startup.daily_memory_days))
                    origin = trust_of_files(workspace, parts.shared.memories.writes(workspace), paths)
                    is_foreign = origin.is_foreign
                    return daily_notes(workspace.root, today, startup), origin if is_foreign else Label.OWNER
    return "", Label.OWNER


def _truncation_notice(parts: Agent, transcript: StoredTranscript, plan: TurnPlan) -> Sequence[str]:
    """Return the notice of shortened files: with the mode `once`, it precedes the first message."""
    if parts.workspace.settings.bootstrap_prompt_truncation_warning != "once" or transcript.messages:
        return ()
    cut = [file.name for file in plan.prompt.files if file.truncated]
    return (f"[Shortened in your prompt: {', '.join(cut)}. Read a file before you rely on the rest.]",) if cut else ()


def _rules_after_summary(parts: Agent, transcript: StoredTranscript) -> Sequence[str]:
    """Return the chosen sections of AGENTS.md, for the first message after a summary."""
    settings = parts.workspace.settings
    # The last message of a user or the last summary decides, so that the cost does not grow with the history.
    last = next((e.body for e in reversed(transcript.tree.path) if _is_asked_or_compacted(e.body)), None)
    if not isinstance(last, Compacted):
        return ()
    rules = agents_sections(
        parts.workspace.reader.read("AGENTS.md").text,
        settings.compaction.post_compaction_sections,
        settings.context_limits.post_compaction_max_chars,
    )
    return (f"[The conversation was compacted. Your rules again, from AGENTS.md:]\n\n{rules}",) if rules else ()


def _is_asked_or_compacted(body: Body) -> bool:
    return isinstance(body, Compacted) or (isinstance(body, MessageAdded) and isinstance(body.message, UserMessage))


NOTHING_WAITS = (
    "No tool call of this conversation waits for these results: it was answered, given up or archived. "
    "Send a message instead."
)


def take_results(transcript: StoredTranscript, inbound: Inbound, run: RunId) -> bool:
    """Record results of client tool calls; return false if a message contained some and none were pending.

    Results that a previous process recorded under the same run count as recorded.
    """
    if not inbound.results:
        return True
    missing = {result.call_id: result.tool for result in _missing(transcript)}
    taken = [result for result in inbound.results if result.call_id in missing]
    for result in taken:
        named = replace(result, tool=missing[result.call_id])
        transcript.append(MessageAdded(named, run, inbound.source))
    return bool(taken) or any(
        isinstance(entry.body, MessageAdded) and entry.body.run == run for entry in transcript.tree.path
    )


def goes_on(inbound: Inbound) -> bool:
    """Return whether a message has no text, so that the agent continues from the results in it."""
    return bool(inbound.results) and not inbound.text.strip() and not inbound.images


def left_to_sender(transcript: StoredTranscript, inbound: Inbound) -> tuple[ToolCall, ...]:
    """Return the calls with which a turn ended, if only the results of client tools are missing in it."""
    offered = {tool.name for tool in inbound.tools}
    missing = {result.call_id for result in _missing(transcript)}
    answers = (message for message in reversed(transcript.messages) if isinstance(message, AssistantMessage))
    last = next(answers, AssistantMessage(()))
    waiting = tuple(unwrap_call(call) for call in last.calls if call.id in missing)
    return waiting if len(waiting) == len(missing) and all(call.name in offered for call in waiting) else ()


def _missing(transcript: StoredTranscript) -> tuple[ToolResult, ...]:
    return find_unanswered(transcript.messages, transcript.tree.started_calls)
