"""Checks of plugins, hooks and skills."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from retinue.audit.risks.facts import Places, RiskCheck, RiskFacts, find_setting, writable_spots
from retinue.security.injection_rules import RiskLevel


def _find_plugins_in_workspace(facts: RiskFacts) -> Iterator[str]:
    for file in facts.plugin_files:
        if any(file.path == agent.workspace or agent.workspace in file.path.parents for agent in facts.agents):
            yield str(file.path)


def _find_wide_links(facts: RiskFacts) -> Iterator[str]:
    wide = (facts.user_home, facts.home, *facts.user_home.parents)
    for text in facts.config.skills.load.allow_symlink_targets:
        if Path(text.replace("~", str(facts.user_home), 1) if text.startswith("~") else text) in wide:
            yield f"skills.load.allowSymlinkTargets: {text}"


def _find_plugin_hooks(is_risky: Callable[[bool, bool], bool], key: str) -> Places:
    return lambda facts: (
        f"plugins.entries.{name}.hooks.{key}"
        for name, entry in facts.config.plugins.entries.items()
        if is_risky(entry.hooks.allow_prompt_injection, entry.hooks.allow_model_override)
    )


CHECKS = (
    RiskCheck(
        "plugins.in-workspace",
        RiskLevel.CRITICAL,
        "The agent can write the code of a plugin, which runs with all rights.",
        "Move the plugin out of the workspace.",
        _find_plugins_in_workspace,
    ),
    RiskCheck(
        "plugins.writable",
        RiskLevel.CRITICAL,
        "Other users can write the code of a plugin.",
        "`chmod go-w` it.",
        lambda facts: writable_spots(facts.plugin_files),
    ),
    RiskCheck(
        "plugins.prompt",
        RiskLevel.MEDIUM,
        "The plugin may change the prompt.",
        "Remove allowPromptInjection if the plugin does not need it.",
        _find_plugin_hooks(lambda prompt, _model: prompt, "allowPromptInjection"),
    ),
    RiskCheck(
        "plugins.model",
        RiskLevel.LOW,
        "The plugin may choose the model, which then reads the conversation.",
        "Remove allowModelOverride if the plugin does not need it.",
        _find_plugin_hooks(lambda _prompt, model: model, "allowModelOverride"),
    ),
    RiskCheck(
        "plugins.any",
        RiskLevel.LOW,
        "Every plugin in the folders of plugins.load.paths is loaded.",
        "List the names in plugins.allow.",
        find_setting(
            lambda facts: bool(facts.config.plugins.load.paths) and facts.config.plugins.allow is None, "plugins.allow"
        ),
    ),
    RiskCheck(
        "hooks.prompt",
        RiskLevel.MEDIUM,
        "The hook may add files to the prompt.",
        "Remove allowPromptInjection if the hook does not need it.",
        lambda facts: (
            f"hooks.internal.entries.{name}.allowPromptInjection"
            for name, entry in facts.config.hooks.internal.entries.items()
            if entry.allow_prompt_injection
        ),
    ),
    RiskCheck(
        "hooks.writable",
        RiskLevel.CRITICAL,
        "Other users can write the code of hooks.",
        "`chmod go-w` the folder.",
        lambda facts: writable_spots(facts.hook_folders),
    ),
    RiskCheck(
        "skills.wide-links",
        RiskLevel.MEDIUM,
        "Links inside a skills folder may point to private files.",
        "Name only the folder that contains your skills.",
        _find_wide_links,
    ),
)
