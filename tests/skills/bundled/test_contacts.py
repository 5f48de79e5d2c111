"""People in a vCard file."""

from __future__ import annotations

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script

CARD = """BEGIN:VCARD\r
VERSION:4.0\r
N:Hopper;Grace;;;\r
FN:Grace Hopper\r
item1.EMAIL;TYPE=work:grace@example.org\r
X-UNKNOWN:kept\r
NOTE:likes nanoseconds\\, and a note that is so long that it must be folded\r
  because lines end\r
BDAY:--1209\r
END:VCARD\r
"""


@pytest.fixture
def contacts(workspace: Workspace) -> Script:
    return script("contacts", "contacts.py", workspace)


def test_a_person_is_added_and_completed(contacts: Script, workspace: Workspace) -> None:
    contacts.run("add", "Ada Lovelace", "--email", "ada@example.org")
    (ada,) = contacts.json("add", "ada lovelace", "--email", "a@example.org", "--org", "Engines; Ltd", "--note", "a\nb")
    assert ada["email"] == ["ada@example.org", "a@example.org"]
    assert (ada["org"], ada["note"]) == ("Engines; Ltd", "a\nb")
    assert contacts.json("find", "ENGINES", "ada") == [ada]
    assert "N:Lovelace;Ada;;;" in workspace.read("contacts.vcf")


def test_what_the_script_does_not_know_survives_a_change(contacts: Script, workspace: Workspace) -> None:
    workspace.write("contacts.vcf", CARD)
    (grace,) = contacts.json("add", "Grace Hopper", "--phone", "+1 555")
    assert grace["email"] == ["grace@example.org"]
    assert grace["note"].endswith("folded because lines end")
    written = workspace.read("contacts.vcf")
    assert "X-UNKNOWN:kept" in written
    assert max(map(len, written.splitlines())) <= 75
    assert contacts.json("find")[0] == grace


def test_birthdays_come_in_order_with_the_age_that_is_reached(contacts: Script, workspace: Workspace) -> None:
    workspace.write("contacts.vcf", CARD)
    contacts.run("add", "Ada Lovelace", "--birthday", "1815-12-10")
    contacts.run("add", "Leap", "--birthday", "2000-02-29")
    assert contacts.json("birthdays", "--today", "2030-12-01", "--days", 10) == [
        {"date": "2030-12-09", "name": "Grace Hopper", "age": None},
        {"date": "2030-12-10", "name": "Ada Lovelace", "age": 215},
    ]
    assert contacts.json("birthdays", "--today", "2030-02-28", "--days", 1)[0]["date"] == "2030-03-01"


def test_an_import_adds_only_new_people(contacts: Script, workspace: Workspace) -> None:
    workspace.write("export.vcf", CARD)
    assert [person["name"] for person in contacts.json("import", "export.vcf")] == ["Grace Hopper"]
    assert contacts.json("import", "export.vcf") == []
    assert contacts.json("remove", "grace hopper")[0]["name"] == "Grace Hopper"
    assert contacts.json("find") == []


def test_bad_input_is_refused(contacts: Script, workspace: Workspace) -> None:
    assert "nobody is called" in contacts.fail("remove", "Bob")
    assert "the name is empty" in contacts.fail("add", " ")
    contacts.misuse("add", "Bob", "--birthday", "yesterday")
    workspace.write("contacts.vcf", "hello")
    assert "contains no vCard" in contacts.fail("find")
    assert "there is no file" in contacts.fail("import", "nowhere.vcf")
