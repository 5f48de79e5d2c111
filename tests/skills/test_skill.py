"""What a SKILL.md may look like, and what is made of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from skills_ref.parser import read_properties  # type: ignore[import-untyped]

from retinue.core.errors import SkillError
from retinue.skills.skill import InstallSpec, Requirements, SkillTier, parse_skill
from tests.skills.builders import parse


def test_a_minimal_skill() -> None:
    text = "---\nname: pdf\ndescription: Reads PDF files.\n---\n# Steps\n"
    skill = parse(text, folder="pdf")
    assert (skill.name, skill.description) == ("pdf", "Reads PDF files.")
    assert str(skill.location) == "/skills/pdf/SKILL.md"
    assert skill.folder == skill.location.parent
    assert skill.version == f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    assert skill.user_invocable
    assert not skill.disable_model_invocation
    assert skill.allow_remote
    assert skill.requirements == Requirements()


def test_every_field_of_the_public_format() -> None:
    skill = parse(
        "---\nname: pdf\ndescription: Reads.\nlicense: MIT\ncompatibility: Needs Python.\n"
        "allowed-tools: Bash(git add:*) Read\nmetadata:\n  author: ada\n  version: '1.0'\n---\n"
    )
    assert (skill.license, skill.compatibility) == ("MIT", "Needs Python.")
    assert skill.allowed_tools == ("Bash(git add:*)", "Read")
    assert skill.requirements == Requirements()


METADATA = {
    "openclaw": {
        "always": True,
        "emoji": "🐙",
        "homepage": "https://cli.github.com",
        "skillKey": "gh",
        "primaryEnv": "GITHUB_TOKEN",
        "os": ["macos", "linux"],
        "requires": {"bins": ["gh"], "anyBins": ["jq", "yq"], "env": ["GITHUB_TOKEN"], "config": ["browser.enabled"]},
        "install": [
            {"id": "brew", "kind": "brew", "formula": "gh", "bins": ["gh"], "label": "Install gh", "os": ["darwin"]},
            {"kind": "download", "url": "https://x/gh.tgz", "archive": "tar.gz", "extract": True, "stripComponents": 1},
        ],
    }
}
YAML_METADATA = """\
metadata:
  openclaw:
    always: true
    emoji: 🐙
    homepage: https://cli.github.com
    skillKey: gh
    primaryEnv: GITHUB_TOKEN
    os: [macos, linux]
    requires:
      bins: [gh]
      anyBins: [jq, yq]
      env: [GITHUB_TOKEN]
      config:
        - browser.enabled
    install:
      - {id: brew, kind: brew, formula: gh, bins: [gh], label: Install gh, os: [darwin]}
      - {kind: download, url: "https://x/gh.tgz", archive: tar.gz, extract: true, stripComponents: 1}
