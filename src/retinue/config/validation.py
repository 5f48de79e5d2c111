"""Validates a configuration: unknown keys, invalid values, and keys that are not used yet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from retinue.config.keypath import Step, format_key_path
from retinue.config.keys import (
    Key,
    find_key,
    find_unsupported,
    is_secret,
    keys_of,
    nearest_key,
    shape_of,
    step_into,
    suggest_key,
)
from retinue.config.schema import Config
from retinue.config.sections.agents import ModelChoice
from retinue.config.sections.gateway import GatewayTools
from retinue.config.sections.tools import AllowRules
from retinue.config.sources import Located, Problem
from retinue.config.variables import REFUSED, refused_variables
from retinue.core.model import ModelRef
from retinue.core.sinks import Sink
from retinue.providers.settings import ModelSettings, ModelsSettings, ProviderSettings
from retinue.providers.vendors import BUILT_IN_ALIASES, is_known_provider, known_providers
from retinue.structs.decode import DecodeError, DecodeProblem, decode
from retinue.toolkit.settings import ToolsSettings
from retinue.tools.policy import GROUPS

_SHOWN_CHARS = 40
_ZONE_KEYS = ("userTimezone", "timezone", "tz")
_TOOL_RULES = (AllowRules, GatewayTools, ToolsSettings)
_MODEL_SECTIONS = (ModelChoice, ModelsSettings, ProviderSettings, ModelSettings)


def validate(tree: Located) -> tuple[Config | None, list[Problem]]:
    """Return the configuration of a tree, or None if it has errors."""
    problems = list(_unknown_keys(tree))
    try:
        config = decode(Config, tree.plain)
    except DecodeError as error:
        problems.extend(_wrong_values(tree, error.faults))
        return None, problems
    problems.extend(_unknown_groups(tree))
    problems.extend(_refused_variables(tree))
    problems.extend(_unusable_models(tree, config))
    problems.extend(_questionable_values(tree))
    return (None if any(problem.is_fatal for problem in problems) else config), problems


def pending_keys(tree: Located) -> tuple[str, ...]:
    """Return the keys of a tree that are accepted but not used yet."""
    return tuple(format_key_path(path) for path, key, _ in known_keys(tree) if key.pending and key.shape.is_leaf)


def known_keys(
    node: Located, key: Key | None = None, path: tuple[Step, ...] = ()
) -> Iterator[tuple[tuple[Step, ...], Key, Located]]:
    """Yield every known key of the tree, down to those with values."""
    key = key or Key("", shape_of(Config))
    if path:
        yield path, key, node
    if key.shape.is_leaf:
        return
    for step, below in _children(node):
        found = step_into(key.shape, step, "")
        if found is not None:
            yield from known_keys(below, found, (*path, step))


def _unknown_keys(tree: Located) -> Iterator[Problem]:
    for path, key, node in ((), Key("", shape_of(Config)), tree), *known_keys(tree):
        if key.shape.is_leaf:
            continue
        for step, below in _children(node):
            if isinstance(step, str) and not _is_known(key, path, step):
                reason = find_unsupported((*path, step))
                if reason is None:
                    yield _misspelled_model_key(key, node, (*path, step)) or _unknown(below, (*path, step))
                elif reason:
                    message = f"Retinue does not have this key of OpenClaw, so it has no effect: {reason}."
                    yield Problem("warning", format_key_path((*path, step)), below.file, below.line, message)


def _is_known(key: Key, path: tuple[Step, ...], step: str) -> bool:
    """Return whether an object has a key; other channels than the built-in one have keys of their own."""
    if path[:3] == ("channels", "http", "accounts") and len(path) == 4:
        return step in keys_of(key.shape)
    return step_into(key.shape, step, "") is not None


def _misspelled_model_key(key: Key, node: Located, path: tuple[Step, ...]) -> Problem | None:
    """Return the problem of an unknown key that probably is a key of the models; None if it is not.

    Without that key an agent would have another model or none, and the reason would be hard to find.
    """
    name, below = str(path[-1]), node.child(path[-1])
    near = nearest_key(key.shape, name)
    if below is None or near is None or node.child(near) is not None:
        return None
    match path:
        case (_,) | ("agents", "defaults", _) | ("agents", "list", int(), _):
            is_model_key = near in ("model", "models")
        case _:
            is_model_key = any(issubclass(section, _MODEL_SECTIONS) for section in key.shape.sections)
    if not is_model_key:
        return None
    message = f"This key is not known, so the model is not set as intended. Did you mean {near}?"
    return Problem("error", format_key_path(path), below.file, below.line, message, leaves_rest_usable=True)


def _unusable_models(tree: Located, config: Config) -> Iterator[Problem]:
    """Return problems for models of agents whose provider does not exist."""
    entries = config.agents.defaults.models.items()
    aliases = {**BUILT_IN_ALIASES, **{entry.alias.lower(): name for name, entry in entries if entry.alias}}
    agents = [("agents", "defaults"), *(("agents", "list", index) for index in range(len(config.agents.entries)))]
    for agent in agents:
        path, node = _place(tree, (*agent, "model", "primary"))
        if path[len(agent) :] not in (("model",), ("model", "primary")) or not isinstance(node.value, str):
            continue
        text = node.value.strip()
        ref = ModelRef.parse(aliases.get(text.lower(), text))
        if not text or "${" in text or (ref is not None and is_known_provider(config.models, ref.provider)):
            continue
        message = (
            f"There is no provider '{ref.provider}', so this model cannot be used. "
            if ref is not None
            else f"'{text}' is neither an alias nor provider/model, so no model can be used. "
        )
        hint = _suggest_model(ref, text, config, aliases)
        yield Problem("error", format_key_path(path), node.file, node.line, message + hint, leaves_rest_usable=True)


def _suggest_model(ref: ModelRef | None, text: str, config: Config, aliases: Mapping[str, str]) -> str:
    providers = known_providers(config.models)
    if ref is not None:
        near = get_close_matches(ref.provider, providers, n=1)
        if near:
            return f"Did you mean {near[0]}/{ref.model}?"
        return f"Providers: {', '.join(providers) or 'none'}. Add others under models.providers."
    models = [f"{name}/{model.id}" for name, each in config.models.providers.items() for model in each.models]
    near = get_close_matches(text.lower(), [*aliases, *models], n=1) or [
        name for name in models if name.partition("/")[2].lower() == text.lower()
    ]
    return f"Did you mean {near[0]}?" if near else "Write provider/model, as in anthropic/claude-sonnet-5-5."


def _questionable_values(tree: Located) -> Iterator[Problem]:
    """Return problems for time zones that do not exist, blank paths, and several default agents."""
    defaults = []
    for path, _, node in known_keys(tree):
        name, value = path[-1], node.value
        message = None
        match path:
            case ("agents", "list", int(), "default") if value is True:
                defaults.append(path)
                if len(defaults) > 1:
                    message = f"{format_key_path(defaults[0])} is true as well, and only that agent is the default."
            case ("tools", "askWhenTainted") if _asks_nowhere(value):
                message = (
                    "This does not disable the questions, so it counts as true. Set single sinks to false, as in "
                    "{fetch: false}; only tools.exec.security full with tools.exec.ask off disables them all."
                )
            case _ if name in _ZONE_KEYS and isinstance(value, str):
                message = _explain_zone(value)
            case (*_, "workspace") | (*_, "store", "path") if isinstance(value, str) and not value.strip():
                message = "This path is blank, so the default is used. Remove the key or name a folder."
        if message is not None:
            yield Problem("warning", format_key_path(path), node.file, node.line, message)


def _asks_nowhere(value: object) -> bool:
    """Return whether a value of `tools.askWhenTainted` tries to disable every question."""
    if isinstance(value, dict):
        return {name for name, below in value.items() if below.value is False} >= set(Sink)
    return value is False


def _explain_zone(name: str) -> str | None:
    """Return why a text is not a time zone; None if it is one."""
    from zoneinfo import ZoneInfo, available_timezones

    if name.strip().lower() in ("", "user", "local") or "${" in name:
        return None
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        zones = {zone.lower(): zone for zone in available_timezones()}
        near = get_close_matches(name.lower(), zones, n=1)
        hint = f"Did you mean {zones[near[0]]}?" if near else "Use a name such as Europe/Vienna."
        return f"There is no time zone '{name}'. {hint}"
    return None


def _unknown_groups(tree: Located) -> Iterator[Problem]:
    """Return problems for unknown tool groups: a misspelled one in `deny` would silently deny nothing."""
    for path, key, node in known_keys(tree):
        if key.section is None or not issubclass(key.section, _TOOL_RULES) or not key.shape.is_leaf:
            continue
        for index, item in _children(node):
            name = str(item.value).strip().lower()
            if name.startswith("group:") and name not in GROUPS:
                names = [group.removeprefix("group:") for group in GROUPS]
                near = get_close_matches(name.removeprefix("group:"), names, n=1)
                hint = f"Did you mean group:{near[0]}?" if near else f"Groups: {', '.join(GROUPS)}."
                message = f"There is no group of tools '{item.value}', so this has no effect. {hint}"
                yield Problem("warning", format_key_path((*path, index)), item.file, item.line, message)


def _refused_variables(tree: Located) -> Iterator[Problem]:
    for path, name in refused_variables(tree.plain):
        node: Located | None = tree
        for step in path:
            node = node.child(step) if node else None
        if node is not None:
            yield Problem("warning", format_key_path(path), node.file, node.line, REFUSED.format(name=name))


def _unknown(node: Located, path: tuple[Step, ...]) -> Problem:
    spelled = format_key_path(path)
    match path:
        case ("agents", "list", int(), *rest) if find_key(Config, ("agents", "defaults", *rest)):
            shared = format_key_path(("agents", "defaults", *rest))
            message = f"This key cannot be set for one agent; it applies to all agents. Move it to {shared}."
            return Problem("error", spelled, node.file, node.line, message)
    near = suggest_key(Config, path)
    hint = f" Did you mean {near}?" if near else ""
    return Problem("warning", spelled, node.file, node.line, f"This key is not known and has no effect.{hint}")


def _children(node: Located) -> list[tuple[Step, Located]]:
    if isinstance(node.value, dict):
        return list(node.value.items())
    return list(enumerate(node.value)) if isinstance(node.value, list) else []


def _wrong_values(tree: Located, faults: Sequence[DecodeProblem]) -> Iterator[Problem]:
    for fault in faults:
        path, node = _place(tree, fault.path)
        yield Problem("error", format_key_path(path), node.file, node.line, _explain(path, node, fault))


def _place(tree: Located, location: Sequence[Step]) -> tuple[tuple[Step, ...], Located]:
    """Return the part of a path that exists in the tree; the rest is a missing key, or a key that a text implies."""
    path: tuple[Step, ...] = ()
    node = tree
    for step in location:
        below = node.child(step)
        if below is None:
            break
        path, node = (*path, step), below
    return path, node


def _explain(path: tuple[Step, ...], node: Located, fault: DecodeProblem) -> str:
    match fault.kind:
        case "missing":
            return f"'{fault.path[-1]}' is missing here. Add it."
        case "value":
            return f"{fault.message}."
        case "type" | "unknown":
            text = json.dumps(node.plain, ensure_ascii=False, default=str)
            shown = text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"
            return f"expected {fault.expected}, got {'something else' if is_secret(path) else shown}."
