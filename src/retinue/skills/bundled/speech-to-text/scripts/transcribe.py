#!/usr/bin/env python3
"""Transcribe a recording with the speech recognition program of this machine."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

PROGRAMS = ("whisper-cli", "whisper-ctranslate2", "whisper")
HOUR = 3600


class SpeechError(Exception):
    """The request cannot be carried out; the message says why."""


class Segment(NamedTuple):
    start: float
    end: float
    text: str


def run(command: list[str], limit: int) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=limit, stdin=subprocess.DEVNULL
        )
    except OSError:
        raise SpeechError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise SpeechError(f"{command[0]} did not end within {limit} seconds; use a smaller model or --limit") from None
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise SpeechError(f"{command[0]} failed: {lines[-1] if lines else f'status {done.returncode}'}")


def is_plain_wave(path: Path) -> bool:
    """Whether a file is what whisper.cpp reads without help: WAV with 16,000 samples a second."""
    with path.open("rb") as file:
        data = file.read(36)
    return data[:4] == b"RIFF" and data[8:12] == b"WAVE" and int.from_bytes(data[24:28], "little") == 16_000


def find_model(given: str) -> str:
    model = given or os.environ.get("WHISPER_MODEL", "")
    if model and Path(model).expanduser().is_file():
        return str(Path(model).expanduser())
    folders = [
        Path("~/.cache/whisper.cpp").expanduser(),
        Path("~/models").expanduser(),
        Path("/usr/share/whisper.cpp/models"),
    ]
    found = [path for folder in folders for path in sorted(folder.glob(f"ggml-{model or '*'}.bin"))]
    if not found:
        raise SpeechError("whisper-cli needs a model file (ggml-*.bin); name it with --model or in WHISPER_MODEL")
    return str(found[0])


def transcribe(options: argparse.Namespace, folder: Path) -> list[Segment]:
    source, program = options.source, options.program
    language = options.language or "auto"
    if program == "whisper-cli":
        model = find_model(options.model)
        if not is_plain_wave(source):
            if shutil.which("ffmpeg") is None:
                raise SpeechError("this format needs ffmpeg, which is not installed")
            wave = folder / "speech.wav"
            run(
                ["ffmpeg", "-nostdin", "-y", "-i", f"file:{source}", "-ar", "16000", "-ac", "1", str(wave)],
                options.limit,
            )
            source = wave
        run(
            [program, "-m", model, "-l", language, "-oj", "-of", str(folder / "result"), "-f", str(source)],
            options.limit,
        )
        segments = read_json(folder / "result.json")["transcription"]
        return [
            Segment(each["offsets"]["from"] / 1000, each["offsets"]["to"] / 1000, each["text"].strip())
            for each in segments
        ]
    command = [
        program,
        str(source),
        "--output_format",
        "json",
        "--output_dir",
        str(folder),
        "--model",
        options.model or "small",
    ]
    run([*command, *([] if language == "auto" else ["--language", language])], options.limit)
    segments = read_json(folder / f"{source.stem}.json")["segments"]
    return [Segment(float(each["start"]), float(each["end"]), each["text"].strip()) for each in segments]


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError) as failure:
        raise SpeechError(f"the program wrote no transcript: {failure}") from failure


def clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // HOUR}:{whole // 60 % 60:02}:{whole % 60:02}"


def render(segments: list[Segment], options: argparse.Namespace) -> str:
    if options.json:
        return json.dumps([each._asdict() for each in segments], ensure_ascii=False, indent=2)
    if options.times:
        return "\n".join(f"[{clock(each.start)}] {each.text}" for each in segments)
    return " ".join(each.text for each in segments)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="a recording")
    parser.add_argument("--program", choices=PROGRAMS, default=next(filter(shutil.which, PROGRAMS), PROGRAMS[0]))
    parser.add_argument("--language", help="such as en or de; default: detect")
    parser.add_argument("--model", default="")
    parser.add_argument("--times", action="store_true", help="begin each line with its time")
    parser.add_argument("--limit", type=int, default=2 * HOUR, help="seconds (default: 7200)")
    parser.add_argument("--out", type=Path, help="write to this new file")
    parser.add_argument("--json", action="store_true", help="print the segments as JSON")
    options = parser.parse_args(argv)
    if options.language and not re.fullmatch(r"[A-Za-z]{2,10}(-[A-Za-z]{2,8})?", options.language):
        parser.error("a language looks like en or de")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        if not options.source.is_file():
            raise SpeechError(f"there is no file {options.source}")
        options.source = options.source.absolute()
        with tempfile.TemporaryDirectory() as folder:
            segments = [each for each in transcribe(options, Path(folder)) if each.text]
        text = render(segments, options) or "(no speech was found)"
        if options.out is None:
            print(text)
        else:
            with options.out.open("x", encoding="utf-8") as file:
                file.write(f"{text}\n")
            print(f"Wrote {len(segments)} segments to {options.out}.")
    except (SpeechError, OSError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    except (KeyError, TypeError, ValueError) as failure:
        print(f"error: the program gave an unexpected answer: {failure!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
