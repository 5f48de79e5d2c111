#!/usr/bin/env python3
"""Show the state of Git repositories, their branches, and what changed since a tag."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SKIPPED = frozenset(("node_modules", ".venv", "venv", "__pycache__", ".cache"))
UNFINISHED = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "BISECT_LOG": "bisect",
}
MAX_DEPTH = 4


class GitError(Exception):
    """The request cannot be carried out; the message says why."""


def git(folder: Path, *arguments: str) -> str:
    # Nothing that a repository configures may run a program here, and no file of it is changed.
    switches = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-optional-locks", "--no-pager"]
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *switches, *arguments],
            capture_output=True, text=True, errors="replace", timeout=60, env=environment,
        )  # fmt: skip
    except FileNotFoundError:
        raise GitError("git is not installed") from None
    except subprocess.TimeoutExpired:
        raise GitError(f"git {arguments[0]} in {folder} did not end within a minute") from None
    if done.returncode != 0:
        raise GitError(f"{folder}: {done.stderr.strip() or f'git {arguments[0]} failed'}")
    return done.stdout


def find_repositories(folder: Path, depth: int = 0) -> Iterator[Path]:
    if (folder / ".git").exists():
        yield folder
        return
    if depth < MAX_DEPTH:
        try:
            below = sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
        except OSError:
            return
        for path in below:
            if path.name not in SKIPPED and not path.name.startswith("."):
                yield from find_repositories(path, depth + 1)


def state_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"path": str(folder), "branch": "", "upstream": "", "ahead": 0, "behind": 0}
    counts = {"staged": 0, "changed": 0, "untracked": 0, "conflicts": 0}
    for line in git(folder, "status", "--porcelain=v2", "--branch").splitlines():
        match line.split(" "):
            case ["#", "branch.head", name]:
                found["branch"] = name
            case ["#", "branch.upstream", name]:
                found["upstream"] = name
            case ["#", "branch.ab", ahead, behind]:
                found |= {"ahead": int(ahead), "behind": -int(behind)}
            case ["1" | "2", kinds, *_]:
                counts["staged"] += kinds[0] != "."
                counts["changed"] += kinds[1] != "."
            case ["u", *_]:
                counts["conflicts"] += 1
            case ["?", *_]:
                counts["untracked"] += 1
    place = Path(git(folder, "rev-parse", "--absolute-git-dir").strip())
    unfinished = sorted({kind for name, kind in UNFINISHED.items() if (place / name).exists()})
    return found | counts | {"stashes": len(git(folder, "stash", "list").splitlines()), "unfinished": unfinished}


def state(options: argparse.Namespace) -> list[dict[str, Any]]:
    missing = [str(folder) for folder in options.folders if not folder.is_dir()]
    if missing:
        raise GitError(f"there is no folder {', '.join(missing)}")
    found = [path for folder in options.folders for path in inside(folder)]
    if not found:
        raise GitError("there is no repository in these folders")
    return [state_of(path) for path in found]


def inside(folder: Path) -> list[Path]:
    """The repositories below a folder, or the one that contains it."""
    below = list(find_repositories(folder))
    if below:
        return below
    try:
        return [Path(git(folder, "rev-parse", "--show-toplevel").strip())]
    except GitError:
        return []


def main_branch(folder: Path) -> str:
    for name in ("refs/remotes/origin/HEAD", "refs/heads/main", "refs/heads/master"):
        try:
            return git(folder, "rev-parse", "--abbrev-ref" if name.endswith("HEAD") else "--verify", name).strip()
        except GitError:
            continue
    return "HEAD"


def branches(options: argparse.Namespace) -> list[dict[str, Any]]:
    base = options.base or main_branch(options.folder)
    merged = set(git(options.folder, "branch", "--format=%(refname:short)", "--merged", base).split())
    form = "%(refname:short)%00%(upstream:track)%00%(committerdate:short)%00%(subject)%00%(HEAD)"
    rows = []
    for line in git(
        options.folder, "for-each-ref", f"--format={form}", "--sort=-committerdate", "refs/heads"
    ).splitlines():
        name, track, day, subject, head = line.split("\0")
        rows.append(
            {
                "branch": name,
                "current": head == "*",
                "merged": name in merged,
                "gone": track == "[gone]",
                "date": day,
                "subject": subject,
            }
        )
    return rows


def changes(options: argparse.Namespace) -> list[dict[str, Any]]:
    since = options.since
    if since is None:
        try:
            since = git(options.folder, "describe", "--tags", "--abbrev=0").strip()
        except GitError:
            raise GitError("there is no tag; name a commit with --since") from None
    if since.startswith("-"):
        raise GitError(f"{since!r} is not a commit")
    rows = []
    for line in git(
        options.folder, "log", "--no-merges", "--reverse", "--format=%h%x00%s", f"{since}..HEAD", "--"
    ).splitlines():
        commit, subject = line.split("\0", 1)
        found = re.match(r"([\w./ -]{1,30}?)(?:\(([^)]+)\))?(!)?: +(.+)", subject)
        area, text = (found[2] or found[1], found[4]) if found else ("other", subject)
        rows.append({"area": area, "change": text, "commit": commit, "breaking": bool(found and found[3])})
    return sorted(rows, key=lambda row: (not row["breaking"], row["area"] == "other", row["area"]))


def show(rows: list[dict[str, Any]]) -> str:
    lines: list[str] = []
    for row in rows:
        if "path" in row:
            counted = [
                f"{row[key]} {key}"
                for key in ("staged", "changed", "untracked", "conflicts", "stashes", "ahead", "behind")
                if row[key]
            ]
            notes = [*counted, *(f"unfinished {kind}" for kind in row["unfinished"])]
            if not row["upstream"]:
                notes.append("no upstream")
            lines.append(f"{row['path']}  {row['branch']}  {', '.join(notes) or 'clean'}")
        elif "branch" in row:
            marks = [key for key in ("current", "merged", "gone") if row[key]]
            lines.append(f"{row['date']}  {row['branch']}  {', '.join(marks)}  {row['subject']}")
        else:
            if not lines or f"## {row['area']}" not in lines:
                lines.append(f"## {row['area']}")
            lines.append(f"- {'BREAKING: ' if row['breaking'] else ''}{row['change']} ({row['commit']})")
    return "\n".join(lines) or "Nothing."


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    looking = commands.add_parser("state", parents=[shared], help="what is not committed or pushed")
    looking.add_argument("folders", type=Path, nargs="+")
    looking.set_defaults(run=state)
    listing = commands.add_parser("branches", parents=[shared], help="local branches, newest first")
    listing.add_argument("folder", type=Path)
    listing.add_argument("--base", help="the branch that others are merged into")
    listing.set_defaults(run=branches)
    changing = commands.add_parser("changes", parents=[shared], help="commits since a tag, by area")
    changing.add_argument("folder", type=Path)
    changing.add_argument("--since", metavar="COMMIT")
    changing.set_defaults(run=changes)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        rows = options.run(options)
    except GitError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(rows, ensure_ascii=False, indent=2) if options.json else show(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
