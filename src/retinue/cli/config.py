"""`retinue config`: read, change, check and explain the configuration."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, pass_invocation, table

if TYPE_CHECKING:
    from retinue.config.edit import Edited
    from retinue.config.explain import Explanation
    from retinue.config.load import LoadedConfig
    from retinue.config.sources import Problem


@click.group(cls=Group)
def config() -> None:
    """A KEY is a dotted path such as agents.defaults.workspace, agents.list[id=work].model or
    agents.defaults.models["openai/gpt-5"].alias.
    """


@config.command()
@pass_invocation
def path(invocation: Invocation) -> None:
    """Print the path of the configuration file."""
    file = invocation.home.config_file
    invocation.show({"path": str(file), "exists": file.exists()}, str(file))


@config.command()
@click.argument("key", required=False)
@pass_invocation
def get(invocation: Invocation, key: str | None) -> None:
    """Print the effective value of KEY, or the whole configuration with defaults. Secrets are omitted."""
    from retinue.config.explain import effective_value

    loaded = _load(invocation)
    value = effective_value(loaded, key)
    invocation.show(
        value,
        lambda: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2),
        exact=True,
    )


@config.command("set", context_settings={"ignore_unknown_options": True})  # a value may be -5
@click.argument("key")
@click.argument("value")
@pass_invocation
def set_key(invocation: Invocation, key: str, value: str) -> None:
    """Set KEY to VALUE, which is JSON5 or plain text.

    Comments and layout of the file are kept. A change that would make the configuration invalid is refused.
    """
    from retinue.config.edit import set_value
    from retinue.config.keypath import parse_path
    from retinue.config.keys import is_secret

    if is_secret(parse_path(key)):
        invocation.keep_quiet(value)
    _print_edit(invocation, set_value(invocation.home, key, value, os.environ), "set")


@config.command("unset")
@click.argument("key")
@pass_invocation
def unset_key(invocation: Invocation, key: str) -> None:
    """Remove KEY from the file, so that its default applies again."""
    from retinue.config.edit import unset_value

    _print_edit(invocation, unset_value(invocation.home, key, os.environ), "unset")


def _print_edit(invocation: Invocation, edited: Edited, verb: str) -> None:
    for problem in edited.problems:
        invocation.note(f"{problem.severity}: {problem}")
    invocation.show(
        {"key": edited.path, "file": str(edited.file), "changed": edited.changed},
        f"{edited.path} {verb} in {edited.file}" if edited.changed else f"{edited.path} is unchanged.",
    )


@config.command()
@pass_invocation
def validate(invocation: Invocation) -> int:
    """Validate the configuration: errors, warnings, and keys that are accepted but not used yet."""
    from msgspec.structs import replace

    from retinue.runtime.home import load_home
    from retinue.runtime.inspect.names import find_unknown_names
    from retinue.runtime.inspect.plugins import find_config_faults

    loaded = _read(invocation)
    if loaded.source == "file":
        home = load_home(invocation.home)
        loaded = replace(loaded, problems=(*loaded.problems, *find_unknown_names(home), *find_config_faults(home)))
    invocation.show(
        {
            "file": str(loaded.home.config_file),
            "source": loaded.source,
            "valid": not loaded.errors,
            "errors": [_problem(problem) for problem in loaded.errors],
            "warnings": [_problem(problem) for problem in loaded.warnings],
            "pending": [{"path": path, "reason": _pending_reason(path)} for path in loaded.pending],
        },
        lambda: _format_validation(loaded),
    )
    return 1 if loaded.errors else 0


def _pending_reason(path: str) -> str:
    """Return why a key is accepted but not used yet."""
    from retinue.config.keypath import parse_path
    from retinue.config.keys import require_key
    from retinue.config.schema import Config

    return require_key(Config, parse_path(path)).pending


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "severity": problem.severity,
        "path": problem.path,
        "file": str(problem.file),
        "line": problem.line,
        "message": problem.message,
    }


def _format_validation(loaded: LoadedConfig) -> str:
    lines = [f"error: {problem}" for problem in loaded.errors]
    lines += [f"warning: {problem}" for problem in loaded.warnings]
    if loaded.pending:
        lines.append("Accepted, not used yet:")
        lines += [f"  {key} ({loaded.describe_origin(key)}): {_pending_reason(key)}" for key in loaded.pending]
    if not loaded.errors:
        where = loaded.home.config_file if loaded.source == "file" else "There is no configuration file; the defaults"
        lines.append(f"{where} {'is' if loaded.source == 'file' else 'are'} valid.")
    return "\n".join(lines)


@config.command()
@click.argument("key")
@pass_invocation
def explain(invocation: Invocation, key: str) -> None:
    """Explain KEY: its value and origin, type, default and meaning."""
    from retinue.config.explain import explain as explain_key

    explanation = explain_key(_load(invocation), key)
    invocation.show(explanation.as_dict(), lambda: _format_explanation(explanation))


def _format_explanation(found: Explanation) -> str:
    rows = [
        ("value", json.dumps(found.value, ensure_ascii=False)),
        ("from", found.origin),
        ("takes", found.type),
        ("default", json.dumps(found.default, ensure_ascii=False)),
        ("reload", "takes effect at once" if found.reload == "live" else "needs a restart"),
    ]
    if found.keys:
        rows.append(("keys", ", ".join(found.keys)))
    if found.pending:
        rows.append(("note", f"accepted, not used yet: {found.because}"))
    return f"{found.key}\n{found.documentation}\n\n{table(rows, indent='  ')}".replace("\n\n\n", "\n\n")


@config.command()
@click.argument("key", required=False)
@pass_invocation
def schema(invocation: Invocation, key: str | None) -> None:
    """Print the JSON Schema of the configuration, or of KEY."""
    from retinue.config.explain import json_schema
    from retinue.config.keypath import parse_path
    from retinue.config.schema import Config

    found = json_schema(Config, parse_path(key) if key else ())
    invocation.show(found, lambda: json.dumps(found, ensure_ascii=False, indent=2), exact=True)


def _load(invocation: Invocation) -> LoadedConfig:
    """Load the configuration and print its errors, since invalid values are not in effect."""
    loaded = _read(invocation)
    if loaded.errors:
        for problem in loaded.problems:
            invocation.note(f"{problem.severity}: {problem}")
    return loaded


def _read(invocation: Invocation) -> LoadedConfig:
    """Load the configuration; secrets in it and in the environment are redacted from all output."""
    from retinue.config.load import load_config
    from retinue.runtime.known_secrets import known_secrets
    from retinue.structs.declare import to_plain

    loaded = load_config(invocation.home, os.environ)
    for secret in known_secrets(to_plain(loaded.config, only_set=True), os.environ, ()):
        invocation.keep_quiet(secret)
    return loaded
