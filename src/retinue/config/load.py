"""Loads the configuration from the file, else from its last valid copy, else from the defaults."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from retinue.config.json5 import is_blank
from retinue.config.keypath import Segment, locate, parse_path
from retinue.config.schema import Config
from retinue.config.sources import Located, Problem, SourceError, Sources, assemble, read_main_file
from retinue.config.validation import pending_keys, validate
from retinue.config.variables import declared_variables, substitute
from retinue.core.errors import StorageError, UsageError
from retinue.storage.files import write_atomic
from retinue.storage.home_paths import HomePaths
from retinue.structs.decode import decode

log = logging.getLogger(__name__)

Source = Literal["file", "last-good", "defaults"]


class ValueOrigin(msgspec.Struct, frozen=True):
    """The origin of a value: the defaults, a line of a file, or environment variables on that line."""

    kind: Literal["default", "file", "environment", "profile"]
    file: Path | None = None
    line: int | None = None
    variables: tuple[str, ...] = ()
    profile: str | None = None

    def __str__(self) -> str:
        match self.kind:
            case "default":
                return "default"
            case "profile":
                return f"profile {self.profile}"
            case "file":
                return f"{self.file}:{self.line}"
            case "environment":
                return f"environment ({', '.join(self.variables)}) at {self.file}:{self.line}"


class LoadedConfig(msgspec.Struct, frozen=True):
    """The effective configuration, the origins of its values, and its problems."""

    config: Config
    home: HomePaths
    source: Source
    problems: tuple[Problem, ...]
    pending: tuple[str, ...]
    """Keys that are set and accepted but not used yet."""
    tree: Located
    """The values of the file in effect, with their positions."""

    def origin(self, path: Sequence[Segment]) -> ValueOrigin:
        """Return the origin of the value at a path."""
        node: Located | None = self.tree
        with suppress(UsageError):
            for step in locate(path, self.tree.plain):
                node = node.child(step) if node else None
            if node is not None and path:
                kind: Literal["environment", "file"] = "environment" if node.variables else "file"
                return ValueOrigin(kind, node.file, node.line, node.variables)
        return ValueOrigin("default")

    def describe_origin(self, name: str) -> str:
        """Return the origin of a key's value as text."""
        return str(self.origin(parse_path(name)))

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "warning")


class Checked(msgspec.Struct, frozen=True):
    """The result of reading a configuration text; `config` is None if the text has errors."""

    config: Config | None
    problems: tuple[Problem, ...]
    sources: Sources | None
    tree: Located


def load_config(home: HomePaths, environment: Mapping[str, str]) -> LoadedConfig:
    """Load the configuration of a home; never raises for an invalid one: `problems` lists the errors."""
    try:
        text = read_main_file(home.config_file)
    except SourceError as error:
        return _fall_back(home, environment, (error.problem,))
    if text is None:
        return LoadedConfig(Config(), home, "defaults", (), (), Located({}, home.config_file, 1))
    checked = check_text(home, home.config_file, text, environment)
    if checked.config is None:
        return _fall_back(home, environment, checked.problems)
    assert checked.sources is not None
    if not any(problem.severity == "error" for problem in checked.problems):
        _keep_good_copy(home, checked.sources)
    return LoadedConfig(checked.config, home, "file", checked.problems, pending_keys(checked.tree), checked.tree)


def good_copy_of(home: HomePaths) -> Path:
    """Return the path of the last valid configuration."""
    return home.config_file.with_name(f"{home.config_file.name}.last-good")


def check_text(
    home: HomePaths, file: Path, text: str, environment: Mapping[str, str], overrides: Mapping[Path, str] | None = None
) -> Checked:
    """Parse one configuration text, substitute its variables and validate it, without writing any file."""
    try:
        sources = assemble(home, file, text, overrides)
    except SourceError as error:
        return Checked(None, (error.problem,), None, Located({}, file, 1))
    tree, unset = substitute(sources.tree, environment)
    if declared := declared_variables(tree.plain):
        tree, unset = substitute(sources.tree, {**declared, **environment})
    config, wrong = validate(tree)
    problems = (*sources.problems, *unset, *wrong)
    if any(problem.is_fatal for problem in problems):
        config = None
    return Checked(config, problems, sources, tree)


def _fall_back(home: HomePaths, environment: Mapping[str, str], problems: tuple[Problem, ...]) -> LoadedConfig:
    copy = good_copy_of(home)
    with suppress(SourceError):
        text = read_main_file(copy)
        checked = check_text(home, copy, text, environment) if text is not None else None
        if checked is not None and checked.config is not None:
            notice = _fallback_notice(home, f"The last configuration that was valid is used instead: {copy}.")
            pending = pending_keys(checked.tree)
            return LoadedConfig(checked.config, home, "last-good", (*problems, notice), pending, checked.tree)
    notice = _fallback_notice(
        home, "There is no earlier valid configuration, so the defaults are used instead, and all tools are denied."
    )
    # the file may have restricted tools, and the defaults would allow them
    config = decode(Config, {"tools": {"deny": ["*"]}})
    return LoadedConfig(config, home, "defaults", (*problems, notice), (), Located({}, home.config_file, 1))


def _fallback_notice(home: HomePaths, message: str) -> Problem:
    return Problem(
        "warning", "", home.config_file, None, f"{message} Fix the errors, then run `retinue config validate`."
    )


def _keep_good_copy(home: HomePaths, sources: Sources) -> None:
    """Save a valid configuration as one file, with its variables not substituted.

    An empty file is valid but probably an accident, so it is not saved.
    """
    if is_blank(sources.texts[home.config_file]):
        return
    copy = good_copy_of(home)
    if sources.has_includes:
        merged = json.dumps(sources.tree.plain, ensure_ascii=False, indent=2)
        text = f"// {home.config_file.name} and the files it included, put together\n{merged}\n"
    else:
        text = sources.texts[home.config_file]
    try:
        if read_main_file(copy) == text:
            return
    except SourceError:
        pass  # a damaged copy is replaced
    try:
        write_atomic(copy, text.encode("utf-8"))
    except StorageError as error:
        log.info("The copy of the valid configuration was not written: %s", error)
