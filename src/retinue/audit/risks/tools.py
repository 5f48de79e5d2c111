"""Checks of what agents may do: commands, remembered rules, files and tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from retinue.audit.risks.access import names_everyone
from retinue.audit.risks.facts import Places, RiskCheck, RiskFacts, WatchedFile, each_agent, find_setting
from retinue.config.sections.tools import ElevatedSettings
from retinue.config.sinks import is_unrestricted, switched_off
from retinue.security.injection_rules import RiskLevel
from retinue.toolkit.settings import ExecPolicy

INTERPRETER = re.compile(
    r"(?:.*/)?(?:(?:ba|z|da|k|fi)?sh|python[0-9.]*|node|deno|bun|perl|ruby|php|lua|osascript|pwsh|env|sudo|doas|su|xargs"
    r"|find|awk|gawk|sed|ssh|docker|podman|make|npx|uvx|eval|nc|socat|tclsh|Rscript)"
)


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
        find_setting(lambda facts: facts.config.tools.exec.ask_fallback == "full", "tools.exec.askFallback"),
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
        find_setting(
            lambda facts: not facts.config.tools.exec.apply_patch.workspace_only, "tools.exec.applyPatch.workspaceOnly"
        ),
    ),
    RiskCheck(
        "tools.loops",
        RiskLevel.LOW,
        "An agent that repeats itself is not stopped.",
        "Remove tools.loopDetection.enabled: false.",
        find_setting(lambda facts: not facts.config.tools.loop_detection.enabled, "tools.loopDetection.enabled"),
    ),
    RiskCheck(
        "tools.elevated-everyone",
        RiskLevel.CRITICAL,
        "Every client of the gateway may run commands outside the sandbox.",
        "List the names of tokens.",
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
        each_agent(lambda agent: agent.elevated_default in ("on", "full"), "elevatedDefault"),
    ),
    RiskCheck(
        "tools.all-sessions",
        RiskLevel.MEDIUM,
        "An agent can read the sessions of all agents.",
        "Set tools.sessions.visibility to `tree`.",
        find_setting(lambda facts: facts.config.tools.sessions.visibility == "all", "tools.sessions.visibility"),
    ),
    RiskCheck(
        "tools.any-agent",
        RiskLevel.LOW,
        "Every agent may send messages to every other.",
        "List the agents in tools.agentToAgent.allow.",
        find_setting(
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
        each_agent(lambda agent: "*" in agent.subagents.allow_agents, "subagents.allowAgents"),
    ),
)
