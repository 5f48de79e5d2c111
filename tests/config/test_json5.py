"""Reading JSON5: the whole language, positions, and errors that can be acted on."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import json5
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from retinue.config.json5 import MAX_DEPTH, Json5Error, is_blank, parse
from retinue.config.json5_tree import Object
from tests.examples import examples

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)

EVERYTHING = """\
// a comment at the top
{
  unquoted: 'single \\'quotes\\'', "quoted": "and \\"double\\"",
  $dollar_1: true, 'with space': null, ünï: false, \\u0061bc: 1,
  /* block
     comment */
  hex: 0xDECAF, negHex: -0x10, lead: .5, trail: 5., plus: +1, exp: 1e3, both: -.25E-2,
  inf: Infinity, ninf: -Infinity, // trailing
  continued: 'one \\
two', escapes: '\\x41\\u00e9\\n\\t\\v\\0\\q\\uD83D\\uDE00',
  list: [1, 'two', [3,], {},],
}
"""


def test_reads_all_of_json5() -> None:
    assert parse(EVERYTHING).value == {
        "unquoted": "single 'quotes'",
        "quoted": 'and "double"',
        "$dollar_1": True,
        "with space": None,
        "ünï": False,
        "abc": 1,
        "hex": 0xDECAF,
        "negHex": -16,
        "lead": 0.5,
        "trail": 5.0,
        "plus": 1,
        "exp": 1000.0,
        "both": -0.0025,
        "inf": math.inf,
        "ninf": -math.inf,
        "continued": "one two",
        "escapes": "Aé\n\t\v\0q😀",
        "list": [1, "two", [3], {}],
    }


def test_agrees_with_another_parser_on_everything() -> None:
    text = EVERYTHING.replace("\\uD83D\\uDE00", "")  # the other one leaves the two halves apart
    assert parse(text).value == json5.loads(text)


def test_nan_is_a_number() -> None:
    value = parse("[NaN, -NaN]").value
    assert isinstance(value, list)
    assert all(isinstance(number, float) and math.isnan(number) for number in value)


@given(VALUES)
def test_json_round_trips(value: Any) -> None:
    assert parse(json.dumps(value)).value == value
    assert parse(json.dumps(value, ensure_ascii=False, indent=2)).value == value


@given(VALUES)
@example({"\0¹": None})
@settings(max_examples=examples(40), deadline=None)
def test_agrees_with_another_parser(value: Any) -> None:
    text = json5.dumps(value, trailing_commas=True, indent=1, ensure_ascii=False)
    assume(not re.search(r"\\0[0-9]", text))  # a NUL before a digit, which the other one may not write so
    assert parse(text).value == json5.loads(text)


@given(st.text(alphabet="{}[]:,'\"\\/*ab01.+-eEx \n\r\u2028", max_size=12))
@settings(max_examples=examples(300), deadline=None)
def test_accepts_and_refuses_the_same_texts_as_another_parser(text: str) -> None:
    try:
        expected = json5.loads(text)
    except ValueError:
        with pytest.raises(Json5Error):
            parse(text)
    else:
        assert parse(text).value == expected


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_with_a_position(text: str) -> None:
    error = _refusal(text)
    if error is not None:
        assert 1 <= error.line <= text.count("\n") + text.count("\r") + 1
        assert str(error).startswith(f"{error.line}:{error.column}: ")


def _refusal(text: str) -> Json5Error | None:
    try:
        parse(text)
    except Json5Error as error:
        return error
    return None


def test_knows_line_and_column_of_keys_and_values() -> None:
    document = parse('{\n  // why\n  a: 1,\r\n  "b": {\n\tc: [true]\n  }\n}')
    assert isinstance(document.root, Object)
    a, b = document.root.members
    assert document.position(a.start) == (3, 3)
    assert document.position(a.value.start) == (3, 6)
    assert document.position(b.start) == (4, 3)
    assert isinstance(b.value, Object)
    assert document.position(b.value.members[0].start) == (5, 2)
    assert [comment.text for comment in document.comments] == ["// why"]


def test_a_byte_order_mark_is_no_column() -> None:
    document = parse("\ufeff{a: 1}")
    assert document.value == {"a": 1}
    assert document.position(document.root.start) == (1, 1)


def test_carriage_returns_count_as_lines() -> None:
    with pytest.raises(Json5Error) as caught:
        parse("{\r\na: 1,\r\nb: }\r\n")
    assert str(caught.value) == "3:4: found '}', expected a value"


def test_duplicate_keys_are_known_and_the_last_counts() -> None:
    document = parse("{a: 1, b: 2,\n a: 3}")
    assert document.value == {"a": 3, "b": 2}
    assert [(member.key, document.position(member.start)) for member in document.overridden] == [("a", (1, 2))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1:1: found the end of the file, expected a value"),
        ("agents:\n  defaults:\n", "1:1: found 'agents', expected a value (text needs quotes)"),
        ("{a: yes}", "1:5: found 'yes', expected a value (text needs quotes)"),
        ("{a 1}", "1:4: found '1', expected ':' after the key 'a'"),
        ("{gpt-5: 1}", "1:5: found '-5', expected ':' after the key 'gpt'; a key with such a character needs quotes"),
        ("{a: 1 b: 2}", "1:7: found 'b', expected ',' or '}'"),
        ("{a: 1,, b: 2}", "1:7: found ',', expected a key or '}'"),
        ("[1 2]", "1:4: found '2', expected ',' or ']'"),
        (
            "{\n  a: {\n    b: 1,\n",
            "4:1: found the end of the file, expected a key or '}' (the '{' of 2:6 is not closed)",
        ),
        ("{a: 1", "1:6: found the end of the file, expected ',' or '}' (the '{' of 1:1 is not closed)"),
        ("{a: 'x\n'}", "1:5: this string has no end before the end of the line, expected '"),
        ('{a: "x', '1:5: this string has no end before the end of the file, expected "'),
        ("{a: 1} b", "1:8: found 'b' after the end of the value, expected the end of the file"),
        ("{a: 012}", "1:5: found '012', expected a number or a text in quotes"),
        ("{a: 10s}", "1:5: found '10s', expected a number or a text in quotes"),
        ("{a: 1 /* x", "1:7: a comment starts here and never ends, expected '*/'"),
        (r"{a: '\u12'}", r"1:6: '\u' without its digits, expected 4 hexadecimal ones"),
        (r"{a: '\1'}", r"1:6: '\1' is not an escape, expected '\x' and two hexadecimal digits"),
        (r"{a: '\uD800'}", "1:5: this string holds half a '\\u' pair, expected both halves"),
        ("{1: 2}", "1:2: found '1', expected a key"),
        ("\x00\x01", "1:1: found '\\x00\\x01', expected a value"),
        ("1" * 401, "1:1: a number of 401 characters, expected at most 400"),
    ],
)
def test_errors_say_where_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(Json5Error) as caught:
        parse(text)
    assert str(caught.value) == message


def test_nesting_is_limited() -> None:
    assert parse("[" * MAX_DEPTH + "]" * MAX_DEPTH).value is not None
    with pytest.raises(Json5Error, match="levels of nesting"):
        parse("[" * 100_000 + "]" * 100_000)


@pytest.mark.parametrize(("text", "blank"), [("", True), ("\ufeff \n// x\n/* y */", True), ("{}", False), ("x", False)])
def test_blank_means_nothing_but_space_and_comments(text: str, blank: bool) -> None:
    assert is_blank(text) is blank
