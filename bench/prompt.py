"""What it costs to assemble a prompt: warm, cold, and as the number of skills grows."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio

from bench.measure import PYTHON, Sheet, median_ms, process_cost
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.hooks import HookBus
from retinue.runtime.agents.prompting import AgentPrompt, PromptOrder, build_prompt
from retinue.runtime.agents.workspace import AgentWorkspace, open_workspace, seed_agent
from retinue.runtime.home import Home, load_home
from retinue.storage.home_paths import HomePaths

FILE_CHARS = 60_000
SKILLS = 150


def run(*, full: bool) -> None:
    sheet = Sheet("prompt")
    with tempfile.TemporaryDirectory() as place:
        home = _make_home(Path(place) / "home", skills=SKILLS, chars=FILE_CHARS)
        with open_workspace(home, DEFAULT_AGENT) as room:
            cold = median_ms(lambda: _build_afresh(home), runs=20)
            warm = median_ms(lambda: _build(room), runs=200)
            chars = len(_build(room).system.text)
        sheet.row("warm, 60,000 characters of files, 150 skills", warm, "ms", f"{chars:,} characters")
        sheet.row("cold, the same, everything read again", cold, "ms")
        show = [str(Path(PYTHON).parent / "retinue"), "prompt", "show", "--home", str(home.paths.path)]
        cost = process_cost(show, runs=5)
        sheet.row("retinue prompt show, the whole process", cost.cpu * 1000, "ms", f"{cost.peak_mb:.0f} MB")
    for count in (10, 100, 1000):
        with tempfile.TemporaryDirectory() as place:
            home = _make_home(Path(place) / "home", skills=count, chars=1000)
            with open_workspace(home, DEFAULT_AGENT) as room:
                cold = median_ms(lambda f=home: _build_afresh(f), runs=5)  # type: ignore[misc]
                warm = median_ms(lambda r=room: _build(r), runs=50)  # type: ignore[misc]
        sheet.row(f"{count} skills, warm", warm, "ms", f"{warm * 1000 / count:.1f} µs a skill")
        sheet.row(f"{count} skills, cold", cold, "ms", f"{cold * 1000 / count:.1f} µs a skill")
    sheet.save()


def _make_home(path: Path, *, skills: int, chars: int) -> Home:
    paths = HomePaths(path)
    path.mkdir(parents=True)
    # Wide limits, so that every skill is looked at and the cost of each shows.
    limits = "maxCandidatesPerRoot: 5000, maxSkillsLoadedPerSource: 5000, maxSkillsInPrompt: 5000"
    (path / "retinue.json").write_text(f"{{skills: {{limits: {{{limits}}}}}}}")
    home = load_home(paths)
    seed_agent(home, DEFAULT_AGENT)
    for name in ("AGENTS", "SOUL", "MEMORY"):
        text = f"# {name}\n\n" + "A line of ordinary words about ordinary things.\n" * (chars // 3 // 48)
        (paths.workspace / f"{name}.md").write_text(text)
    for number in range(skills):
        folder = paths.workspace / "skills" / f"skill-{number}"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(
            f"---\nname: skill-{number}\ndescription: Does the thing number {number}, when asked for it.\n"
            f"metadata:\n  retinue:\n    emoji: x\n---\n\n# Skill {number}\n\nDo it.\n"
        )
    return home


def _build_afresh(home: Home) -> AgentPrompt:
    with open_workspace(home, DEFAULT_AGENT) as room:
        return _build(room)


def _build(room: AgentWorkspace) -> AgentPrompt:
    """Run the builder without an event loop: nothing in it waits when no plugin listens."""
    steps = build_prompt(room, PromptOrder(SessionKey.main(DEFAULT_AGENT)), HookBus())
    try:
        steps.send(None)
    except StopIteration as done:
        result: AgentPrompt = done.value
        return result
    finally:
        steps.close()
    return anyio.run(build_prompt, room, PromptOrder(SessionKey.main(DEFAULT_AGENT)), HookBus())
