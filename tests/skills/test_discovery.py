"""Where skills are found, which of two wins, and what is left out."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from retinue.core.extension import SkillRoot
from retinue.skills.library import BUNDLED, SkillFolders, discover, list_sources
from retinue.skills.search import SkillSource
from retinue.skills.settings import SkillsLimits, SkillsLoadSettings
from retinue.skills.skill import SkillTier
from tests.skills.builders import look, names, write_skill


def test_sources_stand_in_order_of_precedence(tmp_path: Path) -> None:
    places = SkillFolders(
        user_home=tmp_path,
        managed=tmp_path / "home/skills",
        workspace=tmp_path / "ws",
        plugins=(SkillRoot(tmp_path / "plugin", "demo"),),
        explicit=(tmp_path / "one/SKILL.md",),
    )
    sources = list_sources(places, SkillsLoadSettings(extra_dirs=["~/mine", "/opt/skills", "more", ""]))
    assert [(source.tier, source.path) for source in sources] == [
        (SkillTier.EXPLICIT, tmp_path / "one"),
        (SkillTier.WORKSPACE, tmp_path / "ws/skills"),
        (SkillTier.PROJECT, tmp_path / "ws/.agents/skills"),
        (SkillTier.PROJECT, tmp_path / "ws/.pi/skills"),
        (SkillTier.PERSONAL, tmp_path / ".agents/skills"),
        (SkillTier.PERSONAL, tmp_path / ".pi/agent/skills"),
        (SkillTier.MANAGED, tmp_path / "home/skills"),
        (SkillTier.PLUGIN, tmp_path / "plugin"),
        (SkillTier.BUNDLED, BUNDLED),
        (SkillTier.EXTRA, tmp_path / "mine"),
        (SkillTier.EXTRA, Path("/opt/skills")),
        (SkillTier.EXTRA, tmp_path / "home/more"),
    ]


def test_a_workspace_that_is_not_trusted_adds_no_source(tmp_path: Path) -> None:
    tiers = {source.tier for source in list_sources(SkillFolders(tmp_path, tmp_path / "skills"), SkillsLoadSettings())}
    assert tiers == {SkillTier.PERSONAL, SkillTier.MANAGED, SkillTier.BUNDLED}


def test_of_two_skills_with_one_name_the_higher_tier_wins(tmp_path: Path) -> None:
    order = [
        SkillTier.EXPLICIT,
        SkillTier.WORKSPACE,
        SkillTier.PROJECT,
        SkillTier.PERSONAL,
        SkillTier.MANAGED,
        SkillTier.PLUGIN,
        SkillTier.BUNDLED,
    ]
    for tier in order:
        write_skill(tmp_path / tier / "github", description=f"From {tier}.")
    for first in range(len(order)):
        found = look(*(SkillSource(tier, tmp_path / tier) for tier in order[first:]))
        assert [skill.tier for skill in found.skills] == [order[first]]
        assert [(item.skill.tier, item.by.tier) for item in found.shadowed] == [
            (tier, order[first]) for tier in order[first + 1 :]
        ]


def test_names_that_look_the_same_are_the_same(tmp_path: Path) -> None:
    write_skill(tmp_path / "a/github")
    write_skill(tmp_path / "b/GitHub")
    found = look(tmp_path / "a", tmp_path / "b")
    assert names(found) == ["github"]
    assert [item.skill.name for item in found.shadowed] == ["GitHub"]


def test_of_two_in_one_root_the_upper_one_wins(tmp_path: Path) -> None:
    write_skill(tmp_path / "zeta", name="same", description="Upper.")
    write_skill(tmp_path / "alpha/deep", name="same", description="Lower.")
    found = look(tmp_path)
    assert [skill.description for skill in found.skills] == ["Upper."]
    assert [item.skill.description for item in found.shadowed] == ["Lower."]


def test_skills_come_in_order_of_name_wherever_they_are(tmp_path: Path) -> None:
    for folder in ("one/Zebra", "two/nested/apple", "one/mango", "two/Banana"):
        write_skill(tmp_path / folder)
    assert names(look(tmp_path / "one", tmp_path / "two")) == ["apple", "Banana", "mango", "Zebra"]


def test_nested_folders_are_searched_six_levels_deep(tmp_path: Path) -> None:
    write_skill(tmp_path / "1/2/3/4/5/six")
    write_skill(tmp_path / "1/2/3/4/5/6/seven")
    assert names(look(tmp_path)) == ["six"]


def test_a_root_that_is_a_skill_is_just_that(tmp_path: Path) -> None:
    write_skill(tmp_path / "root")
    write_skill(tmp_path / "root/inner")
    assert names(look(tmp_path / "root")) == ["root"]


def test_a_lower_case_file_name_is_accepted(tmp_path: Path) -> None:
    write_skill(tmp_path / "a").rename(tmp_path / "a/skill.md")
    assert [skill.location.name for skill in look(tmp_path).skills] == ["skill.md"]


@pytest.mark.parametrize("folder", [".git", ".hidden", "node_modules", "__pycache__"])
def test_folders_that_hold_no_skills_are_skipped(tmp_path: Path, folder: str) -> None:
    write_skill(tmp_path / folder / "a")
    write_skill(tmp_path / folder)
    write_skill(tmp_path / "b")
    found = look(tmp_path)
    assert names(found) == ["b"]
    assert not found.problems


def test_a_missing_root_is_silent_unless_somebody_named_it(tmp_path: Path) -> None:
    assert not look(tmp_path / "none").problems
    found = look(SkillSource(SkillTier.EXTRA, tmp_path / "none", named=True))
    assert [(problem.path, problem.message) for problem in found.problems] == [
        (tmp_path / "none", "There is no such folder.")
    ]


def test_a_named_folder_without_a_skill_is_reported(tmp_path: Path) -> None:
    found = look(SkillSource(SkillTier.EXPLICIT, tmp_path, named=True))
    assert "`SKILL.md` was not found" in found.problems[0].message


def test_a_broken_skill_is_reported_and_the_others_load(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d", "e", "f", "g"):
        write_skill(tmp_path / name)
    (tmp_path / "b/SKILL.md").write_bytes(b"---\nname: b\xff\ndescription: y\n---\n")
    (tmp_path / "c/SKILL.md").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "d/SKILL.md").write_text("x" * 300_000)
    (tmp_path / "e/SKILL.md").write_text("---\nname: e\n---\n")
    (tmp_path / "f/SKILL.md").unlink()
    (tmp_path / "f/SKILL.md").mkdir()
    found = look(tmp_path)
    assert names(found) == ["a", "g"]
    assert {problem.path.parent.name: problem.message.split(".")[0] for problem in found.problems} == {
        "b": "It is not UTF-8 text: byte 11 cannot be read",
        "c": "It is not a text file: it contains zero bytes",
        "d": "It is larger than 256,000 bytes (`skills",
        "e": "It has no description",
        "f": "It is a folder, not a regular file",
    }


def test_reading_never_waits_for_a_fifo_or_socket(tmp_path: Path) -> None:
    write_skill(tmp_path / "good")
    for name in ("fifo", "socket"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "fifo/SKILL.md")
    with socket.socket(socket.AF_UNIX) as server:
        # A socket's path may be only about a hundred characters long.
        here = os.open(tmp_path / "socket", os.O_RDONLY)
        try:
            server.bind(f"/proc/self/fd/{here}/SKILL.md")
        finally:
            os.close(here)
        found = look(tmp_path)
    assert names(found) == ["good"]
    assert [problem.message for problem in found.problems] == [
        "It is a FIFO, not a regular file.",
        "It is a socket or device, not a regular file.",
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_reported(tmp_path: Path) -> None:
    write_skill(tmp_path / "a").chmod(0)
    write_skill(tmp_path / "b")
    (tmp_path / "c").mkdir(mode=0)
    found = look(tmp_path)
    assert names(found) == ["b"]
    assert [problem.path.relative_to(tmp_path).parts[0] for problem in found.problems] == ["a", "c"]


class TestLinks:
    """Links inside a root are followed; links that leave it are not, unless the configuration says so."""

    def test_a_linked_folder_inside_the_root(self, tmp_path: Path) -> None:
        write_skill(tmp_path / "real/a")
        (tmp_path / "linked").symlink_to("real/a")
        found = look(tmp_path)
        assert names(found) == ["a"]
        assert not found.problems
        assert not found.shadowed

    def test_an_absolute_link_that_stays_inside(self, tmp_path: Path) -> None:
        write_skill(tmp_path / ".kept/a")
        (tmp_path / "linked").symlink_to(tmp_path / ".kept/a")
        assert names(look(tmp_path)) == ["a"]

    @pytest.mark.parametrize("absolute", [True, False])
    def test_a_folder_outside(self, tmp_path: Path, absolute: bool) -> None:
        write_skill(tmp_path / "outside/secret")
        write_skill(tmp_path / "root/good")
        target = tmp_path / "outside/secret" if absolute else Path("../outside/secret")
        (tmp_path / "root/link").symlink_to(target)
        found = look(tmp_path / "root")
        assert names(found) == ["good"]
        assert [problem.path for problem in found.problems] == [tmp_path / "root/link"]
        assert "skills.load.allowSymlinkTargets" in found.problems[0].message
        assert str(tmp_path / "outside/secret") in found.problems[0].message

    def test_a_file_outside(self, tmp_path: Path) -> None:
        file = write_skill(tmp_path / "outside")
        (tmp_path / "root/a").mkdir(parents=True)
        (tmp_path / "root/a/SKILL.md").symlink_to(file)
        found = look(tmp_path / "root")
        assert not found.skills
        assert [problem.path for problem in found.problems] == [tmp_path / "root/a/SKILL.md"]

    def test_a_folder_of_skills_outside(self, tmp_path: Path) -> None:
        write_skill(tmp_path / "outside/pack/a")
        (tmp_path / "root").mkdir()
        (tmp_path / "root/pack").symlink_to(tmp_path / "outside/pack")
        found = look(tmp_path / "root")
        assert not found.skills
        assert len(found.problems) == 1

    @pytest.mark.parametrize("allowed", ["outside", "outside/pack"])
    def test_an_allowed_target(self, tmp_path: Path, allowed: str) -> None:
        write_skill(tmp_path / "outside/pack/a")
        write_skill(tmp_path / "outside/pack/b")
        (tmp_path / "root/c").mkdir(parents=True)
        (tmp_path / "root/pack").symlink_to(tmp_path / "outside/pack")
        (tmp_path / "root/c/SKILL.md").symlink_to(tmp_path / "outside/pack/b/SKILL.md")
        found = look(tmp_path / "root", allowed=(tmp_path / allowed,))
        assert names(found) == ["a", "b"]
        assert found.skills[0].location == tmp_path / "root/pack/a/SKILL.md"
        assert not found.problems

    def test_what_an_allowed_target_links_to_is_not_allowed_with_it(self, tmp_path: Path) -> None:
        write_skill(tmp_path / "secret")
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside/more").symlink_to(tmp_path / "secret")
        (tmp_path / "root").mkdir()
        (tmp_path / "root/pack").symlink_to(tmp_path / "outside")
        found = look(tmp_path / "root", allowed=(tmp_path / "outside",))
        assert not found.skills
        assert [problem.path for problem in found.problems] == [tmp_path / "root/pack/more"]

    def test_a_neighbour_of_an_allowed_target(self, tmp_path: Path) -> None:
        write_skill(tmp_path / "shared-evil/a")
        (tmp_path / "shared").mkdir()
        (tmp_path / "root").mkdir()
        (tmp_path / "root/a").symlink_to(tmp_path / "shared-evil/a")
        assert not look(tmp_path / "root", allowed=(tmp_path / "shared",)).skills

    def test_a_workspace_folder_that_leads_out_of_the_workspace(self, tmp_path: Path) -> None:
        write_skill(tmp_path / "outside/a")
        workspace = tmp_path / "ws"
        workspace.mkdir()
        (workspace / "skills").symlink_to(tmp_path / "outside")
        source = SkillSource(SkillTier.WORKSPACE, workspace / "skills", within=workspace)
        found = look(source)
        assert not found.skills
        assert [problem.path for problem in found.problems] == [workspace / "skills"]
        assert names(look(source, allowed=(tmp_path / "outside",))) == ["a"]

    def test_a_root_that_is_a_link_is_the_owners_choice(self, tmp_path: Path) -> None:
        write_skill(tmp_path / "dotfiles/a")
        (tmp_path / "skills").symlink_to(tmp_path / "dotfiles")
        assert names(look(tmp_path / "skills")) == ["a"]

    def test_circles_and_links_to_nothing(self, tmp_path: Path) -> None:
        write_skill(tmp_path / "pack/a")
        (tmp_path / "pack/up").symlink_to("..")
        (tmp_path / "self").symlink_to("self")
        (tmp_path / "gone").symlink_to("nowhere")
        (tmp_path / "file").symlink_to("pack/a/SKILL.md")
        found = look(tmp_path)
        assert names(found) == ["a"]
        assert [problem.path.name for problem in found.problems] == ["SKILL.md"]
        assert "link to itself" in found.problems[0].message


class TestLimits:
    """Large folders cost what the limits allow, and the limit is reported."""

    def test_candidates_per_root(self, tmp_path: Path) -> None:
        for number in range(6):
            write_skill(tmp_path / f"skill-{number}")
        found = look(tmp_path, maxCandidatesPerRoot=4)
        assert names(found) == [f"skill-{number}" for number in range(4)]
        assert [problem.path for problem in found.limits] == [tmp_path]
        assert "more than 4 folders" in found.limits[0].message
        assert not look(tmp_path, maxCandidatesPerRoot=6).limits

    def test_skills_per_source(self, tmp_path: Path) -> None:
        for number in range(6):
            write_skill(tmp_path / f"a/skill-{number}")
        write_skill(tmp_path / "b/other")
        found = look(tmp_path / "a", tmp_path / "b", maxSkillsLoadedPerSource=4)
        assert names(found) == ["other", *(f"skill-{number}" for number in range(4))]
        assert "more than 4 skills" in found.limits[0].message
        assert not look(tmp_path / "a", maxSkillsLoadedPerSource=6).limits

    def test_the_size_of_a_file(self, tmp_path: Path) -> None:
        file = write_skill(tmp_path / "a")
        size = file.stat().st_size
        assert names(look(tmp_path, maxSkillFileBytes=size)) == ["a"]
        assert "larger than" in look(tmp_path, maxSkillFileBytes=size - 1).problems[0].message

    def test_a_deep_tree_without_skills_does_not_hide_its_neighbours(self, tmp_path: Path) -> None:
        for number in range(20):
            (tmp_path / "aaa" / f"{number}").mkdir(parents=True)
        write_skill(tmp_path / "zzz")
        assert names(look(tmp_path, maxCandidatesPerRoot=10)) == ["zzz"]

    @pytest.mark.slow
    def test_a_hundred_thousand_folders(self, tmp_path: Path) -> None:
        for number in range(100_000):
            os.mkdir(f"{tmp_path}/{number:06}")  # noqa: PTH102 - twice as fast as a Path for each
        write_skill(tmp_path / "000000")
        write_skill(tmp_path / "000001/inner")
        found, scan = discover([SkillSource(SkillTier.WORKSPACE, tmp_path)], SkillsLimits())
        assert len(scan.stamps) <= 301, "the search must stop at its limits"
        assert ["10,000 files and folders" in limit.message for limit in found.limits] == [True, False]
        assert not found.problems


def test_folder_names_that_cannot_be_shown(tmp_path: Path) -> None:
    write_skill(tmp_path / "good")
    write_skill(tmp_path / "a\n</location>", name="evil")
    (tmp_path / os.fsdecode(b"\xff")).mkdir()
    found = look(tmp_path)
    assert names(found) == ["good"]
    assert len(found.problems) == 2
    for problem in found.problems:
        problem.message.encode()


def test_what_a_stranger_wrote_is_quoted_harmlessly(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/link").symlink_to(tmp_path / "x\x1b[2Jy\u202e")
    (tmp_path / "x\x1b[2Jy\u202e").mkdir()
    write_skill(tmp_path / "root/bad", more='"k\\x1b[2J": 1\n"k\\x1b[2J": 2\n')
    found = look(tmp_path / "root")
    assert len(found.problems) == 2
    assert all(problem.message.isprintable() for problem in found.problems)


def test_one_file_reached_twice_is_one_skill(tmp_path: Path) -> None:
    write_skill(tmp_path / "a")
    found = look(SkillSource(SkillTier.PROJECT, tmp_path), SkillSource(SkillTier.PERSONAL, tmp_path))
    assert [skill.tier for skill in found.skills] == [SkillTier.PROJECT]
    assert not found.shadowed
