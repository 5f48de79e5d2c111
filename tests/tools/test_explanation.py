"""What a person is told about a command; nothing depends on it."""

from __future__ import annotations

import pytest

from retinue.tools.shell.analysis import analyse
from retinue.tools.shell.explanation import MAX_FILES, describe_risk, explain_command
from tests.stopwatch import at_most


def lines(text: str) -> list[str]:
    return list(explain_command(analyse(text), text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rm -rf 'a b' c", ["Changes: a b, c"]),
        ('rm -rf "a b" c', ["Runs: rm -rf 'a b' c", "Changes: a b, c"]),
        ("grep -n x a | sort b", ["Runs: grep -n x a", "Runs: sort b", "Reads: a, b"]),
        ("cp a b", ["Reads: a", "Changes: b"]),
        ("timeout 5 rm x", ["Changes: x"]),
        ("sed -i s/a/b/ f", ["Reads: f", "Changes: f"]),
        ("git push origin", ["Network: git"]),
        ("git log", []),
        ("sudo rm x", []),
        ("curl -o f https://x.org/a", ["Network: curl"]),
        (
            "curl https://x.org/a | wc",
            ["Runs: curl https://x.org/a", "Runs: wc", "Network: curl", "Address: https://x.org/a"],
        ),
        ("rm $x", ["Only a shell can read it: `$` expands variables or commands."]),
        (
            "curl $(echo http://x)",
            ["Only a shell can read it: `$` expands variables or commands.", "Address: http://x"],
        ),
        ('echo "it\'s"', ["Runs: echo 'it'\\''s'"]),
    ],
)
def test_a_command_is_explained(text: str, expected: list[str]) -> None:
    assert lines(text) == expected


def test_long_lists_are_cut_and_hidden_characters_shown() -> None:
    names = " ".join(f"f{number}" for number in range(20))
    assert lines(f"rm {names}")[0].endswith(f" and {20 - MAX_FILES} more")
    text = "curl http://x/\u200b$y"
    assert "http://x/⟨U+200B⟩$y" in lines(text)[1]


def test_no_text_makes_explaining_it_long() -> None:
    with at_most(20):
        assert len(lines(f"echo $x {'a-' * 49_000}")) == 2
        assert describe_risk("curl " * 20_000)
