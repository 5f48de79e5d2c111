"""Changes of an installed skill whose process is killed at a step, and what must hold afterwards."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

from retinue.core.clock import SystemClock
from retinue.skills.integrity.contents import SkillContent, read_folder
from retinue.skills.integrity.guard import SkillGuard
from retinue.skills.integrity.lock import SkillOrigin, read_lock
from retinue.skills.integrity.store import STAGING, SkillStore
from retinue.skills.library import SkillLibrary
from retinue.skills.search import SkillSource
from retinue.skills.settings import SkillsLimits
from retinue.skills.skill import SkillTier

STEPS = {"install": 12, "update": 12, "rollback": 7, "remove": 1}
"""How many steps each change has at which its process can be killed."""


def make_files(text: str, **more: str) -> dict[str, SkillContent]:
    head = f"---\nname: demo\ndescription: Does a thing.\n---\n\n{text}\n"
    return {"SKILL.md": SkillContent(head.encode())} | {
        name: SkillContent(body.encode()) for name, body in more.items()
    }


OLD = make_files("one", gone="x")
NEW = make_files("two", **{f"f{number}": "y" * 100 for number in range(6)})


def change(home: Path, kind: str, store: SkillStore) -> None:
    place = home / "skills/demo"
    match kind:
        case "install" | "update":
            store.install(place, NEW, SkillOrigin("registry", "demo", "2"), accept=True)
        case "rollback":
            store.rollback(place)
        case _:
            store.remove(place)


def run_and_die(home: str, kind: str, step: str) -> None:
    """Make a change, and kill this process at a step of it."""
    import os

    left = int(step)

    def reached(_step: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    change(Path(home), kind, SkillStore(Path(home), SystemClock(), reached))


def check_killed_change(home: Path, seed: int) -> None:
    """Kill a change that the seed chooses, and check that the skill is whole, usable, and can be changed again."""
    chance = random.Random(seed)
    kind = chance.choice(sorted(STEPS))
    step = chance.randint(1, STEPS[kind])
    store, place = SkillStore(home, SystemClock()), home / "skills/demo"
    if kind != "install":
        store.install(place, OLD, SkillOrigin("registry", "demo", "1"), accept=True)
    if kind == "rollback":
        change(home, "update", store)
    script = f"from tests.skills.killed_changes import run_and_die; run_and_die({str(home)!r}, {kind!r}, {step})"
    killed = subprocess.run([sys.executable, "-c", script], check=False, cwd=Path(__file__).parents[2])
    assert killed.returncode == -signal.SIGKILL, (kind, step)
    allowed = {"install": (None, NEW), "update": (OLD, NEW), "rollback": (NEW, OLD), "remove": (OLD, None)}[kind]
    present = read_folder(place) if place.exists() else None
    assert present in allowed, (kind, step)
    library = SkillLibrary([SkillSource(SkillTier.MANAGED, home / "skills")], SkillsLimits(), guard=SkillGuard(home))
    assert [skill.held for skill in library.load().skills] == ([] if present is None else [""]), (kind, step)
    change(home, "update", store)
    assert read_folder(place) == NEW
    assert not list((home / "skills").glob(f"{STAGING}*"))
    entry = read_lock(home).skills["skills/demo"]
    assert (entry.next, entry.origin.version) == ("", "2")
