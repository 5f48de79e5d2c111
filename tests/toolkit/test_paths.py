"""Where tools may reach and what they may not write."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from retinue.core.errors import OutsideRoot, StorageError, ToolFailed
from retinue.storage.files import Root
from retinue.toolkit.paths import is_control_path, locate, locate_readable, locate_writable, told
from retinue.tools.tool import ToolContext


@pytest.mark.parametrize(
    "path",
    [
        *(
            ".git",
            ".git/config",
            ".git/hooks/pre-commit",
            "sub/.git/config",
            ".GIT/config",
            ".Git/hooks/x",
            "ｇ/.ｇit/config",
            "GIT~1/config",
        ),
        *(".g\u200cit/config", ".git./config", ".git /config", ".retinue/workspace-state.json", "a/.retinue/x"),
        *(
            "skills.lock",
            "a/Skills.Lock",
            "retinue.json",
            "x/retinue.plugin.json",
            "openclaw.plugin.json",
            "./.git/config",
        ),
        *("hooks/mine/HOOK.md", "hooks/mine/handler.py", "HOOK.md", "auth-profiles.json"),
    ],
)
def test_control_files(path: str) -> None:
    assert is_control_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "a.py",
        ".gitignore",
        ".github/workflows/x.yml",
        "git/config",
        "hooks/useThing.ts",
        "src/hooks/x/main.py",
        "retinue/json",
        ".",
    ],
)
def test_other_files(path: str) -> None:
    assert not is_control_path(path)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a/b", "a/b"),
        ("./a/../b", "b"),
        (".", "."),
        ("a//b/", "a/b"),
        ("{root}/x/y", "x/y"),
        ("{root}", "."),
        ("a/..", "."),
    ],
)
def test_paths_are_made_relative_to_the_workspace(root: Root, path: str, found: str) -> None:
    assert locate(root, path.format(root=root.path)) == found


@pytest.mark.parametrize(
    "path", ["..", "../x", "a/../../x", "/etc/passwd", "{root}x/y", "{root}/../x", "~/x", "", " ", "a\0b"]
)
def test_paths_outside_are_refused(root: Root, path: str) -> None:
    with pytest.raises(ToolFailed):
        locate(root, path.format(root=root.path))


def test_what_may_be_read_is_looked_for_in_every_folder_given(context: ToolContext, tmp_path: Path) -> None:
    skills = tmp_path / "skills"
    skills.mkdir()
    with Root.open(skills) as readable, Root.open(Path("/")) as machine:
        wider = replace(context, readable=(readable,))
        assert locate_readable(wider, "a.md") == (context.root, "a.md")
        assert locate_readable(wider, f"{skills}/x/SKILL.md") == (readable, "x/SKILL.md")
        with pytest.raises(ToolFailed, match="outside the workspace"):
            locate_readable(wider, "/etc/hostname")
        assert locate_readable(replace(wider, outside=machine), "/etc/hostname") == (machine, "etc/hostname")


def test_what_may_be_written_is_neither_a_folder_itself_nor_a_control_file(context: ToolContext) -> None:
    assert locate_writable(context, "a.md") == (context.root, "a.md")
    with Root.open(Path("/")) as machine:
        wider = replace(context, outside=machine)
        assert locate_writable(wider, "/tmp/a.md") == (machine, "tmp/a.md")
        for path, told in (("/tmp/a.md", "outside"), (".", "itself"), (".git/config", "control file")):
            with pytest.raises(ToolFailed, match=told):
                locate_writable(wider, path, workspace_only=True)


def test_what_may_belong_to_a_hook_for_all_that_can_be_seen_is_not_written(context: ToolContext) -> None:
    (context.root.path / "hooks").mkdir()
    (context.root.path / "hooks" / "away").symlink_to(context.root.path / "nowhere")
    with pytest.raises(ToolFailed, match="control file"):
        locate_writable(context, "hooks/away/util.py")


def test_closed_places_are_refused_where_they_are_located(tmp_path: Path, context: ToolContext) -> None:
    (tmp_path / "home").mkdir()
    with Root.open(tmp_path, closed=(tmp_path / "home",)) as machine, pytest.raises(ToolFailed):
        locate_readable(replace(context, outside=machine), str(tmp_path / "home" / "retinue.json"))


def test_failures_of_storage_become_words_for_the_model() -> None:
    with pytest.raises(ToolFailed, match="Only files inside"), told():
        raise OutsideRoot("It leads out.")
    with pytest.raises(ToolFailed, match="It is full"), told():
        raise StorageError("It is full.")
    with told():
        pass
