"""A session that has become very long opens as if it were short."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from retinue.core.clock import SystemClock
from retinue.sessions.transcript import HEADER_LIMIT, EntryStamps, Transcript
from tests.faults.opener import LAST, make_long_session

pytestmark = pytest.mark.slow

MEGABYTES = 20


def test_a_long_session_shows_its_last_words_without_being_read_whole(tmp_path: Path) -> None:
    transcript = make_long_session(tmp_path, MEGABYTES, compacted=True)
    before = transcript.read_bytes()
    argv = [sys.executable, "-m", "tests.faults.opener", str(tmp_path), "100"]
    opened = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    assert opened["last"] == LAST
    assert opened["bytesRead"] < 1024 * 1024 < len(before) / MEGABYTES + 1
    assert transcript.read_bytes() == before


def test_a_long_session_that_was_never_summed_up_is_read_no_further_than_the_limit(tmp_path: Path) -> None:
    transcript = make_long_session(tmp_path, 3, compacted=False)
    limit = 1024 * 1024
    opened = Transcript.open(transcript, EntryStamps(SystemClock()), limit=limit)
    assert limit <= opened.bytes_read <= limit + HEADER_LIMIT
    assert opened.messages[-1].text == LAST
    assert opened.header is not None
