"""Routing: which agent answers, in which session, and whether the answer may be sent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from retinue.core.envelope import Origin, PeerKind
from retinue.core.keys import AgentId, SessionKey, SessionKind
from retinue.dispatch.router import MatchTier, SessionRules, choose_agent, may_send, session_of, tier_of
from retinue.dispatch.settings import Binding
from retinue.sessions.settings import DmScope, SendPolicySettings
from retinue.structs.decode import decode

MAIN, HOME, WORK = AgentId("main"), AgentId("home"), AgentId("work")
AGENTS = (MAIN, HOME, WORK)

DIRECT = Origin("http", "personal", PeerKind.DIRECT, "42", sender="42")
GROUP = Origin("http", "office", PeerKind.GROUP, "room", guild="G1", team="T1", sender="42", roles=("Staff",))

SCOPES: tuple[DmScope, ...] = ("main", "per-peer", "per-channel-peer", "per-account-channel-peer")


def bind(agent: str, **match: Any) -> Binding:
    return decode(Binding, {"agentId": agent, "match": {"channel": "http", **match}})


@pytest.mark.parametrize(
    ("match", "tier"),
    [
        ({"peer": {"kind": "group", "id": "room"}}, MatchTier.PEER),
        ({"peer": {"kind": "group"}}, MatchTier.PEER_KIND),
        ({"peer": {"kind": "group", "id": "*"}}, MatchTier.PEER_KIND),
        ({"guildId": "G1", "roles": ["staff"]}, MatchTier.GUILD_ROLES),
        ({"guildId": "g1"}, MatchTier.GUILD),
        ({"teamId": "T1"}, MatchTier.TEAM),
        ({"accountId": "Office"}, MatchTier.ACCOUNT),
        ({"accountId": "*"}, MatchTier.CHANNEL),
        ({}, MatchTier.CHANNEL),
        ({"channel": "*"}, MatchTier.CHANNEL),
    ],
)
def test_each_tier_takes_what_it_names(match: dict[str, Any], tier: MatchTier) -> None:
    route = choose_agent(GROUP, [bind("work", **match)], AGENTS, MAIN)
    assert (route.agent, route.tier, route.binding) == (WORK, tier, 0)


@pytest.mark.parametrize(
    "match",
    [
        {"channel": "telegram"},
        {"accountId": "personal"},
        {"peer": {"kind": "dm"}},
        {"peer": {"kind": "group", "id": "other"}},
        {"guildId": "G2"},
        {"guildId": "G1", "roles": ["admin"]},
        {"teamId": "T2"},
        {"peer": {"kind": "group", "id": "room"}, "accountId": "personal"},
    ],
)
def test_everything_a_binding_names_must_fit(match: dict[str, Any]) -> None:
    route = choose_agent(GROUP, [bind("work", **match)], AGENTS, MAIN)
    assert (route.agent, route.tier, route.binding) == (MAIN, MatchTier.DEFAULT, None)
    assert route.considered[0].why


def test_inside_a_tier_the_first_binding_wins() -> None:
    route = choose_agent(GROUP, [bind("home", teamId="T1"), bind("work", teamId="T1")], AGENTS, MAIN)
    assert (route.agent, route.binding) == (HOME, 0)


def test_a_binding_to_an_agent_that_is_gone_is_passed_over_and_says_so() -> None:
    route = choose_agent(DIRECT, [bind("gone", peer={"kind": "direct", "id": "42"}), bind("work")], AGENTS, MAIN)
    assert route.agent == WORK
    assert route.considered[0].why == "there is no agent 'gone'"


MATCHES = st.fixed_dictionaries(
    {},
    optional={
        "peer": st.sampled_from([{"kind": "group", "id": "room"}, {"kind": "group"}, {"id": "other"}]),
        "guildId": st.sampled_from(["G1", "G2"]),
        "teamId": st.sampled_from(["T1", "T2"]),
        "accountId": st.sampled_from(["office", "personal", "*"]),
        "roles": st.sampled_from([["staff"], ["admin"]]),
        "channel": st.sampled_from(["http", "telegram", "*"]),
    },
)


@given(st.lists(st.tuples(st.sampled_from(["home", "work", "gone"]), MATCHES), max_size=8))
def test_the_most_specific_binding_that_fits_wins(drawn: list[tuple[str, dict[str, Any]]]) -> None:
    bindings = [bind(agent, **match) for agent, match in drawn]
    alone = [choose_agent(GROUP, [binding], AGENTS, MAIN).binding == 0 for binding in bindings]
    fitting = [(tier_of(binding.match), at) for at, binding in enumerate(bindings) if alone[at]]
    route = choose_agent(GROUP, bindings, AGENTS, MAIN)
    assert (route.tier, route.binding) == (min(fitting) if fitting else (MatchTier.DEFAULT, None))


@pytest.mark.parametrize(
    ("scope", "key"),
    [
        ("main", "agent:main:main"),
        ("per-peer", "agent:main:direct:42"),
        ("per-channel-peer", "agent:main:http:direct:42"),
        ("per-account-channel-peer", "agent:main:http:personal:direct:42"),
    ],
)
def test_direct_chats_share_sessions_as_configured(scope: DmScope, key: str) -> None:
    assert session_of(MAIN, DIRECT, SessionRules(scope)).text == key


def test_groups_channels_and_threads_have_sessions_of_their_own() -> None:
    assert session_of(WORK, GROUP, SessionRules()).text == "agent:work:http:group:room"
    assert session_of(WORK, replace(GROUP, thread="7"), SessionRules()).text == "agent:work:http:group:room:thread:7"
    channel = replace(GROUP, kind=PeerKind.CHANNEL)
    assert session_of(WORK, channel, SessionRules()).text == "agent:work:http:channel:room"
    assert session_of(WORK, replace(DIRECT, thread="7"), SessionRules()).text == "agent:work:main:thread:7"


def test_one_person_on_two_channels_has_one_session() -> None:
    rules = SessionRules("per-peer", {"ada": ["telegram:9", "HTTP:42"]})
    elsewhere = Origin("telegram", "bot", PeerKind.DIRECT, "9")
    assert session_of(MAIN, DIRECT, rules) == session_of(MAIN, elsewhere, rules)
    assert session_of(MAIN, DIRECT, rules).text == "agent:main:direct:ada"
    assert session_of(MAIN, replace(DIRECT, peer="43"), rules).text == "agent:main:direct:43"


NAMES = st.one_of(
    st.sampled_from(["main", "direct", "group", "thread", "a:thread:b", "x:direct:y", ":", " ", "%", "!r:e.org"]),
    st.text(min_size=1, max_size=300),
)


@given(NAMES, NAMES, st.one_of(st.none(), NAMES), st.sampled_from(SCOPES), st.sampled_from(list(PeerKind)))
def test_whatever_a_chat_is_called_it_stays_what_it_is(
    peer: str, account: str, thread: str | None, scope: DmScope, kind: PeerKind
) -> None:
    key = session_of(MAIN, Origin("http", account, kind, peer, thread=thread), SessionRules(scope))
    assert SessionKey.parse(key.text) == key
    if kind.is_shared:
        assert key.kind.is_shared
        assert key.kind is not SessionKind.MAIN
    else:
        assert key.kind in (SessionKind.MAIN, SessionKind.DIRECT)
    assert (key.thread is not None) == bool(thread)


@given(NAMES, NAMES, st.one_of(st.none(), NAMES), st.one_of(st.none(), NAMES))
def test_two_groups_never_share_a_session(one: str, two: str, in_one: str | None, in_two: str | None) -> None:
    def key(peer: str, thread: str | None) -> SessionKey:
        return session_of(MAIN, Origin("http", "a", PeerKind.GROUP, peer, thread=thread), SessionRules())

    def plain(text: str | None) -> str:
        return (text or "").strip().lower()

    if (plain(one), plain(in_one), bool(in_one)) != (plain(two), plain(in_two), bool(in_two)):
        assert key(one, in_one) != key(two, in_two)


def test_a_rule_that_denies_sending_wins() -> None:
    policy = decode(
        SendPolicySettings,
        {
            "default": "allow",
            "rules": [
                {"action": "allow", "match": {"channel": "http"}},
                {"action": "deny", "match": {"chatType": "group", "keyPrefix": "http:group:secret"}},
            ],
        },
    )
    secret = SessionKey.parse("agent:main:http:group:secret-room")
    assert not may_send(policy, secret, "http", PeerKind.GROUP)
    assert may_send(policy, SessionKey.parse("agent:main:http:group:open"), "http", PeerKind.GROUP)


@pytest.mark.parametrize("match", [{"channel": "http"}, {"rawKeyPrefix": "agent:main:http"}, {"chatType": "group"}])
def test_what_nothing_allows_follows_the_default(match: dict[str, str]) -> None:
    policy = decode(SendPolicySettings, {"default": "deny", "rules": [{"action": "allow", "match": match}]})
    assert may_send(policy, SessionKey.parse("agent:main:http:group:a"), "http", PeerKind.GROUP)
    assert not may_send(policy, SessionKey.parse("agent:work:direct:a"), "telegram", PeerKind.DIRECT)