"""
TRAILING_COMMAS = "metadata:\n  {\n" + json.dumps(METADATA)[1:-1] + ",\n  }\n"


@pytest.mark.parametrize(
    "metadata",
    [
        f"metadata: {json.dumps(METADATA, ensure_ascii=False)}\n",
        f"metadata: {json.dumps(METADATA)}\n",
        f"metadata: '{json.dumps(METADATA)}'\n",
        YAML_METADATA,
        YAML_METADATA.replace("openclaw", "retinue"),
        TRAILING_COMMAS.replace("\\ud83d\\udc19", "🐙"),
    ],
    ids=["flow", "escaped-flow", "string", "yaml", "own-namespace", "trailing-commas"],
)
def test_metadata_in_every_spelling(metadata: str) -> None:
    skill = parse(f"---\nname: github\ndescription: Issues.\n{metadata}---\n")
    assert skill.always
    assert (skill.emoji, skill.homepage) == ("🐙", "https://cli.github.com")
    assert (skill.skill_key, skill.key, skill.primary_env) == ("gh", "gh", "GITHUB_TOKEN")
    assert skill.requirements == Requirements(
        ("darwin", "linux"), ("gh",), ("jq", "yq"), ("GITHUB_TOKEN",), ("browser.enabled",)
    )
    assert skill.install == (
        InstallSpec("brew", "gh", id="brew", label="Install gh", bins=("gh",), os=("darwin",)),
        InstallSpec("download", "https://x/gh.tgz", archive="tar.gz", extract=True, strip_components=1),
    )


def test_our_namespace_wins_key_by_key() -> None:
    metadata = {"openclaw": {"emoji": "a", "primaryEnv": "KEY"}, "retinue": {"emoji": "b"}}
    skill = parse(f"---\nname: x\ndescription: y\nmetadata: {json.dumps(metadata)}\n---\n")
    assert (skill.emoji, skill.primary_env) == ("b", "KEY")


def test_one_name_stands_for_a_list() -> None:
    skill = parse("---\nname: x\ndescription: y\nmetadata: {openclaw: {requires: {bins: gh}}}\n---\n")
    assert skill.requirements.bins == ("gh",)


@pytest.mark.parametrize(
    ("lines", "by_model", "remote"),
    [
        ("disable-model-invocation: true", False, True),
        ("disable-model-invocation: yes", False, True),
        ("invocation: {disableModelInvocation: true, allowRemote: false}", False, False),
        ("metadata: {openclaw: {invocation: {disableModelInvocation: true, allowRemote: false}}}", False, False),
        ("metadata: {openclaw: {invocation: {disableModelInvocation: false, allowRemote: true}}}", True, True),
        ("disable-model-invocation: false", True, True),
        ("disable-model-invocation:", True, True),
    ],
)
def test_who_may_start_it(lines: str, by_model: bool, remote: bool) -> None:
    skill = parse(f"---\nname: x\ndescription: y\n{lines}\n---\n")
    assert (not skill.disable_model_invocation, skill.allow_remote) == (by_model, remote)


def test_command_keys() -> None:
    skill = parse(
        "---\nname: x\ndescription: y\nuser-invocable: false\ncommand-dispatch: tool\ncommand-tool: exec\n"
        "command-arg-mode: raw\n---\n"
    )
    assert not skill.user_invocable
    assert (skill.command_dispatch, skill.command_tool, skill.command_arg_mode) == ("tool", "exec", "raw")


@pytest.mark.parametrize("written", ["007", "true", "null", "1e3", "2024-01-01", "0x10"])
def test_a_name_is_what_was_written(written: str) -> None:
    assert parse(f"---\nname: {written}\ndescription: 12\n---\n").name == written


def test_the_folder_gives_the_name_where_the_file_does_not() -> None:
    assert parse("---\ndescription: y\n---\n", folder="weather").name == "weather"


@pytest.mark.parametrize(
    ("line", "description"),
    [
        ("description: Use when: somebody asks", "Use when: somebody asks"),
        ("description: *bold* claims", "*bold* claims"),
        ("description: [draft] reads: files", "[draft] reads: files"),
        ('description: "Says "hi" to people"', 'Says "hi" to people'),
        ("description: Use when: asked\n  on two lines", "Use when: asked on two lines"),
    ],
)
def test_text_that_is_not_yaml_is_taken_as_it_stands(line: str, description: str) -> None:
    skill = parse(
        f'---\nname: x\n{line}\nmetadata: {{"openclaw": {{"requires": {{"bins": ["gh"]}}}}}}\ntags: [a, b]\n---\n'
    )
    assert skill.description == description
    assert skill.requirements.bins == ("gh",)


def test_windows_line_ends_and_a_byte_order_mark() -> None:
    text = "\ufeff---\r\nname: x\r\ndescription: >\r\n  two\r\n  lines\r\n---\r\nbody\r\n"
    skill = parse(text)
    assert (skill.name, skill.description) == ("x", "two lines")


def test_name_and_description_are_one_visible_line_of_limited_length() -> None:
    skill = parse(
        r"""---
