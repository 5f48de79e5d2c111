"""Texts that stand for a slash command: words that start a new conversation, and `!` before a shell command."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from retinue.core.envelope import Inbound, Source

START_OVER = "/new"
SHELL = "/bash"
SHELL_MARK = "! "
"""The space is required: an ordinary message may begin with an exclamation mark."""


def as_command(text: str, triggers: Iterable[str]) -> str:
    """Return the command that a message stands for; a message without a trigger is returned unchanged.

    A trigger with a slash may be followed by more text, as `/new` may. Plain words must be the whole message; otherwise
    a sentence that begins with them would end the conversation.
    """
    stripped = text.strip()
    for trigger in triggers:
        wanted = trigger.strip()
        head, rest = stripped[: len(wanted)], stripped[len(wanted) :]
        if not wanted or head.casefold() != wanted.casefold():
            continue
        if not rest or (wanted.startswith("/") and rest[0].isspace()):
            return f"{START_OVER} {rest.strip()}".rstrip()
    return text


def as_meant(inbound: Inbound, triggers: Iterable[str], *, bash: bool = False) -> Inbound:
    """Return a message with a trigger converted to its command, if a person wrote it.

    If `bash` is true, the text that the owner writes after `! ` is a shell command.
    """
    if inbound.source is not Source.CHAT:
        return inbound
    if bash and inbound.owner and inbound.text.lstrip().startswith(SHELL_MARK):
        return replace(inbound, text=f"{SHELL} {inbound.text.lstrip().removeprefix(SHELL_MARK).strip()}")
    return replace(inbound, text=as_command(inbound.text, triggers))
