"""Transcripts, through stand-ins for the programs of speech recognition."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script, stand_in

pytestmark = pytest.mark.slow  # a process for each call of the script

WHISPER_CPP = """import json, sys
given = dict(zip(sys.argv[1::1], sys.argv[2::1]))
open("asked.txt", "a").write(" ".join(sys.argv[1:]) + "\\n")
rows = [(0, 2000, " Hello."), (2000, 3661000, " Goodbye. ")]
found = [{"offsets": {"from": start, "to": end}, "text": text} for start, end, text in rows]
open(given["-of"] + ".json", "w").write(json.dumps({"transcription": found}))
"""
WHISPER = """import json, pathlib, sys
given = dict(zip(sys.argv[1::1], sys.argv[2::1]))
open("asked.txt", "a").write(" ".join(sys.argv[2:]) + "\\n")
target = pathlib.Path(given["--output_dir"]) / (pathlib.Path(sys.argv[1]).stem + ".json")
target.write_text(json.dumps({"segments": [{"start": 0, "end": 1.5, "text": " Hi. "}]}))
"""
FFMPEG = "import sys; open(sys.argv[-1], 'wb').write(b'wave')\n"


def make_wave(rate: int) -> bytes:
    head = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 36, b"WAVE", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16)
    return head + struct.pack("<4sI", b"data", 0)


@pytest.fixture
def speech(tmp_path: Path) -> Script:
    stand_in(tmp_path / "bin", "whisper-cli", WHISPER_CPP)
    workspace = Workspace(tmp_path, {"PATH": str(tmp_path / "bin"), "WHISPER_MODEL": str(tmp_path / "model.bin")})
    workspace.write("model.bin", "x")
    workspace.write("meeting.wav", make_wave(16_000))
    workspace.write("note.ogg", "OggS")
    return script("speech-to-text", "transcribe.py", workspace)


def test_whisper_cpp_gives_text_times_and_segments(speech: Script, tmp_path: Path) -> None:
    assert speech.run("meeting.wav") == "Hello. Goodbye.\n"
    assert speech.run("meeting.wav", "--times", "--language", "de") == "[0:00:00] Hello.\n[0:00:02] Goodbye.\n"
    assert speech.json("meeting.wav")[1] == {"start": 2.0, "end": 3661.0, "text": "Goodbye."}
    asked = (tmp_path / "asked.txt").read_text().splitlines()
    assert "-l auto" in asked[0]
    assert "-l de" in asked[1]
    assert asked[0].endswith("meeting.wav")


def test_other_formats_are_converted(speech: Script, tmp_path: Path) -> None:
    assert "needs ffmpeg" in speech.fail("note.ogg")
    stand_in(tmp_path / "bin", "ffmpeg", FFMPEG)
    assert speech.run("note.ogg") == "Hello. Goodbye.\n"
    assert (tmp_path / "asked.txt").read_text().strip().endswith("speech.wav")


def test_the_other_whispers_are_called_as_they_want(speech: Script, tmp_path: Path) -> None:
    stand_in(tmp_path / "bin", "whisper-ctranslate2", WHISPER)
    speech.run("note.ogg", "--program", "whisper-ctranslate2", "--model", "medium", "--out", "note.txt")
    assert (tmp_path / "note.txt").read_text() == "Hi.\n"
    assert "--model medium" in (tmp_path / "asked.txt").read_text()
    assert "File exists" in speech.fail("note.ogg", "--program", "whisper-ctranslate2", "--out", "note.txt")


def test_failures_say_what_to_do(speech: Script, tmp_path: Path) -> None:
    assert "there is no file nothing.wav" in speech.fail("nothing.wav")
    assert "whisper is not installed" in speech.fail("meeting.wav", "--program", "whisper")
    assert "looks like en or de" in speech.misuse("meeting.wav", "--language=-x")
    (tmp_path / "model.bin").unlink()
    assert "needs a model file" in speech.fail("meeting.wav")
    (tmp_path / "model.bin").touch()
    stand_in(tmp_path / "bin", "whisper-cli", "import sys; sys.exit('cannot allocate memory')")
    assert "failed: cannot allocate memory" in speech.fail("meeting.wav")
    stand_in(tmp_path / "bin", "whisper-cli", "")
    assert "wrote no transcript" in speech.fail("meeting.wav")
