"""Control groups that limit processes, below a folder that has the files of the kernel's interface."""

from __future__ import annotations

import os
from pathlib import Path

from retinue.sandbox.control_groups import enter_group, find_bases, limit_group, remove_groups_of


def _write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _unified(tmp_path: Path, own: str) -> tuple[str, str]:
    """Version 2: one tree, in which controllers are enabled for the groups below a group."""
    mounted = tmp_path / "cgroup"
    _write(mounted / "cgroup.controllers", "cpu memory pids\n")
    _write(mounted / "cgroup.subtree_control")
    _write(mounted / "retinue/cgroup.subtree_control")
    group = mounted / f"retinue/retinue-{os.getpid()}"
    for name, text in (("pids.max", "max\n"), ("cgroup.procs", "")):
        _write(group / name, text)
    _write(tmp_path / "own", own)
    return str(mounted), str(tmp_path / "own")


def test_version_2_enables_the_controller_on_the_way_to_the_group(tmp_path: Path) -> None:
    mounted, own = _unified(tmp_path, "0::/\n")
    group = enter_group(mounted, own)
    assert group == f"{mounted}/retinue/retinue-{os.getpid()}"
    limit_group(group, 515)
    assert Path(mounted, "cgroup.subtree_control").read_text() == "+pids"
    assert Path(mounted, "retinue/cgroup.subtree_control").read_text() == "+pids"
    assert Path(group, "cgroup.procs").read_text() == str(os.getpid())
    assert Path(group, "pids.max").read_text().startswith("515")


def test_version_2_leaves_an_enabled_controller_alone(tmp_path: Path) -> None:
    mounted, own = _unified(tmp_path, "0::/\n")
    Path(mounted, "cgroup.subtree_control").write_text("memory pids\n")
    assert list(find_bases(mounted, own)) == [f"{mounted}/retinue"]
    assert Path(mounted, "cgroup.subtree_control").read_text() == "memory pids\n"


def test_version_2_outside_the_root_group_has_no_limit(tmp_path: Path) -> None:
    """A group that contains processes cannot have groups with controllers below it."""
    mounted, own = _unified(tmp_path, "0::/system.slice/retinue.service\n")
    assert enter_group(mounted, own) is None


def test_version_2_without_the_controller_has_no_limit(tmp_path: Path) -> None:
    mounted, own = _unified(tmp_path, "0::/\n")
    Path(mounted, f"retinue/retinue-{os.getpid()}", "pids.max").unlink()
    assert enter_group(mounted, own) is None


def test_a_read_only_tree_has_no_limit(tmp_path: Path) -> None:
    mounted, own = _unified(tmp_path, "0::/\n")
    Path(mounted, "cgroup.subtree_control").unlink()
    assert list(find_bases(mounted, own)) == []


def test_version_1_stays_below_the_group_of_the_service(tmp_path: Path) -> None:
    service = tmp_path / "cgroup/pids/system.slice/retinue.service"
    service.mkdir(parents=True)
    _write(tmp_path / "own", "8:cpu,pids:/system.slice/retinue.service\n0::/\n")
    assert next(find_bases(str(tmp_path / "cgroup"), str(tmp_path / "own"))) == str(service)


def test_version_1_in_a_container_uses_what_is_mounted(tmp_path: Path) -> None:
    (tmp_path / "cgroup/pids").mkdir(parents=True)
    _write(tmp_path / "own", "8:pids:/docker/0a1b\n")
    assert list(find_bases(str(tmp_path / "cgroup"), str(tmp_path / "own"))) == [f"{tmp_path}/cgroup/pids"]


def test_a_system_without_control_groups_has_none(tmp_path: Path) -> None:
    assert enter_group(str(tmp_path), str(tmp_path / "missing")) is None


def test_the_group_of_an_ended_supervisor_is_removed(tmp_path: Path) -> None:
    (tmp_path / "retinue-17").mkdir()
    remove_groups_of(17, [str(tmp_path / "missing"), str(tmp_path)])
    assert list(tmp_path.iterdir()) == []
