"""Which plugins are found and loaded, what they get, and how failures are reported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.config.sections.gateway import PluginsSettings
from retinue.plugins import discovery
from retinue.plugins.discovery import PluginPlaces
from retinue.plugins.loading import load_registry
from retinue.plugins.registry import PluginRegistry, PluginState
from retinue.structs.decode import decode

HEAD = """
from pathlib import Path
from retinue.plugins.hookspecs import hookimpl
from retinue.structs.decode import decode

@hookimpl
def retinue_register(register):
"""
TOOLS = HEAD + """    register.tools("forecast", "weather_desk.tools:make_tools")\n"""


@pytest.fixture(autouse=True)
def fresh_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules and installed packages as they were, after each test."""
    before = set(sys.modules)
    discovery._installed.cache_clear()
    yield
    discovery._installed.cache_clear()
    for name in set(sys.modules) - before:
        del sys.modules[name]


def load(*paths: Path, **settings: object) -> PluginRegistry:
    return load_registry(decode(PluginsSettings, settings), PluginPlaces(paths))


def install(site: Path, monkeypatch: pytest.MonkeyPatch, name: str = "weather-desk") -> None:
    """Put a package with an entry point where Python finds packages."""
    facts = site / "weather_desk-1.2.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: weather-desk\nVersion: 1.2\n")
    (facts / "entry_points.txt").write_text(f"[retinue]\n{name} = weather_desk_installed\n")
    (site / "weather_desk_installed.py").write_text(TOOLS)
    monkeypatch.syspath_prepend(str(site))


def test_an_installed_plugin_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch)
    registry = load()
    (known,) = registry.plugins
    assert (known.name, known.origin, known.state) == ("weather-desk", "weather-desk 1.2", PluginState.ON)
    assert known.brings == ("tools forecast",)
    assert "forecast" in registry.tools


@pytest.mark.parametrize(
    ("settings", "because"),
    [
        ({"deny": ["weather-desk"], "allow": ["weather-desk"]}, "plugins.deny includes it"),
        ({"allow": ["another"]}, "plugins.allow does not include it"),
        ({"entries": {"weather-desk": {"enabled": False}}}, "plugins.entries.weather-desk.enabled is false"),
    ],
)
def test_a_plugin_that_the_owner_does_not_want_is_not_even_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], because: str
) -> None:
    install(tmp_path / "site", monkeypatch)
    registry = load(**settings)
    (known,) = registry.plugins
    assert (known.state, known.because, registry.problems) == (PluginState.OFF, because, ())
    assert "forecast" not in registry.tools
    assert "weather_desk_installed" not in sys.modules


def test_without_plugins_there_is_what_comes_with_retinue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch)
    registry = load(enabled=False)
    assert registry.plugins == []
    assert "files" in registry.tools


def test_files_packages_and_folders_of_them_are_plugins(tmp_path: Path) -> None:
    alone = tmp_path / "alone.py"
    alone.write_text(HEAD + "    register.hook('turn_end', 'alone:told')\n")
    package = tmp_path / "many" / "weather-desk"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "tools.py").write_text("def make_tools(parts):\n    return ()\n")
    (package / "plugin.py").write_text(TOOLS + "    register.skills(Path(__file__).parent / 'skills')\n")
    (tmp_path / "many" / "notes.txt").write_text("no plugin")
    registry = load(alone, tmp_path / "many")
    assert [(known.name, known.state) for known in registry.plugins] == [("alone", "on"), ("weather-desk", "on")]
    assert registry.tools["forecast"].make.load()(None) == ()
    assert [root.plugin for root in registry.skill_roots] == ["weather-desk"]
    assert load(alone, tmp_path / "many").plugins == registry.plugins


def test_a_plugin_gets_what_is_configured_for_it(tmp_path: Path) -> None:
    path = tmp_path / "desk.py"
    path.write_text(HEAD + "    register.skills(Path(register.config['folder']))\n")
    registry = load(path, entries={"desk": {"config": {"folder": "/skills/of/mine"}}})
    assert [str(root.path) for root in registry.skill_roots] == ["/skills/of/mine"]


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("raise ValueError('no luck')", "no luck"),
        ("x = 1", "it has no function `retinue_register`"),
        (TOOLS + "    register.tools('forecast', 'a:b')", "it registers 'forecast' twice"),
        (TOOLS + "    register.tools('files', 'a:b')", "it registers 'files', which already exists"),
        (TOOLS + "    raise KeyError()", "KeyError"),
    ],
)
def test_a_plugin_that_fails_leaves_nothing_and_the_others_load(tmp_path: Path, text: str, because: str) -> None:
    (tmp_path / "broken.py").write_text(text)
    (tmp_path / "sound.py").write_text(HEAD + "    register.provider('mine', 'a:b')\n")
    registry = load(tmp_path)
    broken, sound = registry.plugins
    assert (broken.state, sound.state) == (PluginState.FAILED, PluginState.ON)
    assert because in broken.because
    assert registry.problems == (f"Plugin 'broken' could not be loaded: {broken.because}",)
    assert "forecast" not in registry.tools
    assert "mine" in registry.providers


def test_of_two_with_one_name_the_configured_one_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch, name="desk")
    path = tmp_path / "desk.py"
    path.write_text(HEAD + "    register.provider('mine', 'a:b')\n")
    first, second = load(path).plugins
    assert (first.origin, first.state, second.state) == (str(path), PluginState.ON, PluginState.OFF)
    assert second.because == f"{path} has the same name and is found first"


def test_a_path_without_a_plugin_and_a_name_that_is_taken_are_told(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(TOOLS)
    registry = load(tmp_path / "missing", tmp_path / "json.py")
    assert "does not exist" in registry.problems[0]
    assert "another module is already called 'json'" in registry.problems[1]
