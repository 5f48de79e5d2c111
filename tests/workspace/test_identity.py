"""What IDENTITY.md says about the agent."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.storage.files import Root
from retinue.workspace.identity import FACTS, AgentIdentity, parse_identity, read_identity


def test_front_matter_gives_the_facts() -> None:
    facts = "name: Logic\nemoji: 🤖\ncreature: AI assistant\nvibe: sharp, precise\ntheme: dark\navatar: ./avatar.png\n"
    text = f"---\n{facts}---\n"
    assert parse_identity(text) == AgentIdentity("Logic", "🤖", "AI assistant", "sharp, precise", "dark", "avatar.png")


def test_list_lines_give_the_facts() -> None:
    text = (
        "# Me\n\n- **Name:** Ada\n* Creature: a crab\n- __Vibe__: calm\n+ **Emoji**: 🦀\n- **Age:** 3\n- Name: second\n"
    )
    assert parse_identity(text) == AgentIdentity(name="Ada", creature="a crab", vibe="calm", emoji="🦀")


def test_front_matter_wins_over_lines() -> None:
    assert parse_identity("---\nName: Front\n---\n- Name: Line\n- Vibe: calm").name == "Front"


@pytest.mark.parametrize("value", ["", "  ", "(pick one)", "_(to be decided)_", "…", "—", "[your name]", "?"])
def test_a_placeholder_is_no_fact(value: str) -> None:
    assert parse_identity(f"- **Name:** {value}\n").name is None


def test_values_of_other_types_are_spelled() -> None:
    identity = parse_identity("---\nname: 42\nvibe: [sharp, precise]\ntheme: {a: b}\nemoji: null\n---\n")
    assert identity == AgentIdentity(name="42", vibe="sharp, precise")


def test_hidden_characters_and_length_are_removed() -> None:
    identity = parse_identity('---\nname: "A\\u202Ed\\u0007a\\u2028\\nx"\nvibe: ' + "v" * 999 + "\n---\n")
    assert identity.name == "Ad a x"
    assert identity.vibe == "v" * 200


def test_a_joined_emoji_stays_whole() -> None:
    assert parse_identity("- Emoji: 👩‍💻").emoji == "👩‍💻"


@pytest.mark.parametrize(
    ("avatar", "kept"),
    [
        ("pics/me.png", "pics/me.png"),
        ("./me.png", "me.png"),
        ("https://example.org/me.png", "https://example.org/me.png"),
        ("data:image/png;base64,AAAA", "data:image/png;base64,AAAA"),
        ("/ws/pics/me.png", "pics/me.png"),
        ("../me.png", None),
        ("/etc/passwd", None),
        ("/ws/../etc/passwd", None),
        ("javascript:alert(1)", None),
        ("file:///etc/passwd", None),
        ("data:text/html,x", None),
        ("https://" + "x" * 3000, None),
        (".", None),
    ],
)
def test_an_avatar_is_inside_the_workspace_or_on_the_web(avatar: str, kept: str | None) -> None:
    assert parse_identity(f"---\navatar: '{avatar}'\n---\n", workspace=Path("/ws")).avatar == kept


def test_broken_front_matter_is_a_problem_and_the_lines_still_count() -> None:
    identity = parse_identity("---\nname: [\n---\n- Name: Ada")
    assert identity.name == "Ada"
    assert identity.problem
    assert "front matter was not read" in identity.problem


def test_reading_a_workspace(root: Root) -> None:
    assert read_identity(root) == AgentIdentity()
    root.write("IDENTITY.md", b"\xef\xbb\xbf- Name: Ada\n")
    assert read_identity(root).name == "Ada"
    root.remove("IDENTITY.md")
    (root.path / "IDENTITY.md").mkdir()
    assert read_identity(root).problem


@given(st.text(max_size=200))
def test_any_text_gives_one_line_facts(text: str) -> None:
    identity = parse_identity(f"---\nname: x\n---\n- vibe: {text}\n{text}")
    for name in FACTS:
        value = getattr(identity, name)
        assert (
            value is None or (value == value.strip() and value.isprintable() and "\n" not in value) or "\u200d" in value
        )
