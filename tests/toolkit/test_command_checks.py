"""Git only reads where it runs unasked, whatever the repository it stands in wants."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.storage.files import Root
from retinue.toolkit.processes.command_table import CommandTable
from retinue.toolkit.processes.tools import exec_tool
from retinue.toolkit.settings import ExecSettings
from retinue.tools.tool import Tool, ToolContext
from tests.toolkit.conftest import call, failure, text_of

pytestmark = pytest.mark.anyio

HERE = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.fsmonitor=false", "-c", "filter.evil.clean=cat")


@pytest.fixture
def run(table: CommandTable, new_id: Callable[[], str], tmp_path: Path) -> Tool[Any]:
    return exec_tool(table, ExecSettings(yield_ms=60_000), new_id, {"LANG": "C.UTF-8", "HOME": str(tmp_path)})


def in_repository(folder: Path, *calls: tuple[str, ...]) -> str:
    """Run git in a folder; gives what the last call printed."""
    for words in calls:
        done = subprocess.run(["git", *HERE, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def trap(context: ToolContext) -> Path:
    """A repository with one commit, and a program in it that leaves a trace when it is started."""
    folder = context.root.path
    program = folder / "trap.sh"
    program.write_text(f"#!/bin/sh\ntouch {folder}/sprung\nexec cat\n")
    program.chmod(0o700)
    (folder / "a.txt").write_text("one\n")
    in_repository(folder, ("init", "-q"), ("add", "."), ("commit", "-qm", "first"))
    return program


@pytest.mark.parametrize("command", ["git status", "git diff", "git status -s | head -n 2"])
@pytest.mark.parametrize("kind", ["clean", "process"])
async def test_a_repository_with_filters_of_its_own_is_a_question(
    run: Tool[Any], context: ToolContext, trap: Path, command: str, kind: str
) -> None:
    folder = context.root.path
    (folder / ".gitattributes").write_text("*.txt filter=evil\n")
    in_repository(folder, ("add", "."), ("commit", "-qm", "second"), ("config", f"filter.evil.{kind}", str(trap)))
    (folder / "a.txt").write_text("two\n")
    assert f"`filter.evil.{kind}`" in await failure(run, context, command=command)
    assert not (folder / "sprung").exists()


@pytest.mark.slow
async def test_a_setting_that_a_repository_includes_is_its_own(
    run: Tool[Any], context: ToolContext, trap: Path
) -> None:
    folder = context.root.path
    (folder / "more").write_text(f'[filter "evil"]\n\tclean = {trap}\n')
    in_repository(folder, ("config", "include.path", "../more"))
    assert "`filter.evil.clean`" in await failure(run, context, command="git status")
    os.mkfifo(folder / "never")
    in_repository(folder, ("config", "include.path", "../never"))
    assert "could not be read" in await failure(run, context, command="git status")


async def test_filters_of_the_owner_are_no_question(
    run: Tool[Any], context: ToolContext, trap: Path, tmp_path: Path
) -> None:
    (tmp_path / ".gitconfig").write_text('[filter "lfs"]\n\tclean = cat\n')
    assert "nothing to commit" in text_of(await call(run, context, command="git status"))


async def test_a_repository_does_not_decide_which_folder_is_compared(
    run: Tool[Any], context: ToolContext, trap: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.txt").write_text("a secret\n")
    in_repository(context.root.path, ("config", "core.worktree", str(elsewhere)))
    assert "`core.worktree`" in await failure(run, context, command="git diff")


@pytest.mark.parametrize("url", ["{folder}", "ext::sh -c {trap}"])
async def test_a_repository_that_lacks_objects_fetches_none(
    run: Tool[Any], context: ToolContext, trap: Path, url: str
) -> None:
    folder = context.root.path
    blob = in_repository(folder, ("rev-parse", "HEAD:a.txt"))
    (folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for name, value in (
        ("core.repositoryformatversion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", url.format(folder=folder, trap=trap)),
        ("remote.origin.uploadpack", str(trap)),
        ("protocol.file.allow", "always"),
        ("protocol.ext.allow", "always"),
    ):
        in_repository(folder, ("config", name, value))
    await call(run, context, command="git show HEAD:a.txt")
    await call(run, context, command="git log -p")
    assert not (folder / "sprung").exists()


async def test_an_alias_never_stands_in_for_a_transport(run: Tool[Any], context: ToolContext, trap: Path) -> None:
    folder = context.root.path
    blob = in_repository(folder, ("rev-parse", "HEAD:a.txt"))
    (folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for name, value in (
        ("core.repositoryformatversion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", "foo::anything"),
        ("protocol.foo.allow", "always"),
        ("alias.remote-foo", f"!{trap}"),
    ):
        in_repository(folder, ("config", name, value))
    for command in ("git show HEAD:a.txt", "git log -p", "git show HEAD:a.txt | head -n 1", "nice git diff HEAD"):
        await call(run, context, command=command)
    assert not (folder / "sprung").exists()


@pytest.mark.slow
async def test_a_submodule_is_not_entered(run: Tool[Any], context: ToolContext, trap: Path) -> None:
    folder = context.root.path
    inner = folder / "inner"
    inner.mkdir()
    (inner / "b.txt").write_text("one\n")
    (inner / ".gitattributes").write_text("*.txt filter=evil\n")
    in_repository(inner, ("init", "-q"), ("add", "."), ("commit", "-qm", "first"))
    in_repository(
        folder, ("-c", "protocol.file.allow=always", "submodule", "-q", "add", "./inner"), ("commit", "-qam", "x")
    )
    in_repository(folder, ("config", "submodule.inner.ignore", "none"))
    in_repository(inner, ("config", "filter.evil.clean", str(trap)))
    (inner / "b.txt").write_text("two\n")
    for command in ("git status", "git diff", "git log -p"):
        await call(run, context, command=command)
    assert not (folder / "sprung").exists()


async def test_plain_readers_read_files_of_the_workspace_unasked(run: Tool[Any], context: ToolContext) -> None:
    folder = context.root.path
    (folder / "a.txt").write_text("one\ntwo\n")
    for command, printed in (
        ("cat a.txt", "one\ntwo"),
        ("grep -n two a.txt", "2:two"),
        ("find . -name '*.txt'", "./a.txt"),
        ("head -n 1 a.txt | wc -l", "1"),
        ("sed -n 2p a.txt", "two"),
    ):
        assert text_of(await call(run, context, command=command)) == printed


@pytest.mark.parametrize("command", ["cat link", "head -n 1 link", "grep -r x folder", "find folder", "sort link"])
async def test_a_link_leads_no_plain_reader_outside(
    run: Tool[Any], context: ToolContext, tmp_path: Path, command: str
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret\n")
    (context.root.path / "link").symlink_to(tmp_path / "outside" / "secret")
    (context.root.path / "folder").symlink_to(tmp_path / "outside")
    assert "leads outside the workspace" in await failure(run, context, command=command)


@pytest.mark.parametrize("command", ["cat state/x", "grep -r x .", "find .", "du -a", "grep -r x", "cat ./state/x"])
async def test_plain_readers_do_not_enter_closed_folders(
    run: Tool[Any], context: ToolContext, tmp_path: Path, command: str
) -> None:
    state = tmp_path / "workspace" / "state"
    state.mkdir()
    (state / "x").write_text("secret\n")
    with Root.open(tmp_path / "workspace", closed=[state]) as root:
        assert "belongs to Retinue" in await failure(run, replace(context, root=root), command=command)
