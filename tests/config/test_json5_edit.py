"""Editing JSON5: only the touched bytes change, and comments survive."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.config.json5 import parse
from retinue.config.json5_edit import set_in, unset_in
from retinue.config.json5_tree import Array, Node, Object
from retinue.config.keypath import Step
from retinue.core.errors import ConfigError
from tests.examples import examples

SAMPLE = """\
// Retinue
{
  // who answers
  agents: {
    defaults: { model: 'openai/gpt-5', bootstrapMaxChars: 20000 }, // inline
    list: [
      { id: 'main' },
      { id: 'work', workspace: '~/work' }, // second
    ],
  },
  /* commands */
  commands: {},
}
"""


def test_replaces_a_value_and_nothing_else() -> None:
    edited = set_in(SAMPLE, ["agents", "defaults", "bootstrapMaxChars"], 5)
    assert edited == SAMPLE.replace("20000", "5")


def test_keeps_the_quotes_of_a_replaced_string() -> None:
    assert set_in("{a: \"x\", b: 'y'}", ["a"], "it's") == "{a: \"it's\", b: 'y'}"
    assert set_in("{a: \"x\", b: 'y'}", ["b"], "a \"b\" 'c'") == "{a: \"x\", b: 'a \"b\" \\'c\\''}"


def test_the_same_value_leaves_the_text_alone() -> None:
    assert set_in("{a: 0x10}", ["a"], 16) == "{a: 0x10}"
    assert set_in("{a: 1}", ["a"], True) == "{a: true}"


def test_a_new_key_of_an_inline_object_stays_on_the_line() -> None:
    edited = set_in(SAMPLE, ["agents", "defaults", "timeFormat"], "24")
    assert "defaults: { model: 'openai/gpt-5', bootstrapMaxChars: 20000, timeFormat: '24' }, // inline" in edited


def test_a_new_key_goes_behind_the_comment_of_the_last_one() -> None:
    edited = set_in("{\n  a: 1 // one\n}\n", ["b"], 2)
    assert edited == "{\n  a: 1, // one\n  b: 2\n}\n"


def test_a_new_key_follows_the_style_of_its_neighbours() -> None:
    text = '{\r\n\t"a": {\r\n\t\t"b": 1\r\n\t}\r\n}\r\n'
    edited = set_in(text, ["a", "c", "d"], ["x"])
    assert edited == '{\r\n\t"a": {\r\n\t\t"b": 1,\r\n\t\t"c": {\r\n\t\t\t"d": ["x"]\r\n\t\t}\r\n\t}\r\n}\r\n'


def test_an_empty_object_opens_up() -> None:
    assert "  commands: {\n    text: false\n  },\n" in set_in(SAMPLE, ["commands", "text"], False)
    assert set_in("{\n  // nothing yet\n}", ["a"], 1) == "{\n  // nothing yet\n  a: 1\n}"


def test_appends_to_a_list() -> None:
    edited = set_in(SAMPLE, ["agents", "list", 2], {"id": "home"})
    assert "{ id: 'work', workspace: '~/work' }, // second\n      {\n        id: 'home'\n      },\n    ]," in edited


def test_an_empty_text_becomes_an_object() -> None:
    assert set_in("", ["a", "b"], 1) == "{\n  a: {\n    b: 1\n  }\n}\n"
    assert set_in("// mine", ["a"], 1) == "// mine\n{\n  a: 1\n}\n"
    assert set_in("\ufeff", ["a"], 1) == "\ufeff{\n  a: 1\n}\n"


def test_a_key_that_is_no_name_is_quoted() -> None:
    assert set_in("{\n  a: 'x',\n}", ["openai/gpt-5"], 1) == "{\n  a: 'x',\n  'openai/gpt-5': 1,\n}"


def test_removes_a_line_and_keeps_the_comments_around_it() -> None:
    edited = unset_in(SAMPLE, ["agents", "list"])
    assert "list" not in edited
    assert "second" not in edited
    assert edited.count("//") == 3
    assert unset_in("{\n  a: 1, // one\n  b: 2\n}", ["a"]) == "{\n  // one\n  b: 2\n}"
    assert unset_in("{\n  a: 1,\n  b: 2\n}", ["b"]) == "{\n  a: 1\n}"


def test_removes_from_one_line() -> None:
    assert unset_in("{ a: 1, b: 2, c: 3 }", ["a"]) == "{ b: 2, c: 3 }"
    assert unset_in("{ a: 1, b: 2, c: 3 }", ["b"]) == "{ a: 1, c: 3 }"
    assert unset_in("{ a: 1, b: 2, c: 3 }", ["c"]) == "{ a: 1, b: 2 }"
    assert unset_in("[1,2,3]", [2]) == "[1,2]"


def test_removes_every_twin_of_a_key() -> None:
    assert unset_in("{a: 1, b: 2, a: 3}", ["a"]) == "{b: 2}"


def test_removing_what_is_not_there_changes_nothing() -> None:
    assert unset_in(SAMPLE, ["nothing"]) == SAMPLE
    assert unset_in(SAMPLE, ["nothing", "below"]) == SAMPLE


def test_the_last_twin_is_the_one_that_is_set() -> None:
    assert parse(set_in("{a: 1, a: 2}", ["a"], 3)).value == {"a": 3}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (["agents", "defaults", "model", "primary"], "agents.defaults.model is a single value"),
        (["agents", "list", 7], r"agents.list has 2 items; the next one is \[2\]"),
        (["agents", "list", "work"], r"agents.list is a list; name an item by its index"),
        (["commands", 0], "commands is an object"),
        (["new", 3], r"its first item is \[0\], not \[3\]"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(path: list[Step], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        set_in(SAMPLE, path, 1)


KEYS = st.sampled_from(["a", "b", "c d", "é", "f/g"])
SCALARS = st.none() | st.booleans() | st.integers(-9, 99) | st.floats(allow_nan=False) | st.text(max_size=6)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
GAPS = st.sampled_from(["", " ", "\n  ", "  ", "/*{}*/", " /* {} */ ", " // {},\n", "\n// {}\n  ", "\r\n\t"])


@dataclass
class Writer:
    """Writes a value as JSON5 with arbitrary space and numbered comments at every place they may stand."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    count: int = 0

    def gap(self) -> str:
        gap: str = self.draw(GAPS)
        self.count += 1
        return gap.replace("{}", f"note {self.count}")

    def write(self, value: Any) -> str:
        if isinstance(value, dict):
            elements = [f"{self.key(key)}{self.gap()}:{self.gap()}{self.write(each)}" for key, each in value.items()]
            return self.container("{}", elements)
        if isinstance(value, list):
            return self.container("[]", [self.write(each) for each in value])
        quote = self.draw(st.sampled_from("'\""))
        holder = set_in(f"{{x: {quote}{quote}}}", ["x"], value)
        return holder[len("{x: ") : -1]

    def key(self, key: str) -> str:
        bare = key.isalpha() and self.draw(st.booleans())
        return key if bare else f'"{key}"'

    def container(self, brackets: str, elements: list[str]) -> str:
        inside = ",".join(f"{self.gap()}{element}{self.gap()}" for element in elements)
        comma = "," if elements and self.draw(st.booleans()) else ""
        return f"{brackets[0]}{inside}{comma}{self.gap()}{brackets[1]}"


