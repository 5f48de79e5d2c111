#!/usr/bin/env python3
"""Keep a todo.txt file: add, list, finish, change, remove and archive tasks."""

from __future__ import annotations

import argparse
import calendar
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path

DATE = r"\d{4}-\d{2}-\d{2}"
DONE_LINE = re.compile(rf"x (?:({DATE}) )?(?:({DATE}) )?(.*)")
OPEN_LINE = re.compile(rf"(?:\(([A-Z])\) )?(?:({DATE}) )?(.*)")
SPAN = re.compile(r"(\+?)(\d{1,4})([dwmy])")
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


class TodoError(Exception):
    """The request cannot be carried out; the message says why."""


@dataclass(frozen=True, slots=True)
class Task:
    """One line of the file."""

    text: str
    done: bool = False
    priority: str = ""
    created: str = ""
    completed: str = ""

    def tag(self, key: str) -> str:
        """The value of `key:value` in the text, or nothing."""
        found = re.search(rf"(?:^|\s){key}:(\S+)", self.text)
        return found[1] if found else ""

    def with_tag(self, key: str, value: str) -> Task:
        """The same task with `key:value` set, or dropped when `value` is empty."""
        bare = re.sub(rf"(?:^|\s){key}:\S+", "", self.text).strip()
        return replace(self, text=f"{bare} {key}:{value}" if value else bare)

    def words(self, sign: str) -> list[str]:
        """Projects (`+`) or contexts (`@`) named in the text."""
        return [word[1:] for word in self.text.split() if word.startswith(sign) and len(word) > 1]

    @property
    def due(self) -> date | None:
        try:
            return date.fromisoformat(self.tag("due"))
        except ValueError:
            return None

    def line(self) -> str:
        if self.done:
            parts = ["x", self.completed, self.created, self.text]
        else:
            parts = [f"({self.priority})" if self.priority else "", self.created, self.text]
        return " ".join(part for part in parts if part)


def parse_task(line: str) -> Task | None:
    """Read one line; a blank one holds the place of a removed task."""
    line = line.strip()
    if not line:
        return None
    if finished := DONE_LINE.fullmatch(line):
        return Task(finished[3], done=True, completed=finished[1] or "", created=finished[2] or "")
    opened = OPEN_LINE.fullmatch(line)
    assert opened is not None
    return Task(opened[3], priority=opened[1] or "", created=opened[2] or "")


