"""Checks of the gateway and of plugins."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.audit.facts import Facts, Finding, Severity


def check_gateway(facts: Facts) -> Iterator[Finding]:
    """Report problems of the gateway process."""
    seen = facts.gateway
    if facts.loaded.config.gateway.mode == "remote" and seen.instance is None:
        return
    if seen.instance is None:
        yield Finding(
            "gateway",
            Severity.NOTE,
            "The gateway is not running.",
            "Jobs, heartbeats and channels need it; the chat works without.",
            "`retinue gateway start` starts it.",
        )
        if seen.port_taken:
            yield Finding(
                "gateway",
                Severity.PROBLEM,
                f"Another program listens on port {seen.port}.",
                "The gateway cannot start on that port.",
                "Stop that program, or set gateway.port.",
            )
    elif not seen.answers:
        yield Finding(
            "gateway",
            Severity.PROBLEM,
            f"The gateway (pid {seen.instance.pid}) does not answer.",
            "Clients that use it wait.",
            "Check `retinue logs`, then `retinue gateway stop` and `retinue gateway start`.",
        )
    if seen.read_only:
        yield Finding(
            "gateway",
            Severity.PROBLEM,
            "The gateway is read-only.",
            seen.read_only,
            "Check the disk of the home; a restart is not needed.",
        )
    for problem in seen.problems:
        yield Finding(
            "gateway",
            Severity.PROBLEM,
            f"The gateway did not load the configuration: {problem}",
            "It continues with the previous one.",
            "Correct the configuration; the gateway reloads it by itself.",
        )
    if seen.instance is not None and not seen.local_token:
        yield Finding(
            "gateway",
            Severity.WARNING,
            "The token of this machine's command line is missing.",
            "Commands cannot reach the running gateway.",
            "Restart the gateway, which creates a new one.",
        )


def check_sharing(facts: Facts) -> Iterator[Finding]:
    """Report settings that let groups read the main session."""
    session = facts.loaded.config.session
    shared = "session.scope" if session.scope == "global" else "session.groupScope"
    if facts.loaded.config.channels and (session.scope == "global" or session.group_scope == "main"):
        yield Finding(
            "gateway",
            Severity.WARNING,
            f"{shared} merges groups into the main session.",
            "Group members can read what the assistant knows about the owner, and other conversations.",
            f"Remove {shared}, so that each group has its own session.",
        )


def check_routes(facts: Facts) -> Iterator[Finding]:
    """Report bindings to unknown agents, and webhooks that are always refused."""
    config = facts.loaded.config
    strangers = {binding.agent_id for binding in config.bindings} - set(config.agents.ids)
    for agent in sorted(strangers):
        yield Finding(
            "gateway",
            Severity.WARNING,
            f"A binding refers to the agent '{agent}', which is not in agents.list.",
            "Matching messages go to another agent.",
            "Add the agent, or correct the binding; `retinue agents bindings` lists them.",
        )
    if config.hooks.enabled and config.hooks.token is None:
        yield Finding(
            "gateway",
            Severity.WARNING,
            "hooks.enabled is set without hooks.token.",
            "Every webhook is refused.",
            "Set hooks.token, and configure it in the calling services.",
        )


def check_access(facts: Facts) -> Iterator[Finding]:
    """Report who else can use the gateway, and tokens that are not used."""
    settings = facts.loaded.config.gateway
    if settings.auth.mode == "none":
        is_open = settings.bind != "loopback"
        yield Finding(
            "gateway",
            Severity.PROBLEM if is_open else Severity.WARNING,
            "gateway.auth.mode is `none`.",
            f"Everyone {'who can reach the port' if is_open else 'on this machine'} can use the assistant and its "
            "tools.",
            "Set gateway.auth.mode to `token`.",
        )
    elif settings.bind != "loopback":
        yield Finding(
            "gateway",
            Severity.NOTE,
            f"gateway.bind is `{settings.bind}`, so other machines can reach the port.",
            "They need a token; the gateway does not encrypt the traffic.",
            "Use a TLS proxy or a tailnet.",
        )
    if settings.auth.mode == "trusted-proxy" and settings.auth.trusted_proxy.allow_loopback:
        yield Finding(
            "gateway",
            Severity.WARNING,
            "A proxy on this machine asserts user identities (gateway.auth.trustedProxy.allowLoopback).",
            "Any other program on this machine can assert them too, and gets the owner's access.",
            "Run the proxy on another machine, or use tokens.",
        )
    for name in facts.gateway.unused_tokens:
        yield Finding(
            "gateway",
            Severity.NOTE,
            f"The token '{name}' was not used for 90 days.",
            "An unused token is only a risk.",
            f"`retinue gateway token revoke {name}` revokes it.",
        )


def check_plugins(facts: Facts) -> Iterator[Finding]:
    """Report every enabled plugin that failed to load."""
    for problem in facts.plugin_problems:
        yield Finding(
            "plugins",
            Severity.PROBLEM,
            problem,
            "What it registers is not available.",
            "Correct it, or disable it: `retinue plugins disable NAME`. `retinue logs` shows details.",
        )
