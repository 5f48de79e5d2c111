"""Secrets of password managers, through stand-ins for their programs."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script, stand_in

pytestmark = pytest.mark.slow  # a process for each call of the script

PASS = """import sys
assert sys.argv[1] == "show"
entries = {"work/db": "s3cret/+ä\\nuser: ada", "short": "abc", "work/empty": ""}
print(entries[sys.argv[2]]) if sys.argv[2] in entries else sys.exit("Error: not in the password store.")
"""
OP = """import json, sys
if sys.argv[1:3] == ["item", "list"]:
    print(json.dumps([{"title": "Mail", "vault": {"name": "Private"}}]))
else:
    assert sys.argv[3:5] == ["Mail", "--vault=Private"] and "--reveal" in sys.argv
    print(json.dumps({"value": "from-op-" + sys.argv[5].rpartition("=")[2]}))
"""
BW = """import json, sys
login = {"password": "from-bw", "username": "ada-bw"}
item = {"name": "Mail", "login": login, "fields": [{"name": "Pin", "value": "98765"}]}
print(json.dumps([item] if "list" in sys.argv else item))
"""


@pytest.fixture
def secret(tmp_path: Path) -> Script:
    for name, program in (("pass", PASS), ("op", OP), ("bw", BW)):
        stand_in(tmp_path / "bin", name, program)
    store = tmp_path / "store"
    for name in ("work/db.gpg", "home/wifi.gpg"):
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).touch()
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    return script("passwords", "secret.py", Workspace(tmp_path, {"PATH": path, "PASSWORD_STORE_DIR": str(store)}))


def test_only_names_are_listed(secret: Script) -> None:
    assert secret.json("list") == ["home/wifi", "work/db"]
    assert secret.run("list", "WORK") == "work/db\n"
    assert secret.json("list", "--program", "op") == ["Private/Mail"]
    assert secret.json("list", "--program", "bw") == ["Mail"]


def test_a_command_gets_secrets_that_its_output_does_not_show(secret: Script) -> None:
    command = 'echo "$KEY" "${#KEY}"; printf %s "$KEY" | base64; echo "$KEY" >&2; exit 0'
    out, err = secret.run_loudly("run", "KEY=work/db", "--", "sh", "-c", command)
    assert out.splitlines()[0].startswith("[secret] ")
    assert out.splitlines()[1] == "[secret]"
    assert err == "[secret]\n"


@pytest.mark.parametrize(
    ("program", "entry", "value"),
    [
        ("pass", "work/db#User", "ada"),
        ("op", "Private/Mail", "from-op-password"),
        ("op", "Private/Mail#username", "from-op-username"),
        ("bw", "Mail", "from-bw"),
        ("bw", "Mail#username", "ada-bw"),
        ("bw", "Mail#pin", "98765"),
    ],
)
def test_fields_of_every_program(secret: Script, program: str, entry: str, value: str) -> None:
    secret.run("file", entry, f"{program}.txt", "--program", program)
    file = secret.workspace.folder / f"{program}.txt"
    assert file.read_text() == f"{value}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_status_of_the_command_is_passed_on(secret: Script) -> None:
    done = secret.workspace.call([str(secret.path), "run", "KEY=work/db", "--", "sh", "-c", "exit 7"])
    assert done.returncode == 7


def test_failures_say_what_to_do(secret: Script) -> None:
    assert "not in the password store" in secret.fail("run", "KEY=nothing", "--", "true")
    assert "is it unlocked?" in secret.fail("file", "nothing", "x")
    assert "has no password" in secret.fail("file", "work/empty", "x")
    assert "too short to be hidden" in secret.fail("run", "KEY=short", "--", "true")
    assert "write VARIABLE=ENTRY" in secret.fail("run", "1KEY", "--", "true")
    assert "name the command after --" in secret.fail("run", "KEY=work/db")
    assert "is not the name of an entry" in secret.fail("file", "#user", "y")
    secret.workspace.write("taken", "")
    assert "cannot write taken" in secret.fail("file", "work/db", "taken")
