"""The inbox script of the GitHub skill, against a stand-in for the gh program."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script

NOW = ("--now", "2030-05-14T12:00:00")
PULL = {
    "number": 12,
    "title": "Fix\nthe \u202ecrash",
    "url": "https://github.com/o/r/pull/12",
    "updatedAt": "2030-05-10T12:00:00Z",
    "author": {"login": "ada"},
    "repository": {"name": "r", "nameWithOwner": "o/r"},
    "isDraft": True,
}
ISSUE = {key: value for key, value in PULL.items() if key != "isDraft"} | {"number": 34, "title": "Slow"}

# Answers as gh does and keeps what it was asked; what it answers lies next to it.
GH = """#!{python}
import json, pathlib, sys
here = pathlib.Path(__file__).parent
with (here / "asked.txt").open("a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
answer = json.loads((here / "answer.json").read_text())
sys.stdout.write(answer["stdout"].get(sys.argv[2], ""))
sys.stderr.write(answer["stderr"])
sys.exit(answer["status"])
"""


class Stand:
    """A folder with a program called gh."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "gh"
        program.write_text(GH.format(python=sys.executable))
        program.chmod(0o755)
        self.answer(prs=[PULL], issues=[ISSUE])

    def answer(self, *, prs: object, issues: object) -> None:
        self.write({"prs": json.dumps(prs), "issues": json.dumps(issues)})

    def write(self, stdout: dict[str, str], stderr: str = "", status: int = 0) -> None:
        content = {"stdout": stdout, "stderr": stderr, "status": status}
        (self.folder / "answer.json").write_text(json.dumps(content))

    def asked(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "asked.txt").read_text().splitlines()]


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


@pytest.fixture
def inbox(stand: Stand) -> Script:
    return script("github", "inbox.py", Workspace(stand.folder, {"PATH": str(stand.folder)}))


def test_the_inbox_lists_reviews_own_work_and_issues(inbox: Script) -> None:
    assert inbox.run(*NOW).splitlines() == [
        "Reviews asked of you: 1",
        "  o/r#12 Fix the crash (draft)",
        "    by ada, 4 d since the last update, https://github.com/o/r/pull/12",
        "",
        "Your open pull requests: 1",
        "  o/r#12 Fix the crash (draft)",
        "    by ada, 4 d since the last update, https://github.com/o/r/pull/12",
        "",
        "Issues assigned to you: 1",
        "  o/r#34 Slow",
        "    by ada, 4 d since the last update, https://github.com/o/r/pull/12",
    ]


def test_gh_is_only_asked_to_search(inbox: Script, stand: Stand) -> None:
    inbox.run("--owner", "my-company", "--limit", 5, *NOW)
    asked = stand.asked()
    assert [arguments[:3] for arguments in asked] == [
        ["search", "prs", "--review-requested=@me"],
        ["search", "prs", "--author=@me"],
        ["search", "issues", "--assignee=@me"],
    ]
    for arguments in asked:
        assert {"--state=open", "--limit=5", "--owner=my-company"} <= set(arguments)


def test_an_empty_inbox_is_empty(inbox: Script, stand: Stand) -> None:
    stand.answer(prs=[], issues=[])
    assert inbox.json(*NOW) == {"reviews": [], "pull_requests": [], "issues": []}


def test_a_deleted_author_does_no_harm(inbox: Script, stand: Stand) -> None:
    stand.answer(prs=[], issues=[{**ISSUE, "author": None}])
    assert inbox.json(*NOW)["issues"][0]["author"] == "ghost"


def test_failures_of_gh_are_passed_on(inbox: Script, stand: Stand) -> None:
    stand.write({}, stderr="HTTP 403: rate limit exceeded\n", status=1)
    assert "rate limit exceeded" in inbox.fail(*NOW)
    stand.write({}, status=4)
    assert "gh is not logged in" in inbox.fail(*NOW)


@pytest.mark.parametrize("printed", ["oops", "", '[{"number": 1}]', "{}x", "3"])
def test_a_strange_answer_is_refused(inbox: Script, stand: Stand, printed: str) -> None:
    stand.write({"prs": printed, "issues": "[]"})
    assert "gh " in inbox.fail(*NOW)


def test_without_gh_the_message_says_so(tmp_path: Path) -> None:
    assert "gh is not installed" in script("github", "inbox.py", Workspace(tmp_path, {"PATH": str(tmp_path)})).fail()


def test_arguments_are_checked(inbox: Script) -> None:
    assert "between 1 and 100" in inbox.misuse("--limit", "0")
    assert "an owner is" in inbox.misuse("--owner", "a b")
