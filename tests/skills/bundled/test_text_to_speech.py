"""Spoken texts, through stand-ins for the programs of speech synthesis."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script, stand_in

pytestmark = pytest.mark.slow  # a process for each call of the script

VOICE = """import sys
given = sys.argv[1:]
target = given[[at for at, each in enumerate(given) if each in ("-w", "-o", "--output_file")][0] + 1]
open(target, "w").write(" ".join(each for each in given if each != target) + "|" + sys.stdin.read())
"""
TEXT = """# News

- The **train** leaves at [9:40](https://example.org/t)
- See https://www.example.org/long?x=1

| a | b |
|---|---|
| 1 | 2 |

```sh
rm x
```
"""


@pytest.fixture
def speak(tmp_path: Path) -> Script:
    stand_in(tmp_path / "bin", "espeak-ng", VOICE)
    return script("text-to-speech", "speak.py", Workspace(tmp_path, {"PATH": str(tmp_path / "bin")}))


def test_markdown_becomes_what_one_would_say(speak: Script) -> None:
    speak.workspace.write("text.md", TEXT)
    assert speak.run("--text", "text.md", "--show") == (
        "News. The train leaves at 9:40. See example.org. , a , b , , 1 , 2 ,\n"
    )


def test_the_program_gets_text_speed_and_voice(speak: Script, tmp_path: Path) -> None:
    made = speak.json("Dinner is ready", "--out", "a.wav", "--speed", 1.5, "--language", "en")
    assert (made["program"], made["file"]) == ("espeak-ng", str(tmp_path / "a.wav"))
    assert (tmp_path / "a.wav").read_text() == "-s 255 -v en -w --stdin|Dinner is ready."
    assert "exists already" in speak.fail("Again", "--out", "a.wav")


def test_every_program_is_called_as_it_wants(speak: Script, tmp_path: Path) -> None:
    for name in ("piper", "say"):
        stand_in(tmp_path / "bin", name, VOICE)
    voice = speak.workspace.write("voice.onnx", "x")
    speak.run("Hi", "--out", "p.wav", "--program", "piper", "--voice", "voice.onnx", "--speed", 2)
    assert (tmp_path / "p.wav").read_text() == f"--model {voice.name} --length_scale 0.50 --output_file|Hi."
    speak.run("Hi", "--out", "s.aiff", "--program", "say", "--voice", "Anna")
    assert (tmp_path / "s.aiff").read_text() == "-r 170 -v Anna -o -f -|Hi."
    assert "needs the file of a voice" in speak.fail("Hi", "--out", "q.wav", "--program", "piper")


def test_failures_say_what_to_do(speak: Script, tmp_path: Path) -> None:
    assert "name the audio file" in speak.fail("Hi")
    assert "nothing to say" in speak.fail("```x```", "--out", "a.wav")
    assert "espeak is not installed" in speak.fail("Hi", "--out", "a.wav", "--program", "espeak")
    assert "between 0.5 and 2" in speak.misuse("Hi", "--speed", 9)
    assert "must not begin with a hyphen" in speak.misuse("Hi", "--voice=-x")
    stand_in(tmp_path / "bin", "espeak-ng", "import sys; sys.exit('no voice')")
    assert "made no audio: no voice" in speak.fail("Hi", "--out", "a.wav")
