#!/usr/bin/env python3
"""Hand secrets of a password manager to programs without showing them."""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

TIMEOUT_SECONDS = 60
MIN_HIDDEN = 4


class SecretError(Exception):
    """The request cannot be carried out; the message says why."""


def ask(*command: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_SECONDS, stdin=subprocess.DEVNULL
        )
    except OSError:
        raise SecretError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise SecretError(f"{command[0]} did not answer within a minute; the user may have to unlock it") from None
    if done.returncode != 0:
        text = done.stderr.strip().splitlines()
        raise SecretError(f"{command[0]}: {text[-1] if text else f'status {done.returncode}'}; is it unlocked?")
    return done.stdout


def parse(text: str, program: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise SecretError(f"{program} did not answer with JSON") from None


def store_of_pass() -> Path:
    return Path(os.environ.get("PASSWORD_STORE_DIR") or "~/.password-store").expanduser()


def list_names(program: str) -> list[str]:
    if program == "pass":
        root = store_of_pass()
        return sorted(path.relative_to(root).as_posix().removesuffix(".gpg") for path in root.rglob("*.gpg"))
    if program == "op":
        found = parse(ask("op", "item", "list", "--format=json"), program)
        return sorted(f"{each.get('vault', {}).get('name', '')}/{each['title']}" for each in found)
    return sorted(str(each["name"]) for each in parse(ask("bw", "--nointeraction", "list", "items"), program))


def fetch(program: str, entry: str) -> str:
    """Return a secret; `entry` may name a field after `#`."""
    name, _, field = entry.partition("#")
    if not name or name.startswith("-") or any(not char.isprintable() for char in entry):
        raise SecretError(f"{entry!r} is not the name of an entry")
    match program:
        case "pass":
            lines = ask("pass", "show", name).splitlines()
            if not field:
                value = lines[0] if lines else ""
            else:
                pairs = (line.partition(":") for line in lines[1:])
                value = next((rest.strip() for key, _, rest in pairs if key.strip().lower() == field.lower()), "")
        case "op":
            vault, slash, title = name.rpartition("/")
            scope = [f"--vault={vault}"] if slash else []
            found = parse(
                ask(
                    "op",
                    "item",
                    "get",
                    title,
                    *scope,
                    f"--fields=label={field or 'password'}",
                    "--reveal",
                    "--format=json",
                ),
                program,
            )
            value = str((found[0] if isinstance(found, list) else found).get("value") or "")
        case _:
            found = parse(ask("bw", "--nointeraction", "get", "item", name), program)
            login = found.get("login") or {}
            own = {each["name"].lower(): each.get("value") for each in found.get("fields") or []}
            key = (field or "password").lower()
            value = str((login.get(key) or own.get(key) or (found.get("notes") if key == "notes" else "")) or "")
    if not value:
        raise SecretError(f"{name} has no {field or 'password'}")
    return value


def hide(text: str, secrets: Sequence[str]) -> str:
    """Replace secrets, also in the forms in which programs commonly print them."""
    forms: set[str] = set()
    for secret in secrets:
        if len(secret) >= MIN_HIDDEN:
            forms |= {
                secret,
                quote(secret, safe=""),
                json.dumps(secret)[1:-1],
                base64.b64encode(secret.encode()).decode(),
            }
            forms |= {line for line in secret.splitlines() if len(line) >= MIN_HIDDEN}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, "[secret]")
    return text


def list_entries(options: argparse.Namespace) -> int:
    words = [word.casefold() for word in options.words]
    names = [name for name in list_names(options.program) if all(word in name.casefold() for word in words)]
    print(json.dumps(names, ensure_ascii=False, indent=2) if options.json else "\n".join(names) or "No entries.")
    return 0


def run(options: argparse.Namespace) -> int:
    if not options.command:
        raise SecretError("name the command after --, such as: run TOKEN=work/api -- ./deploy.sh")
    environment, secrets = dict(os.environ), []
    for pair in options.pairs:
        variable, sign, entry = pair.partition("=")
        if not sign or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
            raise SecretError(f"cannot read {pair!r}; write VARIABLE=ENTRY")
        environment[variable] = fetch(options.program, entry)
        secrets.append(environment[variable])
        if len(environment[variable]) < MIN_HIDDEN:
            raise SecretError(f"{entry} is too short to be hidden in the output of the command")
    try:
        done = subprocess.run(
            options.command, env=environment, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL
        )
    except OSError as failure:
        raise SecretError(f"cannot start {options.command[0]}: {failure.strerror}") from failure
    sys.stdout.write(hide(done.stdout, secrets))
    sys.stderr.write(hide(done.stderr, secrets))
    return done.returncode


def write_file(options: argparse.Namespace) -> int:
    value = fetch(options.program, options.entry)
    try:
        descriptor = os.open(options.target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(value if value.endswith("\n") else f"{value}\n")
    except OSError as failure:
        raise SecretError(f"cannot write {options.target}: {failure.strerror}") from failure
    print(
        json.dumps({"file": str(options.target)}) if options.json else f"Wrote {options.target}; only you can read it."
    )
    return 0


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if argv is None else argv)
    cut = given.index("--") if "--" in given else len(given)
    shared = argparse.ArgumentParser(add_help=False)
    found = next(filter(shutil.which, ("pass", "op", "bw")), "pass")
    shared.add_argument("--program", choices=("pass", "op", "bw"), default=found)
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    listing = commands.add_parser("list", parents=[shared], help="names of entries")
    listing.add_argument("words", nargs="*")
    listing.set_defaults(run=list_entries)
    running = commands.add_parser("run", parents=[shared], help="run a command with secrets, after --")
    running.add_argument("pairs", nargs="+", metavar="VARIABLE=ENTRY")
    running.set_defaults(run=run)
    writing = commands.add_parser("file", parents=[shared], help="write a secret to a new private file")
    writing.add_argument("entry")
    writing.add_argument("target", type=Path)
    writing.set_defaults(run=write_file)
    options = parser.parse_args(given[:cut])
    options.command = given[cut + 1 :]
    return options


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        status: int = options.run(options)
    except SecretError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
