"""Checks of who can reach the assistant: channels, chat commands, sessions, gateway, tokens and webhooks."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import urlsplit

from retinue.audit.risks.facts import RiskCheck, RiskFacts
from retinue.config.sections.routing import ChannelSettings
from retinue.dispatch.settings import TopicRules
from retinue.security.injection_rules import RiskLevel
from retinue.wire.protocol import Scope

MIN_PASSWORD_CHARS = 12
MIN_TOKEN_CHARS = 24
MANY_ATTEMPTS = 100


def names_everyone(senders: Iterable[str]) -> bool:
    """Return whether a list of senders contains everyone, on all channels or on one."""
    return any(sender == "*" or sender.endswith(":*") for sender in senders)


def is_plain_remote(url: str | None) -> bool:
    """Return whether a URL sends unencrypted text to another machine."""
    if not url:
        return False
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        is_local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = host == "localhost" or host.endswith(".localhost")
    return parts.scheme in ("http", "ws") and not is_local


def _channels(accepts: Callable[[ChannelSettings], bool], key: str) -> Callable[[RiskFacts], Iterator[str]]:
    """Return a check of each enabled channel."""

    def find(facts: RiskFacts) -> Iterator[str]:
        seen = set[str]()
        for path, channel in _all_channels(facts):
            if accepts(channel) and path.partition(".accounts.")[0] not in seen:
                seen.add(path)
                yield f"{path}.{key}"

    return find


def _all_channels(facts: RiskFacts) -> Iterator[tuple[str, ChannelSettings]]:
    """Yield the settings of the enabled channels, and of the accounts that change them."""
    for name, channel in facts.config.channels.items():
        if channel.enabled:
            yield f"channels.{name}", channel
            for account in channel.accounts:
                changed = channel.for_account(account)
                if changed is not channel:
                    yield f"channels.{name}.accounts.{account}", changed


def _groups(channel: ChannelSettings) -> Iterator[tuple[str, TopicRules]]:
    """Yield the settings of the groups of a channel, as each service names them."""
    for key, listed in (("groups", channel.groups), ("channels", channel.channels)):
        for name, rules in listed.items():
            yield f"{key}.{name}", rules
            yield from ((f"{key}.{name}.topics.{topic}", own) for topic, own in rules.topics.items())
    for name, server in channel.guilds.items():
        yield f"guilds.{name}", server
        yield from ((f"guilds.{name}.channels.{each}", own) for each, own in server.channels.items())


def _setting(is_risky: Callable[[RiskFacts], bool], key: str) -> Callable[[RiskFacts], Iterator[str]]:
    """Return a check of one key."""

    def find(facts: RiskFacts) -> Iterator[str]:
        if is_risky(facts):
            yield key

    return find


def _accounts(key: str, is_risky: Callable[[str | None, bool], bool]) -> Callable[[RiskFacts], Iterator[str]]:
    def find(facts: RiskFacts) -> Iterator[str]:
        for name, channel in facts.config.channels.items():
            for account, settings in channel.accounts.items():
                if channel.enabled and is_risky(settings.webhook_url, settings.webhook_secret is not None):
                    yield f"channels.{name}.accounts.{account}.{key}"

    return find


def _accepts_others(channel: ChannelSettings) -> bool:
    return channel.enabled and (
        channel.dm_policy == "open" or bool(channel.allow_from) or channel.group_policy == "open"
    )


def _find_groups_for_all(facts: RiskFacts) -> Iterator[str]:
    for path, channel in _all_channels(facts):
        for group, rules in _groups(channel):
            for key, senders in (("allowFrom", rules.allow_from), ("users", rules.users)):
                if names_everyone(senders):
                    yield f"{path}.{group}.{key}"


def _find_groups_without_mention(facts: RiskFacts) -> Iterator[str]:
    if facts.config.messages.group_chat.require_mention is False:
        yield "messages.groupChat.requireMention"
    for path, channel in _all_channels(facts):
        for group, rules in _groups(channel):
            if rules.require_mention is False:
                yield f"{path}.{group}.requireMention"


def _find_command_users(facts: RiskFacts) -> Iterator[str]:
    for channel, senders in facts.config.commands.allow_from.items():
        if names_everyone(senders):
            yield f"commands.allowFrom.{channel}"


def _is_short(value: object, least: int) -> bool:
    return isinstance(value, str) and len(value) < least


def _trusts_every_proxy(facts: RiskFacts) -> bool:
    return any(ipaddress.ip_network(each, strict=False).prefixlen == 0 for each in facts.config.gateway.trusted_proxies)


def _find_trusted_mappings(facts: RiskFacts) -> Iterator[str]:
    for number, mapping in enumerate(facts.config.hooks.mappings):
        if mapping.allow_unsafe_external_content:
            yield f"hooks.mappings[{number}].allowUnsafeExternalContent"


CHECKS = (
    RiskCheck(
        "channels.dm-open",
        RiskLevel.HIGH,
        "Everybody may write to the agents.",
        "Set dmPolicy to `pairing` or `allowlist`.",
        _channels(lambda channel: channel.dm_policy == "open", "dmPolicy"),
    ),
    RiskCheck(
        "channels.allow-everyone",
        RiskLevel.HIGH,
        "`*` makes everybody a contact.",
        "List the ids of the people that you know.",
        _channels(lambda channel: names_everyone(channel.allow_from), "allowFrom"),
    ),
    RiskCheck(
        "channels.group-open",
        RiskLevel.HIGH,
        "Agents answer in every group that they are added to.",
        "Set groupPolicy to `allowlist` and name the groups.",
        _channels(lambda channel: channel.group_policy == "open", "groupPolicy"),
    ),
    RiskCheck(
        "channels.group-allow-everyone",
        RiskLevel.MEDIUM,
        "Every member of a group may write to the agents.",
        "List the senders in groupAllowFrom.",
        _channels(lambda channel: names_everyone(channel.group_allow_from), "groupAllowFrom"),
    ),
    RiskCheck(
        "channels.every-group",
        RiskLevel.MEDIUM,
        "The group `*` allows every group.",
        "Name the groups by their ids.",
        _channels(lambda channel: "*" in channel.groups and channel.group_policy != "disabled", "groups.*"),
    ),
    RiskCheck(
        "channels.group-members-all",
        RiskLevel.MEDIUM,
        "Every member of this group may write to the agents.",
        "List the senders.",
        _find_groups_for_all,
    ),
    RiskCheck(
        "channels.no-mention",
        RiskLevel.LOW,
        "Agents read and answer every message of groups, not only those that mention them.",
        "Remove requireMention: false.",
        _find_groups_without_mention,
    ),
    RiskCheck(
        "channels.plain-webhook",
        RiskLevel.MEDIUM,
        "Answers are sent unencrypted to another machine.",
        "Use an https: URL.",
        _accounts("webhookUrl", lambda url, _signed: is_plain_remote(url)),
    ),
    RiskCheck(
        "channels.unsigned-webhook",
        RiskLevel.MEDIUM,
        "Requests with answers are not signed, so the receiver cannot verify their sender.",
        "Set webhookSecret.",
        _accounts("webhookSecret", lambda url, signed: bool(url) and not signed),
    ),
    RiskCheck(
        "channels.no-owner",
        RiskLevel.MEDIUM,
        "Channels accept senders, but no sender is known as the owner.",
        "Set commands.ownerAllowFrom to your own ids, such as `telegram:12345`.",
        _setting(
            lambda facts: (
                not facts.config.commands.owner_allow_from and any(map(_accepts_others, facts.config.channels.values()))
            ),
            "commands.ownerAllowFrom",
        ),
    ),
    RiskCheck(
        "commands.owner-everyone",
        RiskLevel.CRITICAL,
        "`*` makes every sender the owner.",
        "List only your own ids.",
        _setting(lambda facts: names_everyone(facts.config.commands.owner_allow_from), "commands.ownerAllowFrom"),
    ),
    RiskCheck(
        "commands.allow-everyone",
        RiskLevel.HIGH,
        "Everybody may use slash commands.",
        "List the senders.",
        _find_command_users,
    ),
    RiskCheck(
        "commands.any-sender",
        RiskLevel.MEDIUM,
        "Every accepted sender may use slash commands.",
        "Remove commands.useAccessGroups: false.",
        _setting(lambda facts: not facts.config.commands.use_access_groups, "commands.useAccessGroups"),
    ),
    RiskCheck(
        "commands.shell",
        RiskLevel.MEDIUM,
        "A person with access to the owner's chat account can run shell commands.",
        "Remove commands.bash.",
        _setting(lambda facts: facts.config.commands.bash, "commands.bash"),
    ),
    RiskCheck(
        "commands.config",
        RiskLevel.MEDIUM,
        "A person with access to the owner's chat account can change the configuration.",
        "Remove commands.config.",
        _setting(lambda facts: facts.config.commands.config, "commands.config"),
    ),
    RiskCheck(
        "commands.plugins",
        RiskLevel.MEDIUM,
        "A person with access to the owner's chat account can enable plugins.",
        "Remove commands.plugins.",
        _setting(lambda facts: facts.config.commands.plugins, "commands.plugins"),
    ),
    RiskCheck(
        "session.global",
        RiskLevel.HIGH,
        "All known senders share the main session and read what it knows about the owner.",
        "Remove session.scope.",
        _setting(lambda facts: bool(facts.config.channels) and facts.config.session.scope == "global", "session.scope"),
    ),
    RiskCheck(
        "session.groups-in-main",
        RiskLevel.HIGH,
        "Groups share the main session and read its answers.",
        "Remove session.groupScope.",
        _setting(
            lambda facts: bool(facts.config.channels) and facts.config.session.group_scope == "main",
            "session.groupScope",
        ),
    ),
    RiskCheck(
        "gateway.no-auth",
        RiskLevel.CRITICAL,
        "Everybody who can reach the port can use the assistant and its tools.",
        "Set gateway.auth.mode to `token`, or gateway.bind to `loopback`.",
        _setting(
            lambda facts: facts.config.gateway.auth.mode == "none" and facts.config.gateway.bind != "loopback",
            "gateway.auth.mode",
        ),
    ),
    RiskCheck(
        "gateway.no-auth-local",
        RiskLevel.HIGH,
        "Every program and user of this machine can use the assistant and its tools.",
        "Set gateway.auth.mode to `token`.",
        _setting(
            lambda facts: facts.config.gateway.auth.mode == "none" and facts.config.gateway.bind == "loopback",
            "gateway.auth.mode",
        ),
    ),
    RiskCheck(
        "gateway.reachable",
        RiskLevel.LOW,
        "Other machines can reach the port, and the gateway does not encrypt the traffic.",
        "Use a TLS proxy or a tailnet, or set gateway.bind to `loopback`.",
        _setting(
            lambda facts: facts.config.gateway.bind != "loopback" and facts.config.gateway.auth.mode != "none",
            "gateway.bind",
        ),
    ),
    RiskCheck(
        "gateway.local-proxy",
        RiskLevel.HIGH,
        "Any program on this machine can act as the trusted proxy.",
        "Remove gateway.auth.trustedProxy.allowLoopback, or use tokens.",
        _setting(
            lambda facts: facts.config.gateway.auth.trusted_proxy.allow_loopback,
            "gateway.auth.trustedProxy.allowLoopback",
        ),
    ),
    RiskCheck(
        "gateway.every-proxy",
        RiskLevel.CRITICAL,
        "Every address is trusted as a proxy and can assert addresses and identities.",
        "Name the addresses of your proxies.",
        _setting(_trusts_every_proxy, "gateway.trustedProxies"),
    ),
    RiskCheck(
        "gateway.every-proxy-user",
        RiskLevel.MEDIUM,
        "Every user that the proxy authenticates has the owner's access.",
        "List the users in gateway.auth.trustedProxy.allowUsers.",
        _setting(
            lambda facts: (
                facts.config.gateway.auth.mode == "trusted-proxy"
                and not facts.config.gateway.auth.trusted_proxy.allow_users
            ),
            "gateway.auth.trustedProxy.allowUsers",
        ),
    ),
    RiskCheck(
        "gateway.weak-password",
        RiskLevel.HIGH,
        f"The password has fewer than {MIN_PASSWORD_CHARS} characters.",
        "Use a longer one.",
        _setting(
            lambda facts: _is_short(facts.config.gateway.auth.password, MIN_PASSWORD_CHARS), "gateway.auth.password"
        ),
    ),
    RiskCheck(
        "gateway.weak-token",
        RiskLevel.HIGH,
        f"The token has fewer than {MIN_TOKEN_CHARS} characters.",
        "Use a token of `retinue gateway token create`.",
        _setting(lambda facts: _is_short(facts.config.gateway.auth.token, MIN_TOKEN_CHARS), "gateway.auth.token"),
    ),
    RiskCheck(
        "gateway.every-origin",
        RiskLevel.HIGH,
        "Every web page may open a connection from the owner's browser.",
        "List the origins of your own pages.",
        _setting(
            lambda facts: "*" in facts.config.gateway.control_ui.allowed_origins, "gateway.controlUi.allowedOrigins"
        ),
    ),
    RiskCheck(
        "gateway.http-tools",
        RiskLevel.MEDIUM,
        "Programs may call tools over HTTP that are refused by default.",
        "Remove gateway.tools.allow.",
        _setting(lambda facts: bool(facts.config.gateway.tools.allow), "gateway.tools.allow"),
    ),
    RiskCheck(
        "gateway.no-lockout",
        RiskLevel.MEDIUM,
        "Passwords and tokens can be guessed without a lockout.",
        f"Set lockoutMs above 0, and maxAttempts to {MANY_ATTEMPTS} or less.",
        _setting(
            lambda facts: (
                facts.config.gateway.auth.rate_limit.lockout_ms == 0
                or facts.config.gateway.auth.rate_limit.max_attempts > MANY_ATTEMPTS
            ),
            "gateway.auth.rateLimit",
        ),
    ),
    RiskCheck(
        "gateway.plain-remote",
        RiskLevel.HIGH,
        "The token of the remote gateway is sent unencrypted.",
        "Use an https: or wss: URL.",
        _setting(lambda facts: is_plain_remote(facts.config.gateway.remote.url), "gateway.remote.url"),
    ),
    RiskCheck(
        "tokens.no-expiry",
        RiskLevel.LOW,
        "The token never expires.",
        "Create one with an expiry, then `retinue gateway token revoke`.",
        lambda facts: (f"token '{token.name}'" for token in facts.tokens if not token.expires),
    ),
    RiskCheck(
        "tokens.admin",
        RiskLevel.MEDIUM,
        "The token has full access, as the owner.",
        "Create one with fewer scopes, then `retinue gateway token revoke`.",
        lambda facts: (f"token '{token.name}'" for token in facts.tokens if Scope.ADMIN in token.scopes.split()),
    ),
    RiskCheck(
        "hooks.no-token",
        RiskLevel.MEDIUM,
        "Webhooks are enabled without a token, and all requests are refused.",
        "Set hooks.token, or remove hooks.enabled.",
        _setting(lambda facts: facts.config.hooks.enabled and facts.config.hooks.token is None, "hooks.token"),
    ),
    RiskCheck(
        "hooks.weak-token",
        RiskLevel.HIGH,
        f"The token of the webhooks has fewer than {MIN_TOKEN_CHARS} characters.",
        "Use a longer, random one.",
        _setting(lambda facts: _is_short(facts.config.hooks.token, MIN_TOKEN_CHARS), "hooks.token"),
    ),
    RiskCheck(
        "hooks.any-session",
        RiskLevel.MEDIUM,
        "A request may write into any session.",
        "Set hooks.allowedSessionKeyPrefixes.",
        _setting(
            lambda facts: (
                facts.config.hooks.allow_request_session_key and not facts.config.hooks.allowed_session_key_prefixes
            ),
            "hooks.allowRequestSessionKey",
        ),
    ),
    RiskCheck(
        "hooks.any-agent",
        RiskLevel.LOW,
        "A request may name any agent.",
        "Set hooks.allowedAgentIds.",
        _setting(
            lambda facts: facts.config.hooks.enabled and "*" in (facts.config.hooks.allowed_agent_ids or ("*",)),
            "hooks.allowedAgentIds",
        ),
    ),
    RiskCheck(
        "hooks.trusted-content",
        RiskLevel.HIGH,
        "The text of requests is trusted like text of the owner.",
        "Remove allowUnsafeExternalContent.",
        _find_trusted_mappings,
    ),
)
