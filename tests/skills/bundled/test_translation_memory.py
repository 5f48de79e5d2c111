"""Approved translations and terms."""

from __future__ import annotations

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script


@pytest.fixture
def memory(workspace: Workspace) -> Script:
    made = script("translation-memory", "memory.py", workspace)
    made.run("add", "en-de", "Please restart the device.", "Bitte starten Sie das Gerät neu.")
    made.run("add", "en-de", "device", "Gerät", "--term")
    return made


def test_similar_sentences_and_terms_are_found(memory: Script) -> None:
    close, term = memory.json("lookup", "en-de", "Please restart your device.")
    assert close["target"] == "Bitte starten Sie das Gerät neu."
    assert 85 <= close["match"] < 100
    assert (term["match"], term["target"]) == ("term", "Gerät")
    assert memory.json("lookup", "en-de", "Please restart the device.")[0]["match"] == 100
    assert memory.json("lookup", "en-de", "please restart the device.")[0]["match"] == 99
    assert memory.run("lookup", "en-fr", "Please restart the device.") == "Nothing.\n"


def test_a_correction_replaces_the_earlier_translation(memory: Script) -> None:
    memory.run("add", "en-de", "Please restart the device.", "Starten Sie das Gerät bitte neu.")
    assert memory.json("lookup", "en-de", "Please restart the device.")[0]["target"].startswith("Starten")


def test_the_check_finds_terms_and_numbers(memory: Script, workspace: Workspace) -> None:
    workspace.write("source.txt", "Charge two devices.\nWait 1,500 s.\nFine.\n")
    workspace.write("target.txt", "Laden Sie zwei Apparate.\nWarten Sie 1.500 s.\n7 gut.\n")
    assert memory.json("check", "en-de", "source.txt", "target.txt") == [
        {"line": 1, "problem": "'device' should be 'Gerät'"},
        {"line": 3, "problem": "numbers differ:  and 7"},
    ]
    workspace.write("target.txt", "Eine Zeile.\n")
    assert "they must match" in memory.fail("check", "en-de", "source.txt", "target.txt")


def test_tmx_goes_out_and_comes_back(memory: Script, workspace: Workspace) -> None:
    assert memory.json("export", "out.tmx") == [{"file": "out.tmx", "count": 2}]
    memory.run("import", "out.tmx", "--file", "copy.tsv")
    assert workspace.read("copy.tsv") == workspace.read("translations.tsv")


def test_bad_input_is_refused(memory: Script, workspace: Workspace) -> None:
    assert "must not be empty" in memory.fail("add", "en-de", " ", "x")
    assert "looks like en-de" in memory.misuse("lookup", "english", "x")
    workspace.write("bad.tmx", "<tmx>")
    assert "cannot read bad.tmx" in memory.fail("import", "bad.tmx")
    workspace.write("translations.tsv", "a\tb\n")
    assert "is not a translation memory" in memory.fail("lookup", "en-de", "x")
