"""Loading never fails: it uses what it can and says what it could not."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from retinue.config.keypath import parse_path
from retinue.config.load import LoadedConfig, good_copy_of, load_config
from retinue.config.sources import MAX_FILE_BYTES, MAX_INCLUDE_DEPTH
from retinue.storage.home_paths import HomePaths
from tests.config.conftest import Write

GOOD = "{ agents: { defaults: { bootstrapMaxChars: 7 } } }\n"


def messages(loaded: LoadedConfig) -> list[str]:
    """Problems without the folder, which is different in every run."""
    return [str(problem).replace(f"{loaded.home.path}/", "") for problem in loaded.problems]


def chars(loaded: LoadedConfig) -> int:
    return loaded.config.agents.defaults.bootstrap_max_chars


def test_a_missing_file_means_the_defaults(home: HomePaths) -> None:
    loaded = load_config(home, {})
    assert (loaded.source, loaded.problems, chars(loaded)) == ("defaults", (), 20_000)
    assert list(home.path.iterdir()) == [], "nothing is written"


def test_a_missing_home_means_the_defaults(tmp_path: Path) -> None:
    assert load_config(HomePaths(tmp_path / "nowhere"), {}).problems == ()


def test_a_file_is_loaded_and_kept_as_good_copy(write: Write) -> None:
    home = write(GOOD)
    loaded = load_config(home, {})
    assert (loaded.source, chars(loaded), loaded.problems) == ("file", 7, ())
    assert good_copy_of(home).read_text() == GOOD
    assert stat.S_IMODE(good_copy_of(home).stat().st_mode) == 0o600


def test_an_unchanged_good_copy_is_not_rewritten(write: Write) -> None:
    home = write(GOOD)
    load_config(home, {})
    before = good_copy_of(home).stat()
    load_config(home, {})
    assert good_copy_of(home).stat().st_ino == before.st_ino


@pytest.mark.parametrize("text", ["", "  \n", "\ufeff", "// only a comment\n"])
def test_an_empty_file_means_the_defaults_with_a_warning(write: Write, text: str) -> None:
    load_config(write(GOOD), {})
    loaded = load_config(write(text), {})
    assert good_copy_of(loaded.home).read_text() == GOOD, "an emptied file is no good copy"
    assert chars(loaded) == 20_000
    assert messages(loaded) == ["retinue.json: The file is empty; the defaults are used."]
    assert not loaded.errors


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"{ agents: { defaults: { bootstrapMax", "expected ':' after the key 'bootstrapMax'"),
        (b"\x00\x01\x02\xff", "This is a binary file"),
        (b"{ a: '\xff\xfe' }", "Byte 7 is not UTF-8"),
        (b"agents:\n  defaults:\n    workspace: x\n", "found 'agents', expected a value (text needs quotes)"),
        (b"[1, 2]", "expected an object"),
        (b"[" * 100_000, "levels of nesting"),
        (b"{" + b'"a":{' * 5_000, "levels of nesting"),
        (b"x" * 10_000_000, f"is larger than {MAX_FILE_BYTES:,} bytes"),
        (b"{ agents: { defaults: { bootstrapMaxChars: 'many' } } }", 'a whole number, at least 1, got "many"'),
        (b"/* never", "a comment starts here and never ends"),
    ],
)
def test_a_broken_file_falls_back_and_says_so(write: Write, content: bytes, expected: str) -> None:
    home = write(content)
    loaded = load_config(home, {})
    assert (loaded.source, chars(loaded)) == ("defaults", 20_000)
    assert len(loaded.errors) == 1
    assert expected in str(loaded.errors[0])
    assert "the defaults are used instead" in messages(loaded)[-1]
    assert not good_copy_of(home).exists(), "a broken file is never a good copy"

    write(GOOD)
    load_config(home, {})
    write(content)
    loaded = load_config(home, {})
    assert (loaded.source, chars(loaded)) == ("last-good", 7)
    assert "The last configuration that was valid is used instead" in messages(loaded)[-1]
    assert good_copy_of(home).read_text() == GOOD
    assert home.config_file.read_bytes() == content, "the broken file stays for its owner"


def test_a_directory_in_its_place_falls_back(home: HomePaths) -> None:
    home.config_file.mkdir()
    loaded = load_config(home, {})
    assert loaded.source == "defaults"
    assert "is a folder, not a regular file" in str(loaded.errors[0])


def test_a_fifo_in_its_place_does_not_block(home: HomePaths) -> None:
    os.mkfifo(home.config_file)
    assert "FIFO" in str(load_config(home, {}).errors[0])


@pytest.mark.parametrize("text", ["{ tools: { exec: { security: 'denny' }, deny: ['web_*'] } }", "{ tools: "])
def test_an_invalid_file_without_an_earlier_valid_one_denies_all_tools(write: Write, text: str) -> None:
    loaded = load_config(write(text), {})
    assert loaded.config.tools.deny == ["*"]
    assert "all tools are denied" in messages(loaded)[-1]


def test_an_invalid_value_relaxes_no_other_setting(write: Write) -> None:
    load_config(write("{ tools: { deny: ['exec'] } }"), {})
    loaded = load_config(write("{ tools: { deny: ['exec'] }, gateway: { port: 'x' } }"), {})
    assert (loaded.source, loaded.config.tools.deny) == ("last-good", ["exec"])


def test_a_damaged_good_copy_means_the_defaults(write: Write) -> None:
    home = write("{")
    good_copy_of(home).write_bytes(b"\x00")
    assert load_config(home, {}).source == "defaults"


def test_a_read_only_home_loads(read_only_home: HomePaths) -> None:
    loaded = load_config(read_only_home, {})
    assert (loaded.source, chars(loaded), loaded.problems) == ("file", 7, ())


def test_a_file_that_is_a_link_is_followed(home: HomePaths, tmp_path: Path) -> None:
    elsewhere = tmp_path / "dotfiles.json"
    elsewhere.write_text(GOOD)
    home.config_file.symlink_to(elsewhere)
    assert chars(load_config(home, {})) == 7


def test_byte_order_mark_and_windows_lines_are_tolerated(write: Write) -> None:
    loaded = load_config(write("\ufeff{\r\n  agents: {\r\n    defaults: { bootstrapMaxChars: 7 }\r\n  }\r\n}\r\n"), {})
    assert (chars(loaded), loaded.problems) == (7, ())
    assert loaded.origin(parse_path("agents.defaults.bootstrapMaxChars")).line == 3


def test_unknown_keys_are_warnings_with_the_nearest_key(write: Write) -> None:
    text = "{\n  agnets: {},\n  agents: {\n    defaults: { bootstrapMaxChar: 1 },\n    entries: {},\n  },\n  q: 1,\n}"
    loaded = load_config(write(text), {})
    assert loaded.source == "file"
    assert messages(loaded) == [
        "retinue.json:2: agnets: This key is not known and has no effect. Did you mean agents?",
        "retinue.json:7: q: This key is not known and has no effect.",
        "retinue.json:5: agents.entries: This key is not known and has no effect. Did you mean agents.list?",
        (
            "retinue.json:4: agents.defaults.bootstrapMaxChar: This key is not known and has no effect. "
            "Did you mean agents.defaults.bootstrapMaxChars?"
        ),
    ]
    assert loaded.home.config_file.read_text() == text


def test_python_spelling_is_not_a_key(write: Write) -> None:
    loaded = load_config(write("{ agents: { defaults: { bootstrap_max_chars: 7 } } }"), {})
    assert chars(loaded) == 20_000
    assert "Did you mean agents.defaults.bootstrapMaxChars?" in str(loaded.warnings[0])


def test_channels_and_plugins_may_have_keys_of_their_own(write: Write) -> None:
    text = "{ channels: { telegram: { botToken: 'x' } }, plugins: { entries: { a: { config: { deep: { x: 1 } } } } } }"
    assert load_config(write(text), {}).problems == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "{\n agents: { defaults: {\n  contextInjection: 'sometimes' } } }",
            (
                "retinue.json:3: agents.defaults.contextInjection: "
                'expected one of "always", "continuation-skip", "never", got "sometimes".'
            ),
        ),
        (
            "{ agents: { list: [\n { id: 'a' },\n { name: 'b' } ] } }",
            "retinue.json:3: agents.list[1]: 'id' is missing here. Add it.",
        ),
        (
            "{ agents: { defaults: { model: 5 } } }",
            "retinue.json:1: agents.defaults.model: expected text or an object, got 5.",
        ),
        (
            "{ agents: { defaults: { model: { primary: 5 } } } }",
            "retinue.json:1: agents.defaults.model.primary: expected text, got 5.",
        ),
        (
            "{ agents: 'main' }",
            'retinue.json:1: agents: expected an object, got "main".',
        ),
        (
            "{ gateway: { port: 0 } }",
            "retinue.json:1: gateway.port: expected a whole number, at least 1 and at most 65535, got 0.",
        ),
        (
            "{ agents: { defaults: { heartbeat: { every: 'soon' } } } }",
            "retinue.json:1: agents.defaults.heartbeat.every: expected a duration such as 30m, 1h30m or 45s.",
        ),
        (
            "{ tools: { allow: ['read'], alsoAllow: ['exec'] } }",
            (
                "retinue.json:1: tools: set either allow (only these tools) or alsoAllow (these on top of "
                "the profile), not both."
            ),
        ),
        (
            "{ agents: { list: [{ id: 'a',\n  skipBootstrap: true }] } }",
            (
                "retinue.json:2: agents.list[0].skipBootstrap: This key cannot be set for one agent; it applies "
                "to all agents. Move it to agents.defaults.skipBootstrap."
            ),
        ),
        (
            "{ agents: { list: [{ id: 'a', subagents: { thinking: 'low' } }] } }",
            (
                "retinue.json:1: agents.list[0].subagents.thinking: This key cannot be set for one agent; it applies "
                "to all agents. Move it to agents.defaults.subagents.thinking."
            ),
        ),
        (
            "{ hooks: { token: ['hunter2'] } }",
            (
                "retinue.json:1: hooks.token: A secret is either a string or an object with a 'source' (env, file, "
                "exec or keyring)."
            ),
        ),
    ],
)
def test_wrong_values_say_where_and_what_is_expected(write: Write, text: str, expected: str) -> None:
    loaded = load_config(write(text), {})
    assert messages(loaded)[:-1] == [expected]
    assert loaded.source == "defaults"


def test_every_error_is_told_at_once(write: Write) -> None:
    loaded = load_config(write("{ gateway: { port: 'x', bind: 'y' }, cron: { enabled: 'z' } }"), {})
    assert [problem.path for problem in loaded.errors] == ["gateway.port", "gateway.bind", "cron.enabled"]


def test_a_key_that_stands_twice_is_a_warning(write: Write) -> None:
    loaded = load_config(write("{\n  cron: {},\n  cron: { enabled: false },\n}"), {})
    assert messages(loaded) == ["retinue.json:2: The key 'cron' occurs twice; the later one counts."]
    assert loaded.config.cron.enabled is False


def test_variables_are_filled_in(write: Write) -> None:
    text = """{
      agents: { defaults: { workspace: "${ROOT}/work", userTimezone: "$${ROOT}", bootstrapMaxChars: "${CHARS}" } },
    }"""
    loaded = load_config(write(text), {"ROOT": "/data", "CHARS": "12"})
    defaults = loaded.config.agents.defaults
    assert (defaults.workspace, defaults.user_timezone, defaults.bootstrap_max_chars) == ("/data/work", "${ROOT}", 12)
    origin = loaded.origin(parse_path("agents.defaults.workspace"))
    assert (origin.kind, origin.variables, origin.line) == ("environment", ("ROOT",), 2)
    assert loaded.origin(parse_path("agents.defaults.userTimezone")).kind == "file"
    assert "${ROOT}/work" in good_copy_of(loaded.home).read_text(), "the copy keeps the variable"


def test_a_missing_variable_leaves_its_key_out(write: Write) -> None:
    text = "{ agents: { defaults: {\n  workspace: '${NOPE}/work' } }, commands: { ownerAllowFrom: ['a', '${NOPE}'] } }"
    loaded = load_config(write(text), {})
    assert loaded.config.agents.defaults.workspace is None
    assert loaded.config.commands.owner_allow_from == ["a"]
    assert messages(loaded)[0] == (
        "retinue.json:2: agents.defaults.workspace: The environment variable NOPE is not set, so the key is ignored. "
        "Set it or write the value."
    )


def test_origins(write: Write) -> None:
    loaded = load_config(write("{\n  agents: {\n    list: [{ id: 'work',\n      name: 'W' }],\n  },\n}"), {})
    assert loaded.describe_origin("agents.list[id=work].name") == f"{loaded.home.config_file}:4"
    assert loaded.describe_origin("agents.list[0].name") == f"{loaded.home.config_file}:4"
    assert loaded.describe_origin("agents.list[0].model") == "default"
    assert loaded.describe_origin("agents.defaults.workspace") == "default"


def test_pending_keys_that_are_set_are_listed(write: Write) -> None:
    loaded = load_config(
        write(
            "{ wizard: { a: 9 }, browser: {}, commands: { nativeSkills: true }, channels: { t: { botToken: 'x' } } }"
        ),
        {},
    )
    assert loaded.pending == ("browser", "commands.nativeSkills")


def test_includes_are_merged_and_siblings_win(write: Write) -> None:
    home = write(
        """{
      agents: { $include: './conf/agents.json5', defaults: { userTimezone: 'UTC' } },
      $include: ['conf/one.json5', 'conf/two.json5'],
    }"""
    )
    (home.path / "conf").mkdir()
    (home.path / "conf/agents.json5").write_text(
        "{\n  defaults: { userTimezone: 'Asia/Tokyo', bootstrapMaxChars: 9 },\n  list: { $include: 'list.json5' },\n}"
    )
    (home.path / "conf/list.json5").write_text("[\n  { id: 'a' },\n]")
    (home.path / "conf/one.json5").write_text("{ memory: { citations: 'on' }, cron: { enabled: false } }")
    (home.path / "conf/two.json5").write_text("{ memory: { citations: 'off' } }")
    loaded = load_config(home, {})
    assert loaded.problems == ()
    assert (loaded.config.agents.defaults.user_timezone, chars(loaded)) == ("UTC", 9)
    assert loaded.config.agents.ids == ("a",)
    assert (loaded.config.memory.citations, loaded.config.cron.enabled) == ("off", False)
    assert loaded.describe_origin("agents.list[0].id") == f"{home.path}/conf/list.json5:2"
    assert loaded.describe_origin("agents.defaults.bootstrapMaxChars") == f"{home.path}/conf/agents.json5:2"
    assert loaded.describe_origin("agents.defaults.userTimezone") == f"{home.config_file}:2"

    (home.path / "conf/list.json5").write_text("[")
    again = load_config(home, {})
    assert (again.source, again.config.agents.ids) == ("last-good", ("a",)), "the good copy holds the included files"


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ("'../outside.json5'", "'../outside.json5' leads out of"),
        ("'/etc/passwd'", "'/etc/passwd' leads out of"),
        ("'link.json5'", "leads outside of the folder"),
        ("'nowhere.json5'", "does not exist"),
        ("'retinue.json'", "includes itself"),
        ("'loop.json5'", "includes itself"),
        ("'deep0.json5'", f"More than {MAX_INCLUDE_DEPTH} files include one another"),
        ("'broken.json5'", "found the end of the file"),
        ("'list.json5', x: 1", "is not an object, so it cannot be combined with other keys"),
        ("5", "expected the name of a file"),
        ("[[]]", "expected the name of a file"),
        ("'.'", "is a folder"),
    ],
)
def test_includes_that_are_refused(write: Write, include: str, expected: str) -> None:
    home = write(f"{{ $include: {include} }}")
    (home.path.parent / "outside.json5").write_text("{}")
    (home.path / "link.json5").symlink_to(home.path.parent / "outside.json5")
    (home.path / "loop.json5").write_text("{ $include: './loop.json5' }")
    (home.path / "broken.json5").write_text("{")
    (home.path / "list.json5").write_text("[]")
    for index in range(MAX_INCLUDE_DEPTH + 2):
        (home.path / f"deep{index}.json5").write_text(f"{{ $include: 'deep{index + 1}.json5' }}")
    loaded = load_config(home, {})
    assert loaded.source == "defaults"
    assert expected in str(loaded.errors[0])


def test_many_includes_are_refused(write: Write) -> None:
    home = write("{ $include: [" + ", ".join("'x.json5'" for _ in range(3)) + "] }")
    (home.path / "x.json5").write_text(
        "{ cron: { $include: [" + ", ".join(f"'y{i}.json5'" for i in range(120)) + "] } }"
    )
    for index in range(120):
        (home.path / f"y{index}.json5").write_text("{}")
    assert "larger than" in str(load_config(home, {}).errors[0])


@pytest.mark.slow
def test_loading_changes_no_environment_and_is_quick_to_import(write: Write) -> None:
    home = write(GOOD)
    code = (
        "import sys; from pathlib import Path; from retinue.config.load import load_config;"
        "from retinue.storage.home_paths import HomePaths;"
        f"load_config(HomePaths(Path({str(home.path)!r})), {{}});"
        "print([m for m in ('openai', 'anthropic', 'rich', 'yaml', 'anyio', 'httpx2', 'click') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_group_of_tools_that_does_not_exist_is_told(write: Write) -> None:
    config = """{
      tools: { deny: ["group:runtme", "exec"], byProvider: { x: { allow: ["Group:FS"] } } },
      agents: { list: [{ id: "a", tools: { allow: ["group:everything"] } }] },
    }"""
    told = {problem.path: problem.message for problem in load_config(write(config), {}).problems}
    assert set(told) == {"tools.deny[0]", "agents.list[0].tools.allow[0]"}
    assert "Did you mean group:runtime?" in told["tools.deny[0]"]
    assert "Groups: group:fs" in told["agents.list[0].tools.allow[0]"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '{ agents: { defaults: { model: { primry: "openai/gpt-5.4" } } } }',
            (
                "agents.defaults.model.primry: This key is not known, so the model is not set as intended. "
                "Did you mean primary?"
            ),
        ),
        (
            '{ agents: { defaults: { modle: "openai/gpt-5.4" } } }',
            "agents.defaults.modle: This key is not known, so the model is not set as intended. Did you mean model?",
        ),
        (
            '{ agents: { list: [{ id: "work", model: { Primary: "openai/gpt-5.4" } }] } }',
            (
                "agents.list[0].model.Primary: This key is not known, so the model is not set as intended. "
                "Did you mean primary?"
            ),
        ),
        (
            '{ models: { provider: { mine: { baseUrl: "http://localhost" } } } }',
            "models.provider: This key is not known, so the model is not set as intended. Did you mean providers?",
        ),
        (
            '{ models: { providers: { mine: { base_url: "http://localhost" } } } }',
            (
                "models.providers.mine.base_url: This key is not known, so the model is not set as intended. "
                "Did you mean baseUrl?"
            ),
        ),
        (
            '{ agents: { defaults: { model: "antropic/claude-sonnet-5-5" } } }',
            (
                "agents.defaults.model: There is no provider 'antropic', so this model cannot be used. "
                "Did you mean anthropic/claude-sonnet-5-5?"
            ),
        ),
        (
            '{ agents: { list: [{ id: "work", model: { primary: "mine/one" } }] }, models: { mode: "replace" } }',
            (
                "agents.list[0].model.primary: There is no provider 'mine', so this model cannot be used. "
                "Providers: none. Add others under models.providers."
            ),
        ),
        (
            '{ agents: { defaults: { model: "sonet" } } }',
            (
                "agents.defaults.model: 'sonet' is neither an alias nor provider/model, so no model can be used. "
                "Did you mean sonnet?"
            ),
        ),
    ],
)
def test_a_model_that_cannot_be_used_is_an_error_with_the_nearest_name(write: Write, text: str, problem: str) -> None:
    home = write(text)
    loaded = load_config(home, {})
    assert [str(error) for error in loaded.errors] == [f"{home.config_file}:1: {problem}"]
    assert loaded.source == "file", "the other settings stay in effect"
    assert not good_copy_of(home).exists()


@pytest.mark.parametrize(
    "text",
    [
        '{ agents: { defaults: { model: "claude/claude-sonnet-5-5" } } }',
        '{ agents: { defaults: { model: "Sonnet" } } }',
        '{ agents: { defaults: { model: "fast", models: { "groq/small": { alias: "fast" } } } } }',
        '{ agents: { defaults: { model: "mine/one" } }, models: { providers: { mine: { baseUrl: "http://x/v1" } } } }',
        '{ agents: { defaults: { model: { primary: "openai/gpt-5.4", primry: "x" } } } }',
        "{ models: { pricing: {} } }",
    ],
)
def test_other_models_and_unknown_keys_are_not_errors(write: Write, text: str) -> None:
    assert load_config(write(text), {}).errors == ()
