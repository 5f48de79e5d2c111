"""What people type instead of a slash command: words that start over, and `!` before a shell command."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from retinue.core.envelope import Inbound, Source

START_OVER = "/new"
SHELL = "/bash"
SHELL_MARK = "! "
"""The space is part of it: a message may well begin with an exclamation mark."""


def as_command(text: str, triggers: Iterable[str]) -> str:
    """A message as the command that it stands for; one that begins with no trigger is left as it is.

    What begins with a slash may be followed by more, as `/new` may. Plain words must be the whole message, or
    somebody who only begins a sentence with them would lose the conversation.
    """
    said = text.strip()
    for trigger in triggers:
        wanted = trigger.strip()
        head, rest = said[: len(wanted)], said[len(wanted) :]
        if not wanted or head.casefold() != wanted.casefold():
            continue
        if not rest or (wanted.startswith("/") and rest[0].isspace()):
            return f"{START_OVER} {rest.strip()}".rstrip()
    return text


def as_meant(inbound: Inbound, triggers: Iterable[str], *, bash: bool = False) -> Inbound:
    """A message with a trigger turned into its command, where a person wrote it.

    With `bash`, what the owner writes after `! ` is a shell command.
    """
    if inbound.source is not Source.CHAT:
        return inbound
    if bash and inbound.owner and inbound.text.lstrip().startswith(SHELL_MARK):
        return replace(inbound, text=f"{SHELL} {inbound.text.lstrip().removeprefix(SHELL_MARK).strip()}")
    return replace(inbound, text=as_command(inbound.text, triggers))
