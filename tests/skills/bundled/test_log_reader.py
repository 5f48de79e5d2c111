"""Log files, summarised and searched."""

from __future__ import annotations

import gzip

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script

APP = """2030-05-14T10:00:01.123Z INFO start 1
2030-05-14T10:05:00Z ERROR no answer from 10.0.0.7:80 after 31 ms
Traceback:
  at line 3
2030-05-14T10:06:00Z ERROR no answer from 10.0.0.9:80 after 12 ms
2030-05-14T10:07:00Z WARN job 7f3a9c1e8b2d4f60 is late
"""


@pytest.fixture
def logs(workspace: Workspace) -> Script:
    workspace.write("app.log", APP)
    return script("log-reader", "logs.py", workspace)


def test_messages_that_differ_only_in_numbers_are_one(logs: Script) -> None:
    found = logs.json("summary", "app.log")
    assert (found["first"], found["last"]) == ("2030-05-14 10:00:01", "2030-05-14 10:07:00")
    assert found["levels"] == {"error": 2, "info": 1, "warning": 1}
    assert [(each["count"], each["level"], each["message"]) for each in found["messages"]] == [
        (2, "error", "no answer from <address> after <n> ms"),
        (1, "warning", "job <hex> is late"),
        (1, "info", "start <n>"),
    ]


def test_entries_by_time_level_and_content(logs: Script) -> None:
    assert logs.run("show", "app.log", "--match", "line 3").splitlines()[1:] == ["Traceback:", "  at line 3"]
    assert len(logs.json("show", "app.log", "--level", "warning", "--from", "2030-05-14 10:05:30")) == 2
    assert len(logs.json("show", "app.log", "--last", "1m")) == 2
    assert len(logs.json("show", "app.log", "--match", "late", "--context", 1)) == 2
    assert logs.run("show", "app.log", "--limit", 1).endswith("(3 more entries; use --limit)\n")
    assert logs.run("show", "app.log", "--match", "nothing") == "No entries.\n"


def test_other_formats_and_compressed_files(logs: Script, workspace: Workspace) -> None:
    lines = (
        '1.2.3.4 - - [14/May/2030:10:00:00 +0000] "GET / HTTP/1.1" 500 12\n',
        "May 14 09:00:00 host cron[12]: failed\n",
    )
    workspace.write("web.log.gz", gzip.compress("".join(lines).encode()))
    web, cron = logs.json("show", "web.log.gz", "--now", "2030-05-14 12:00:00")
    assert (web["at"], web["level"]) == ("2030-05-14 10:00:00", "error")
    assert cron["at"] == "2030-05-14 09:00:00"
    assert logs.json("show", "-", "--now", "2030-01-01 12:00:00", stdin=lines[1])[0]["at"] == "2029-05-14 09:00:00"


def test_control_characters_of_a_log_do_not_reach_the_terminal(logs: Script, workspace: Workspace) -> None:
    workspace.write("evil.log", b"2030-05-14 10:00:00 INFO \x1b[2J\xff done\n")
    assert "\x1b" not in logs.run("show", "evil.log")


def test_bad_input_is_refused(logs: Script, workspace: Workspace) -> None:
    assert "cannot read nowhere.log" in logs.fail("summary", "nowhere.log")
    workspace.write("bad.gz", "x")
    assert "cannot read bad.gz" in logs.fail("summary", "bad.gz")
    assert "not a regular expression" in logs.misuse("show", "app.log", "--match", "(")
    assert "30m, 2h or 3d" in logs.misuse("show", "app.log", "--last", "long")
