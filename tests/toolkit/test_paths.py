"""Where tools may reach and what they may not write."""

from __future__ import annotations

import pytest

from retinue.core.errors import ToolFailed
from retinue.storage.files import Root
from retinue.toolkit.paths import is_control_path, locate


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
