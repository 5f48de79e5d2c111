"""Writing the files of a new plugin: a package with one tool, and a test that passes."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from pathlib import Path

from retinue.core.errors import UsageError

_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")

_PYPROJECT = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1.0"
description = "A plugin of Retinue"
requires-python = ">=3.11"
dependencies = []

[project.optional-dependencies]
test = ["pytest>=8"]

[project.entry-points.retinue]
{name} = "{package}"

[tool.setuptools]
packages = ["{package}"]

[tool.setuptools.package-data]
{package} = ["retinue.plugin.json"]
"""

_MANIFEST = """{{
  "name": "{name}",
  "version": "0.1.0",
  "description": "Greets people",
  "capabilities": {{
    "tools": {{ "{name}": "{package}.tools:make_tools" }}
  }},
  "toolMetadata": {{ "{package}_greet": {{ "readOnly": true }} }},
  "config": {{
    "schema": {{
      "type": "object",
      "properties": {{ "greeting": {{ "type": "string" }} }},
      "additionalProperties": false
    }},
    "defaults": {{ "greeting": "Hello" }}
  }},
  "requires": {{ "retinue": ">={version}" }}
}}
"""

_TOOLS = '''"""The tools of the plugin."""

from __future__ import annotations

from typing import Any

from retinue.structs.declare import declare
from retinue.toolkit.parts import ToolParts
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolFailed, ToolOutput


class Greeting(Arguments):
    """Whom to greet."""

    name: str = declare("", "The name of the person.")


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Return the tools; `parts.plugin_config` has the plugin's settings."""
    greeting = parts.plugin_config["greeting"]

    async def greet(arguments: Greeting, context: ToolContext) -> ToolOutput:
        if not arguments.name:
            raise ToolFailed("`name` is missing. Ask the person for it.")
        return ToolOutput.of(f"{{greeting}}, {{arguments.name}}!")

    return (Tool("{package}_greet", "Greet a person", "Return a greeting for a person.", Greeting, greet),)
'''

_TEST = '''"""A turn in which a scripted model calls the tool of the plugin. Run it with pytest."""

from pathlib import Path

import anyio

from retinue.testing.plugins import open_plugin
from retinue.testing.replies import calls, says

PACKAGE = Path(__file__).parent.parent / "{package}"


def test_the_tool_greets() -> None:
    async def run() -> None:
        async with open_plugin(PACKAGE, config={{"greeting": "Good day"}}) as plugin:
            answer = await plugin.ask("Greet Ada", calls("{package}_greet", name="Ada"), says("Done."))
            assert answer == "Done."
            assert "Good day, Ada!" in plugin.last_request

    anyio.run(run)
'''

_README = """# {name}

A plugin of Retinue.

    pip install pytest            # once, into the environment of Retinue
    python -m pytest              # the test
    retinue plugins check .       # what is wrong with the plugin
    retinue plugins install .     # into your home, after you have seen what it registers
"""


def write_plugin(name: str, folder: Path, version: str) -> tuple[Path, ...]:
    """Write the files of a new plugin into a folder that does not exist yet; return their paths."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UsageError(
            f"'{name}' is not a name for a plugin. Use lower-case letters, digits and '-', as in my-plugin."
        )
    if folder.exists() and any(folder.iterdir() if folder.is_dir() else [folder]):
        raise UsageError(f"{folder} exists already. Name another folder with --dir.")
    package = name.replace("-", "_")
    texts: Mapping[str, str] = {
        "pyproject.toml": _PYPROJECT,
        "README.md": _README,
        f"{package}/__init__.py": '"""A plugin of Retinue."""\n',
        f"{package}/retinue.plugin.json": _MANIFEST,
        f"{package}/tools.py": _TOOLS,
        f"tests/test_{package}.py": _TEST,
    }
    written = []
    for path, text in texts.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format(name=name, package=package, version=version) if "{" in text else text, "utf-8")
        written.append(file)
    return tuple(written)
