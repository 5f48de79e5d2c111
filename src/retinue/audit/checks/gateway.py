"""The gateway: whether one runs and answers, and who can reach it."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.audit.facts import Facts
from retinue.audit.finding import Finding, Severity

AREA = "gateway"


def check_gateway(facts: Facts) -> Iterator[Finding]:
    """The server as it runs, and as it is configured."""
    yield from _check_process(facts)
    yield from _check_access(facts)


def _check_process(facts: Facts) -> Iterator[Finding]:
    seen = facts.gateway
    if facts.loaded.config.gateway.mode == "remote" and seen.instance is None:
        return
    if seen.instance is None:
        yield Finding(
            AREA,
            Severity.NOTE,
            "No gateway runs.",
            "Jobs, heartbeats and channels need one; the chat works without.",
            "`retinue gateway start` starts one.",
        )
        if seen.port_taken:
            yield Finding(
                AREA,
                Severity.PROBLEM,
                f"Another program listens on port {seen.port}.",
                "The gateway could not start there.",
                "End that program, or set gateway.port.",
            )
    elif not seen.answers:
        yield Finding(
            AREA,
            Severity.PROBLEM,
            f"The gateway (pid {seen.instance.pid}) does not answer.",
            "Whoever talks to the assistant through it waits.",
            "Look at `retinue logs`, then `retinue gateway stop` and `retinue gateway start`.",
        )
    for problem in seen.problems:
        yield Finding(
            AREA,
            Severity.PROBLEM,
            f"The gateway did not take over the configuration: {problem}",
            "It goes on with the one that it had.",
            "Correct the configuration; the gateway reads it by itself.",
        )
    if seen.instance is not None and not seen.local_token:
        yield Finding(
            AREA,
            Severity.WARNING,
            "The token of this machine's command line is missing.",
            "Commands cannot reach the running gateway.",
            "Restart the gateway; it makes a new one.",
        )


def _check_sharing(facts: Facts) -> Iterator[Finding]:
    session = facts.loaded.config.session
    shared = "session.scope" if session.scope == "global" else "session.groupScope"
    if facts.loaded.config.channels and (session.scope == "global" or session.group_scope == "main"):
        yield Finding(
            AREA,
            Severity.WARNING,
            f"{shared} puts groups into the main session.",
            "What the assistant knows of the owner, and what was said elsewhere, can be read there.",
            f"Take {shared} out, so that each group has a session of its own.",
        )


def _check_ways_in(facts: Facts) -> Iterator[Finding]:
    config = facts.loaded.config
    strangers = {binding.agent_id for binding in config.bindings} - set(config.agents.ids)
    for agent in sorted(strangers):
        yield Finding(
            AREA,
            Severity.WARNING,
            f"A binding leads to the agent '{agent}', which is not in agents.list.",
            "Messages that it is for reach another agent.",
            "Add the agent, or correct the binding; `retinue agents bindings` lists them.",
        )
    if config.hooks.enabled and config.hooks.token is None:
        yield Finding(
            AREA,
            Severity.WARNING,
            "hooks.enabled is set without hooks.token.",
            "Every webhook is refused.",
            "Set hooks.token, and give it to whoever calls.",
        )


def _check_access(facts: Facts) -> Iterator[Finding]:
    settings = facts.loaded.config.gateway
    if settings.auth.mode == "none":
        is_open = settings.bind != "loopback"
        yield Finding(
            AREA,
            Severity.PROBLEM if is_open else Severity.WARNING,
            "gateway.auth.mode is `none`.",
            f"Everybody {'who reaches the port' if is_open else 'on this machine'} can use the assistant and its "
            "tools.",
            "Set gateway.auth.mode to `token`.",
        )
    elif settings.bind != "loopback":
        yield Finding(
            AREA,
            Severity.NOTE,
            f"gateway.bind is `{settings.bind}`, so other machines can reach the port.",
            "They need a token; what they send is not encrypted by the gateway.",
            "Put a proxy with TLS in front, or use a tailnet.",
        )
    if settings.auth.mode == "trusted-proxy" and settings.auth.trusted_proxy.allow_loopback:
        yield Finding(
            AREA,
            Severity.WARNING,
            "A proxy on this machine says who people are (gateway.auth.trustedProxy.allowLoopback).",
            "Every other program of this machine can say it too, and is then let in as the owner.",
            "Run the proxy elsewhere, or sign in with tokens.",
        )
    yield from _check_sharing(facts)
    yield from _check_ways_in(facts)
    for name in facts.gateway.unused_tokens:
        yield Finding(
            AREA,
            Severity.NOTE,
            f"The token '{name}' was not used for 90 days.",
            "A token that nobody needs can only be misused.",
            f"`retinue gateway token revoke {name}` ends it.",
        )
