"""The names people type to start a skill."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.skills.catalog import derive_name, name_commands
from tests.skills.builders import make_skill


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("github", "github"),
        ("Pdf-Tools", "pdf_tools"),
        ("a  --  b__c", "a_b_c"),
        ("_private_", "private"),
        ("日本語", "skill"),
        ("", "skill"),
        ("x" * 50, "x" * 32),
        ("x" * 31 + "-y", "x" * 31),
    ],
)
def test_names(name: str, command: str) -> None:
    assert derive_name(name) == command


def test_equal_names_are_numbered_in_order() -> None:
    skills = [make_skill("a-b"), make_skill("a_b"), make_skill("A B"), make_skill("help")]
    commands = name_commands(skills, reserved=["help", "/new"])
    assert [command.name for command in commands] == ["a_b", "a_b_2", "a_b_3", "help_2"]
    assert [command.skill for command in commands] == skills


def test_a_numbered_name_is_not_too_long() -> None:
    commands = name_commands([make_skill("x" * 40), make_skill("x" * 41)])
    assert [command.name for command in commands] == ["x" * 32, "x" * 30 + "_2"]


def test_skills_that_people_may_not_start_have_no_command() -> None:
    assert name_commands([make_skill(user_invocable=False)]) == ()


def test_descriptions_are_short() -> None:
    short, long = name_commands([make_skill("a", description="d" * 100), make_skill("b", description="d" * 101)])
    assert short.description == "d" * 100
    assert long.description == "d" * 99 + "…"


@given(st.lists(st.text("ab-_ é", max_size=40), max_size=20), st.lists(st.sampled_from(["a", "b", "a_b", "skill"])))
def test_names_are_valid_and_unique(names: list[str], reserved: list[str]) -> None:
    made = [command.name for command in name_commands(map(make_skill, names), reserved=reserved)]
    assert len(set(made)) == len(made)
    assert not set(made) & set(reserved)
    assert all(re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", name) and len(name) <= 32 for name in made)
