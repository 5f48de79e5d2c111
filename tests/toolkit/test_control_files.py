"""No tool changes what decides over tools: configuration, policy, allowlists, credentials, plugins, hooks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.labels import Label
from retinue.storage.files import Root
from retinue.toolkit.files import patch, read_write
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.processes.tools import make_exec_tool
from retinue.toolkit.settings import ApplyPatchSettings, ExecSettings, ToolsSettings
from retinue.tools.elevated import Elevation
from retinue.tools.shell.allowlist import ArgvPattern, AskWhen, CommandRules, FixedCommandRules, Security
from retinue.tools.tool import Tool, ToolContext
from tests.toolkit.conftest import Person, call, failure, text_of

pytestmark = pytest.mark.anyio

AGENT = AgentId("main")

HOME = (
    "retinue.json",
    "retinue.json.last-good",
    "state.sqlite",
    "audit.jsonl",
    "credentials/anthropic",
    "agents/main/agent/auth-profiles.json",
    "plugins/mine/retinue.plugin.json",
    "plugins/mine/plugin.py",
    "hooks/mine/handler.py",
    "skills.lock",
    "workspace-other/SOUL.md",
    "not-there-yet",
)
IN_WORKSPACE = (
    ".git/hooks/pre-commit",
    "sub/.git/config",
    ".GIT/hooks/x",
    ".retinue/state",
    ".openclaw/extensions/x",
    "hooks/mine/handler.ts",
    "hooks/mine/HOOK.md",
    "skills.lock",
    "auth-profiles.json",
    "retinue.plugin.json",
    "ｒetinue.json",
    "RETINUE.JSON",
)


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A user's folder that is the workspace itself, with the home inside it."""
    (tmp_path / "user" / "state").mkdir(parents=True)
    return tmp_path / "user"


@pytest.fixture
def context(user: Path) -> Iterator[ToolContext]:
    closed = [user / "state", user / "other-agent"]
    with Root.open(user, closed=closed) as root, Root.open(Path("/"), closed=closed) as machine:
        yield ToolContext(AGENT, SessionKey.main(AGENT), RunId("r"), "c", root, outside=machine)


@pytest.fixture
def tools(parts: ToolParts) -> dict[str, Tool[Any]]:
    free = ToolsSettings(exec=ExecSettings(apply_patch=ApplyPatchSettings(workspace_only=False)))
    parts = replace(parts, settings=free)
    return {tool.name: tool for family in (read_write, patch) for tool in family.make_tools(parts)}


