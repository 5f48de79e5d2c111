"""Tasks in a todo.txt file."""

from __future__ import annotations

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script

TODAY = ("--today", "2030-05-14")  # a Tuesday


@pytest.fixture
def todo(workspace: Workspace) -> Script:
    return script("todo", "todo.py", workspace)


def test_a_task_is_written_in_the_todo_txt_format(todo: Script, workspace: Workspace) -> None:
    todo.run("add", "Call  the\ndentist +health @phone", "--priority", "a", "--due", "tomorrow", *TODAY)
    assert workspace.read("todo.txt") == "(A) 2030-05-14 Call the dentist +health @phone due:2030-05-15\n"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("today", "2030-05-14"),
        ("tomorrow", "2030-05-15"),
        ("friday", "2030-05-17"),
        ("tuesday", "2030-05-21"),
        ("+2w", "2030-05-28"),
        ("+9m", "2031-02-14"),
        ("2032-02-29", "2032-02-29"),
    ],
)
def test_due_dates_can_be_said_in_words(todo: Script, said: str, meant: str) -> None:
    assert todo.json("add", "x", "--due", said, *TODAY)[0]["due"] == meant


def test_the_end_of_a_short_month_replaces_a_day_it_lacks(todo: Script) -> None:
    assert todo.json("add", "x", "--due", "+1m", "--today", "2030-01-31")[0]["due"] == "2030-02-28"


def test_the_list_is_ordered_by_priority_then_due_date(todo: Script) -> None:
    todo.run("add", "someday", *TODAY)
    todo.run("add", "late", "--due", "2030-05-10", *TODAY)
    todo.run("add", "soon", "--due", "today", *TODAY)
    todo.run("add", "urgent", "--priority", "A", *TODAY)
    assert [task["text"].split()[0] for task in todo.json("list", *TODAY)] == ["urgent", "late", "soon", "someday"]
    assert "[overdue 4 d]" in todo.run("list", *TODAY)


def test_due_within_includes_what_is_overdue_and_leaves_out_what_has_no_date(todo: Script) -> None:
    for text, due in (("late", "2030-05-01"), ("today", "2030-05-14"), ("later", "2030-05-20"), ("never", "none")):
        todo.run("add", text, "--due", due, *TODAY)
    assert [task["number"] for task in todo.json("list", "--due-within", 0, *TODAY)] == [1, 2]


def test_lists_are_filtered_by_project_and_context(todo: Script) -> None:
    todo.run("add", "a +home @phone", *TODAY)
    todo.run("add", "b +work @phone", *TODAY)
    assert [task["number"] for task in todo.json("list", "--project", "home")] == [1]
    assert [task["number"] for task in todo.json("list", "--context", "phone")] == [1, 2]


def test_a_finished_task_keeps_its_dates_and_priority(todo: Script, workspace: Workspace) -> None:
    workspace.write("todo.txt", "(B) 2030-05-01 Pay rent\n")
    todo.run("done", 1, *TODAY)
    assert workspace.read("todo.txt") == "x 2030-05-14 2030-05-01 Pay rent pri:B\n"
    assert todo.json("list") == []
    assert todo.json("list", "--all")[0]["completed"] == "2030-05-14"


@pytest.mark.parametrize(("repeat", "due"), [("1w", "2030-05-21"), ("+1m", "2030-06-01")])
def test_a_repeating_task_comes_back(todo: Script, repeat: str, due: str) -> None:
    todo.run("add", "Water plants", "--due", "2030-05-01", "--repeat", repeat, *TODAY)
    finished, following = todo.json("done", 1, *TODAY)
    assert finished["done"]
    assert (following["number"], following["due"], following["done"]) == (2, due, False)


