"""Scaffolding and checking of skills."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.skills.bundled.scripts import Script, Workspace, find_faults, script

pytestmark = pytest.mark.slow  # a process for each call of the script

DESCRIPTION = 'Plan meals: "fast" ones. Use when the user asks what to cook.'


@pytest.fixture
def skill(workspace: Workspace) -> Script:
    return script("skill-creator", "skill.py", workspace)


def write(workspace: Workspace, front: str, body: str = "\n# Steps\n\nDo it.\n", name: str = "demo") -> str:
    workspace.write(f"{name}/SKILL.md", f"---\n{front}---\n{body}")
    return name


@pytest.mark.parametrize("extra", [(), ("--script",), ("--bin", "du", "--bin", "sort"), ("--script", "--bin", "du")])
def test_a_scaffold_is_a_valid_skill(skill: Script, workspace: Workspace, extra: tuple[str, ...]) -> None:
    skill.run("new", "meal-plan", "--description", DESCRIPTION, *extra)
    assert find_faults(workspace.folder / "skills/meal-plan") == []
    findings = skill.json("check", "skills/meal-plan")
    assert [finding["message"] for finding in findings] == ["the body still has 'Replace this line' from the scaffold"]


def test_the_scaffolded_script_runs(skill: Script, workspace: Workspace) -> None:
    skill.run("new", "meal-plan", "--description", 'Ends with a quote "', "--script")
    path = workspace.folder / "skills/meal-plan/scripts/meal_plan.py"
    workspace.write("input.txt", "hello")
    done = subprocess.run(
        [sys.executable, path, "input.txt", "--json"], cwd=workspace.folder, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, '{"file": "input.txt", "bytes": 5}\n')
    done = subprocess.run([path, "missing.txt"], env=workspace.env, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")


def test_nothing_is_overwritten(skill: Script, workspace: Workspace) -> None:
    workspace.write("skills/demo/SKILL.md", "mine")
    assert "exists already" in skill.fail("new", "demo", "--description", DESCRIPTION)
    assert workspace.read("skills/demo/SKILL.md") == "mine"


@pytest.mark.parametrize("name", ["Upper", "two words", "-dash", "dash-", "a--b", "../up", "a_b", "x" * 65, ""])
def test_bad_names_are_refused(skill: Script, workspace: Workspace, name: str) -> None:
    skill.fail("new", "--description", DESCRIPTION, "--", name)
    assert not (workspace.folder / "skills").exists()


VALID = [
    "name: demo\ndescription: Does it. Use when asked.\n",
    'name: demo\ndescription: "Does: it. Use when asked."\nlicense: MIT\n',
    "name: demo\ndescription: 'It''s used when asked.'\ncompatibility: any\n",
    "name: demo\ndescription: >-\n  Does it.\n  Use when asked.\n",
    "# comment\nname: demo\ndescription: Use it.\nmetadata:\n  retinue:\n    requires:\n      bins:\n        - du\n",
    'name: demo\ndescription: Use it.\nmetadata:\n  emoji: "🍲"\n  url: https://example.org\n',
]
BROKEN = [
    ("description: Use it.\n", "the name must have"),
    ("name: demo\n", "the description must have"),
    ("name: other\ndescription: Use it.\n", "must equal the folder's name"),
    ("name: Demo\ndescription: Use it.\n", "lower-case"),
    ("name: demo\ndescription: Use it: now.\n", "quote the value of 'description'"),
    ('name: demo\ndescription: "Use it.\n', "quotes of 'description' are broken"),
    ("name: demo\ndescription: [Use, it]\n", "block style"),
    ("name: demo\ndescription: Use it.\nmetadata:\n  a: {b: c}\n", "block style"),
    ("name: demo\ndescription: Use it.\nmetadata:\n  a: &x b\n", "block style"),
    ("name: demo\nname: demo\ndescription: Use it.\n", "stands twice"),
    ("name: demo\n\tdescription: Use it.\n", "not tabs"),
    (f"name: demo\ndescription: Use {'x' * 1024}\n", "1 to 1024"),
    (f"name: demo\ndescription: Use it.\ncompatibility: {'x' * 501}\n", "at most 500"),
]


@pytest.mark.parametrize("front", VALID)
def test_what_the_reference_validator_accepts_is_accepted(skill: Script, workspace: Workspace, front: str) -> None:
    folder = write(workspace, front)
    assert find_faults(workspace.folder / folder) == []
    assert skill.run("check", folder) == "No problems found.\n"


@pytest.mark.parametrize(("front", "message"), BROKEN)
def test_what_the_reference_validator_refuses_is_refused(
    skill: Script, workspace: Workspace, front: str, message: str
) -> None:
    folder = write(workspace, front)
    assert find_faults(workspace.folder / folder) != []
    done = workspace.call([sys.executable, str(skill.path), "check", folder])
    assert done.returncode == 1
    assert message in done.stdout


GOOD = "name: demo\ndescription: Use it.\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "the body is empty"),
        ("```sh\nif true; then\n```\n", "a shell example does not parse"),
        ("Run {baseDir}/scripts/gone.py.\n", "scripts/gone.py does not exist"),
        ("Read {baseDir}/../other/SKILL.md\n", "points out of the skill's folder"),
        ("See [details](references/gone.md#part).\n", "references/gone.md does not exist"),
    ],
)
def test_a_body_that_cannot_work_is_an_error(skill: Script, workspace: Workspace, body: str, message: str) -> None:
    folder = write(workspace, GOOD, body)
    done = workspace.call([sys.executable, str(skill.path), "check", folder])
    assert done.returncode == 1
    assert message in done.stdout


def test_files_that_cannot_work_are_errors(skill: Script, workspace: Workspace) -> None:
    folder = write(workspace, GOOD)
    workspace.write("demo/scripts/plain.py", "#!/usr/bin/env python3\nprint(1)\n")
    workspace.write("demo/scripts/broken.py", "def (:\n")
    (workspace.folder / "demo/leak").symlink_to("/etc/passwd")
    done = workspace.call([sys.executable, str(skill.path), "check", folder])
    assert done.returncode == 1
    assert "scripts/plain.py has a #! line but is not executable" in done.stdout
    assert "scripts/broken.py is not valid Python" in done.stdout
    assert "leak is a link that leaves" in done.stdout


def test_weak_points_are_warnings_only(skill: Script, workspace: Workspace) -> None:
    folder = write(workspace, f"name: demo\ndescription: Plans meals {'x' * 160}\nhomepage: https://example.org\n")
    messages = " ".join(finding["message"] for finding in skill.json("check", folder))
    assert "stands in every prompt" in messages
    assert "does not say when" in messages
    assert "'homepage' is not part of the open format" in messages


def test_a_skill_can_be_checked_from_inside(skill: Script, workspace: Workspace) -> None:
    write(workspace, GOOD)
    inside = Script(skill.path, Workspace(workspace.folder / "demo"))
    assert inside.run("check", ".") == "No problems found.\n"


@pytest.mark.parametrize("content", ["no front matter", "---\nname: demo\n", ""])
def test_a_file_without_front_matter_is_an_error(skill: Script, workspace: Workspace, content: str) -> None:
    workspace.write("demo/SKILL.md", content)
    done = workspace.call([sys.executable, str(skill.path), "check", "demo"])
    assert done.returncode == 1
    assert "three hyphens" in done.stdout


def test_missing_and_unreadable_skills_are_errors(skill: Script, workspace: Workspace) -> None:
    workspace.write("bytes/SKILL.md", b"---\n\xff\n---\n")
    done = workspace.call([sys.executable, str(skill.path), "check", "nowhere", "bytes"])
    assert done.returncode == 1
    assert "there is no SKILL.md" in done.stdout
    assert "not UTF-8" in done.stdout
