"""Expenses in a CSV ledger."""

from __future__ import annotations

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script

LEDGER = """date,amount,currency,category,payee,note
2030-03-01,23.80,CHF,groceries,Coop,
2030-03-02,79,CHF,transport,SBB,half-fare card
2030-03-20,0.10,CHF,groceries,Coop,"bag, paper"
2030-04-01,0.20,CHF,groceries,Migros,
2030-04-02,10.00,EUR,groceries,Edeka,
"""


@pytest.fixture
def expenses(workspace: Workspace) -> Script:
    return script("expenses", "expenses.py", workspace)


def test_the_first_expense_needs_a_currency_and_later_ones_inherit_it(expenses: Script, workspace: Workspace) -> None:
    assert "name the currency once" in expenses.fail("add", "5", "--category", "food")
    expenses.run("add", "5", "--category", "Food", "--currency", "chf", "--date", "2030-03-01")
    expenses.run("add", "2.50", "--category", "food", "--date", "2030-03-02", "--note", "a, b")
    assert workspace.read("expenses.csv") == (
        'date,amount,currency,category,payee,note\n2030-03-01,5,CHF,food,,\n2030-03-02,2.50,CHF,food,,"a, b"\n'
    )


def test_totals_are_exact_and_currencies_stay_apart(expenses: Script, workspace: Workspace) -> None:
    workspace.write("expenses.csv", LEDGER)
    totals = [(row["currency"], row["category"], row["total"], row["count"]) for row in expenses.json("report")]
    assert totals == [
        ("CHF", "transport", "79", 1),
        ("CHF", "groceries", "24.10", 3),
        ("CHF", "TOTAL", "103.10", 4),
        ("EUR", "groceries", "10.00", 1),
        ("EUR", "TOTAL", "10.00", 1),
    ]


def test_months_come_in_order(expenses: Script, workspace: Workspace) -> None:
    workspace.write("expenses.csv", LEDGER)
    report = expenses.json("report", "--by", "month", "--category", "Groceries", "--to", "2030-04-01")
    assert [(row["month"], row["total"]) for row in report] == [
        ("2030-03", "23.90"),
        ("2030-04", "0.20"),
        ("TOTAL", "24.10"),
    ]


def test_a_period_includes_its_ends(expenses: Script, workspace: Workspace) -> None:
    workspace.write("expenses.csv", LEDGER)
    listed = expenses.json("list", "--from", "2030-03-02", "--to", "2030-03-20")
    assert [row["date"] for row in listed] == ["2030-03-02", "2030-03-20"]
    assert [row["payee"] for row in expenses.json("list", "--month", "2030-04")] == ["Migros", "Edeka"]


def test_a_budget_shows_what_is_left(expenses: Script, workspace: Workspace) -> None:
    workspace.write("expenses.csv", LEDGER)
    report = expenses.json("report", "--month", "2030-03", "--budget", "groceries=20")
    assert [row.get("left") for row in report] == [None, "-3.90", None]
    assert "needs --by category" in expenses.fail("report", "--by", "payee", "--budget", "groceries=20")
    assert "write category=amount" in expenses.fail("report", "--budget", "groceries")


def test_a_refund_is_negative(expenses: Script) -> None:
    expenses.run("add", "20", "--category", "food", "--currency", "EUR")
    expenses.run("add", "-12.50", "--category", "food")
    assert expenses.json("report")[0]["total"] == "7.50"


def test_undo_removes_the_last_row_only(expenses: Script, workspace: Workspace) -> None:
    workspace.write("expenses.csv", LEDGER)
    assert expenses.json("undo")[0]["payee"] == "Edeka"
    assert workspace.read("expenses.csv") == LEDGER.replace("2030-04-02,10.00,EUR,groceries,Edeka,\n", "")


def test_a_spreadsheets_byte_order_mark_and_column_order_are_accepted(expenses: Script, workspace: Workspace) -> None:
    workspace.write("expenses.csv", "\ufeffcurrency,date,amount,category\r\nEUR,2030-03-01,5,food\r\n")
    assert expenses.json("report")[0] == {"currency": "EUR", "category": "food", "total": "5", "count": 1}


@pytest.mark.parametrize("amount", ["1,500", "five", "NaN", "Infinity", "1e9", "0.00001", "9999999999999", ""])
def test_an_amount_that_could_be_misread_is_refused(expenses: Script, workspace: Workspace, amount: str) -> None:
    expenses.fail("add", "--category", "x", "--currency", "EUR", "--", amount)
    assert not (workspace.folder / "expenses.csv").exists()


def test_bad_arguments_are_refused(expenses: Script) -> None:
    assert "zero" in expenses.fail("add", "0", "--category", "x", "--currency", "EUR")
    assert "three letters" in expenses.misuse("add", "1", "--category", "x", "--currency", "euros")
    assert "2030-03" in expenses.misuse("report", "--month", "March")
    assert "--category" in expenses.misuse("add", "1")


def test_a_broken_ledger_is_reported_with_its_line_and_left_alone(expenses: Script, workspace: Workspace) -> None:
    broken = "date,amount,currency,category\n2030-03-01,5,EUR,x\n2030-03-02,lots,EUR,x\n"
    workspace.write("expenses.csv", broken)
    assert "line 3" in expenses.fail("add", "1", "--category", "x")
    assert workspace.read("expenses.csv") == broken
    workspace.write("expenses.csv", "a,b\n1,2\n")
    assert "no column date, amount, currency" in expenses.fail("report")


def test_a_missing_ledger_is_not_an_empty_one(expenses: Script) -> None:
    assert "there is no ledger" in expenses.fail("report")
    assert "nothing to undo" in expenses.fail("undo")
