#!/usr/bin/env python3
"""List what waits for the user on GitHub: reviews, own pull requests, assigned issues."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

FIELDS = "number,title,url,updatedAt,author,repository"
SECTIONS = {
    "reviews": ("Reviews asked of you", ("search", "prs", "--review-requested=@me"), f"{FIELDS},isDraft"),
    "pull_requests": ("Your open pull requests", ("search", "prs", "--author=@me"), f"{FIELDS},isDraft"),
    "issues": ("Issues assigned to you", ("search", "issues", "--assignee=@me"), FIELDS),
}
Item = dict[str, object]


class GitHubError(Exception):
    """The request cannot be carried out; the message says why."""


def run_gh(arguments: list[str]) -> Any:
    try:
        done = subprocess.run(["gh", *arguments], capture_output=True, text=True, errors="replace", timeout=60)
    except FileNotFoundError:
        raise GitHubError("gh is not installed; see https://cli.github.com") from None
    except subprocess.TimeoutExpired:
        raise GitHubError("gh did not answer within a minute") from None
    if done.returncode == 4:
        raise GitHubError("gh is not logged in; run `gh auth login` or set GH_TOKEN for this skill")
    if done.returncode != 0:
        raise GitHubError(done.stderr.strip() or f"gh failed with status {done.returncode}")
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise GitHubError(f"gh did not answer with JSON: {done.stdout[:200]!r}") from None


def one_line(text: object) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in str(text)).split())


def to_item(found: dict[str, Any], now: datetime) -> Item:
    updated = datetime.fromisoformat(found["updatedAt"])
    return {
        "repository": found["repository"]["nameWithOwner"],
        "number": found["number"],
        "title": one_line(found["title"]),
        "author": (found.get("author") or {}).get("login", "ghost"),
        "draft": bool(found.get("isDraft")),
        "updated": found["updatedAt"],
        "idle_days": (now - updated).days,
        "url": found["url"],
    }


def fetch_section(name: str, options: argparse.Namespace) -> list[Item]:
    _, command, fields = SECTIONS[name]
    arguments = [
        *command,
        "--state=open",
        "--sort=updated",
        "--order=asc",
        f"--limit={options.limit}",
        f"--json={fields}",
    ]
    if options.owner:
        arguments.append(f"--owner={options.owner}")
    try:
        return [to_item(item, options.now) for item in run_gh(arguments)]
    except (KeyError, TypeError, ValueError) as failure:
        raise GitHubError(f"gh gave an unexpected answer: {failure!r}") from failure


def show(inbox: dict[str, list[Item]]) -> str:
    blocks = []
    for name, items in inbox.items():
        lines = [f"{SECTIONS[name][0]}: {len(items)}"]
        for item in items:
            draft = " (draft)" if item["draft"] else ""
            lines.append(f"  {item['repository']}#{item['number']} {item['title']}{draft}")
            lines.append(f"    by {item['author']}, {item['idle_days']} d since the last update, {item['url']}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def owner_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9-]{1,39}", text):
        raise argparse.ArgumentTypeError("an owner is the name of a GitHub user or organisation")
    return text


def limit(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 100:
        raise argparse.ArgumentTypeError("must be between 1 and 100")
    return number


def moment(text: str) -> datetime:
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--owner", type=owner_name, help="only repositories of this user or organisation")
    parser.add_argument("--limit", type=limit, default=20, help="items per section (default: 20)")
    parser.add_argument("--now", type=moment, default=datetime.now(UTC), help="count idle days up to this time")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        inbox = {name: fetch_section(name, options) for name in SECTIONS}
    except GitHubError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(inbox, ensure_ascii=False, indent=2) if options.json else show(inbox))
    return 0


if __name__ == "__main__":
    sys.exit(main())
