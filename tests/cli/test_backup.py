"""`retinue backup`: the commands as a person or a script uses them."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import RunCommand


def test_a_home_is_backed_up_verified_and_restored(retinue: RunCommand, home: Path, tmp_path: Path) -> None:
    retinue("init", "--yes")
    made = retinue("backup", "create", "--json").data
    assert made["repository"] == str(tmp_path / "home-backups")
    assert made["newObjects"] > 0
    assert retinue("backup", "create", "--json").data["newObjects"] == 0
    listed = retinue("backup", "list", "--json").data["backups"]
    assert made["id"] in [row["id"] for row in listed]
    assert retinue("backup", "verify", "--json").data["faults"] == []
    restored = retinue("backup", "restore", made["id"], "--to", str(tmp_path / "new"), "--json").data
    assert restored["home"] == str(tmp_path / "new")
    assert (tmp_path / "new" / "workspace" / "AGENTS.md").read_bytes() == (
        home / "workspace" / "AGENTS.md"
    ).read_bytes()


def test_restoring_in_place_undoes_changes(retinue: RunCommand, home: Path) -> None:
    retinue("init", "--yes")
    soul = (home / "workspace" / "SOUL.md").read_text()
    retinue("backup", "create")
    (home / "workspace" / "SOUL.md").write_text("Changed.")
    aside = retinue("backup", "restore", "latest", "--in-place", "--json").data["movedAside"]
    assert (home / "workspace" / "SOUL.md").read_text() == soul
    assert (Path(aside) / "workspace" / "SOUL.md").read_text() == "Changed."


def test_damage_has_an_exit_code(retinue: RunCommand, home: Path, tmp_path: Path) -> None:
    retinue("init", "--yes")
    retinue("backup", "create")
    damaged = max((tmp_path / "home-backups" / "objects").glob("??/*"), key=lambda path: path.stat().st_size)
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    ran = retinue("backup", "verify", "--json")
    assert ran.code == 1
    assert "is damaged" in ran.data["faults"][0]["problem"]


def test_old_backups_are_pruned(retinue: RunCommand, home: Path) -> None:
    retinue("init", "--yes")
    for number in range(3):
        (home / "workspace" / "SOUL.md").write_text(f"{number}")
        retinue("backup", "create")
    assert len(retinue("backup", "prune", "--keep", "1", "--json").data["removed"]) == 2
    assert len(retinue("backup", "list", "--json").data["backups"]) == 1


def test_wrong_use_says_what_to_do(retinue: RunCommand, home: Path) -> None:
    retinue("init", "--yes")
    assert "no backups" in retinue("backup", "verify", "--json").data["error"]["message"]
    retinue("backup", "create")
    assert "backup list" in retinue("backup", "restore", "1999", "--to", "x", "--json").data["error"]["message"]
    assert "either --to" in retinue("backup", "restore", "latest", "--json").data["error"]["message"]
