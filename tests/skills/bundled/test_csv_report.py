"""Questions about CSV files."""

from __future__ import annotations

from typing import Any

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script


@pytest.fixture
def report(workspace: Workspace) -> Script:
    return script("csv-report", "csv_report.py", workspace)


def columns(report: Script, name: str) -> dict[str, Any]:
    return {column["column"]: column for column in report.json("profile", name)["columns"]}


def test_a_profile_tells_types_gaps_and_ranges(report: Script, workspace: Workspace) -> None:
    workspace.write(
        "t.csv",
        "day,n,price,zip,ok,note,void\n"
        "2030-01-02,1,0.1,0123,yes,a,\n"
        "2030-01-03,2,0.2,8001,no,,\n"
        "2030-01-01,10,,8001,yes,a,\n",
    )
    found = columns(report, "t.csv")
    types = {name: column["type"] for name, column in found.items()}
    assert types == {
        "day": "date",
        "n": "integer",
        "price": "number",
        "zip": "text",
        "ok": "boolean",
        "note": "text",
        "void": "empty",
    }
    assert (found["n"]["min"], found["n"]["max"], found["n"]["median"]) == (1, 10, 2)
    assert (found["price"]["sum"], found["price"]["empty"]) == (0.3, 1)
    assert (found["day"]["min"], found["day"]["max"]) == ("2030-01-01", "2030-01-03")
    assert found["note"]["top"] == [["a", 2]]


@pytest.mark.parametrize(
    ("cells", "total"),
    [
        (["1,234.50", "2"], 1236.5),
        (["1.234,50", "2"], 1236.5),
        (["1,5", "1,234"], 2.734),
        (["1,234", "5"], 1239),
        (["1'000", "CHF 5.50", "€ 2"], 1007.5),
        (["12 %", "-3 %"], 9),
        (["1e3", "+1"], 1001),
    ],
)
def test_numbers_are_read_as_their_column_writes_them(
    report: Script, workspace: Workspace, cells: list[str], total: float
) -> None:
    workspace.write("t.csv", "a;n\n" + "".join(f"x;{cell}\n" for cell in cells))
    assert columns(report, "t.csv")["n"]["sum"] == total


def test_a_column_of_numbers_with_words_is_text_and_says_so(report: Script, workspace: Workspace) -> None:
    workspace.write("t.csv", "a,n\nx,1\nx,n/a\nx,3\n")
    column = columns(report, "t.csv")["n"]
    assert (column["type"], column["numeric_cells"]) == ("text", 2)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_detected(report: Script, workspace: Workspace, delimiter: str) -> None:
    rows = [["name", "text"], ["a", '"x, y; z"'], ["b", "q"]]
    workspace.write("t.csv", "\n".join(delimiter.join(row) for row in rows))
    profile = report.json("profile", "t.csv")
    assert profile["delimiter"] == delimiter
    assert [column["column"] for column in profile["columns"]] == ["name", "text"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_the_encoding_is_detected(report: Script, workspace: Workspace, encoding: str) -> None:
    workspace.write("t.csv", "größe,n\nklein,1\n".encode(encoding))
    assert list(columns(report, "t.csv")) == ["größe", "n"]


def test_duplicates_ragged_rows_and_odd_headers_are_reported(report: Script, workspace: Workspace) -> None:
    workspace.write("t.csv", "a,a,\n1,2,3\n1,2,3\n1\n1,2,3,4\n\n")
    profile = report.json("profile", "t.csv")
    assert (profile["rows"], profile["duplicate_rows"], profile["ragged_rows"]) == (4, 2, 2)
    assert [column["column"] for column in profile["columns"]] == ["a", "a_2", "column_3"]


ROWS = "who,n,day\nann,10,2030-01-01\nbob,9,2030-02-01\ncleo,,2030-03-01\nAnna,100,2030-04-01\n"


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("n>9", ["ann", "Anna"]),
        ("n >= 9", ["ann", "bob", "Anna"]),
        ("n<10", ["bob"]),
        ("n=", ["cleo"]),
        ("n != 9", ["ann", "cleo", "Anna"]),
        ("n=10.0", ["ann"]),
        ("who~AN", ["ann", "Anna"]),
        ("day<=2030-02-01", ["ann", "bob"]),
    ],
)
def test_rows_are_filtered(report: Script, workspace: Workspace, condition: str, names: list[str]) -> None:
    workspace.write("t.csv", ROWS)
    assert [row["who"] for row in report.json("rows", "t.csv", "--where", condition)["rows"]] == names


def test_conditions_add_up_and_columns_can_be_chosen(report: Script, workspace: Workspace) -> None:
    workspace.write("t.csv", ROWS)
    result = report.json("rows", "t.csv", "--where", "n>9", "--where", "who~anna", "--columns", "n")
    assert result == {"matching": 1, "rows": [{"n": "100"}]}


def test_rows_are_sorted_as_numbers_with_gaps_last(report: Script, workspace: Workspace) -> None:
    workspace.write("t.csv", ROWS)
    upward = report.json("rows", "t.csv", "--sort", "n")["rows"]
    downward = report.json("rows", "t.csv", "--sort", "n", "--descending", "--limit", 2)
    assert [row["who"] for row in upward] == ["bob", "ann", "Anna", "cleo"]
    assert [row["who"] for row in downward["rows"]] == ["Anna", "ann"]
    assert downward["matching"] == 4


def test_groups_are_counted_and_measured(report: Script, workspace: Workspace) -> None:
    workspace.write("t.csv", "r,p,v\nN,a,0.1\nN,a,0.2\nN,b,5\nS,a,\n")
    result = report.json("group", "t.csv", "--by", "r,p", "--sum", "v", "--mean", "v", "--max", "v", "--min", "v")
    assert result["rows"][0] == {
        "r": "N", "p": "a", "count": 2, "sum(v)": 0.3, "mean(v)": 0.15, "min(v)": 0.1, "max(v)": 0.2,
    }  # fmt: skip
    assert result["rows"][2]["sum(v)"] is None


def test_a_cell_cannot_break_the_printed_table(report: Script, workspace: Workspace) -> None:
    workspace.write("t.csv", 'a,b\n"x | y\nz",1\n')
    assert "| x \\| y z | 1 |" in report.run("rows", "t.csv")


def test_what_cannot_be_answered_is_refused(report: Script, workspace: Workspace) -> None:
    workspace.write("t.csv", ROWS)
    workspace.write("empty.csv", "\n\n")
    assert "there is no column 'nope'; the columns are: who, n, day" in report.fail("group", "t.csv", "--by", "nope")
    assert "cannot read the condition 'n is 3'" in report.fail("rows", "t.csv", "--where", "n is 3")
    assert "is empty" in report.fail("profile", "empty.csv")
    assert "cannot read missing.csv" in report.fail("profile", "missing.csv")
    assert "cannot read ." in report.fail("profile", ".")
    assert "one character" in report.misuse("profile", "t.csv", "--delimiter", "ab")