def add_span(day: date, count: int, unit: str) -> date:
    """`day` plus so many days, weeks, months or years; a day the month lacks becomes its last one."""
    if unit in "dw":
        return day + timedelta(days=count * (7 if unit == "w" else 1))
    months = day.year * 12 + day.month - 1 + count * (12 if unit == "y" else 1)
    year, month = divmod(months, 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def parse_due(text: str, today: date) -> str:
    """Turn what people say into an ISO date; `none` gives an empty string."""
    word = text.strip().lower()
    if word == "none":
        return ""
    if word in ("today", "tomorrow"):
        return str(today + timedelta(days=word == "tomorrow"))
    if word in WEEKDAYS:
        ahead = (WEEKDAYS.index(word) - today.weekday() - 1) % 7 + 1
        return str(today + timedelta(days=ahead))
    span = SPAN.fullmatch(word)
    try:
        if span and span[1]:
            return str(add_span(today, int(span[2]), span[3]))
        return str(date.fromisoformat(word))
    except (ValueError, OverflowError):
        raise TodoError(f"cannot read the date {text!r}; use 2030-05-01, tomorrow, friday, +3d or none") from None


def next_task(task: Task, today: date) -> Task | None:
    """What a repeating task leaves behind when it is finished today."""
    span = SPAN.fullmatch(task.tag("rec"))
    if span is None:
        return None
    strict, count, unit = span[1], int(span[2]), span[3]
    start = task.due if strict and task.due else today
    try:
        due = add_span(start, count, unit)
    except (ValueError, OverflowError):
        raise TodoError(f"the next date of rec:{task.tag('rec')} is out of range") from None
    return replace(task, created=str(today)).with_tag("due", str(due))


def read_tasks(path: Path) -> list[Task | None]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as failure:
        raise TodoError(f"cannot read {path}: {failure}") from failure
    return [parse_task(line) for line in text.rstrip("\n").split("\n")] if text.strip() else []


def write_lines(path: Path, lines: list[str]) -> None:
    """Replace the file in one step, so that a crash leaves the old list."""
    target = path.resolve()
    fresh = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        fresh.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        if target.exists():
            shutil.copymode(target, fresh)
        fresh.replace(target)
    except OSError as failure:
        fresh.unlink(missing_ok=True)
        raise TodoError(f"cannot write {path}: {failure}") from failure


def write_tasks(path: Path, tasks: list[Task | None]) -> None:
    write_lines(path, [task.line() if task else "" for task in tasks])


def pick(tasks: list[Task | None], number: int) -> Task:
    task = tasks[number - 1] if 1 <= number <= len(tasks) else None
    if task is None:
        raise TodoError(f"there is no task {number}; run `list` to see the numbers")
    return task


def clean_text(text: str) -> str:
    words = " ".join(text.split())
    if not words:
        raise TodoError("a task needs some text")
    return words


def describe_due(due: date | None, today: date) -> str:
    if due is None:
        return ""
    days = (due - today).days
    if days < 0:
        return f"  [overdue {-days} d]"
    return "  [today]" if days == 0 else f"  [in {days} d]"


def show(number: int, task: Task, today: date) -> str:
    return f"{number:>3}  {task.line()}{'' if task.done else describe_due(task.due, today)}"


def as_json(number: int, task: Task) -> dict[str, object]:
    return {
        "number": number,
        "text": task.text,
        "done": task.done,
        "priority": task.priority or None,
        "due": task.tag("due") or None,
        "projects": task.words("+"),
        "contexts": task.words("@"),
        "created": task.created or None,
        "completed": task.completed or None,
    }


def is_wanted(task: Task, options: argparse.Namespace, today: date) -> bool:
    if task.done and not options.all:
        return False
    if options.project and options.project not in task.words("+"):
        return False
    if options.context and options.context not in task.words("@"):
        return False
    if options.due_within is None:
        return True
    return task.due is not None and (task.due - today).days <= options.due_within


def list_tasks(options: argparse.Namespace, today: date) -> list[tuple[int, Task]]:
    numbered = [(number, task) for number, task in enumerate(read_tasks(options.file), start=1) if task]
    wanted = [(number, task) for number, task in numbered if is_wanted(task, options, today)]
    return sorted(wanted, key=lambda pair: (pair[1].done, pair[1].priority or "~", pair[1].due or date.max, pair[0]))


def add_task(options: argparse.Namespace, today: date) -> list[tuple[int, Task]]:
    tasks = read_tasks(options.file)
    task = Task(clean_text(options.text), priority=options.priority or "", created=str(today))
    if options.due:
        task = task.with_tag("due", parse_due(options.due, today))
    if options.repeat:
        task = task.with_tag("rec", options.repeat)
    tasks.append(task)
    write_tasks(options.file, tasks)
    return [(len(tasks), task)]


def finish_tasks(options: argparse.Namespace, today: date) -> list[tuple[int, Task]]:
    tasks = read_tasks(options.file)
    changed: list[tuple[int, Task]] = []
    for number in dict.fromkeys(options.numbers):
        task = pick(tasks, number)
        if task.done:
            raise TodoError(f"task {number} is finished already")
        done = replace(task, done=True, completed=str(today), priority="")
        done = done.with_tag("pri", task.priority) if task.priority else done
        tasks[number - 1] = done
        changed.append((number, done))
        if following := next_task(task, today):
            tasks.append(following)
            changed.append((len(tasks), following))
    write_tasks(options.file, tasks)
    return changed


def change_task(options: argparse.Namespace, today: date) -> list[tuple[int, Task]]:
    tasks = read_tasks(options.file)
    task = pick(tasks, options.number)
    if options.text is not None:
        task = replace(task, text=clean_text(options.text))
    if options.priority is not None:
        task = replace(task, priority="" if options.priority == "none" else options.priority)
    if options.due is not None:
        task = task.with_tag("due", parse_due(options.due, today))
    tasks[options.number - 1] = task
    write_tasks(options.file, tasks)
    return [(options.number, task)]


def remove_tasks(options: argparse.Namespace, _today: date) -> list[tuple[int, Task]]:
    tasks = read_tasks(options.file)
    removed = [(number, pick(tasks, number)) for number in dict.fromkeys(options.numbers)]
    for number, _ in removed:
        tasks[number - 1] = None
    write_tasks(options.file, tasks)
    return removed


def archive_tasks(options: argparse.Namespace, _today: date) -> list[tuple[int, Task]]:
    """Move finished tasks to `done.txt`; it is written first, so that a crash duplicates and never loses."""
    tasks = read_tasks(options.file)
    finished = [(number, task) for number, task in enumerate(tasks, start=1) if task and task.done]
    if finished:
        archive = options.file.with_name("done.txt")
        old = [task.line() for task in read_tasks(archive) if task]
        write_lines(archive, old + [task.line() for _, task in finished])
    if tasks:
        write_tasks(options.file, [task for task in tasks if task and not task.done])
    return finished


def priority(text: str) -> str:
    if text.lower() == "none":
        return "none"
    if not re.fullmatch(r"[A-Za-z]", text):
        raise argparse.ArgumentTypeError("a priority is one letter A-Z")
    return text.upper()


def repeat(text: str) -> str:
    if not SPAN.fullmatch(text) or int(text.strip("+dwmy")) == 0:
        raise argparse.ArgumentTypeError("repeat with a number and d, w, m or y, such as 1w or +1m")
    return text


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--file", type=Path, default=Path("todo.txt"), help="the list (default: todo.txt)")
    shared.add_argument("--today", type=date.fromisoformat, default=date.today(), help="count from this day")
    shared.add_argument("--json", action="store_true", help="print JSON")

    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    add = commands.add_parser("add", parents=[shared], help="add a task")
    add.add_argument("text")
    add.add_argument("--priority", type=priority)
    add.add_argument("--due")
    add.add_argument("--repeat", type=repeat)
    add.set_defaults(run=add_task)

    listing = commands.add_parser("list", parents=[shared], help="show tasks, the most pressing first")
    listing.add_argument("--project")
    listing.add_argument("--context")
    listing.add_argument("--due-within", type=int, metavar="DAYS")
    listing.add_argument("--all", action="store_true", help="finished tasks too")
    listing.set_defaults(run=list_tasks)

    change = commands.add_parser("set", parents=[shared], help="change a task")
    change.add_argument("number", type=int)
    change.add_argument("--text", help="replaces the whole text, tags included")
    change.add_argument("--priority", type=priority)
    change.add_argument("--due")
    change.set_defaults(run=change_task)

    for name, run, text in (("done", finish_tasks, "finish tasks"), ("remove", remove_tasks, "delete tasks")):
        command = commands.add_parser(name, parents=[shared], help=text)
        command.add_argument("numbers", type=int, nargs="+")
        command.set_defaults(run=run)

    archive = commands.add_parser("archive", parents=[shared], help="move finished tasks to done.txt")
    archive.set_defaults(run=archive_tasks)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        tasks: list[tuple[int, Task]] = options.run(options, options.today)
    except TodoError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps([as_json(number, task) for number, task in tasks], ensure_ascii=False, indent=2))
    elif tasks:
        print("\n".join(show(number, task, options.today) for number, task in tasks))
    else:
        print("No tasks.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
