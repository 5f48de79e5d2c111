#!/usr/bin/env python3
"""Speak a text into an audio file with the program of this machine."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PROGRAMS = ("piper", "espeak-ng", "espeak", "say")
WORDS_A_MINUTE = 170
MAX_TEXT = 100_000
LIMIT_SECONDS = 600


class VoiceError(Exception):
    """The request cannot be carried out; the message says why."""


def spoken(text: str) -> str:
    """What one would say of a Markdown text."""
    text = re.sub(r"```.*?(```|\Z)", " ", text, flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)|<[^>]+>", " ", text)
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"https?://(?:www\.)?([^\s/)]+)\S*", r"\1", text)
    text = re.sub(r"^\s*(#{1,6}|[-*+]|>|\d+\.)\s+", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\s*\|?[-:| ]+\|\s*$", "", text, flags=re.MULTILINE).replace("|", ", ")
    text = re.sub(r"[*_`~]{1,3}(\S.*?\S|\S)[*_`~]{1,3}", r"\1", text)
    # A heading or an item without a full stop would run into the next sentence.
    lines = [line.strip() for line in text.splitlines()]
    ended = [line if not line or line[-1] in ".!?:;,…" else f"{line}." for line in lines]
    return " ".join(" ".join(ended).split())


def command_for(options: argparse.Namespace) -> list[str]:
    program, voice = options.program, options.voice
    if program == "piper":
        model = voice or os.environ.get("PIPER_VOICE", "")
        if not Path(model).expanduser().is_file():
            raise VoiceError("piper needs the file of a voice (.onnx); name it with --voice or in PIPER_VOICE")
        return [
            "piper",
            "--model",
            str(Path(model).expanduser()),
            "--length_scale",
            f"{1 / options.speed:.2f}",
            "--output_file",
            str(options.out),
        ]
    rate = str(round(WORDS_A_MINUTE * options.speed))
    if program == "say":
        return ["say", "-r", rate, *(["-v", voice] if voice else []), "-o", str(options.out), "-f", "-"]
    chosen = voice or options.language
    return [program, "-s", rate, *(["-v", chosen] if chosen else []), "-w", str(options.out), "--stdin"]


def speak(text: str, options: argparse.Namespace) -> dict[str, object]:
    if options.out is None:
        raise VoiceError("name the audio file with --out")
    if options.out.exists():
        raise VoiceError(f"{options.out} exists already; choose another name")
    options.out = options.out.absolute()
    command = command_for(options)
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, errors="replace", timeout=LIMIT_SECONDS
        )
    except OSError:
        raise VoiceError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise VoiceError(f"{command[0]} did not end within {LIMIT_SECONDS} seconds") from None
    if done.returncode != 0 or not options.out.is_file() or not options.out.stat().st_size:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise VoiceError(f"{command[0]} made no audio: {lines[-1] if lines else f'status {done.returncode}'}")
    return {
        "file": str(options.out),
        "bytes": options.out.stat().st_size,
        "characters": len(text),
        "program": command[0],
    }


def read_text(options: argparse.Namespace) -> str:
    if options.text is not None:
        try:
            raw = sys.stdin.read() if str(options.text) == "-" else options.text.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as failure:
            raise VoiceError(f"cannot read {options.text}: {failure}") from failure
    else:
        raw = options.words or ""
    text = spoken(raw)
    if not text:
        raise VoiceError("there is nothing to say")
    if len(text) > MAX_TEXT:
        raise VoiceError(f"the text has {len(text):,} characters; at most {MAX_TEXT:,} are spoken at once")
    return text


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("words", nargs="?", help="the text")
    given.add_argument("--text", type=Path, metavar="FILE", help="a file with the text; - reads standard input")
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--program", choices=PROGRAMS, default=next(filter(shutil.which, PROGRAMS), PROGRAMS[1]))
    parser.add_argument("--voice", default="")
    parser.add_argument("--language", default="", help="such as en or de, for espeak")
    parser.add_argument("--speed", type=float, default=1)
    parser.add_argument("--show", action="store_true", help="print what would be said")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    if not 0.5 <= options.speed <= 2:
        parser.error("--speed must be between 0.5 and 2")
    for name in ("voice", "language"):
        if getattr(options, name).startswith("-"):
            parser.error(f"--{name} must not begin with a hyphen")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        text = read_text(options)
        result = {"text": text} if options.show else speak(text, options)
    except VoiceError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(result, ensure_ascii=False, indent=2))
    else:
        print(text if options.show else f"Wrote {result['file']} ({result['bytes']:,} bytes) with {result['program']}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
