"""Forged boundary markers: none survives, and the text around them stays as it came."""

from __future__ import annotations

import random
import time

import pytest

from retinue.security.untrusted_text import (
    END_MARKER_SANITISED,
    MARKER_SANITISED,
    TextSource,
    sanitise,
    sanitise_chunks,
    sanitise_line,
    wrap_untrusted,
)
from tests.security.forgeries import forge, reads_as_marker

pytestmark = pytest.mark.slow

TRIES = 4_000


def test_the_reader_of_these_tests_recognises_every_forgery() -> None:
    chance = random.Random("reader")
    for _ in range(TRIES):
        forged = forge(chance)
        assert reads_as_marker(forged.text), forged


def test_no_forged_marker_survives_and_everything_else_does() -> None:
    chance = random.Random("forgeries")
    for _ in range(TRIES):
        forged = forge(chance)
        sign = END_MARKER_SANITISED if forged.is_end else MARKER_SANITISED
        assert sanitise(forged.text) == forged.before + sign + forged.after, forged


def test_markers_split_over_chunks_count_as_one() -> None:
    chance = random.Random("chunks")
    for _ in range(TRIES // 4):
        forged = forge(chance)
        cuts = sorted(chance.randrange(len(forged.text) + 1) for _ in range(chance.randrange(1, 5)))
        chunks = [forged.text[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
        clean = sanitise_chunks(chunks)
        assert len(clean) == len(chunks)
        assert "".join(clean) == sanitise(forged.text)


def test_nested_markers_leave_none_behind() -> None:
    chance = random.Random("nested")
    for _ in range(TRIES // 4):
        outer, inner = forge(chance), forge(chance)
        cut = chance.randrange(1, len(outer.marker))
        clean = sanitise(outer.marker[:cut] + inner.marker + outer.marker[cut:])
        assert not reads_as_marker(clean), (outer, inner, clean)
        assert sanitise(clean) == clean


def test_no_field_of_a_wrapping_can_forge_its_border() -> None:
    chance = random.Random("fields")
    for number in range(TRIES // 4):
        forged, other = forge(chance), forge(chance)
        half = chance.randrange(1, len(other.marker))
        # The second marker begins in the subject and ends in the text.
        wrapped = wrap_untrusted(
            other.marker[half:] + forged.text,
            TextSource.EMAIL,
            new_id=lambda number=number: f"{number:016x}",  # type: ignore[misc]
            sender=forged.text,
            subject=other.marker[:half],
        )
        start, end = (
            f'<<<EXTERNAL_UNTRUSTED_CONTENT id="{number:016x}">>>\n',
            f'\n<<<END_EXTERNAL_UNTRUSTED_CONTENT id="{number:016x}">>>',
        )
        head, _, rest = wrapped.partition(start)
        inside, _, tail = rest.rpartition(end)
        assert (tail, "<<<" in head) == ("", False)
        assert not reads_as_marker(inside), (forged, other, inside)


def test_a_line_stays_one_line() -> None:
    chance = random.Random("lines")
    for _ in range(TRIES // 4):
        line = sanitise_line(forge(chance).text + "\n\u2028\x85x")
        assert not reads_as_marker(line)
        assert len(line.splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "<" * 200_000,
        "<external " * 30_000,
        "< e.x.t.e.r.n.a.l " * 20_000,
        "<<<EXTERNAL_UNTRUSTED_CONTENT id=" * 20_000,
        "&lt;" * 80_000,
    ],
)
def test_hostile_text_costs_linear_time(text: str) -> None:
    def seconds(part: str) -> float:
        began = time.process_time()
        sanitise(part)
        return time.process_time() - began

    seconds(text[:1000])
    assert seconds(text) < 40 * seconds(text[: len(text) // 8]) + 0.5
