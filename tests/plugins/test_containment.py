"""A plugin that fails in any way is switched off with a reason, and nothing else is affected."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retinue.plugins import containment, discovery
from retinue.plugins.registry import PluginState
from retinue.runtime.home import Home, load_home
from retinue.runtime.inspect.explain import every_tool
from retinue.runtime.inspect.plugins import list_slots
from retinue.storage.home_paths import HomePaths

REGISTER = "from retinue.plugins.hookspecs import hookimpl\n@hookimpl\ndef retinue_register(register):\n"
TOOL = """
from retinue.tools.tool import Arguments, Tool, ToolOutput

async def run(arguments, context):
    return ToolOutput.of("done")

def make(parts):
    return (Tool(name={name!r}, summary="s", description="d", arguments=Arguments, run=run),)
"""
MANIFEST: dict[str, Any] = {"name": "bad", "version": "1.0", "entry": "bad_plugin"}


@pytest.fixture(autouse=True)
def fresh_imports() -> Iterator[None]:
    """Modules and search path as they were, after each test."""
    before, path = set(sys.modules), [*sys.path]
    discovery._installed.cache_clear()
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def home_with(
    tmp_path: Path, code: str | None, manifest: object = None, entry: object = None, module: str = "bad_plugin"
) -> Home:
    """Return a home with a plugin `bad`, and with a sound one that must work whatever the other does."""
    plugins = tmp_path / "home" / "plugins"
    bad, sound = plugins / "bad", plugins / "sound"
    for folder in (bad, sound):
        folder.mkdir(parents=True)
    if manifest is not None:
        text = manifest if isinstance(manifest, str) else json.dumps(manifest)
        (bad / "retinue.plugin.json").write_text(text.replace("bad_plugin", module))
    if code is not None:
        (bad / f"{module}.py").write_text(code)
    tools = {"tools": {"sound": "sound_plugin:make"}}
    (sound / "retinue.plugin.json").write_text(json.dumps({"name": "sound", "capabilities": tools}))
    (sound / "sound_plugin.py").write_text(TOOL.format(name="sound_tool"))
    config = {"plugins": {"entries": {"bad": entry}}} if entry is not None else {}
    (tmp_path / "home" / "retinue.json").write_text(json.dumps(config))
    return load_home(HomePaths(tmp_path / "home"), environment={"PATH": "/usr/bin", "HOME": str(tmp_path)})


def declaring(point: str, names: object, **more: object) -> dict[str, Any]:
    return {"name": "bad", "capabilities": {point: names}, **more}


FAILURES = {
    "no manifest": ("", None, "it has no manifest"),
    "manifest is not JSON": ("", "{", "cannot be read"),
    "manifest is a list": ("", "[]", "is not a JSON object"),
    "manifest has an unknown key": ("", {**MANIFEST, "capabilites": {}}, "capabilites"),
    "manifest has a wrong type": ("", {**MANIFEST, "secretInputs": 3}, "secretInputs"),
    "name has spaces": ("", {**MANIFEST, "name": "Bad Plugin"}, "lower-case letters"),
    "unknown capability": ("", declaring("tool", []), "did you mean 'tools'?"),
    "capability is a number": ("", declaring("tools", 3), "must be a list"),
    "unknown slot": ("", {**MANIFEST, "slots": ["voice"]}, "slots"),
    "schema file is missing": ("", {**MANIFEST, "config": {"schema": "none.json"}}, "cannot be read"),
    "schema file is outside": ("", {**MANIFEST, "config": {"schema": "../../x.json"}}, "outside its folder"),
    "skills are outside": ("", declaring("skills", ["../../x"]), "outside its folder"),
    "schema is not valid": (
        REGISTER + "    pass",
        {**MANIFEST, "config": {"schema": {"type": "nothing"}}},
        "not a valid JSON Schema",
    ),
    "newer Retinue": ("", {**MANIFEST, "requires": {"retinue": ">=99"}}, "needs Retinue >=99"),
    "newer Python": ("", {**MANIFEST, "requires": {"python": ">=4.2"}}, "needs Python >=4.2"),
    "missing program": ("", {**MANIFEST, "requires": {"bins": ["no-such-program"]}}, "program 'no-such-program'"),
    "missing variable": ("", {**MANIFEST, "requires": {"env": ["NO_SUCH_KEY"]}}, "variable NO_SUCH_KEY"),
    "entry module is missing": (None, MANIFEST, "no module 'bad_plugin'"),
    "entry has the name of another module": (
        "",
        {**MANIFEST, "entry": "json"},
        "another module is already called 'json'",
    ),
    "syntax error": ("def :", MANIFEST, "SyntaxError"),
    "raises at import": ("raise ValueError('no')", MANIFEST, "ValueError: no"),
    "exits at import": ("import sys; sys.exit(3)", MANIFEST, "tried to end the process (exit code 3)"),
    "interrupts at import": ("raise KeyboardInterrupt", MANIFEST, "KeyboardInterrupt"),
    "hangs at import": ("import time; time.sleep(60)", MANIFEST, "longer than 0.3 seconds"),
    "lacks a module": ("import no_such_module", MANIFEST, "the module 'no_such_module' is not installed"),
    "has no hook": ("x = 1", MANIFEST, "no function `retinue_register`"),
    "raises in its hook": (REGISTER + "    raise RuntimeError('later')", MANIFEST, "RuntimeError: later"),
    "exits in its hook": (REGISTER + "    raise SystemExit", MANIFEST, "tried to end the process"),
    "hangs in its hook": (REGISTER + "    import time; time.sleep(60)", MANIFEST, "longer than 0.3 seconds"),
    "registers a name twice": (
        REGISTER + "    register.tools('a', 'm:f'); register.tools('a', 'm:f')",
        {**MANIFEST, "capabilities": {"tools": []}},
        "registers 'a' twice",
    ),
    "registers a name of ours": (
        REGISTER + "    register.tools('files', 'm:f')",
        {**MANIFEST, "capabilities": {"tools": []}},
        "'files', which already exists",
    ),
    "registers what it does not declare": (
        REGISTER + "    register.tools('a', 'm:f')",
        {**MANIFEST, "capabilities": {"hooks": []}},
        "its manifest does not declare",
    ),
    "registers another name than it declares": (
        REGISTER + "    register.tools('a', 'm:f')",
        {**MANIFEST, "capabilities": {"tools": ["b"]}},
        "declares only b",
    ),
    "registers no target": (
        REGISTER + "    register.tools('a', 'nothing')",
        {**MANIFEST, "capabilities": {"tools": []}},
        "write package.module:attribute",
    ),
    "unknown hook": (
        "",
        declaring("hooks", {"before_prompt_biuld": "bad_plugin:f"}),
        "did you mean 'before_prompt_build'?",
    ),
    "unknown scope": ("", declaring("http", {"x": {"target": "bad_plugin:f", "scope": "all"}}), "scope of 'x'"),
    "tools raise": ("def make(parts): raise OSError('x')", declaring("tools", {"t": "bad_plugin:make"}), "OSError: x"),
    "tools exit": (
        "def make(parts): exit(1)",
        declaring("tools", {"t": "bad_plugin:make"}),
        "tried to end the process",
    ),
    "tools hang": (
        "def make(parts): import time; time.sleep(60)",
        declaring("tools", {"t": "bad_plugin:make"}),
        "longer than",
    ),
    "tools are no tools": (
        "def make(parts): return 3",
        declaring("tools", {"t": "bad_plugin:make"}),
        "a tuple of tools",
    ),
    "attribute is missing": ("x = 1", declaring("tools", {"t": "bad_plugin:make"}), "no attribute 'make'"),
    "tool called read": (
        TOOL.format(name="read"),
        declaring("tools", {"t": "bad_plugin:make"}),
        "already a tool called 'read'",
    ),
    "tool with an alias of ours": (TOOL.format(name="bash"), declaring("tools", {"t": "bad_plugin:make"}), "'bash'"),
    "tool with a wrong name": (
        TOOL.format(name="a b"),
        declaring("tools", {"t": "bad_plugin:make"}),
        "not a name for a tool",
    ),
    "tool of another plugin": (TOOL.format(name="sound_tool"), declaring("tools", {"t": "bad_plugin:make"}), None),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failing_plugin_is_switched_off_and_the_others_work(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, manifest, because = FAILURES[name]
    module = "bad_plugin"
    if name.endswith("hang") or name.startswith("hangs"):
        monkeypatch.setattr(containment.call_contained, "__kwdefaults__", {"seconds": 0.3})
        # The import of a module that hangs keeps its lock, also for a plugin of another test.
        module = re.sub(r"\W", "_", f"bad_{name}")
    entry = {"config": {"place": "Graz"}} if name == "schema is not valid" else None
    home = home_with(tmp_path, code, manifest, entry, module)
    tools = every_tool(home)
    facts = {plugin.name: plugin for plugin in home.registry.plugins}
    failing = facts["bad"] if because else facts["sound"]  # of two tools with one name the first is kept
    assert failing.state is PluginState.FAILED
    assert (because or "already a tool called 'sound_tool'") in failing.because
    assert failing.brings == ()
    assert "sound_tool" in tools
    assert "read" in tools
    assert not any(each.plugin == failing.name for each in home.registry.hooks)
    assert any(failing.name in problem for problem in home.registry.problems)


def test_settings_that_the_schema_refuses_switch_the_plugin_off(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"place": {"type": "string"}}, "additionalProperties": False}
    manifest = {**MANIFEST, "config": {"schema": schema, "defaults": {"place": "Vienna"}}}
    home = home_with(tmp_path, REGISTER + "    pass", manifest, {"config": {"plaice": 3}})
    (bad, _) = home.registry.plugins
    assert bad.state is PluginState.FAILED
    assert "plaice" in bad.because


def test_a_plugin_of_a_workspace_is_off_until_it_is_enabled(tmp_path: Path) -> None:
    plugin = tmp_path / "home" / "workspace" / ".retinue" / "plugins" / "local"
    plugin.mkdir(parents=True)
    (plugin / "retinue.plugin.json").write_text(
        json.dumps({"name": "local", "capabilities": {"tools": {"t": "bad_plugin:make"}}})
    )
    (plugin / "bad_plugin.py").write_text(TOOL.format(name="local_tool"))
    home = home_with(tmp_path, None, declaring("tools", []))
    facts = {each.name: each for each in home.registry.plugins}
    assert facts["local"].state is PluginState.OFF
    assert "retinue plugins enable local" in facts["local"].because
    assert "bad_plugin" not in sys.modules
    (tmp_path / "home" / "retinue.json").write_text(json.dumps({"plugins": {"entries": {"local": {"enabled": True}}}}))
    assert "local_tool" in every_tool(load_home(HomePaths(tmp_path / "home"), environment={"HOME": str(tmp_path)}))


def test_a_plugin_that_declares_everything_is_not_imported_before_use(tmp_path: Path) -> None:
    home = home_with(tmp_path, None, declaring("tools", []))
    assert home.registry.tools["sound"].plugin == "sound"
    assert "sound_plugin" not in sys.modules


def test_only_one_plugin_has_the_browser_slot(tmp_path: Path) -> None:
    claim = {"capabilities": {"tools": {"t": "bad_plugin:make"}}, "slots": ["browser"]}
    home_with(tmp_path, "", {"name": "bad", **claim})
    config = {"plugins": {"slots": {"browser": "another"}}}
    (tmp_path / "home" / "retinue.json").write_text(json.dumps(config))
    home = load_home(HomePaths(tmp_path / "home"), environment={})
    facts = {each.name: each for each in home.registry.plugins}
    assert (facts["bad"].state, facts["bad"].because) == (PluginState.OFF, "plugins.slots.browser is another")
    slots = {str(each.slot): each for each in list_slots(home)}
    assert (slots["browser"].served_by, slots["browser"].reason) == ("none", "no enabled plugin provides 'another'")
    (tmp_path / "home" / "retinue.json").write_text(json.dumps({"plugins": {"slots": {"browser": "bad"}}}))
    served = {
        str(each.slot): each.served_by for each in list_slots(load_home(HomePaths(tmp_path / "home"), environment={}))
    }
    assert served["browser"] == "bad"


@pytest.mark.parametrize("name", ["retinue", "qmd", "telegram"])
def test_a_plugin_cannot_take_the_name_of_a_built_in_one(tmp_path: Path, name: str) -> None:
    tools = {"tools": {"t": "bad_plugin:make"}}
    home = home_with(tmp_path, TOOL.format(name="sly_tool"), {"name": name, "capabilities": tools})
    found = next(each for each in home.registry.plugins if each.name == name)
    assert found.state is PluginState.FAILED
    assert "a built-in plugin has this name" in found.because
    assert "sly_tool" not in every_tool(home)
    assert next(each for each in home.registry.built_in if each.name == name).state is PluginState.ON