def test_numbers_stay_valid_until_the_archive_is_made(todo: Script, workspace: Workspace) -> None:
    for text in ("one", "two", "three"):
        todo.run("add", text, *TODAY)
    todo.run("remove", 1)
    todo.run("done", 2, *TODAY)
    assert todo.json("list")[0]["number"] == 3
    todo.run("archive")
    assert todo.json("list")[0]["number"] == 1
    assert workspace.read("done.txt") == "x 2030-05-14 2030-05-14 two\n"


def test_the_archive_grows(todo: Script, workspace: Workspace) -> None:
    workspace.write("todo.txt", "x 2030-01-01 a\n")
    workspace.write("done.txt", "x 2029-01-01 old\n")
    todo.run("archive")
    assert workspace.read("done.txt") == "x 2029-01-01 old\nx 2030-01-01 a\n"


def test_a_task_can_be_changed(todo: Script, workspace: Workspace) -> None:
    workspace.write("todo.txt", "(B) Pay rent due:2030-05-01\n")
    todo.run("set", 1, "--priority", "none", "--due", "2030-06-01")
    assert workspace.read("todo.txt") == "Pay rent due:2030-06-01\n"
    todo.run("set", 1, "--text", "Pay the rent", "--due", "none")
    assert workspace.read("todo.txt") == "Pay the rent\n"


def test_lines_of_other_programs_survive(todo: Script, workspace: Workspace) -> None:
    workspace.write("todo.txt", "x done without dates\r\n(A) Überprüfen key:value http://example.org\r\n")
    todo.run("add", "new", *TODAY)
    lines = workspace.read("todo.txt").splitlines()
    assert lines[:2] == ["x done without dates", "(A) Überprüfen key:value http://example.org"]


@pytest.mark.parametrize("number", [0, -1, 2, 99])
def test_a_number_that_does_not_exist_changes_nothing(todo: Script, workspace: Workspace, number: int) -> None:
    workspace.write("todo.txt", "only\n")
    assert f"no task {number}" in todo.fail("done", number)
    assert workspace.read("todo.txt") == "only\n"


def test_one_bad_number_among_several_changes_nothing(todo: Script, workspace: Workspace) -> None:
    workspace.write("todo.txt", "one\ntwo\n")
    todo.fail("done", 1, 7)
    assert workspace.read("todo.txt") == "one\ntwo\n"


def test_what_cannot_be_understood_is_refused(todo: Script, workspace: Workspace) -> None:
    assert "cannot read the date 'soonish'" in todo.fail("add", "x", "--due", "soonish")
    assert "cannot read the date '+9999y'" in todo.fail("add", "x", "--due", "+9999y")
    assert "needs some text" in todo.fail("add", "   ")
    assert "one letter" in todo.misuse("add", "x", "--priority", "high")
    assert "repeat with a number" in todo.misuse("add", "x", "--repeat", "0d")
    assert not (workspace.folder / "todo.txt").exists()


def test_finishing_twice_is_refused(todo: Script, workspace: Workspace) -> None:
    workspace.write("todo.txt", "x 2030-05-14 done\n")
    assert "finished already" in todo.fail("done", 1)


def test_a_list_that_cannot_be_read_is_not_replaced(todo: Script, workspace: Workspace) -> None:
    path = workspace.write("todo.txt", b"\xff\xfe broken")
    assert "cannot read todo.txt" in todo.fail("add", "x")
    assert path.read_bytes() == b"\xff\xfe broken"


def test_a_missing_folder_is_an_error_and_no_task(todo: Script) -> None:
    assert "cannot write" in todo.fail("add", "x", "--file", "nowhere/todo.txt")


def test_the_file_keeps_its_mode_and_its_link(todo: Script, workspace: Workspace) -> None:
    real = workspace.write("synced/todo.txt", "a\n")
    real.chmod(0o600)
    (workspace.folder / "todo.txt").symlink_to(real)
    todo.run("add", "b", *TODAY)
    assert (workspace.folder / "todo.txt").is_symlink()
    assert real.read_text() == "a\n2030-05-14 b\n"
    assert real.stat().st_mode & 0o777 == 0o600
