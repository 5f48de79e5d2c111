"""Checks of what agents may do: commands, files, sandbox, plugins, hooks, budgets and logs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from retinue.audit.risks.access import is_plain_remote, names_everyone
from retinue.audit.risks.facts import AgentRisks, RiskCheck, RiskFacts, WatchedFile, writable_spots
from retinue.config.sections.agents import AgentSettings
from retinue.config.sections.tools import ElevatedSettings
from retinue.config.sinks import is_unrestricted, switched_off
from retinue.security.injection import RiskLevel
from retinue.toolkit.settings import ExecPolicy

INTERPRETER = re.compile(
    r"(?:.*/)?(?:(?:ba|z|da|k|fi)?sh|python[0-9.]*|node|deno|bun|perl|ruby|php|lua|osascript|pwsh|env|sudo|doas|su|xargs"
    r"|find|awk|gawk|sed|ssh|docker|podman|make|npx|uvx|eval|nc|socat|tclsh|Rscript)"
)
SECRET_FOLDERS = (".ssh", ".aws", ".gnupg", ".kube", ".config/gcloud", ".password-store", ".mozilla", ".docker")
SOCKETS = ("docker.sock", "podman.sock", "containerd.sock")

Places = Callable[[RiskFacts], Iterator[str]]


def _policies(facts: RiskFacts) -> Iterator[tuple[str, ExecPolicy]]:
    """Yield the policy of all agents, and that of each agent with its own."""
    yield "tools.exec", facts.config.tools.exec
    for entry in facts.config.agents.entries:
        if entry.tools is not None:
            yield f"agents.list[{entry.id}].tools.exec", entry.tools.exec


def _each_policy(is_risky: Callable[[str, str], bool], key: str) -> Places:
    """Return a check of the effective `security` and `ask` of every policy that sets one of them."""

    def find(facts: RiskFacts) -> Iterator[str]:
        shared = facts.config.tools.exec
        for where, policy in _policies(facts):
            security = policy.security or shared.security or "allowlist"
            ask = policy.ask or shared.ask or "on-miss"
            if (policy.security or policy.ask) and is_risky(security, ask):
                yield f"{where}.{key}"

    return find


def _each_exec(is_risky: Callable[[ExecPolicy], bool], key: str) -> Places:
    return lambda facts: (f"{where}.{key}" for where, policy in _policies(facts) if is_risky(policy))


def _each_agent(is_risky: Callable[[AgentSettings], bool], key: str) -> Places:
    return lambda facts: (f"agent {agent.id}: {key}" for agent in facts.agents if is_risky(agent.settings))


def _setting(is_risky: Callable[[RiskFacts], bool], key: str) -> Places:
    return lambda facts: iter((key,) if is_risky(facts) else ())


def is_for_any_program(pattern: str) -> bool:
    """Return whether a command pattern matches every program."""
    words = pattern.split()
    return bool(words) and set(words[0]) <= {"*", "/"}


def is_for_interpreter(pattern: str) -> bool:
    """Return whether a command pattern lets a program run that runs any other, with arguments of the agent's choice."""
    words = pattern.split()
    return len(words) > 1 and bool(INTERPRETER.fullmatch(words[0])) and any("*" in word for word in words[1:])


def _has_any_arguments(pattern: str) -> bool:
    words = pattern.split()
    return "**" in words[1:] and not is_for_any_program(pattern) and not is_for_interpreter(pattern)


def _find_patterns(matches: Callable[[str], bool]) -> Places:
    return lambda facts: (
        f"{where}.allowlist: {pattern}"
        for where, policy in _policies(facts)
        for pattern in policy.allowlist
        if matches(pattern)
    )


def _find_remembered(matches: Callable[[str], bool]) -> Places:
    return lambda facts: (f"rule {rule.id}: {rule.pattern}" for rule in facts.rules if matches(rule.pattern))


