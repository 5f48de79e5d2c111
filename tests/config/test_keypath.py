"""Names of keys, from text to steps and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.config.keypath import Matching, Segment, format_key_path, locate, parse_path
from retinue.core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("agents.defaults.workspace", ("agents", "defaults", "workspace")),
        ("agents.list[0].id", ("agents", "list", 0, "id")),
        ("agents.list[id=work].workspace", ("agents", "list", Matching("id", "work"), "workspace")),
        ('models["openai/gpt-5.1"].alias', ("models", "openai/gpt-5.1", "alias")),
        ("models['it\\'s']", ("models", "it's")),
        ("session.identityLinks.alice-b", ("session", "identityLinks", "alice-b")),
        ("plugins.entries[id='x y']", ("plugins", "entries", Matching("id", "x y"))),
    ],
)
def test_reads_paths(text: str, path: tuple[Segment, ...]) -> None:
    assert parse_path(text) == path


@given(st.lists(st.text(min_size=1) | st.integers(0, 999), min_size=1))
def test_spelling_reads_back(path: list[Segment]) -> None:
    assert parse_path(format_key_path(path)) == tuple(path)


@pytest.mark.parametrize("text", ["", ".a", "a..b", "a.", "a[", "a[]", "a[x]", "a]b", "a b", 'a["x]', "a[0]b"])
def test_refuses_what_is_no_path(text: str) -> None:
    with pytest.raises(UsageError):
        parse_path(text)


def test_finds_the_item_that_matches() -> None:
    data = {"list": [{"id": "main"}, {"id": "work"}]}
    assert locate(parse_path("list[id=work].name"), data) == ("list", 1, "name")
    with pytest.raises(UsageError, match="No item of list has id 'home'"):
        locate(parse_path("list[id=home]"), data)
