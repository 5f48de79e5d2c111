"""A workspace with fixed files, and the removal of everything from a prompt that differs between machines."""

from __future__ import annotations

import re
from pathlib import Path

import retinue
from retinue.runtime.agents.workspace import docs_folder

FILES = {
    "AGENTS.md": "# Working here\n\nWrite notes to `memory/`. Ask before you send anything to other people.\n",
    "SOUL.md": "# Soul\n\nDry, kind, curious. Short sentences.\n",
    "IDENTITY.md": "# Identity\n\nName: Ada\n",
    "USER.md": "# User\n\nTea, not coffee. Lives in Lisbon.\n",
    "TOOLS.md": "# Tools\n\nThe printer is called `krake`.\n",
    "MEMORY.md": "# Memory\n\n- The boat is registered as PT-4711.\n",
    "HEARTBEAT.md": "- Is the weather warning gone?\n",
}
SKILL = """\
---
name: tides
description: Times of high and low water for a harbour.
---
Read the table of the harbour.
"""
AGENT = {"userTimezone": "Europe/Lisbon", "skills": ["tides"], "sandbox": {"mode": "off"}}
"""Settings of `agents.defaults` that do not depend on the machine."""


def fill_workspace(workspace: Path, **more: str) -> None:
    """Write the files of the snapshots into a workspace that Retinue created."""
    for name, text in {**FILES, **more}.items():
        (workspace / name).write_text(text)
    (workspace / "BOOTSTRAP.md").unlink(missing_ok=True)
    (workspace / ".git").mkdir(exist_ok=True)  # Where git is installed, Retinue made a repository.
    skill = workspace / "skills" / "tides"
    skill.mkdir(parents=True, exist_ok=True)
    (skill / "SKILL.md").write_text(SKILL)


_FACTS = {
    r"host=[^|\n]+ \|": "host=harbour |",
    r"os=[^|\n]+ \|": "os=Linux (x86_64) |",
    r"python=[^|\n]+ \|": "python=3 |",
    r"sessionId=[0-9a-f-]{36}": "sessionId=<id>",
    r"subagent:[0-9a-f]{8}-[0-9a-f-]{27}": "subagent:<id>",
    r"run:[0-9a-f]{8}-[0-9a-f-]{27}": "run:<id>",
    r"hook:[0-9a-f]{8}-[0-9a-f-]{27}": "hook:<id>",
    r"cron:[0-9a-f]{8}\b": "cron:<id>",
    r"job [0-9a-f]{8} \(": "job <id> (",
    r"due \d{4}-\d\d-\d\d \d\d:\d\d": "due <time>",
    r"https?://127\.0\.0\.1:\d+": "http://127.0.0.1",
}


def normalise(text: str, home: Path) -> str:
    """Return a prompt with the paths, ids and machine of the snapshots."""
    package = str(Path(retinue.__file__).parent)
    for place, usual in (
        (str(docs_folder()), "/usr/lib/retinue/docs"),
        (package, "/usr/lib/retinue"),
        (str(home), "/home/ada/.retinue"),
    ):
        text = text.replace(place, usual)
    for pattern, fixed in _FACTS.items():
        text = re.sub(pattern, fixed, text)
    return text