def _find_writable(files: Callable[[RiskFacts], tuple[WatchedFile, ...]]) -> Places:
    return lambda facts: (str(file.path) for file in files(facts) if file.is_writable_by_others)


def _shown(facts: RiskFacts, agent: AgentRisks) -> Iterator[tuple[str, Path]]:
    for text in agent.settings.sandbox.read_only_paths:
        home = facts.user_home
        path = home / text.removeprefix("~").lstrip("/") if text.startswith("~") else Path(text)
        yield f"agent {agent.id}: sandbox.readOnlyPaths: {text}", path


def _find_shown_homes(facts: RiskFacts) -> Iterator[str]:
    for agent in facts.agents:
        for where, path in _shown(facts, agent):
            if path in (facts.user_home, facts.home) or path in (*facts.user_home.parents, *facts.home.parents):
                yield where


def _find_shown_secrets(facts: RiskFacts) -> Iterator[str]:
    private = [facts.user_home / name for name in SECRET_FOLDERS] + [facts.home / "credentials", facts.home / "agents"]
    for agent in facts.agents:
        for where, path in _shown(facts, agent):
            if any(path == folder or folder in path.parents for folder in private):
                yield where


def _find_binds(is_risky: Callable[[str], bool]) -> Places:
    return lambda facts: (
        f"agent {agent.id}: sandbox.docker.binds: {bind}"
        for agent in facts.agents
        for bind in agent.settings.sandbox.docker.binds
        if is_risky(bind)
    )


def _is_socket(bind: str) -> bool:
    return bind.split(":")[0].endswith(SOCKETS)


def _elevated_sections(facts: RiskFacts) -> Iterator[tuple[str, ElevatedSettings]]:
    yield "tools.elevated", facts.config.tools.elevated
    for entry in facts.config.agents.entries:
        if entry.tools is not None and entry.tools.elevated is not None:
            yield f"agents.list[{entry.id}].tools.elevated", entry.tools.elevated


def _find_elevated(facts: RiskFacts) -> Iterator[str]:
    for where, settings in _elevated_sections(facts):
        for channel, senders in settings.allow_from.items():
            if settings.enabled and names_everyone(senders):
                yield f"{where}.allowFrom.{channel}"


def _find_open_files(facts: RiskFacts) -> Iterator[str]:
    if not facts.config.tools.fs.workspace_only:
        yield "tools.fs.workspaceOnly"
    for agent in facts.agents:
        own = agent.settings.tools.fs
        if own is not None and not own.workspace_only:
            yield f"agent {agent.id}: tools.fs.workspaceOnly"


def _find_taint_off(facts: RiskFacts) -> Iterator[str]:
    for agent in facts.agents:
        if is_unrestricted(facts.config, agent.settings):
            yield f"agent {agent.id}: tools.exec.security, tools.exec.ask"


def _find_unasked_sinks(facts: RiskFacts) -> Iterator[str]:
    for sink in sorted(switched_off(facts.config.tools.ask_when_tainted)):
        yield f"tools.askWhenTainted.{sink}"


def _find_elevated_others(facts: RiskFacts) -> Iterator[str]:
    for where, settings in _elevated_sections(facts):
        for channel, senders in settings.allow_from.items():
            if settings.enabled and senders and not names_everyone(senders):
                yield f"{where}.allowFrom.{channel}"


def _find_plugins_in_workspace(facts: RiskFacts) -> Iterator[str]:
    for file in facts.plugin_files:
        if any(file.path == agent.workspace or agent.workspace in file.path.parents for agent in facts.agents):
            yield str(file.path)


