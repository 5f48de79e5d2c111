"""Markdown in the format of each service, read back by the rules of the service."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from retinue.channels.discord.markup import APART, render_markup
from retinue.channels.discord.markup import MAX_TEXT as DISCORD_TEXT
from retinue.channels.markdown import parse_markdown
from retinue.channels.services import SERVICES, split_for
from retinue.channels.slack.blocks import render_blocks
from retinue.channels.telegram.entities import render_entities
from retinue.core.styled_text import Style, StyledText, utf16_length
from retinue.testing.chat_services.telegram import check_text

SAMPLES = 300
WORDS = (
    *(
        "plain",
        "snake_case_word",
        "2 * 3 * 4",
        "a*b",
        "~~",
        "__init__",
        "`",
        "<b>",
        "&amp;",
        "@everyone",
        "<@123>",
        "#1",
    ),
    *(
        "https://example.org/a_b_(c)?x=*y*",
        "C:\\path\\*",
        "[not a link]",
        "||",
        "> no",
        "1. no",
        "- no",
        "😀👨‍👩‍👧",
        "日本語",
    ),
    *("**", "_", "e.g. this.", "\\", "```", "|", "$100", "user@example.org", "!", "—"),
)


def sample(number: int) -> str:
    """A text of everything that models write, also broken markup."""
    chance = random.Random(number)

    def words(most: int = 8) -> str:
        return " ".join(chance.choice(WORDS) for _ in range(chance.randint(1, most)))

    def inline() -> str:
        mark = chance.choice(("**", "*", "_", "~~", "`", "***", ""))
        link = f"[{words(3)}](https://example.org/{chance.randint(1, 99)})" if chance.random() < 0.3 else words()
        return f"{mark}{link}{mark}"

    def block() -> str:
        lines = [inline() for _ in range(chance.randint(1, 4))]
        match chance.randint(0, 8):
            case 0:
                return f"{'#' * chance.randint(1, 4)} {inline()}"
            case 1:
                return "\n".join(f"{'  ' * chance.randint(0, 2)}- {line}" for line in lines)
            case 2:
                return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 3))
            case 3:
                return "\n".join(f"> {line}" for line in lines)
            case 4:
                return f"```{chance.choice(('python', '', 'c++'))}\n" + "\n".join(lines * 3) + "\n```"
            case 5:
                return f"| {words(2)} | b |\n|---|---|\n| {inline()} | {words(2)} |"
            case 6:
                return "---"
            case _:
                return " ".join(lines * chance.randint(1, 40))

    return "\n\n".join(block() for _ in range(chance.randint(1, 12)))


@pytest.mark.slow
@pytest.mark.parametrize("service", SERVICES)
def test_samples_are_shown_completely_and_never_broken(service: str) -> None:
    able = SERVICES[service].capabilities
    for number in range(SAMPLES):
        text = sample(number)
        whole = parse_markdown(text)
        pieces = split_for(text, able)
        assert re.sub(r"\s", "", "".join(each.text for each in pieces)) == re.sub(r"\s", "", whole.text), number
        for piece in pieces:
            READERS[service](piece)


def read_telegram(piece: StyledText) -> None:
    entities = render_entities(piece)
    check_text(piece.text, entities)
    units = piece.text.encode("utf-16-le")
    shown: list[tuple[int, int]] = []
    for entity in entities:
        start, end = entity["offset"], entity["offset"] + entity["length"]
        inside = units[start * 2 : end * 2].decode("utf-16-le")
        assert inside == inside.rstrip()
        assert all(end <= first or start >= last or (first <= start and end <= last) for first, last in shown)
        shown.append((start, end))


def read_slack(piece: StyledText) -> None:
    (block,) = render_blocks(piece)
    text = ""
    for element in block["elements"]:
        assert element["type"] in ("rich_text_section", "rich_text_preformatted", "rich_text_quote")
        inside = "".join(run["text"] for run in element["elements"])
        assert all(run["text"] for run in element["elements"])
        assert element["type"] != "rich_text_preformatted" or all("style" not in run for run in element["elements"])
        text += inside + "\n"
    assert re.sub(r"\s", "", text) == re.sub(r"\s", "", piece.text)
    assert utf16_length(piece.text) <= 3_000


def read_discord(piece: StyledText) -> None:
    written = render_markup(piece)
    assert utf16_length(written) <= DISCORD_TEXT
    read, styles = DiscordReader(written).read()
    assert re.sub(r"\s", "", read) == re.sub(r"\s", "", piece.text), written
    wanted = {each.style for each in piece.spans if each.style in (Style.CODE, Style.BLOCK)}
    assert wanted <= styles, written


READERS: dict[str, Any] = {"telegram": read_telegram, "slack": read_slack, "discord": read_discord}


class DiscordReader:
    """Reads Discord's Markdown by its own rules, which are tried in order at each position."""

    RULES: tuple[tuple[Style | None, re.Pattern[str]], ...] = (
        (None, re.compile(r"\\([^0-9A-Za-z\s])")),
        (Style.BLOCK, re.compile(r"```(?:([a-z0-9_+\-.#]+?)\n)?\n*([^\n][\s\S]*?)\n*```", re.IGNORECASE)),
        (Style.CODE, re.compile(r"(`+)([\s\S]*?[^`])\1(?!`)")),
        (Style.LINK, re.compile(r"\[((?:\\.|[^\\\]])*)\]\(<([^>]*)>\)")),
        (None, re.compile(r"<(https?://[^\s>]+)>")),
        (None, re.compile(r"(https?://[^\s<]+[^<.,:;\"')\]\s])")),
        (Style.BOLD, re.compile(r"\*\*((?:\\[\s\S]|[^\\])+?)\*\*(?!\*)")),
        (Style.ITALIC, re.compile(r"\*(?=\S)((?:\*\*|\\[\s\S]|\s+(?:\\[\s\S]|[^\s*\\]|\*\*)|[^\s*\\])+?)\*(?!\*)")),
        (Style.STRIKE, re.compile(r"~~(?=\S)((?:\\[\s\S]|~(?!~)|[^\s\\~]|\s(?!~~))+?)~~(?!_)")),
    )

    def __init__(self, text: str, *, nested: bool = False) -> None:
        self.text = text
        self.nested = nested

    def read(self) -> tuple[str, set[Style]]:
        shown, styles, at = "", set[Style](), 0
        while at < len(self.text):
            begins_line = (at == 0 and not self.nested) or self.text[at - 1 : at] == "\n"
            if begins_line and self.text.startswith("> ", at):
                styles.add(Style.QUOTE)
                at += 2
                continue
            for style, rule in self.RULES:
                found = rule.match(self.text, at)
                if found is None:
                    continue
                if style is None:
                    shown += found[1]
                elif style in (Style.CODE, Style.BLOCK):
                    styles.add(style)
                    shown += found[2]
                else:
                    styles.add(style)
                    inner, below = DiscordReader(found[1], nested=True).read()
                    shown += inner
                    styles |= below
                at = found.end()
                break
            else:
                shown += self.text[at]
                at += 1
        return shown.replace(APART, ""), styles


def test_what_is_not_markup_stays_as_it_is() -> None:
    for text in ("a_b_c 2 * 3 @everyone <@1> #x", "\\*not bold\\*", "1) x | y ~ z"):
        plain = parse_markdown(text).text
        assert DiscordReader(render_markup(StyledText(plain))).read() == (plain, set())


def test_long_answers_are_cut_at_good_places_and_code_is_continued() -> None:
    code = "\n".join(f"line_{number} = {number}" for number in range(400))
    text = "First paragraph. " * 100 + f"\n\n```python\n{code}\n```\n\nThe end."
    pieces = split_for(text, SERVICES["discord"].capabilities)
    assert all(utf16_length(render_markup(piece)) <= DISCORD_TEXT for piece in pieces)
    assert pieces[0].text.endswith("First paragraph.")
    assert [piece.spans[0].value for piece in pieces[1:-1]] == ["python"] * (len(pieces) - 2)
    assert all(re.fullmatch(r"line_\d+ = \d+", line) for piece in pieces[1:-1] for line in piece.text.split("\n"))
