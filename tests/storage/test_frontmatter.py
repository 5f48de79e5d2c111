"""Front matter is plain data or an error with a line."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from retinue.storage.frontmatter import (
    MAX_BYTES,
    FrontMatterError,
    YamlValue,
    parse_simple_yaml,
    parse_with_pyyaml,
    parse_yaml,
    split_front_matter,
)


@pytest.fixture(params=["C", "Python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "C" and not hasattr(yaml, "CSafeLoader"):
        pytest.skip("PyYAML was built without libyaml")
    if request.param == "Python":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    return str(request.param)


@pytest.mark.parametrize(
    ("text", "front", "body"),
    [
        ("---\na: 1\n---\nbody\n", "a: 1\n", "body\n"),
        ("\ufeff---\r\na: 1\r\n---\r\nbody", "a: 1\r\n", "body"),
        ("---  \na: 1\n...\nbody", "a: 1\n", "body"),
        ("---\n---\nbody", "", "body"),
        ("---\na: 1\n---", "a: 1\n", ""),
        ("---\na: 1\nno end", None, "---\na: 1\nno end"),
        ("text\n---\na: 1\n---\n", None, "text\n---\na: 1\n---\n"),
        ("----\na: 1\n----\n", None, "----\na: 1\n----\n"),
        ("", None, ""),
    ],
)
def test_splitting(text: str, front: str | None, body: str) -> None:
    assert split_front_matter(text) == (front, body)


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: plain words", "plain words"),
        ("a: 42", 42),
        ("a: -7", -7),
        ("a: 0x1F", 31),
        ("a: 0o17", 15),
        ("a: 1.5", 1.5),
        ("a: 1e3", 1000.0),
        ("a: true", True),
        ("a: False", False),
        ("a: ~", None),
        ("a:", None),
        ("a: yes", "yes"),
        ("a: on", "on"),
        ("a: 2024-01-31", "2024-01-31"),
        ("a: 12:30:45", "12:30:45"),
        ("a: 1_000", "1_000"),
        ("a: 1e999", "1e999"),
        ("a: .inf", ".inf"),
        ("a: 99999999999999999999999", 1e23),
        ('a: "42"', "42"),
        ("a: 'true'", "true"),
        ("a: [1, two, [3]]", [1, "two", [3]]),
        ("a: {b: 1, c: {d: x}}", {"b": 1, "c": {"d": "x"}}),
        ("a:\n  - x\n  - y", ["x", "y"]),
        ("a: |\n  one\n  two\n", "one\ntwo\n"),
        ("a: >\n  one\n  two\n", "one two\n"),
        ("a: '<<'", "<<"),
        ("a: 日本語 🦀", "日本語 🦀"),
    ],
)
def test_values(text: str, value: YamlValue) -> None:
    found = parse_yaml(text)["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: 1\nb: &anchor 2", 2, "anchors"),
        ("a: *alias", 1, "aliases"),
        ("a: &x\n  b: 1", None, "anchors"),
        ("a: 1\nb: !!python/object/apply:os.system [id]", 2, "tags"),
        ("a: !local 1", 1, "tags"),
        ("a: ! 1", 1, "tags"),
        ("!!map\na: 1", 1, "tags"),
        ("a: 1\n---\nb: 2", 2, "second document"),
        ("a: 1\nb: 2\na: 3", 3, "occurs twice"),
        ("- a\n- b", 1, "key: value"),
        ("just words", 1, "key: value"),
        ("? [x]\n: 1", 1, "plain text"),
        ("a: [1, 2", None, "."),
        ("a: b: c", 1, "."),
        ("\ta: 1", 1, "."),
        ("a: @x", 1, "."),
        ("a: " + "[" * 25 + "]" * 25, 1, "deeper"),
        ("a:\n" + "- 1\n" * 2500, None, "more than 2,000"),
        ("a: " + "x" * MAX_BYTES, None, "larger"),
        ("a: \x00", None, "."),
        ("a: \ud800", None, "UTF-8"),
    ],
)
def test_refusals(text: str, line: int | None, problem: str) -> None:
    with pytest.raises(FrontMatterError, match=problem) as caught:
        parse_yaml(text)
    if line is not None:
        assert caught.value.line == line


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "~", "{}"])
def test_nothing_is_an_empty_mapping(text: str) -> None:
    assert parse_yaml(text) == {}


@given(st.text(max_size=300))
def test_any_text_is_data_or_an_error_of_ours(text: str) -> None:
    with suppress(FrontMatterError):
        assert isinstance(parse_yaml(text), dict)


# The dumper writes YAML 1.1, where a number such as 0E0 is text and needs no quotes.
WORDS = st.text(max_size=20).filter(lambda text: not re.fullmatch(r"[-+]?[0-9.]+[eE][-+]?[0-9]+", text))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1, max_size=8), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.slow
@given(st.dictionaries(st.text(min_size=1, max_size=8), PLAIN, max_size=5))
def test_what_is_dumped_is_read_back(data: dict[str, object]) -> None:
    dumped = yaml.safe_dump(data)
    assume("!!" not in dumped and "&" not in dumped)  # the dumper's tags and anchors are not plain YAML
    assert parse_yaml(dumped) == data


SIMPLE = """\
name: backup
description: "Read .ics calendars: agenda, slots."
metadata:
  retinue:
    emoji: "🗄️"
    always: true
    requires:
      bins:
        - python3
        - gh
    install:
      - kind: brew
        formula: gh
        bins:
          - gh
      - kind: apt
        package: gh
    empty:
license: MIT
"""

LINES = st.tuples(
    st.sampled_from(["", "  ", "    ", " "]),
    st.sampled_from(["", "- ", "a: ", "b:", "c-d: ", "true: ", "a : ", "? ", "a:", "- a: ", "- b:", "- a: "]),
    st.sampled_from(
        ["", "x", "1", "0x1f", "no", "null", "~", "it's (a) b/c", '"q: # \'"', "'s'", "x: y", "x #y", "- z", "é"]
    )
    | st.text("ab \"'\\:#-.,[]{}&*!|>%@`\t", max_size=6),
).map("".join)


def test_common_front_matter_does_not_need_pyyaml() -> None:
    simple = parse_simple_yaml(SIMPLE)
    assert simple is not None
    assert simple == parse_with_pyyaml(SIMPLE)


@given(st.lists(LINES, min_size=1, max_size=6).map("\n".join))
def test_simple_parsing_agrees_with_pyyaml(text: str) -> None:
    simple = parse_simple_yaml(text)
    if simple is not None:
        assert simple == parse_with_pyyaml(text)
        assert list(simple) == list(parse_with_pyyaml(text))
