"""The message to an agent when a background command has ended."""

from __future__ import annotations

from retinue.core.clock import random_id
from retinue.core.envelope import Inbound, Source
from retinue.core.messages import text_of
from retinue.security.escaping import literal
from retinue.security.untrusted_text import TextSource as ContentSource
from retinue.security.untrusted_text import sanitise_line, wrap_untrusted
from retinue.toolkit.processes.launch import CommandEnd
from retinue.toolkit.processes.tools import format_end


def announce(end: CommandEnd) -> Inbound:
    """Return the message about the end of a command, with its output marked as untrusted."""
    output = text_of(format_end(end, end.output).content)
    command = sanitise_line(literal(end.command))
    label = f"[Background command {end.id} (`{command}`) ended; not written by a person]"
    text = f"{label}\n{wrap_untrusted(output, ContentSource.COMMAND, new_id=random_id, warn=False)}"
    return Inbound(text, end.session, source=Source.BACKGROUND, owner=end.owner)