@st.composite
def texts(draw: st.DrawFn) -> str:
    writer = Writer(draw)
    value = draw(st.dictionaries(KEYS, VALUES, max_size=3))
    return f"{writer.gap()}{writer.write(value)}{writer.gap()}"


@st.composite
def paths(draw: st.DrawFn, value: Any) -> list[Step]:
    path: list[Step] = []
    while isinstance(value, (dict, list)) and (not path or draw(st.booleans())):
        step: Step = draw(st.integers(0, len(value))) if isinstance(value, list) else draw(KEYS)
        path.append(step)
        known = step in value if isinstance(value, dict) else int(step) < len(value)
        if not known:
            break
        value = value[step]  # type: ignore[index]
    return path


def expect(value: Any, path: list[Step], new: Any) -> Any:
    value = copy.deepcopy(value)
    target = value
    for step in path[:-1]:
        target = target[step]
    if isinstance(target, list) and path[-1] == len(target):
        target.append(new)
    else:
        target[path[-1]] = new
    return value


def comments_outside(text: str, path: list[Step]) -> list[str]:
    """The comments that an edit at `path` may not lose: all but those inside the value that goes."""
    document = parse(text)
    node: Node | None = document.root
    for step in path:
        if isinstance(node, Object) and isinstance(step, str):
            member = node.member(step)
            node = member.value if member else None
        elif isinstance(node, Array) and isinstance(step, int):
            node = node.items[step] if step < len(node.items) else None
    if node is None:
        return [comment.text for comment in document.comments]
    return [each.text for each in document.comments if not node.start <= each.start < node.end]


@given(st.data(), texts(), VALUES)
@settings(max_examples=examples(100), deadline=None)
def test_setting_changes_one_value_and_keeps_the_comments(data: st.DataObject, text: str, new: Any) -> None:
    value = parse(text).value
    path = data.draw(paths(value))
    edited = parse(set_in(text, path, new))
    assert edited.value == expect(value, path, new)
    if edited.text != text:
        assert [each.text for each in edited.comments] == comments_outside(text, path)


@given(st.data(), texts())
@settings(max_examples=examples(100), deadline=None)
def test_unsetting_removes_one_value_and_keeps_the_comments(data: st.DataObject, text: str) -> None:
    value = parse(text).value
    path = data.draw(paths(value))
    edited = parse(unset_in(text, path))
    expected = copy.deepcopy(value)
    target: Any = expected
    for step in path[:-1]:
        target = target[step]
    if isinstance(target, dict) or int(path[-1]) < len(target):
        target.pop(path[-1], None) if isinstance(target, dict) else target.pop(path[-1])
    assert edited.value == expected
    assert [each.text for each in edited.comments] == comments_outside(text, path)
