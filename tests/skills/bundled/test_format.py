"""Every bundled skill is a valid, cheap and self-contained skill."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from retinue.core.text import estimate_tokens
from retinue.skills.catalog import render_catalog
from retinue.skills.skill import SkillTier, parse_skill
from tests.core.tokenizer import count_tokens
from tests.skills.bundled.scripts import (
    BUNDLED,
    SKILLS,
    Workspace,
    find_faults,
    read_description,
    script,
    shell_blocks,
)

SCRIPTS = tuple(sorted(BUNDLED.glob("*/scripts/*.py")))
each_skill = pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.name)
each_script = pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parts[-3]}/{path.name}")

NEEDS: dict[str, tuple[str, ...]] = {
    "git": ("git", "python3"),
    "github": ("gh", "python3"),
    "images": ("uv",),
    "mqtt": ("uv",),
    "pdf": ("uv",),
    "postgres": ("psql", "python3"),
    "ssh": ("ssh", "python3"),
    "tmux": ("tmux", "python3"),
}
"""The programs of the skills that need more than Python."""
IMPORTED_AS = {"pillow": "PIL", "paho-mqtt": "paho"}


def test_there_are_many_and_every_script_has_a_test() -> None:
    assert len(SKILLS) >= 38
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    missing = [path.name for path in SCRIPTS if path.stat().st_mode & 0o100 and f'"{path.name}"' not in tests]
    assert missing == []


@each_skill
def test_the_reference_validator_accepts_it(skill: Path) -> None:
    assert find_faults(skill) == []


@pytest.mark.slow
def test_the_validators_command_accepts_all() -> None:
    for skill in SKILLS:
        command = [str(Path(sys.executable).parent / "agentskills"), "validate", str(skill)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr


@each_skill
def test_our_own_reader_finds_its_needs(skill: Path) -> None:
    location = skill / "SKILL.md"
    parsed = parse_skill(location.read_bytes(), location, SkillTier.BUNDLED)
    assert parsed.name == skill.name
    assert parsed.requirements.bins == NEEDS.get(skill.name, ("python3",))
    assert parsed.emoji
    assert parsed.license == "MIT"


def test_the_github_skill_takes_its_token_from_its_own_setting() -> None:
    location = BUNDLED / "github" / "SKILL.md"
    parsed = parse_skill(location.read_bytes(), location, SkillTier.BUNDLED)
    assert parsed.primary_env == "GH_TOKEN"
    assert parsed.requirements.env == ()


@each_skill
def test_its_description_says_when_to_use_it_and_is_short(skill: Path) -> None:
    description = read_description(skill)
    assert len(description) <= 160
    assert "Use " in description


@pytest.mark.slow
def test_names_and_descriptions_of_all_skills_cost_little_in_every_prompt() -> None:
    listed = "\n".join(f"{skill.name}: {read_description(skill)}" for skill in SKILLS)
    assert estimate_tokens(listed) <= 30 * len(SKILLS)


@pytest.mark.slow
def test_the_list_of_all_skills_leaves_room_for_the_rest_of_the_prompt() -> None:
    """`test_the_fixed_request_is_small` counts what is listed on the machine of the tests; here every need is met."""
    parsed = [parse_skill((skill / "SKILL.md").read_bytes(), skill / "SKILL.md", SkillTier.BUNDLED) for skill in SKILLS]
    catalog = render_catalog(parsed, max_skills=150, max_chars=30_000, home=Path("/home/ada"))
    assert len(catalog.listed) == len(SKILLS)
    assert count_tokens(catalog.text) <= 1_100


@each_skill
def test_its_shell_examples_parse(skill: Path, workspace: Workspace) -> None:
    blocks = shell_blocks(skill)
    assert blocks
    for block in blocks:
        assert "{baseDir}" not in block
        done = workspace.call(["bash", "-n"], stdin=block)
        assert done.returncode == 0, done.stderr


@each_skill
def test_our_own_checker_finds_nothing_to_improve(skill: Path, workspace: Workspace) -> None:
    assert script("skill-creator", "skill.py", workspace).run("check", skill) == "No problems found.\n"


def declared_libraries(path: Path) -> set[str]:
    """The libraries in the inline metadata of a script, without their versions."""
    block = re.search(r"^# /// script\n(.*?)^# ///$", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    if block is None:
        return set()
    declared = tomllib.loads(block[1].replace("# ", ""))
    return {re.split("[<>=]", each)[0] for each in declared["dependencies"]}


@each_script
def test_the_tests_have_the_libraries_that_a_script_declares(path: Path) -> None:
    project = tomllib.loads((BUNDLED.parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    installed = {re.split("[<>=]", each)[0] for each in project["dependency-groups"]["dev"]}
    declared = declared_libraries(path)
    assert declared <= installed
    assert ("uv run" in (path.parents[1] / "SKILL.md").read_text(encoding="utf-8")) == bool(declared)


@each_script
def test_a_script_needs_nothing_but_the_standard_library_and_what_it_declares(path: Path) -> None:
    siblings = {other.stem for other in path.parent.glob("*.py")}
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 11))):
        if isinstance(node, ast.Import):
            imported.update(name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(str(node.module).partition(".")[0])
    declared = {IMPORTED_AS.get(name, name) for name in declared_libraries(path)}
    assert imported - sys.stdlib_module_names - siblings == declared


@each_script
def test_a_script_that_can_be_started_is_executable_and_explains_itself(path: Path, workspace: Workspace) -> None:
    if not path.read_bytes().startswith(b"#!"):
        assert not os.access(path, os.X_OK)
        assert any(
            f"from {path.stem} import" in other.read_text(encoding="utf-8") for other in path.parent.glob("*.py")
        )
        return
    assert path.read_text(encoding="utf-8").startswith("#!/usr/bin/env python3\n")
    assert os.access(path, os.X_OK)
    done = workspace.call([str(path), "--help"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")


@each_script
def test_a_script_is_named_in_its_skill(path: Path) -> None:
    if path.read_bytes().startswith(b"#!"):
        text = (path.parents[1] / "SKILL.md").read_text(encoding="utf-8")
        runner = "uv run" if declared_libraries(path) else "python3"
        assert f"{runner} {{baseDir}}/scripts/{path.name}" in text


def test_using_a_skill_leaves_its_folder_unchanged(workspace: Workspace) -> None:
    script("calendar", "ics.py", workspace).run("add", "Dentist", "--start", "2030-05-14 15:00")
    assert not list(BUNDLED.rglob("__pycache__"))


def test_scripts_pass_the_linters_rules() -> None:
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--line-length", "120"]
    rules = ["--target-version", "py311", "--select", "E,F,I,UP,B,C90,SIM,RET,PTH"]
    done = subprocess.run([*command, *rules, str(BUNDLED)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
