"""Checks of the sandbox of commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from retinue.audit.risks.facts import AgentRisks, Places, RiskCheck, RiskFacts, each_agent
from retinue.security.injection_rules import RiskLevel

SECRET_FOLDERS = (".ssh", ".aws", ".gnupg", ".kube", ".config/gcloud", ".password-store", ".mozilla", ".docker")
SOCKETS = ("docker.sock", "podman.sock", "containerd.sock")


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


CHECKS = (
    RiskCheck(
        "sandbox.off",
        RiskLevel.HIGH,
        "Commands are not sandboxed.",
        "Remove sandbox.mode: off.",
        each_agent(lambda agent: agent.sandbox.mode == "off", "sandbox.mode"),
    ),
    RiskCheck(
        "sandbox.main-outside",
        RiskLevel.LOW,
        "Commands of the main session are not sandboxed.",
        "Set sandbox.mode to `auto` or `all`.",
        each_agent(lambda agent: agent.sandbox.mode == "non-main", "sandbox.mode"),
    ),
    RiskCheck(
        "sandbox.any-host",
        RiskLevel.MEDIUM,
        "Sandboxed commands can reach every public host.",
        "List the hosts in sandbox.allowHosts.",
        each_agent(
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
        each_agent(lambda agent: agent.sandbox.scope == "shared", "sandbox.scope"),
    ),
    RiskCheck(
        "sandbox.docker-root-writable",
        RiskLevel.MEDIUM,
        "The root file system of containers is writable.",
        "Remove sandbox.docker.readOnlyRoot: false.",
        each_agent(lambda agent: not agent.sandbox.docker.read_only_root, "sandbox.docker.readOnlyRoot"),
    ),
    RiskCheck(
        "sandbox.docker-capabilities",
        RiskLevel.MEDIUM,
        "Containers keep Linux capabilities.",
        "Set sandbox.docker.capDrop to [`ALL`].",
        each_agent(lambda agent: "ALL" not in agent.sandbox.docker.cap_drop, "sandbox.docker.capDrop"),
    ),
    RiskCheck(
        "sandbox.docker-network",
        RiskLevel.MEDIUM,
        "Containers have network access without the proxy that checks addresses.",
        "Set sandbox.docker.network to `none`.",
        each_agent(lambda agent: agent.sandbox.docker.network != "none", "sandbox.docker.network"),
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
)
