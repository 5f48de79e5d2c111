"""Patterns match argv word by word: nothing inside a word can reach into the next."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.errors import ConfigError
from retinue.core.keys import AgentId
from retinue.tools.shell.allowlist import ArgvPattern, CommandRules, FixedCommandRules

argvs = st.lists(st.text("ab*?\\/.- '\"\n\tü", max_size=6), min_size=1, max_size=4).filter(lambda words: words[0] != "")


def matches(pattern: str, *argv: str) -> bool:
    return ArgvPattern.parse(pattern).matches(argv)


@pytest.mark.parametrize(
    ("pattern", "argv"),
    [
        ("git diff *", ("git", "diff", "x")),
        ("git diff *", ("git", "diff", "x; id")),
        ("git diff a/*", ("git", "diff", "a/b")),
        ("git *", ("git", "a b")),
        ("git **", ("git",)),
        ("git **", ("git", "a/b", "--c", ".d")),
        ("**", ("anything", "at all")),
        ("ls -*", ("ls", "--all")),
        ("ls --sort=*", ("ls", "--sort=size")),
        ("ls ?.txt", ("ls", "a.txt")),
        ("ls .*", ("ls", ".env")),
        ("ls ..", ("ls", "..")),
        (r"ls \*", ("ls", "*")),
        ("ls '*' \"a b\" ''", ("ls", "*", "a b", "")),
        ("/opt/*/bin/tool", ("/opt/x/bin/tool",)),
        ("ls *a*b*", ("ls", "xaxbx")),
        (r"ls \[a]", ("ls", "[a]")),
    ],
)
def test_a_pattern_matches(pattern: str, argv: tuple[str, ...]) -> None:
    assert matches(pattern, *argv)


@pytest.mark.parametrize(
    ("pattern", "argv"),
    [
        ("git diff *", ("git", "diff", "x", ";", "id")),
        ("git diff *", ("git", "diff", "x", "y")),
        ("git diff *", ("git", "diff")),
        ("git diff *", ("git", "diff", "a/b")),
        ("git diff *", ("git", "diff", "--output=x")),
        ("git diff *", ("git", "diff", "-x")),
        ("git diff ?x", ("git", "diff", "-x")),
        ("git diff *", ("git", "diff", "..")),
        ("git diff *", ("git", "diff", ".env")),
        ("cat a/*", ("cat", "a/b/c")),
        ("cat a/*", ("cat", "a/..")),
        ("cat a/*/c", ("cat", "a/../c")),
        ("cat a/*", ("cat", "a/.ssh")),
        ("cat .*", ("cat", "..")),
        ("cat .*", ("cat", ".")),
        ("cat *.txt", ("cat", "/a.txt")),
        ("git", ("/usr/bin/git",)),
        ("git", ("git", "x")),
        ("*", ("/bin/sh",)),
        ("git ** x", ("git", "a", "b", "x")),
        ("git diff **", ("git",)),
        ("git diff **", ("git", "log", "x")),
        (r"ls \*", ("ls", "x")),
        ("ls '*'", ("ls", "x")),
        ("ls [a]", ("ls", "a")),
        ("ls ab", ("ls", "AB")),
    ],
)
def test_a_pattern_does_not_match(pattern: str, argv: tuple[str, ...]) -> None:
    assert not matches(pattern, *argv)


@given(argvs)
def test_an_exact_pattern_matches_that_command_alone(argv: list[str]) -> None:
    pattern = ArgvPattern.exactly(tuple(argv))
    assert pattern.matches(tuple(argv))
    assert ArgvPattern.parse(str(pattern)) == pattern
    for other in ((*argv, "x"), tuple(argv[:-1]), (*argv[:-1], argv[-1] + "x"), (argv[0] + "/", *argv[1:])):
        assert not other or not pattern.matches(other)


@pytest.mark.parametrize("text", ["", "  ", "''", "git 'open", 'git "open'])
def test_what_is_no_pattern_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="command pattern"):
        ArgvPattern.parse(text)


def test_no_pattern_takes_long() -> None:
    began = time.process_time()
    assert not matches("ls " + "*a" * 200 + "b", "ls", "a" * 5_000)
    assert time.process_time() - began < 5


def test_fixed_rules_are_the_same_for_everybody_and_forget() -> None:
    rules, agent = CommandRules(), AgentId("main")
    book = FixedCommandRules(rules)
    book.record_use(agent, ArgvPattern.parse("ls"), "ls")
    book.add_patterns(agent, (ArgvPattern.parse("ls"),), "ls", "me")
    assert book.rules(agent) is rules
