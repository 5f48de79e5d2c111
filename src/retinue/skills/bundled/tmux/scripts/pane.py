#!/usr/bin/env python3
"""Start interactive programs in tmux, type into them and wait for what they print."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence

POLL_SECONDS = 0.1
Record = dict[str, object]


class PaneError(Exception):
    """The request cannot be carried out; the message says why."""


class Server:
    """A tmux server of our own, found by its socket name."""

    def __init__(self, socket: str) -> None:
        self.socket = socket

    def run(self, *arguments: str) -> str:
        command = ["tmux", "-L", self.socket, "-f", "/dev/null", *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=30)
        except FileNotFoundError:
            raise PaneError("tmux is not installed") from None
        except subprocess.TimeoutExpired:
            raise PaneError(f"tmux did not answer: {' '.join(arguments)}") from None
        if done.returncode != 0:
            raise PaneError(done.stderr.strip() or f"tmux failed with status {done.returncode}")
        return done.stdout

    def panes(self) -> str:
        layout = "#{session_name}\t#{pane_dead}\t#{pane_dead_status}\t#{pane_current_command}"
        try:
            return self.run("list-panes", "-a", "-F", layout)
        except PaneError as failure:
            if "no server running" in str(failure) or "No such file" in str(failure):
                return ""
            raise

    def sessions(self) -> list[Record]:
        listed = self.panes()
        if "\t1\t\t" in listed:
            # tmux can miss the end of a program; the end of another child makes it collect both.
            self.run("run-shell", "true")
            listed = self.panes()
        found: list[Record] = []
        for line in listed.splitlines():
            name, dead, status, command = line.split("\t")
            running = dead != "1"
            exit_status = int(status) if not running and status else None
            found.append({"name": name, "running": running, "exit_status": exit_status, "program": command})
        return found

    def session(self, name: str) -> Record:
        for session in self.sessions():
            if session["name"] == name:
                return session
        raise PaneError(f"there is no session {name!r}; `list` shows what runs")

    def screen(self, name: str, lines: int) -> str:
        """The last lines of the pane with what scrolled away, without the empty rest of the screen."""
        text = self.run("capture-pane", "-p", "-J", "-t", f"={name}:", "-S", f"-{lines}")
        text = re.sub(r"\n*Pane is dead[^\n]*\s*$", "", text).rstrip()
        return "\n".join(line.rstrip() for line in text.split("\n")[-lines:])


def literal(argument: str) -> str:
    """Keep a final semicolon, which tmux would read as the end of its command."""
    return f"{argument[:-1]}\\;" if argument.endswith(";") else argument


def start(server: Server, options: argparse.Namespace) -> list[Record]:
    program = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not program:
        raise PaneError("name the program after --, such as: start calc -- python3 -q")
    if any(session["name"] == options.name for session in server.sessions()):
        raise PaneError(f"the session {options.name!r} exists already; stop it or use another name")
    size = ("-x", str(options.width), "-y", str(options.height))
    # The pane is kept after its program ends, because its last lines usually say why.
    keep = ("set-option", "-g", "remain-on-exit", "on")
    new = ("new-session", "-d", "-s", options.name, *size, "--", *map(literal, program))
    server.run("start-server", ";", *keep, ";", *new)
    return [server.session(options.name)]


def send(server: Server, options: argparse.Namespace) -> list[Record]:
    require_running(server, options.name)
    server.run("send-keys", "-t", f"={options.name}:", "-l", "--", literal(options.text))
    if not options.no_enter:
        server.run("send-keys", "-t", f"={options.name}:", "Enter")
    return [{"name": options.name, "sent": options.text}]


def press(server: Server, options: argparse.Namespace) -> list[Record]:
    require_running(server, options.name)
    server.run("send-keys", "-t", f"={options.name}:", "--", *map(literal, options.keys))
    return [{"name": options.name, "sent": " ".join(options.keys)}]


def describe_end(session: Record) -> str:
    status = session["exit_status"]
    return "ended by a signal" if status is None else f"ended with status {status}"


def require_running(server: Server, name: str) -> None:
    session = server.session(name)
    if not session["running"]:
        raise PaneError(f"the program in {name!r} has {describe_end(session)}")


def wait(server: Server, options: argparse.Namespace) -> list[Record]:
    """Poll the screen until a line matches, the program has ended or time is up."""
    try:
        pattern = re.compile(options.pattern, re.MULTILINE)
    except re.error as failure:
        raise PaneError(f"the pattern {options.pattern!r} is not a regular expression: {failure}") from None
    deadline = time.monotonic() + options.timeout
    while True:
        session = server.session(options.name)
        screen = server.screen(options.name, options.lines)
        # A prompt such as ">>> " loses its blank at the end of the line when the screen is captured.
        if pattern.search(screen) or pattern.search(screen.replace("\n", " \n") + " "):
            return [{"name": options.name, "matched": True, "screen": screen}]
        if not session["running"]:
            raise PaneError(f"the program {describe_end(session)} before {options.pattern!r} came:\n{screen}")
        if time.monotonic() >= deadline:
            raise PaneError(f"{options.pattern!r} did not come within {options.timeout:g} s:\n{screen}")
        time.sleep(POLL_SECONDS)


def show_screen(server: Server, options: argparse.Namespace) -> list[Record]:
    session = server.session(options.name)
    return [{**session, "screen": server.screen(options.name, options.lines)}]


def list_sessions(server: Server, _options: argparse.Namespace) -> list[Record]:
    return server.sessions()


def stop(server: Server, options: argparse.Namespace) -> list[Record]:
    session = server.session(options.name)
    server.run("kill-session", "-t", f"={options.name}")
    return [{**session, "stopped": True}]


def show(record: Record) -> str:
    if "screen" in record:
        return str(record["screen"])
    if "sent" in record:
        return f"sent to {record['name']}: {record['sent']}"
    state = "running" if record["running"] else describe_end(record)
    return f"{record['name']}  {record['program']}  {'stopped' if 'stopped' in record else state}"


def session_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", text):
        raise argparse.ArgumentTypeError("a session name has letters, digits, - and _ only")
    return text


def seconds(text: str) -> float:
    number = float(text)
    if not 0 < number <= 3600:
        raise argparse.ArgumentTypeError("must be between 0 and 3600 seconds")
    return number


def positive(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 5000:
        raise argparse.ArgumentTypeError("must be between 1 and 5000")
    return number


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--socket", type=session_name, default="retinue", help="name of the tmux server")
    shared.add_argument("--json", action="store_true", help="print JSON")
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument("name", type=session_name)
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    begin = commands.add_parser("start", parents=[shared, named], help="start a program in a new session")
    begin.add_argument("--width", type=positive, default=120)
    begin.add_argument("--height", type=positive, default=40)
    begin.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments, after --")
    begin.set_defaults(run=start)

    typed = commands.add_parser("send", parents=[shared, named], help="type text and press Enter")
    typed.add_argument("text")
    typed.add_argument("--no-enter", action="store_true")
    typed.set_defaults(run=send)

    keys = commands.add_parser("keys", parents=[shared, named], help="press keys by their tmux names")
    keys.add_argument("keys", nargs="+")
    keys.set_defaults(run=press)

    waiting = commands.add_parser("wait", parents=[shared, named], help="wait until the screen matches")
    waiting.add_argument("pattern")
    waiting.add_argument("--timeout", type=seconds, default=30.0)
    waiting.add_argument("--lines", type=positive, default=200)
    waiting.set_defaults(run=wait)

    screen = commands.add_parser("show", parents=[shared, named], help="print the screen")
    screen.add_argument("--lines", type=positive, default=200)
    screen.set_defaults(run=show_screen)

    commands.add_parser("list", parents=[shared], help="list sessions").set_defaults(run=list_sessions)
    commands.add_parser("stop", parents=[shared, named], help="end a session").set_defaults(run=stop)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        records: list[Record] = options.run(Server(options.socket), options)
    except PaneError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(records, ensure_ascii=False, indent=2))
    else:
        print("\n".join(map(show, records)) or "No sessions.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
