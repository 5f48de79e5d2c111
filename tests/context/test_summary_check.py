"""A summary is taken only if it can stand for what it replaces."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.context.summary_check import (
    HEADINGS,
    MAX_IDENTIFIERS,
    check_summary,
    contains_identifier,
    find_identifiers,
    required_identifiers,
)
from retinue.core.messages import Message, said
from tests.context.builders import answers, calls, gives, words
from tests.examples import examples

IDENTIFIERS = st.one_of(
    st.builds("/srv/{}/{}.toml".format, st.from_regex(r"[a-z]{3,8}", fullmatch=True), st.integers(0, 999)),
    st.builds("https://example.org/{}".format, st.from_regex(r"[a-z]{3,8}[0-9]", fullmatch=True)),
    st.builds("PROJ-{}".format, st.integers(1, 99_999)),
    st.dates(min_value=date(1000, 1, 1)).map(date.isoformat),
    st.from_regex(r"[0-9a-f]{3}[0-9][a-f][0-9a-f]{3,10}", fullmatch=True),
    st.builds("{} ms".format, st.integers(10, 99_999)),
    st.builds("`{}`".format, st.from_regex(r"[a-z]{3,8}_[a-z]{3,8}", fullmatch=True)),
)


def minutes(*lines: str) -> str:
    """A summary with every heading, and `lines` under the last one."""
    body = "\n\n".join(f"## {heading}\n\n- none" for heading in HEADINGS)
    return body + "".join(f"\n- {line}" for line in lines)


def conversation(*facts: str, ask: str = "please deploy the service") -> list[Message]:
    return [said(words(400)), answers(f"Noted: {' ; '.join(facts)} ."), said(ask), answers("On it.")]


@pytest.mark.slow
@settings(max_examples=examples(50), deadline=None)
@given(st.lists(IDENTIFIERS, min_size=1, max_size=MAX_IDENTIFIERS, unique=True), st.data())
def test_a_removed_identifier_is_found(names: list[str], data: st.DataObject) -> None:
    messages = conversation(*names)
    required = required_identifiers(messages)
    assert required
    whole = minutes(*required, "the latest request: please deploy the service")
    assert check_summary(whole, messages) == ()
    gone = data.draw(st.sampled_from(required))
    without = minutes(*(name for name in required if name != gone), "the latest request: please deploy the service")
    if not contains_identifier(without, gone):
        assert check_summary(without, messages) == (f"'{gone}' does not appear, spelt exactly so.",)


@settings(max_examples=examples(60), deadline=None)
@given(IDENTIFIERS)
def test_every_kind_of_identifier_is_seen(name: str) -> None:
    assert find_identifiers([f"we use {name}, as agreed."]) == (name.strip("`"),)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mail ann.lee@example.org.", ("ann.lee@example.org",)),
        ("see (https://example.org/a?b=1), ok", ("https://example.org/a?b=1",)),
        ("edit ~/notes/today.md and src/retinue/core/keys.py", ("src/retinue/core/keys.py", "~/notes/today.md")),
        ("it took 12.5 s and cost €40", ("12.5 s", "€40")),
        ("he/she and/or they said 3 things", ()),
        ("the key is sk-abcdefghijklmnopqrstuvwxyz1", ()),
        ("token at https://user:hunter22@example.org/x", ()),
    ],
)
def test_identifiers(text: str, found: tuple[str, ...]) -> None:
    assert tuple(sorted(find_identifiers([text]))) == tuple(sorted(found))


def test_later_identifiers_weigh_more_than_earlier_ones() -> None:
    texts = [f"look at /old/file{at}.txt" for at in range(30)]
    assert find_identifiers(texts) == tuple(f"/old/file{at}.txt" for at in range(29, 17, -1))
    assert find_identifiers(["/old/a.txt and /old/a.txt", "hm", "hm", "/new/b.txt"]) == ("/new/b.txt", "/old/a.txt")


def test_a_part_of_an_identifier_is_not_another_one() -> None:
    assert find_identifiers(["open /srv/app.toml", "in app.toml then"]) == ("/srv/app.toml",)


def test_a_longer_word_does_not_carry_a_shorter_identifier() -> None:
    assert contains_identifier("it took 12 s", "12 s")
    assert contains_identifier("it took 12\ns", "12 s")
    assert not contains_identifier("it took 112 s", "12 s")
    assert not contains_identifier("PROJ-421", "PROJ-42")


def test_every_heading_is_required_whatever_its_level_and_case() -> None:
    messages = conversation()
    good = minutes("please deploy the service")
    assert check_summary(good.replace("## Open tasks", "# **OPEN TASKS**:"), messages) == ()
    assert check_summary(good.replace("## Open tasks", "Open tasks"), messages) == (
        "The heading '## Open tasks' is missing.",
    )


def test_a_summary_must_be_shorter_than_what_it_replaces() -> None:
    messages = conversation()
    (problem,) = check_summary(minutes("please deploy the service", words(500)), messages)
    assert problem.startswith("The summary has about 5")
    assert check_summary(minutes("deploy the service"), messages, tokens_replaced=20)
    assert "The summary is empty." in check_summary(" \n", messages)


def test_the_latest_request_must_be_mentioned() -> None:
    messages = conversation(ask="translate the contract into Portuguese")
    (problem,) = check_summary(minutes("nothing"), messages)
    assert problem == "The latest request is not mentioned: translate the contract into Portuguese"
    assert check_summary(minutes("The contract is to be translated into Portuguese."), messages) == ()
    chinese = conversation(ask="请把合同翻译成葡萄牙语")
    assert check_summary(minutes("nothing"), chinese)
    assert check_summary(minutes("把合同翻译成葡萄牙语"), chinese) == ()
    assert check_summary(minutes("nothing"), messages, asks=["and now?", "ok"]) == ()


def test_paths_in_calls_count_and_what_tools_gave_back_does_not() -> None:
    messages: list[Message] = [
        said("go"),
        calls("a", tool="read", path="/etc/hosts"),
        gives("a", "10.0.0.1 /var/noise 77 ms"),
    ]
    assert required_identifiers(messages) == ("/etc/hosts",)


def test_identifiers_of_the_summary_before_fill_what_is_left() -> None:
    assert required_identifiers(conversation("PROJ-7"), "- PROJ-3") == ("PROJ-7", "PROJ-3")
    many = conversation(*(f"PROJ-{at}" for at in range(100, 120)))
    assert "OLD-1" not in required_identifiers(many, "OLD-1")
