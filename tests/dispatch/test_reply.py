"""The visible text of an answer, as a whole and during streaming."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from retinue.dispatch.reply import ParsedReply, VisibleStream, parse_reply
from retinue.dispatch.silence import is_silent

PIECES = st.sampled_from(
    [
        "NO_REPLY",
        "no_reply",
        "NO",
        "_REPLY",
        "HEARTBEAT_OK",
        '"NO_REPLY"',
        '{"action": "NO_REPLY"}',
        "{",
        '"',
        " ",
        "  ",
        "\n",
        "\n\n",
        "\t",
        "Hello",
        "a",
        "9",
        ".",
        "`",
        "```",
        "````",
        "~~~",
        "```python\n",
        "\n```\n",
        "<think>",
        "</think>",
        "<thinking>",
        "</ thinking >",
        "<final>",
        "</final>",
        "<",
        "< b",
        "<th",
        "[",
        "[[",
        "]]",
        "]",
        "[[reply_to_current]]",
        "[[ reply_to: 42 ]]",
        "[[reply_to:",
        "[[audio_as_voice]]",
        "[[unknown]]",
        "MEDIA:",
        "MEDIA:./a.png",
        "\nMEDIA:./b c.png\n",
        "MEDIA:https://x.example/y.png",
        "I'll stay silent",
        "I’ll remain silent. ",
        "é",
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=3), max_size=12).map("".join)


def stream(text: str, cuts: list[int], **options: bool) -> tuple[str, ParsedReply]:
    """The pieces shown while `text` arrives cut at these places, and the reply at the end."""
    visible = VisibleStream(final_only=options.get("final_only", False), heartbeat=options.get("heartbeat", False))
    if options.get("reasoned"):
        visible.record_reasoning()
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    shown = [visible.feed(text[start:end]) for start, end in itertools.pairwise(places)]
    return "".join([*shown, visible.finish()]), visible.reply


@given(
    TEXTS,
    st.lists(st.integers(0, 200), max_size=10),
    st.fixed_dictionaries({name: st.booleans() for name in ("reasoned", "final_only", "heartbeat")}),
)
@example("I'll stay silent <think>x</think> NO_REPLY", [3], {"reasoned": False})
@example("NO_REPLY\nNO_REPLY hello", [9, 17], {})
@example("```\n[[reply_to_current]]\n```\n[[reply_to_current]]", [5, 30], {})
def test_streamed_pieces_are_the_text_of_the_whole_answer(text: str, cuts: list[int], options: dict[str, bool]) -> None:
    whole = parse_reply(text, **options)
    shown, reply = stream(text, cuts, **options)
    assert shown == whole.text
    assert reply == whole
    letters, reply = stream(text, list(range(len(text))), **options)
    assert letters == whole.text
    assert reply == whole


@given(TEXTS, st.booleans())
def test_a_silent_text_is_a_silent_reply(text: str, reasoned: bool) -> None:
    if is_silent(text, reasoned=reasoned):
        assert parse_reply(text, reasoned=reasoned) == ParsedReply("", silent=True)


@given(st.text(alphabet=st.characters(exclude_characters='<[`~M{"Nn'), max_size=80))
def test_plain_words_are_shown_as_they_are(text: str) -> None:
    assume(not is_silent(text))
    assert parse_reply(text) == ParsedReply(text.strip())


@pytest.mark.parametrize(
    "text",
    [
        "NO_REPLY",
        "  no_reply\n",
        "No_Reply",
        "NO_REPLY NO_REPLY\nNO_REPLY",
        '"NO_REPLY"',
        '{"action":"NO_REPLY"}',
        '{ "action" : "no_reply" }',
        "<think>They only said thanks.</think>NO_REPLY",
        "<think>a</think>\n<think>b</think>\nNO_REPLY",
        "<think>Not for me.</think> I'll stay silent here. NO_REPLY",
        "<final>NO_REPLY</final>",
        "[[reply_to_current]] NO_REPLY",
        "REPLY_SKIP",
        "reply_skip\nREPLY_SKIP",
        '{"action": "REPLY_SKIP"}',
    ],
)
def test_nothing_but_the_token_is_silence(text: str) -> None:
    reply = parse_reply(text)
    assert (reply.text, reply.silent) == ("", True)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("The report is ready.\n\nNO_REPLY", "The report is ready."),
        ("Done. NO_REPLY NO_REPLY ", "Done."),
        ("NO_REPLYHello", "Hello"),
        ("NO_REPLY9 lives", "9 lives"),
        ("NO_REPLY\n\nBut one thing:", "But one thing:"),
        ("NO_REPLY is the token for silence.", "NO_REPLY is the token for silence."),
        ("Say NO_REPLY to stay silent.", "Say NO_REPLY to stay silent."),
        ("xNO_REPLY", "xNO_REPLY"),
        ('{"action":"NO_REPLY","why":"busy"}', '{"action":"NO_REPLY","why":"busy"}'),
        ('"NO_REPLY" is quoted', '"NO_REPLY" is quoted'),
        ("I'll stay silent. NO_REPLY", "I'll stay silent."),
        ("no_replyto is a header", "no_replyto is a header"),
        ("NO", "NO"),
        ("No, thanks.", "No, thanks."),
        ("I will not say REPLY_SKIP", "I will not say REPLY_SKIP"),
        ("ANNOUNCE_SKIP", "ANNOUNCE_SKIP"),
    ],
)
def test_an_answer_that_only_contains_the_token_is_sent(text: str, shown: str) -> None:
    reply = parse_reply(text)
    assert (reply.text, reply.silent) == (shown, False)


def test_a_sentence_about_silence_counts_after_reasoning_that_came_apart() -> None:
    text = "I'll stay silent. NO_REPLY"
    assert parse_reply(text, reasoned=True).silent
    assert not parse_reply(f"I'll stay silent about {'x' * 200}. NO_REPLY", reasoned=True).silent


@pytest.mark.parametrize(
    ("delta", "shown"),
    [
        ("N", ""),
        ("NO", ""),
        ("NO_", ""),
        ("NO_REPLY", ""),
        ("Now", "Now"),
        ("REPLY_S", ""),
        ("Reply s", "Reply s"),
        ('{"act', ""),
        ('{"b', '{"b'),
    ],
)
def test_a_beginning_that_may_mean_silence_is_held_back(delta: str, shown: str) -> None:
    assert VisibleStream().feed(delta) == shown


def test_words_are_shown_while_they_come() -> None:
    visible = VisibleStream()
    assert [visible.feed(delta) for delta in ("Hel", "lo ", "wor", "ld [", "[reply_to", "_current]] again")] == [
        "Hel",
        "lo",
        " wor",
        "ld",
        "",
        " again",
    ]
    assert visible.finish() == ""
    assert visible.reply == ParsedReply("Hello world again", to_current=True)


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("[[reply_to_current]] Hello", ParsedReply("Hello", to_current=True)),
        ("Hello\n[[ reply_to_current ]]", ParsedReply("Hello", to_current=True)),
        ("[[reply_to: msg-7 ]]Hello", ParsedReply("Hello", reply_to="msg-7")),
        ("[[REPLY_TO:7]] a", ParsedReply("a", reply_to="7")),
        ("a [[audio_as_voice]] b", ParsedReply("a b", voice=True)),
        ("One\n[[audio_as_voice]]\nTwo", ParsedReply("One\nTwo", voice=True)),
        ("[[reply_to:]] x", ParsedReply("[[reply_to:]] x")),
        ("[[wiki link]] x", ParsedReply("[[wiki link]] x")),
        ("Write `[[reply_to_current]]` first.", ParsedReply("Write `[[reply_to_current]]` first.")),
        ("[[reply_to_current", ParsedReply("[[reply_to_current")),
    ],
)
def test_directives_are_obeyed_and_taken_out(text: str, reply: ParsedReply) -> None:
    assert parse_reply(text) == reply


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("Here:\nMEDIA:./plot.png\nEnjoy.", ParsedReply("Here:\nEnjoy.", media=("./plot.png",))),
        ("MEDIA: `my plot.png`", ParsedReply("", media=("my plot.png",))),
        ("  MEDIA:https://x.example/a.png", ParsedReply("", media=("https://x.example/a.png",))),
        ("MEDIA:a.png\nMEDIA:b.png", ParsedReply("", media=("a.png", "b.png"))),
        ("<final>MEDIA:a.png</final>", ParsedReply("", media=("a.png",))),
        ("See MEDIA:a.png", ParsedReply("See MEDIA:a.png")),
        ("MEDIA:", ParsedReply("MEDIA:")),
        ("MEDIA:https://x.example/a.png is where it is", ParsedReply("MEDIA:https://x.example/a.png is where it is")),
        ("```\nMEDIA:a.png\n```", ParsedReply("```\nMEDIA:a.png\n```")),
        ("MEDIA:a.png\nNO_REPLY", ParsedReply("", media=("a.png",), silent=True)),
    ],
)
def test_media_lines_are_taken_out(text: str, reply: ParsedReply) -> None:
    assert parse_reply(text) == reply


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<think>secret</think>Hello", "Hello"),
        ("<thinking>a\nb</thinking>\n\nHello", "Hello"),
        ("<think>never closed", ""),
        ("<think>a<final>Hello</final>", "Hello"),
        ("<final>Hello</final>", "Hello"),
        ("Hello</think>", "Hello"),
        ("The tag `<think>` hides text.", "The tag `<think>` hides text."),
        ("```html\n<think>x</think>\n```", "```html\n<think>x</think>\n```"),
        ("````\n```\n[[reply_to_current]]\n````", "````\n```\n[[reply_to_current]]\n````"),
        ("if a <b and c> d", "if a <b and c> d"),
    ],
)
def test_reasoning_is_not_shown(text: str, shown: str) -> None:
    assert parse_reply(text).text == shown


def test_where_tags_are_demanded_only_the_final_part_is_shown() -> None:
    text = "Let me see. <think>hm</think><final>Hello</final> bye"
    assert parse_reply(text, final_only=True).text == "Hello"
    assert parse_reply("No tags at all", final_only=True).text == "No tags at all"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("HEARTBEAT_OK", ""),
        ("**HEARTBEAT_OK**", ""),
        ("<b>HEARTBEAT_OK</b>.", ""),
        ("HEARTBEAT_OK — all quiet", ""),
        ("All quiet.\nHEARTBEAT_OK!", ""),
        ("HEARTBEAT_OK " + "x" * 300, ""),
        ("HEARTBEAT_OK " + "x" * 301, "x" * 301),
        ("x" * 301 + "\n`HEARTBEAT_OK`", "x" * 301),
        ("The word HEARTBEAT_OK stands in the middle.", "The word HEARTBEAT_OK stands in the middle."),
        ("HEARTBEAT_OKAY", "HEARTBEAT_OKAY"),
        ("The disk is full.", "The disk is full."),
        ("NO_REPLY", ""),
        ("", ""),
    ],
)
def test_a_heartbeat_that_only_acknowledges_is_not_sent(text: str, shown: str) -> None:
    reply = parse_reply(text, heartbeat=True)
    assert reply.text == shown
    assert reply.silent == (not shown and bool(text))


def test_the_room_beside_an_acknowledgement_can_be_set() -> None:
    assert parse_reply("HEARTBEAT_OK all good", heartbeat=True, ack_max_chars=3).text == "all good"


def test_a_chat_may_talk_about_the_heartbeat_token() -> None:
    assert parse_reply("HEARTBEAT_OK means all is well.").text == "HEARTBEAT_OK means all is well."


@pytest.mark.slow
def test_long_runs_of_markup_characters_come_through() -> None:
    visible = VisibleStream()
    for text in (" " * 50_000, "<" * 50_000, "[" * 50_000, "\n" * 50_000, "```" * 20_000):
        for start in range(0, len(text), 1000):
            visible.feed(text[start : start + 1000])
    visible.finish()
    assert visible.reply.text.count("<") == 50_000
