"""The profile files of a workspace as a form: the facts in USER.md and IDENTITY.md, and the temper in SOUL.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

from retinue.storage.files import Links, NotThere, Root
from retinue.workspace.bootstrap import FIRST_RUN_FILE, MAX_FILE_BYTES
from retinue.workspace.state import load_template

TEMPERS: Mapping[str, str] = {
    "plain": "Short and direct. Say the answer first, then only what is needed to act on it.",
    "warm": "Friendly and encouraging. Notice how things are going, and keep it short all the same.",
    "thorough": "Careful and complete. Name the assumptions, the alternatives and what could go wrong.",
    "playful": "Light and witty where it fits. Serious as soon as the matter is.",
}
"""Tempers that can be chosen by name, and their lines for SOUL.md."""
MAX_FACT_CHARS = 200
MAX_TEMPER_CHARS = 1_000
_TEMPER_HEADING = "## Temper"
_TEMPER = re.compile(rf"^{_TEMPER_HEADING}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)


class ProfileAnswers(Struct, frozen=True):
    """What a person answered about themselves and the agent; None leaves a fact as it is."""

    user_name: str | None = None
    agent_name: str | None = None
    temper: str | None = None
    """The name of a temper, or the person's own words."""
    time_zone: str | None = None


def read_fact(root: Root, file: str, name: str) -> str | None:
    """Return the fact of a profile file, such as `Name` in USER.md; None if it is not filled in."""
    found = _fact_line(name).search(_read(root, file))
    value = found["value"].strip() if found else ""
    return value or None


def read_temper(root: Root) -> str | None:
    """Return the temper written in SOUL.md; None if there is none."""
    found = _TEMPER.search(_read(root, "SOUL.md"))
    return found[0].removeprefix(_TEMPER_HEADING).strip() or None if found else None


def write_profile(root: Root, answers: ProfileAnswers) -> tuple[str, ...]:
    """Write the answers into the profile files; return the changed ones.

    The first conversation asks for the same facts, so its file is removed once both names are known.
    """
    changed = []
    user = {"Name": answers.user_name, "What to call them": answers.user_name, "Time zone": answers.time_zone}
    for file, facts in (("USER.md", user), ("IDENTITY.md", {"Name": answers.agent_name})):
        before = _read(root, file) or load_template(file)
        after = fill_facts(before, {name: value for name, value in facts.items() if value})
        if after != before:
            root.write(file, after.encode())
            changed.append(file)
    if answers.temper:
        before = _read(root, "SOUL.md") or load_template("SOUL.md")
        after = set_temper(before, answers.temper)
        if after != before:
            root.write("SOUL.md", after.encode())
            changed.append("SOUL.md")
    if read_fact(root, "USER.md", "Name") and read_fact(root, "IDENTITY.md", "Name"):
        with suppress(NotThere):
            root.remove(FIRST_RUN_FILE)
    return tuple(changed)


def fill_facts(text: str, facts: Mapping[str, str]) -> str:
    """Return the text with the facts in their lines; a fact without a line gets one at the end of the list."""
    for name, value in facts.items():
        clean = " ".join(value.split())[:MAX_FACT_CHARS]
        line = f"- **{name}:** {clean}"
        found = _fact_line(name).search(text)
        if found:
            text = text[: found.start()] + line + text[found.end() :]
        else:
            text = f"{text.rstrip()}\n{line}\n"
    return text


def set_temper(text: str, temper: str) -> str:
    """Return the text of SOUL.md with the temper as its own section."""
    words = TEMPERS.get(temper.strip().lower(), " ".join(temper.split())[:MAX_TEMPER_CHARS])
    section = f"{_TEMPER_HEADING}\n\n{words}\n"
    found = _TEMPER.search(text)
    if found:
        return text[: found.start()] + section + ("\n" if found.end() < len(text) else "") + text[found.end() :]
    return f"{text.rstrip()}\n\n{section}"


def _fact_line(name: str) -> re.Pattern[str]:
    return re.compile(rf"^[-*+] \*\*{re.escape(name)}:\*\*[ \t]*(?P<value>.*)$", re.MULTILINE | re.IGNORECASE)


def _read(root: Root, file: str) -> str:
    try:
        return root.read(file, max_bytes=MAX_FILE_BYTES, links=Links.INSIDE).data.decode("utf-8-sig", "replace")
    except NotThere:
        return ""