def attempts(path: str) -> list[tuple[str, dict[str, Any]]]:
    """Every way in which a file tool can change a path."""
    return [
        ("write", {"path": path, "content": "x"}),
        ("edit", {"path": path, "oldText": "a", "newText": "b"}),
        ("apply_patch", {"input": f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"}),
        ("apply_patch", {"input": f"*** Begin Patch\n*** Delete File: {path}\n*** End Patch"}),
        (
            "apply_patch",
            {"input": f"*** Begin Patch\n*** Update File: free.txt\n*** Move to: {path}\n@@\n-a\n+b\n*** End Patch"},
        ),
    ]


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("path", [*(f"state/{name}" for name in HOME), "other-agent/SOUL.md", *IN_WORKSPACE])
async def test_no_file_tool_changes_a_control_file(
    tools: dict[str, Tool[Any]], context: ToolContext, user: Path, path: str
) -> None:
    (user / "free.txt").write_text("a\n")
    before = everything(user)
    for spelling in (path, f"./x/../{path}", str(user / path)):
        for name, arguments in attempts(spelling):
            told = await failure(tools[name], context, **arguments)
            assert "control file" in told or "access is denied" in told
    assert everything(user) == before


async def test_nor_one_that_exists_and_none_is_read(
    tools: dict[str, Tool[Any]], context: ToolContext, user: Path
) -> None:
    (user / "state" / "credentials").mkdir()
    (user / "state" / "credentials" / "key").write_text("a")
    (user / "free.txt").write_text("a\n")
    for name, arguments in attempts("state/credentials/key"):
        assert "access is denied" in await failure(tools[name], context, **arguments)
    assert "access is denied" in await failure(tools["read"], context, path="state/credentials/key")
    assert "access is denied" in await failure(tools["read"], context, path=str(user / "state/credentials/key"))


async def test_a_file_of_another_spelling_shadows_nothing(
    tools: dict[str, Tool[Any]], context: ToolContext, user: Path
) -> None:
    (user / "SOUL.md").write_text("kind\n")
    for name in ("soul.MD", "ＳOUL.md", "Soul.md"):
        assert "only in spelling" in await failure(tools["write"], context, path=name, content="evil")
    assert sorted(path.name for path in user.iterdir()) == ["SOUL.md", "state"]


async def test_outside_the_workspace_is_reached_only_where_that_is_open(
    tools: dict[str, Tool[Any]], context: ToolContext, tmp_path: Path
) -> None:
    path = str(tmp_path.resolve() / "elsewhere.txt")
    kept = replace(context, outside=None)
    assert "outside the workspace" in await failure(tools["write"], kept, path=path, content="x")
    await call(tools["write"], context, path=path, content="a\n")
    await call(tools["edit"], context, path=path, oldText="a", newText="b")
    changed = f"*** Begin Patch\n*** Update File: {path}\n@@\n-b\n+c\n*** End Patch"
    await call(tools["apply_patch"], context, input=changed)
    assert Path(path).read_text() == "c\n"
    with Root.open(Path("/"), closed=[Path("/proc")]) as machine:
        beyond = replace(context, outside=machine)
        assert "access is denied" in await failure(tools["read"], beyond, path="/proc/self/environ")


async def test_nor_what_the_code_of_a_hook_may_load(
    tools: dict[str, Tool[Any]], context: ToolContext, user: Path
) -> None:
    (user / "hooks" / "mine" / "lib").mkdir(parents=True)
    (user / "hooks" / "mine" / "HOOK.md").write_text("---\nname: mine\n---\n")
    (user / "hooks" / "auth").mkdir()
    for path in ("hooks/mine/util.py", "hooks/mine/lib/deep.py", "hooks/mine/package.json"):
        for name, arguments in attempts(path)[:4]:
            assert "control file" in await failure(tools[name], context, **arguments)
    await call(tools["write"], context, path="hooks/auth/useAuth.ts", content="a project may have such a folder")


@pytest.mark.parametrize(
    "name", [".bashrc", ".BashRC", ".ssh/authorized_keys", ".config/systemd/user/x.service", ".gitconfig", ".ssh/new"]
)
async def test_nor_what_starts_programs_elsewhere_on_the_machine(
    tools: dict[str, Tool[Any]], parts: ToolParts, context: ToolContext, user: Path, tmp_path: Path, name: str
) -> None:
    path = tmp_path.resolve() / "ada" / name
    for attempt, arguments in attempts(str(path))[:4]:
        assert "control file" in await failure(tools[attempt], context, **arguments)
    [tool] = make_exec_tool(replace(parts, rule_store=rules("cp **")))
    assert "is a control file" in await failure(tool, context, command=f"cp free.txt {path}")
    assert not path.parent.exists()
    await call(tools["write"], context, path=name, content="a workspace may be anybody's dot files")


async def test_a_patch_stays_in_the_workspace_unless_that_is_set(
    parts: ToolParts, context: ToolContext, tmp_path: Path
) -> None:
    [tool] = patch.make_tools(parts)
    added = f"*** Begin Patch\n*** Add File: {tmp_path.resolve()}/x\n+x\n*** End Patch"
    assert "outside the workspace" in await failure(tool, context, input=added)


async def test_a_patch_moves_nothing_between_places(
    tools: dict[str, Tool[Any]], context: ToolContext, user: Path, tmp_path: Path
) -> None:
    (user / "a").write_text("a\n")
    moved = f"*** Begin Patch\n*** Update File: a\n*** Move to: {tmp_path.resolve()}/b\n@@\n-a\n+b\n*** End Patch"
    assert "same folder tree" in await failure(tools["apply_patch"], context, input=moved)


def rules(*patterns: str, security: Security = Security.ALLOWLIST, ask: AskWhen = AskWhen.ON_MISS) -> FixedCommandRules:
    return FixedCommandRules(CommandRules(security=security, ask=ask, patterns=tuple(map(ArgvPattern.parse, patterns))))


COMMANDS = (
    "cp free.txt state/retinue.json",
    "cp free.txt {user}/state/retinue.json",
    "cp --target-directory=state free.txt",
    "cp -tstate free.txt",
    "cp free.txt ./x/../state/y",
    "cp free.txt .git/hooks/pre-commit",
    "cp free.txt HOOKS/mine/handler.py",
    "cp free.txt link/retinue.json",
    "cp free.txt /elsewhere/.git/hooks/x",
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("book", [rules("cp **"), rules(security=Security.FULL)], ids=["allowlist", "full"])
async def test_an_allowed_command_that_names_a_control_file_is_asked_about(
    parts: ToolParts, context: ToolContext, user: Path, person: Person, command: str, book: FixedCommandRules
) -> None:
    (user / "free.txt").write_text("a")
    (user / "link").symlink_to("state")
    [tool] = make_exec_tool(replace(parts, rule_store=book))
    text = command.format(user=user)
    assert "is a control file" in await failure(tool, context, command=text)
    assert not list((user / "state").iterdir())
    full = replace(context, elevated=Elevation.FULL, ask=person.ask)
    assert "Approval is disabled" in await failure(tool, full, command=text)
    assert not person.asked


@pytest.mark.parametrize(
    ("pattern", "command"),
    [("cp **", "cp free.txt copy.txt"), ("cp free.txt .gitignore", "cp free.txt .gitignore"), ("", "ls .git state")],
)
async def test_other_commands_are_not(
    parts: ToolParts, context: ToolContext, user: Path, pattern: str, command: str
) -> None:
    (user / "free.txt").write_text("a")
    (user / ".git").mkdir()
    [tool] = make_exec_tool(replace(parts, rule_store=rules(*filter(None, [pattern]))))
    await call(tool, context, command=command)


async def test_what_the_allowlist_names_word_by_word_was_agreed_to(
    parts: ToolParts, context: ToolContext, user: Path
) -> None:
    (user / "free.txt").write_text("a")
    (user / ".git" / "hooks").mkdir(parents=True)
    [tool] = make_exec_tool(replace(parts, rule_store=rules("cp free.txt .git/hooks/post-merge")))
    await call(tool, context, command="cp free.txt .git/hooks/post-merge")
    assert (user / ".git/hooks/post-merge").exists()


async def test_a_managed_skill_may_be_run_but_not_changed(parts: ToolParts, context: ToolContext, user: Path) -> None:
    if user.is_relative_to("/dev"):
        pytest.skip("temporary files are in memory here, and nothing below /dev counts as a script")
    script = user / "state" / "skills" / "mine" / "run.py"
    script.parent.mkdir(parents=True)
    script.write_text("#!/usr/bin/env python3\nprint('ran')")
    script.chmod(0o700)
    book = rules(f"python3 {user}/state/skills/*/*", f"{user}/state/skills/*/*", "cp **", "tee **", "rm **")
    [tool] = make_exec_tool(replace(parts, rule_store=book))
    assert "ran" in text_of(await call(tool, context, command=f"python3 {script}"))
    for command in (f"cp free.txt {script}", f"echo evil | tee {script}", f"rm {script}", f"cp {script} free.txt"):
        assert "is a control file" in await failure(tool, context, command=command)
    assert "ran" in script.read_text()


async def test_a_rule_for_a_program_is_none_for_a_wrapper_that_anybody_made(
    parts: ToolParts, context: ToolContext, tmp_path: Path
) -> None:
    """`timeout 5 make test` is judged as `make test`, so `timeout` must be the system's own."""
    folder = tmp_path.resolve() / "bin"
    folder.mkdir()
    (folder / "timeout").write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    (folder / "timeout").chmod(0o700)
    [tool] = make_exec_tool(replace(parts, rule_store=rules("uname -z")))
    assert "not found" in await failure(tool, context, command=f"{folder}/timeout 5 uname -z")
    assert not (tmp_path / "sprung").exists()
    assert "invalid option" in text_of(await call(tool, context, command="timeout 5 uname -z"))


async def test_no_command_runs_in_a_closed_folder(parts: ToolParts, context: ToolContext) -> None:
    [tool] = make_exec_tool(parts)
    assert "access is denied" in await failure(tool, context, command="ls", workdir="state")


@pytest.mark.parametrize("name", ["write", "edit", "apply_patch"])
async def test_text_from_outside_writes_beyond_the_workspace_only_with_consent(
    tools: dict[str, Tool[Any]], context: ToolContext, tmp_path: Path, name: str
) -> None:
    there = tmp_path.resolve() / "there.md"
    there.write_text("one\n")
    arguments: dict[str, dict[str, Any]] = {
        "write": {"path": str(there), "content": "two\n"},
        "edit": {"path": str(there), "oldText": "one", "newText": "two"},
        "apply_patch": {"input": f"*** Begin Patch\n*** Update File: {there}\n@@\n-one\n+two\n*** End Patch"},
    }
    tool = tools[name]
    person = Person()
    tainted = replace(context, label=Label.UNTRUSTED)
    assert "untrusted text" in await failure(tool, tainted, **arguments[name])
    assert there.read_text() == "one\n"
    await call(tool, replace(tainted, ask=person.ask), **arguments[name])
    assert there.read_text() == "two\n"
    assert str(there) in person.asked[0].detail
