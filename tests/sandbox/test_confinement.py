"""What a sandbox is, decided from values alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from retinue.core.keys import SessionKey
from retinue.sandbox.bubblewrap import find_remedy
from retinue.sandbox.confinement import (
    Access,
    Confinement,
    Network,
    ResourceLimits,
    SandboxFolders,
    SandboxUnavailable,
    decide_sandbox,
    make_confinement,
    name_sandbox,
)
from retinue.sandbox.control_groups import remove_abandoned_groups
from retinue.sandbox.settings import SandboxSettings
from retinue.structs.decode import decode

HOME = Path("/home/ada/.retinue")
GROUNDS = SandboxFolders(HOME, HOME / "workspace", (HOME / "skills", HOME / "workspace/skills", Path("/opt/docs")))
MAIN = SessionKey.parse("agent:main:main")
GROUP = SessionKey.parse("agent:main:telegram:group:42")


def settings(**values: Any) -> SandboxSettings:
    return decode(SandboxSettings, {"mode": "all", **values})


def draw(grounds: SandboxFolders = GROUNDS, session: SessionKey = MAIN, **values: Any) -> Confinement:
    return make_confinement(settings(**values), session, grounds)


@pytest.mark.parametrize(
    ("mode", "main", "group"),
    [("auto", True, True), ("off", False, False), ("non-main", False, True), ("all", True, True)],
)
def test_the_mode_decides_who_is_confined(mode: str, main: bool, group: bool) -> None:
    assert decide_sandbox(settings(mode=mode), MAIN).confined is main
    assert decide_sandbox(settings(mode=mode), GROUP).confined is group


@pytest.mark.parametrize("key", ["agent:main:heartbeat", "agent:main:ideas", "agent:main:cron:x", "hook:mail"])
def test_only_the_main_session_itself_is_main(key: str) -> None:
    assert decide_sandbox(settings(mode="non-main"), SessionKey.parse(key)).confined


def test_commands_are_sandboxed_with_a_writable_workspace_by_default_if_the_system_can() -> None:
    decision = decide_sandbox(SandboxSettings(), MAIN)
    assert (decision.confined, decision.required) == (True, False)
    assert SandboxSettings().access == "rw"
    assert [settings(mode=mode).access for mode in ("off", "non-main", "all")] == ["none"] * 3
    assert settings(mode="auto", workspaceAccess="ro").access == "ro"


def test_the_scope_decides_who_shares_a_sandbox() -> None:
    other = SessionKey.parse("agent:main:telegram:group:43")
    assert name_sandbox("shared", MAIN) == name_sandbox("shared", SessionKey.parse("agent:other:main")) == "shared"
    assert name_sandbox("agent", MAIN) == name_sandbox("agent", GROUP) == "agent-main"
    assert name_sandbox("session", GROUP) != name_sandbox("session", other)
    assert name_sandbox("session", GROUP).startswith("session-main-telegram-group-42-")


@pytest.mark.parametrize("peer", ["../../x", "a/b", "!room:example.org", "ü" * 90, "-"])
def test_no_session_can_name_a_folder_elsewhere(peer: str) -> None:
    name = name_sandbox("session", SessionKey.parse(f"agent:main:matrix:group:{peer}"))
    assert "/" not in name
    assert ".." not in name
    assert name.isascii()
    assert len(name) < 80


def test_without_access_a_folder_of_its_own_stands_in_for_the_workspace() -> None:
    confinement = draw()
    assert confinement.access is Access.NONE
    assert confinement.folder == HOME / "sandboxes/agent-main/work"
    assert confinement.writable
    assert confinement.network is Network.OFF


@pytest.mark.parametrize(("access", "writable"), [("ro", False), ("rw", True)])
def test_with_access_the_workspace_is_seen(access: str, writable: bool) -> None:
    confinement = draw(workspaceAccess=access)
    assert confinement.folder == HOME / "workspace"
    assert confinement.writable is writable
    assert confinement.shown == (HOME / "skills", Path("/opt/docs")), "what lies in the workspace is seen with it"


def test_state_inside_a_visible_folder_is_hidden() -> None:
    everything = SandboxFolders(HOME, Path("/home/ada"))
    assert draw(everything, workspaceAccess="rw").hidden == (HOME,)
    assert draw(workspaceAccess="rw", readOnlyPaths=["/home"]).hidden == (HOME,)
    assert draw(workspaceAccess="rw").hidden == ()


def test_sandboxes_kept_in_the_workspace_are_hidden_from_it() -> None:
    place = str(HOME / "workspace/boxes")
    confinement = draw(workspaceAccess="rw", workspaceRoot=place)
    assert confinement.own == Path(place) / "agent-main"
    assert confinement.hidden == (Path(place),)


@pytest.mark.parametrize(
    "folder", [HOME, HOME / "credentials", HOME / "agents/main/agent", HOME / "memory", HOME / "sandboxes/agent-other"]
)
def test_a_sandbox_never_shows_state(folder: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="keeps its state"):
        draw(SandboxFolders(HOME, folder), workspaceAccess="ro")
    with pytest.raises(SandboxUnavailable, match="keeps its state"):
        draw(readOnlyPaths=[str(folder)])


def test_limits_are_read_as_sizes() -> None:
    limits = {"memory": "2gb", "processes": 64, "fileSize": "10mb", "openFiles": 128}
    assert draw(limits=limits).limits == ResourceLimits(2 * 2**30, 64, 10 * 2**20, 128)
    with pytest.raises(ValueError, match="expected a size"):
        settings(limits={"memory": "much"})


def test_a_sandbox_describes_itself_to_whoever_is_asked() -> None:
    assert draw().describe() == "agent-main, without the workspace, no network"
    told = draw(workspaceAccess="ro", network="proxy").describe()
    assert told == "agent-main, the workspace read-only, network through the checked proxy"
    assert "writable" in draw(workspaceAccess="rw").describe()


@pytest.mark.parametrize(
    ("name", "content", "remedy"),
    [
        (".dockerenv", "", "--security-opt seccomp=unconfined"),
        ("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n", "/etc/apparmor.d/bwrap"),
        ("proc/sys/kernel/unprivileged_userns_clone", "0\n", "unprivileged_userns_clone=1"),
        ("proc/sys/user/max_user_namespaces", "0\n", "max_user_namespaces=15000"),
        ("proc/sys/user/max_user_namespaces", "100\n", "bwrap --unshare-all"),
    ],
)
def test_the_remedy_names_what_forbids_namespaces(tmp_path: Path, name: str, content: str, remedy: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(content)
    assert remedy in find_remedy(tmp_path)


def test_control_groups_of_ended_supervisors_are_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    for name in (f"retinue-{ended.pid}", f"retinue-{os.getpid()}", "retinue-x", "other-1"):
        (tmp_path / name).mkdir()
    remove_abandoned_groups(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other-1", f"retinue-{os.getpid()}", "retinue-x"]