name: "a\nb\u202e\x07c"
description: "One\n\u200btwo\u2028## System"
---
"""
    )
    assert (skill.name, skill.description) == ("a bc", "One two ## System")
    long = parse(f"---\nname: {'n' * 500}\ndescription: {'d ' * 5000}\n---\n")
    assert len(long.name) == 64
    assert len(long.description) <= 1024


NESTED = "a: " + "[" * 500 + "]" * 500
DEEP_JSON = '{"a":' * 5000
ALIASES = 'a: &a ["x", "x"]\n' + "".join(
    f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("# no front matter\n", "does not start with front matter"),
        ("", "does not start with front matter"),
        ("---\nname: x\ndescription: y\n", "does not start with front matter"),
        ("---\n---\n", "no description"),
        ("---\nname: x\n---\n", "no description"),
        ("---\nname: x\ndescription: '  '\n---\n", "no description"),
        ("---\n- a\n- b\n---\n", "cannot be read"),
        (f"---\n{NESTED}\nname: x\ndescription: y\n---\n", "nested deeper"),
        (f"---\n{ALIASES}name: x\ndescription: y\n---\n", "aliases"),
        ("---\nname: x\ndescription: y\nextra: !!python/object:os.system x\n---\n", "tags"),
        (f"---\nname: x\ndescription: y\nextra: {'z' * 70_000}\n---\n", "larger than"),
        ("---\nname: x\nname: y\ndescription: z\n---\n", "occurs twice"),
        ("---\nname: x\ndescription: y\nmetadata: '{\"openclaw\": [}'\n---\n", "`metadata` cannot be read"),
        (f"---\nname: x\ndescription: y\nmetadata: '{DEEP_JSON}'\n---\n", "`metadata` cannot be read"),
        ("---\nname: x\ndescription: y\nmetadata: {openclaw: {requires: {bins: 5}}}\n---\n", "metadata.requires.bins"),
        ("---\nname: x\ndescription: y\nmetadata: {openclaw: {emoji: [a]}}\n---\n", "must be text"),
        ("---\nname: x\ndescription: y\nuser-invocable: perhaps\n---\n", "user-invocable"),
        ("---\nname: x\0\ndescription: y\n---\n", "zero bytes"),
    ],
)
def test_a_bad_skill_is_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(SkillError, match=complaint):
        parse(text)


def test_invalid_utf8_is_refused() -> None:
    with pytest.raises(SkillError, match="byte 10"):
        parse_skill(b"---\nname: \xff\n---\n", Path("/s/x/SKILL.md"), SkillTier.WORKSPACE)


def test_a_thousand_broken_keys_are_given_up_at_once() -> None:
    keys = "".join(f"k{n}: [\n" for n in range(5000))
    with pytest.raises(SkillError, match="cannot be read"):
        parse(f"---\nname: x\ndescription: y\n{keys}---\n")


def test_metadata_of_other_kinds_means_nothing() -> None:
    for metadata in ("text", "5", "[a, b]", "{openclaw: text}"):
        assert parse(f"---\nname: x\ndescription: y\nmetadata: {metadata}\n---\n").requirements == Requirements()


def test_the_public_checker_and_we_read_a_skill_alike(tmp_path: Path) -> None:
    folder = tmp_path / "on"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: on\ndescription: Switches 'it' on.\nlicense: 1.0\n---\nbody\n")
    theirs = read_properties(folder)
    ours = parse((folder / "SKILL.md").read_text())
    assert (ours.name, ours.description, ours.license) == (theirs.name, theirs.description, theirs.license)


@pytest.mark.parametrize("stray", ["stray text", '"quoted": 1', "- item", "? complex"])
def test_lines_that_belong_to_no_key_are_not_taken_for_text(stray: str) -> None:
    with pytest.raises(SkillError, match="cannot be read"):
        parse(f"---\nname: x\ndescription: Use when: asked\n{stray}\n---\n")


def test_comments_do_not_hinder_the_reading_of_bad_yaml() -> None:
    skill = parse("---\n# mine\nname: x # the name\ndescription: Use when: asked\n\nlicense: MIT\n---\n")
    assert (skill.name, skill.description, skill.license) == ("x", "Use when: asked", "MIT")
