"""Session keys: parsing, kinds and canonical form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from retinue.core.errors import UsageError
from retinue.core.keys import AgentId, SessionKey, SessionKind, parse_agent_id

KINDS = "main heartbeat boot cron run subagent hook direct dm group channel thread topic explicit dashboard agent"
NAMES = "telegram Discord -100123 @Ada !room ideas İ ΑΣ"
WORDS = st.sampled_from([*KINDS.split(), *NAMES.split()])
PARTS = st.lists(WORDS | st.text(min_size=1, max_size=4), min_size=1, max_size=7)


@given(PARTS, st.sampled_from(["main", "work", "a-b_c"]))
def test_a_key_reads_back_as_itself(parts: list[str], agent: str) -> None:
    text = ":".join(["agent", agent, *parts])
    try:
        key = SessionKey.parse(text)
    except UsageError:
        return
    again = SessionKey.parse(str(key))
    assert astuple(again) == astuple(key)
    assert key.agent == agent
    assert key.text.startswith(f"agent:{agent}:")


@pytest.mark.parametrize(
    ("text", "kind", "channel", "account", "peer", "thread"),
    [
        ("agent:main:main", SessionKind.MAIN, None, None, None, None),
        ("agent:main:main:thread:7", SessionKind.MAIN, None, None, None, "7"),
        ("agent:main:heartbeat", SessionKind.HEARTBEAT, None, None, None, None),
        ("agent:main:main:heartbeat", SessionKind.HEARTBEAT, None, None, "heartbeat", None),
        ("agent:main:boot", SessionKind.BOOT, None, None, None, None),
        ("agent:main:subagent:u1", SessionKind.SUBAGENT, None, None, "u1", None),
        ("agent:main:subagent:u1:subagent:u2", SessionKind.SUBAGENT, None, None, "u2", None),
        ("agent:main:subagent:u1:thread:5", SessionKind.SUBAGENT, None, None, "u1", "5"),
        ("agent:main:cron:job", SessionKind.CRON, None, None, "job", None),
        ("agent:main:cron:job:run:r1", SessionKind.CRON, None, None, "job", None),
        ("agent:main:hook:u9", SessionKind.HOOK, None, None, "u9", None),
        ("agent:main:direct:ada", SessionKind.DIRECT, None, None, "ada", None),
        ("agent:main:telegram:direct:42", SessionKind.DIRECT, "telegram", None, "42", None),
        ("agent:main:telegram:bot2:direct:42", SessionKind.DIRECT, "telegram", "bot2", "42", None),
        ("agent:main:telegram:group:-100:thread:9", SessionKind.GROUP, "telegram", None, "-100", "9"),
        ("agent:main:slack:channel:c1", SessionKind.CHANNEL, "slack", None, "c1", None),
        ("agent:main:matrix:group:!r:example.org", SessionKind.GROUP, "matrix", None, "!r:example.org", None),
        ("agent:main:ideas", SessionKind.EXPLICIT, None, None, "ideas", None),
        ("agent:main:explicit:ideas", SessionKind.EXPLICIT, None, None, "ideas", None),
        ("agent:main:dashboard:u3", SessionKind.EXPLICIT, None, None, "u3", None),
        ("agent:main:global", SessionKind.EXPLICIT, None, None, "global", None),
    ],
)
def test_every_form_says_what_it_is(
    text: str, kind: SessionKind, channel: str | None, account: str | None, peer: str | None, thread: str | None
) -> None:
    key = SessionKey.parse(text)
    assert str(key) == text
    assert (key.kind, key.channel, key.account, key.peer, key.thread) == (kind, channel, account, peer, thread)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("agent:main:telegram:dm:42", "agent:main:telegram:direct:42"),
        ("agent:main:dm:42", "agent:main:direct:42"),
        ("agent:main:telegram:group:5:topic:9", "agent:main:telegram:group:5:thread:9"),
        ("  Agent:Main:Telegram:Direct:Ada ", "agent:main:telegram:direct:ada"),
        ("ideas", "agent:main:ideas"),
        ("main", "agent:main:main"),
    ],
)
def test_other_spellings_become_the_canonical_one(written: str, canonical: str) -> None:
    assert SessionKey.parse(written) == SessionKey.parse(canonical)
    assert str(SessionKey.parse(written)) == canonical


def test_a_bare_name_belongs_to_the_agent_that_is_asked() -> None:
    assert str(SessionKey.parse("ideas", default_agent=AgentId("work"))) == "agent:work:ideas"


def test_a_hook_has_no_agent_in_its_name() -> None:
    key = SessionKey.parse("hook:u1", default_agent=AgentId("work"))
    assert (str(key), key.kind, key.agent) == ("hook:u1", SessionKind.HOOK, "work")


@pytest.mark.parametrize(
    "text",
    [
        "agent:main:telegram:group:5",
        "agent:main:telegram:bot:group:5",
        "agent:main:group:direct:5",
        "agent:main:matrix:channel:!a:b:c:d",
        "agent:main:telegram:group:5:thread:6",
        "agent:main:telegram:group:5:heartbeat",
    ],
)
def test_where_others_read_along_the_key_says_so(text: str) -> None:
    assert SessionKey.parse(text).kind.is_shared


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "agent:", "agent:main", "agent:main:", "agent:Ma in:x", "agent:../x:main", "a b", "a:b", "x\x00"),
        *("agent:main:a\u202eb", f"agent:main:{chr(0xD800)}", "agent:main:" + "x" * 201),
    ],
)
def test_what_is_no_key_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError, match=r"Use a name|looks like|Use letters"):
        SessionKey.parse(text)


@pytest.mark.parametrize(("text", "agent"), [("Main", "main"), (" work-2 ", "work-2"), ("0_a", "0_a")])
def test_agent_ids_are_lower_case(text: str, agent: str) -> None:
    assert parse_agent_id(text) == agent


@pytest.mark.parametrize("text", ["", "-a", "a/b", "..", "ä", "a" * 65])
def test_an_agent_id_cannot_lead_out_of_its_folder(text: str) -> None:
    with pytest.raises(UsageError):
        parse_agent_id(text)


def test_keys_with_the_same_text_are_the_same_key() -> None:
    one, other = SessionKey.parse("hook:mail"), SessionKey.parse("hook:mail", default_agent=AgentId("research"))
    assert one == other
    assert (one != other) is False
    assert hash(one) == hash(other)
    assert one != SessionKey.parse("hook:post")
    assert one != "hook:mail"
