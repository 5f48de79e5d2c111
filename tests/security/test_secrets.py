"""Secrets: fetched where they are, and taken out of every text."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from retinue.core.errors import ConfigError
from retinue.security.redaction import Redactor
from retinue.security.secrets import (
    EnvSecret,
    Secret,
    Secrets,
    describe_secret,
    dump_secret,
    parse_secret,
)


def test_a_plain_text_is_the_secret_itself() -> None:
    assert Secrets({}).resolve(parse_secret("s3cret-value")) == "s3cret-value"


def test_the_environment_is_read_when_the_secret_is_needed() -> None:
    environment = {"MY_KEY": "first-value"}
    secrets = Secrets(environment)
    ref = parse_secret({"source": "env", "id": "MY_KEY"})
    assert secrets.resolve(ref) == "first-value"
    environment["MY_KEY"] = "second-value"
    assert secrets.resolve(ref) == "second-value"


def test_a_missing_variable_is_named() -> None:
    with pytest.raises(ConfigError, match="MY_KEY"):
        Secrets({}).resolve(EnvSecret("env", "MY_KEY"))


def test_a_file_holds_the_secret_or_a_json_document(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-a-file\n")
    (tmp_path / "keys.json").write_text(json.dumps({"openai": {"a/b": ["x", "deep-value"]}}))
    secrets = Secrets({})
    assert secrets.resolve(parse_secret({"source": "file", "path": str(tmp_path / "key")})) == "from-a-file"
    pointer = {"source": "file", "path": str(tmp_path / "keys.json"), "id": "/openai/a~1b/1"}
    assert secrets.resolve(parse_secret(pointer)) == "deep-value"
    with pytest.raises(ConfigError, match="/nope"):
        secrets.resolve(parse_secret(pointer | {"id": "/nope"}))
    with pytest.raises(ConfigError, match="regular file"):
        secrets.resolve(parse_secret({"source": "file", "path": str(tmp_path)}))


def test_a_program_prints_the_secret_and_is_asked_once(tmp_path: Path) -> None:
    counter = tmp_path / "count"
    code = f"open({str(counter)!r}, 'a').write('x'); print('from-a-program')"
    ref = parse_secret({"source": "exec", "command": [sys.executable, "-c", code]})
    secrets = Secrets({})
    assert secrets.resolve(ref) == "from-a-program"
    assert secrets.resolve(ref) == "from-a-program"
    assert counter.read_text() == "x"
    secrets.forget(ref)
    secrets.resolve(ref)
    assert counter.read_text() == "xx"


def test_a_program_that_fails_shows_nothing_it_printed() -> None:
    ref = parse_secret({"source": "exec", "command": [sys.executable, "-c", "print('half-a-secret'); exit(3)"]})
    with pytest.raises(ConfigError, match="exit code 3") as caught:
        Secrets({}).resolve(ref)
    assert "half-a-secret" not in str(caught.value)


def test_no_shell_reads_the_command(tmp_path: Path) -> None:
    target = tmp_path / "made"
    ref = parse_secret({"source": "exec", "command": ["echo", f"key-value; touch {target}"]})
    assert Secrets({"PATH": "/usr/bin:/bin"}).resolve(ref).startswith("key-value;")
    assert not target.exists()


def test_a_keyring_that_is_not_installed_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(ConfigError, match=r"retinue\[keyring\]"):
        Secrets({}).resolve(parse_secret({"source": "keyring", "id": "openai"}))


@pytest.mark.parametrize("bad", [3, None, {}, {"source": "moon"}, {"source": "env"}, {"source": "exec", "command": []}])
def test_what_is_no_secret_is_refused(bad: object) -> None:
    with pytest.raises(ConfigError):
        parse_secret(bad)


@pytest.mark.parametrize(
    "secret",
    [
        parse_secret("plain-value"),
        parse_secret({"source": "env", "id": "A"}),
        parse_secret({"source": "file", "path": "/k", "id": "/a"}),
        parse_secret({"source": "exec", "command": ["pass", "show", "a"]}),
        parse_secret({"source": "keyring", "id": "a", "service": "s"}),
    ],
    ids=describe_secret,
)
def test_a_reference_survives_being_written_down(secret: Secret) -> None:
    assert parse_secret(json.loads(json.dumps(dump_secret(secret)))) == secret
    assert "plain-value" not in describe_secret(secret)


def test_every_fetched_secret_is_redacted_from_then_on() -> None:
    secrets = Secrets({"K": "unusual-value-42"})
    assert "unusual" in secrets.redactor("it is unusual-value-42")
    secrets.resolve(EnvSecret("env", "K"))
    assert secrets.redactor("it is unusual-value-42!") == "it is [redacted]!"


@pytest.mark.parametrize(
    "key",
    [
        "sk-ant-REDACTED" + "x" * 40,
        "sk-proj-abcdefghijklmnop1234",
        "AIza" + "a" * 35,
        "gsk_abcdefghijklmnopqrst",
        "xai-abcdefghijklmnopqrst",
        "ghp_" + "a" * 36,
        "github_pat_" + "a" * 30,
        "xoxb-1234567890-abcdef",
        "AKIAABCDEFGHIJKLMNOP",
        "123456789:" + "A" * 35,
        "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF2QT4",
        "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_keys_of_known_shapes_are_redacted_unseen(key: str) -> None:
    assert Redactor()(f"before {key} after") == "before [redacted] after"


def test_credentials_in_addresses_and_headers_are_redacted() -> None:
    redact = Redactor()
    assert redact("https://user:hunter2@example.com/x") == "https://[redacted]@example.com/x"
    assert redact("Authorization: Bearer abcdefghijklmnopqrstuvwxyz") == "Authorization: Bearer [redacted]"
    assert redact("GET /v1?key=abcdefghijk&x=1") == "GET /v1?key=[redacted]&x=1"


def test_ordinary_text_stays() -> None:
    text = "ask-me-anything about tasks, sk-8 skis, and key=value pairs; the 2026-03-01 plan: 12345678:90"
    redactor = Redactor(["abc", ""])
    assert redactor(text) == text


def test_the_longest_known_value_goes_first() -> None:
    assert Redactor(["secret-1", "secret-123"])("secret-123") == "[redacted]"