def _find_providers(facts: RiskFacts) -> Iterator[str]:
    for name, provider in facts.config.models.providers.items():
        if is_plain_remote(provider.base_url) and (provider.api_key is not None or provider.headers):
            yield f"models.providers.{name}.baseUrl"


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
        "exec.unrestricted",
        RiskLevel.CRITICAL,
        "Every command runs without a question, also in turns that read untrusted text.",
        "Set security to `allowlist` and ask to `on-miss`.",
        _each_policy(lambda security, ask: security == "full" and ask == "off", "security"),
    ),
    RiskCheck(
        "exec.full",
        RiskLevel.HIGH,
        "Every command is allowed.",
        "Set security to `allowlist`.",
        _each_policy(lambda security, ask: security == "full" and ask == "on-miss", "security"),
    ),
    RiskCheck(
        "exec.ask-off",
        RiskLevel.MEDIUM,
        "The owner is never asked about commands.",
        "Set ask to `on-miss`.",
        _each_policy(lambda security, ask: security == "allowlist" and ask == "off", "ask"),
    ),
    RiskCheck(
        "exec.fallback-full",
        RiskLevel.HIGH,
        "A command runs if nobody answers the question about it.",
        "Set askFallback to `deny`.",
        _setting(lambda facts: facts.config.tools.exec.ask_fallback == "full", "tools.exec.askFallback"),
    ),
    RiskCheck(
        "exec.inline-code",
        RiskLevel.HIGH,
        "Inline code, such as `python -c`, needs no approval if a rule allows the program.",
        "Remove strictInlineEval: false.",
        _each_exec(lambda policy: not policy.strict_inline_eval, "strictInlineEval"),
    ),
    RiskCheck(
        "exec.skill-programs",
        RiskLevel.MEDIUM,
        "A skill can allow programs by declaring them.",
        "Remove autoAllowSkills, and allow the programs that you need.",
        _each_exec(lambda policy: policy.auto_allow_skills, "autoAllowSkills"),
    ),
    RiskCheck(
        "exec.any-program-rule",
        RiskLevel.CRITICAL,
        "The rule allows every program.",
        "Name the program in the rule.",
        _find_patterns(is_for_any_program),
    ),
    RiskCheck(
        "exec.interpreter-rule",
        RiskLevel.HIGH,
        "The rule allows a program that runs any other program.",
        "Name the exact command, or remove the rule.",
        _find_patterns(is_for_interpreter),
    ),
    RiskCheck(
        "exec.any-arguments-rule",
        RiskLevel.MEDIUM,
        "The rule allows any number of arguments.",
        "Name the subcommand and its arguments.",
        _find_patterns(_has_any_arguments),
    ),
    RiskCheck(
        "exec.safe-interpreter",
        RiskLevel.HIGH,
        "A program that runs other programs is in the list of safe programs.",
        "Remove it from safeBins.",
        _each_exec(lambda policy: any(map(INTERPRETER.fullmatch, policy.safe_bins or ())), "safeBins"),
    ),
    RiskCheck(
        "exec.writable-programs",
        RiskLevel.HIGH,
        "Other users can replace programs in a folder that is searched for trusted programs.",
        "Remove the folder from safeBinTrustedDirs or pathPrepend, or `chmod go-w` it.",
        _find_writable(lambda facts: facts.program_folders),
    ),
    RiskCheck(
        "approvals.any-program-rule",
        RiskLevel.CRITICAL,
        "A remembered rule allows every program.",
        "`retinue approvals rules --remove ID`.",
        _find_remembered(is_for_any_program),
    ),
    RiskCheck(
        "approvals.interpreter-rule",
        RiskLevel.HIGH,
        "A remembered rule allows a program that runs any other program.",
        "`retinue approvals rules --remove ID`.",
        _find_remembered(is_for_interpreter),
    ),
    RiskCheck(
        "tools.taint-off",
        RiskLevel.HIGH,
        "Actions after untrusted text was read are not questioned.",
        "Set tools.exec.ask to `on-miss`, or tools.exec.security to `allowlist`.",
        _find_taint_off,
    ),
    RiskCheck(
        "tools.taint-partly-off",
        RiskLevel.MEDIUM,
        "One kind of action is not questioned after untrusted text was read.",
        "Remove the key.",
        _find_unasked_sinks,
    ),
    RiskCheck(
        "tools.files-everywhere",
        RiskLevel.HIGH,
        "File tools can read and write outside the workspace.",
        "Remove fs.workspaceOnly: false.",
        _find_open_files,
    ),
    RiskCheck(
        "tools.patch-everywhere",
        RiskLevel.HIGH,
        "Patches can change files outside the workspace.",
        "Remove applyPatch.workspaceOnly: false.",
        _setting(
            lambda facts: not facts.config.tools.exec.apply_patch.workspace_only, "tools.exec.applyPatch.workspaceOnly"
        ),
    ),
    RiskCheck(
        "tools.loops",
        RiskLevel.LOW,
        "An agent that repeats itself is not stopped.",
        "Remove tools.loopDetection.enabled: false.",
        _setting(lambda facts: not facts.config.tools.loop_detection.enabled, "tools.loopDetection.enabled"),
    ),
    RiskCheck(
        "tools.elevated-everyone",
        RiskLevel.CRITICAL,
        "Everybody may run commands outside the sandbox.",
        "List the senders.",
        _find_elevated,
    ),
    RiskCheck(
        "tools.elevated-others",
        RiskLevel.HIGH,
        "People other than the owner may run commands outside the sandbox.",
        "Remove the list; the owner needs no entry.",
        _find_elevated_others,
    ),
    RiskCheck(
        "tools.elevated-default",
        RiskLevel.HIGH,
        "Sessions start with commands outside the sandbox.",
        "Remove elevatedDefault.",
        _each_agent(lambda agent: agent.elevated_default in ("on", "full"), "elevatedDefault"),
    ),
    RiskCheck(
        "tools.all-sessions",
        RiskLevel.MEDIUM,
        "An agent can read the sessions of all agents.",
        "Set tools.sessions.visibility to `tree`.",
        _setting(lambda facts: facts.config.tools.sessions.visibility == "all", "tools.sessions.visibility"),
    ),
    RiskCheck(
        "tools.any-agent",
        RiskLevel.LOW,
        "Every agent may send messages to every other.",
        "List the agents in tools.agentToAgent.allow.",
        _setting(
            lambda facts: (
                facts.config.tools.agent_to_agent.enabled and "*" in (facts.config.tools.agent_to_agent.allow or ("*",))
            ),
            "tools.agentToAgent.allow",
        ),
    ),
    RiskCheck(
        "agents.spawn-any",
        RiskLevel.LOW,
        "An agent may start every other agent, and use its rights.",
        "List the agents in subagents.allowAgents.",
        _each_agent(lambda agent: "*" in agent.subagents.allow_agents, "subagents.allowAgents"),
    ),
    RiskCheck(
        "sandbox.off",
        RiskLevel.HIGH,
        "Commands are not sandboxed.",
        "Remove sandbox.mode: off.",
        _each_agent(lambda agent: agent.sandbox.mode == "off", "sandbox.mode"),
    ),
    RiskCheck(
        "sandbox.main-outside",
        RiskLevel.LOW,
        "Commands of the main session are not sandboxed.",
        "Set sandbox.mode to `auto` or `all`.",
        _each_agent(lambda agent: agent.sandbox.mode == "non-main", "sandbox.mode"),
    ),
    RiskCheck(
        "sandbox.any-host",
        RiskLevel.MEDIUM,
        "Sandboxed commands can reach every public host.",
        "List the hosts in sandbox.allowHosts.",
        _each_agent(
            lambda agent: agent.sandbox.network == "proxy" and "*" in (agent.sandbox.allow_hosts or ("*",)),
            "sandbox.allowHosts",
        ),
    ),
    RiskCheck(
        "sandbox.shows-home",
        RiskLevel.HIGH,
        "Sandboxed commands can read the home folder, with keys and private files.",
        "Name only the folders that commands need.",
        _find_shown_homes,
    ),
    RiskCheck(
        "sandbox.shows-secrets",
        RiskLevel.CRITICAL,
        "Sandboxed commands can read keys.",
        "Remove the path from sandbox.readOnlyPaths.",
        _find_shown_secrets,
    ),
    RiskCheck(
        "sandbox.shared",
        RiskLevel.LOW,
        "All agents share one sandbox.",
        "Set sandbox.scope to `agent` or `session`.",
        _each_agent(lambda agent: agent.sandbox.scope == "shared", "sandbox.scope"),
    ),
    RiskCheck(
        "sandbox.docker-root-writable",
        RiskLevel.MEDIUM,
        "The root file system of containers is writable.",
        "Remove sandbox.docker.readOnlyRoot: false.",
        _each_agent(lambda agent: not agent.sandbox.docker.read_only_root, "sandbox.docker.readOnlyRoot"),
    ),
    RiskCheck(
        "sandbox.docker-capabilities",
        RiskLevel.MEDIUM,
        "Containers keep Linux capabilities.",
        "Set sandbox.docker.capDrop to [`ALL`].",
        _each_agent(lambda agent: "ALL" not in agent.sandbox.docker.cap_drop, "sandbox.docker.capDrop"),
    ),
    RiskCheck(
        "sandbox.docker-network",
        RiskLevel.MEDIUM,
        "Containers have network access without the proxy that checks addresses.",
        "Set sandbox.docker.network to `none`.",
        _each_agent(lambda agent: agent.sandbox.docker.network != "none", "sandbox.docker.network"),
    ),
    RiskCheck(
        "sandbox.docker-bind-writable",
        RiskLevel.MEDIUM,
        "Containers can change a folder of this machine.",
        "Add `:ro` to the bind mount.",
        _find_binds(lambda bind: not bind.endswith(":ro") and not _is_socket(bind)),
    ),
    RiskCheck(
        "sandbox.docker-socket",
        RiskLevel.CRITICAL,
        "With the socket of the container service, a container controls this machine.",
        "Remove the bind mount.",
        _find_binds(_is_socket),
    ),
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
        _setting(
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
    RiskCheck(
        "models.plain-endpoint",
        RiskLevel.HIGH,
        "The key and the conversation are sent unencrypted to another machine.",
        "Use an https: URL.",
        _find_providers,
    ),
    RiskCheck(
        "search.plain-endpoint",
        RiskLevel.LOW,
        "Search queries are sent unencrypted to another machine.",
        "Use an https: URL.",
        _setting(lambda facts: is_plain_remote(facts.config.tools.web.search.base_url), "tools.web.search.baseUrl"),
    ),
    RiskCheck(
        "budget.background",
        RiskLevel.MEDIUM,
        "Heartbeats, jobs and webhooks may cost any amount.",
        "Remove the null values of budget.background.",
        _each_agent(
            lambda agent: agent.budget.background.usd is None and agent.budget.background.tokens is None,
            "budget.background",
        ),
    ),
    RiskCheck(
        "logging.redaction-off",
        RiskLevel.HIGH,
        "Text that looks like a secret is written to logs and exports.",
        "Remove logging.redactSensitive: off.",
        _setting(lambda facts: facts.config.logging.redact_sensitive == "off", "logging.redactSensitive"),
    ),
    RiskCheck(
        "logging.verbose",
        RiskLevel.LOW,
        "The log contains more details of conversations than operation needs.",
        "Set logging.level to `info`.",
        _setting(lambda facts: facts.config.logging.level in ("debug", "trace"), "logging.level"),
    ),
    RiskCheck(
        "logging.plain-traces",
        RiskLevel.MEDIUM,
        "Traces are sent unencrypted to another machine.",
        "Use an https: URL.",
        _setting(
            lambda facts: (
                facts.config.diagnostics.otel.enabled and is_plain_remote(facts.config.diagnostics.otel.endpoint)
            ),
            "diagnostics.otel.endpoint",
        ),
    ),
)
