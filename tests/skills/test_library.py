"""The library sees every change, and reads nothing twice."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue.skills.library import SkillFolders, SkillLibrary, evaluate_skills, make_context, open_library
from retinue.skills.requirements import Programs
from retinue.skills.search import SkillSource
from retinue.skills.settings import SkillsLimits, SkillsSettings
from retinue.skills.skill import SkillTier
from retinue.structs.decode import decode
from tests.skills.builders import names, write_skill


def later() -> int:
    """A clock by which all files are old, so that what was read is trusted at once."""
    return time.time_ns() + 10**15


def library(root: Path, clock: Callable[[], int] = later) -> SkillLibrary:
    return SkillLibrary([SkillSource(SkillTier.WORKSPACE, root)], SkillsLimits(), now_ns=clock)


def let_file_times_move_on() -> None:
    time.sleep(0.02)


def let_file_times_become_old() -> None:
    """Until a look at files trusts what it found."""
    time.sleep(0.15)


def test_nothing_is_read_again_while_nothing_changes(tmp_path: Path) -> None:
    file = write_skill(tmp_path / "a")
    shelf = library(tmp_path)
    first = shelf.load()
    assert shelf.load() is first
    let_file_times_move_on()
    write_skill(tmp_path / "b")
    second = shelf.load()
    assert names(second) == ["a", "b"]
    assert second.skills[0] is first.skills[0], "an unchanged file is not parsed again"
    let_file_times_move_on()
    file.write_text("---\nname: a\ndescription: Changed.\n---\n")
    assert shelf.load().skills[0].description == "Changed."


def test_without_watching_what_was_found_first_stays(tmp_path: Path) -> None:
    write_skill(tmp_path / "a")
    shelf = SkillLibrary([SkillSource(SkillTier.WORKSPACE, tmp_path)], SkillsLimits(), watch=False, now_ns=time.time_ns)
    assert names(shelf.load()) == ["a"]
    let_file_times_move_on()
    write_skill(tmp_path / "b")
    assert names(shelf.load()) == ["a"]


def test_a_change_is_taken_up_once_it_has_settled(tmp_path: Path) -> None:
    now = [later()]
    write_skill(tmp_path / "a")
    shelf = SkillLibrary(
        [SkillSource(SkillTier.WORKSPACE, tmp_path)], SkillsLimits(), settle_ms=250, now_ns=lambda: now[0]
    )
    assert names(shelf.load()) == ["a"]
    let_file_times_move_on()
    write_skill(tmp_path / "b")
    changed = tmp_path.stat().st_ctime_ns
    now[0] = changed + 249_000_000
    assert names(shelf.load()) == ["a"]
    now[0] = changed + 250_000_000
    assert names(shelf.load()) == ["a", "b"]


@pytest.mark.parametrize("settings", [{"watch": False}, {"watchDebounceMs": 3_600_000}])
def test_the_configuration_says_when_skills_are_read_again(tmp_path: Path, settings: dict[str, object]) -> None:
    places = SkillFolders(user_home=tmp_path, managed=tmp_path / "managed", workspace=tmp_path / "workspace")
    skills = decode(SkillsSettings, {"load": settings})
    write_skill(tmp_path / "managed" / "a")
    shelf = open_library(skills, places)
    let_file_times_become_old()
    before = names(shelf.load())
    write_skill(tmp_path / "managed" / "b")
    assert names(shelf.load()) == before


def rename_skill(root: Path) -> None:
    (root / "pack/a").rename(root / "pack/other")


def replace_file(root: Path) -> None:
    write_skill(root / "new", name="a", description="Replaced.").rename(root / "pack/a/SKILL.md")
    (root / "new").rmdir()


def edit_and_set_back_the_time(root: Path) -> None:
    file = root / "pack/a/SKILL.md"
    before = file.stat()
    file.write_text(file.read_text().replace("Does", "Did_"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def relink(root: Path) -> None:
    (root / "link").unlink()
    (root / "link").symlink_to(".kept/two")


CHANGES: dict[str, Callable[[Path], object]] = {
    "added": lambda root: write_skill(root / "b"),
    "added-deep": lambda root: write_skill(root / "empty/b"),
    "added-beside": lambda root: write_skill(root / "pack/b"),
    "removed": lambda root: (root / "pack/a/SKILL.md").unlink(),
    "renamed": rename_skill,
    "edited": lambda root: write_skill(root / "pack/a", description="Other."),
    "replaced": replace_file,
    "time-set-back": edit_and_set_back_the_time,
    "repaired": lambda root: write_skill(root / "broken"),
    "relinked": relink,
    "turned-into-a-pack": lambda root: (root / "pack/SKILL.md").write_text("---\nname: p\ndescription: d\n---\n"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_seen(tmp_path: Path, change: str) -> None:
    write_skill(tmp_path / "pack/a")
    write_skill(tmp_path / ".kept/one")
    write_skill(tmp_path / ".kept/two")
    (tmp_path / "link").symlink_to(".kept/one")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/SKILL.md").write_text("nothing")
    shelf = library(tmp_path)
    before = shelf.load()
    let_file_times_move_on()
    CHANGES[change](tmp_path)
    after = shelf.load()
    assert after != before
    assert after == library(tmp_path).load()


def test_a_root_that_appears_and_disappears(tmp_path: Path) -> None:
    shelf = library(tmp_path / "skills")
    assert not shelf.load().skills
    file = write_skill(tmp_path / "skills/a")
    assert names(shelf.load()) == ["a"]
    file.unlink()
    (tmp_path / "skills/a").rmdir()
    (tmp_path / "skills").rmdir()
    assert not shelf.load().skills


def test_a_change_too_fast_for_file_times_is_seen(tmp_path: Path) -> None:
    """Edits of the same size, one right after the other, may all carry one time stamp."""
    file = write_skill(tmp_path / "a", description="0000")
    shelf = library(tmp_path, time.time_ns)
    for number in range(200):
        text = f"{number:04}"
        content = file.read_text()
        with file.open("r+") as stream:
            stream.write(content.replace(shelf.load().skills[0].description, text))
        assert shelf.load().skills[0].description == text


def test_problems_stay_reported_without_reading_again(tmp_path: Path) -> None:
    write_skill(tmp_path / "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/SKILL.md").write_text("nothing")
    shelf = library(tmp_path)
    first = shelf.load()
    let_file_times_move_on()
    write_skill(tmp_path / "more")
    assert shelf.load().problems == first.problems


def test_the_library_of_an_agent(tmp_path: Path) -> None:
    write_skill(tmp_path / "ws/skills/a")
    write_skill(tmp_path / "home/skills/b")
    write_skill(tmp_path / "extra/c")
    (tmp_path / "ws/skills/linked").symlink_to(tmp_path / "shared/d")
    write_skill(tmp_path / "shared/d")
    settings = decode(SkillsSettings, {"load": {"extraDirs": ["~/extra"], "allowSymlinkTargets": ["~/shared"]}})
    places = SkillFolders(tmp_path, tmp_path / "home/skills", workspace=tmp_path / "ws", bundled=tmp_path / "none")
    found = open_library(settings, places).load()
    assert {skill.name: skill.tier for skill in found.skills} == {
        "a": SkillTier.WORKSPACE,
        "b": SkillTier.MANAGED,
        "c": SkillTier.EXTRA,
        "d": SkillTier.WORKSPACE,
    }
    assert not found.problems


def test_programs_are_remembered_until_path_changes(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    programs = Programs()
    path = f"{tmp_path / 'one'}{os.pathsep}{tmp_path / 'missing'}"
    assert not programs.on(path)("tool")
    for folder in ("one", "two"):
        (tmp_path / folder / "tool").write_text("#!/bin/sh\n")
        (tmp_path / folder / "tool").chmod(0o755)
    assert programs.on(path)("tool")
    (tmp_path / "one/tool").unlink()
    assert not programs.on(path)("tool")
    assert programs.on(str(tmp_path / "two"))("tool")


def test_a_program_is_looked_up_once(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    programs = Programs(later)
    assert programs.on(str(tmp_path))("tool")
    tool.chmod(0o644)
    assert programs.on(str(tmp_path))("tool"), "the folder did not change"
    assert not Programs(later).on(str(tmp_path))("tool")


def test_skills_are_judged_in_order(tmp_path: Path) -> None:
    write_skill(tmp_path / "a", more="metadata: {openclaw: {requires: {bins: [no-such-program]}}}\n")
    write_skill(tmp_path / "b")
    context = make_context(
        SkillsSettings(), system="linux", environment={}, has_program=Programs().on("/nowhere"), config={}
    )
    judged = evaluate_skills(library(tmp_path).load().skills, context)
    assert [(item.skill.name, item.gate.eligible) for item in judged] == [("a", False), ("b", True)]
