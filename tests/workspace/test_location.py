"""Where agents live, and what the settings accept."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.core.keys import AgentId
from retinue.storage.home_paths import HomePaths
from retinue.structs.decode import DecodeError, decode
from retinue.workspace.settings import Placement, WorkspaceSettings, list_workspaces, workspace_dir

HOME = HomePaths(Path("/home/ada/.retinue"))
MAIN, WORK = AgentId("main"), AgentId("work")


def test_the_agents_own_folder_wins() -> None:
    found = workspace_dir(HOME, WORK, configured="/srv/work", is_default=True, default_configured="/srv/all")
    assert found == Path("/srv/work")


def test_the_default_agent_takes_the_default_folder() -> None:
    assert workspace_dir(HOME, MAIN, configured=None, is_default=True, default_configured="/srv/all") == Path(
        "/srv/all"
    )
    assert workspace_dir(HOME, MAIN, configured=None, is_default=True, default_configured=None) == HOME.workspace


def test_another_agent_never_shares_the_default_folder() -> None:
    found = workspace_dir(HOME, WORK, configured=None, is_default=False, default_configured="/srv/all")
    assert found == Path("/home/ada/.retinue/workspace-work")


def test_a_relative_folder_counts_from_the_home_and_a_tilde_from_the_person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    relative = workspace_dir(HOME, MAIN, configured="desk", is_default=True, default_configured=None)
    personal = workspace_dir(HOME, MAIN, configured="~/desk", is_default=True, default_configured=None)
    assert (relative, personal) == (Path("/home/ada/.retinue/desk"), Path("/home/ada/desk"))


def test_all_folders_are_listed_and_main_is_the_default_when_nobody_is() -> None:
    assert list_workspaces(HOME, [], default_configured=None) == {MAIN: HOME.workspace}
    assert list_workspaces(HOME, [Placement(WORK)], default_configured="/srv/all") == {
        MAIN: Path("/srv/all"),
        WORK: HOME.workspace_of(WORK),
    }
    assert list_workspaces(HOME, [Placement(MAIN, "/srv/main")], default_configured=None) == {MAIN: Path("/srv/main")}
    assert list_workspaces(HOME, [Placement(WORK, is_default=True)], default_configured=None) == {WORK: HOME.workspace}


def test_settings_are_read_from_camel_case() -> None:
    settings = decode(
        WorkspaceSettings,
        {
            "skipOptionalBootstrapFiles": ["SOUL.md"],
            "bootstrapMaxChars": 100,
            "contextInjection": "never",
            "startupContext": {"dailyMemoryDays": 3},
        },
    )
    assert settings.skip_optional_bootstrap_files == ["SOUL.md"]
    assert settings.bootstrap_max_chars == 100
    assert settings.bootstrap_total_max_chars == 60_000
    assert settings.context_injection == "never"
    assert settings.startup_context.daily_memory_days == 3
    assert settings.startup_context.max_total_chars == 2_800


@pytest.mark.parametrize(
    "bad",
    [
        {"bootstrapMaxChars": 0},
        {"contextInjection": "sometimes"},
        {"skipOptionalBootstrapFiles": ["AGENTS.md"]},
        {"startupContext": {"dailyMemoryDays": 15}},
    ],
)
def test_settings_out_of_range_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(DecodeError):
        decode(WorkspaceSettings, bad)
