"""Files, programs and the keyring give secrets within bounds, and errors tell what to do and never the secret."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import keyring
import keyring.backend
import keyring.errors
import pytest

from retinue.core.errors import ConfigError
from retinue.security.secret_sources import (
    MAX_SECRET_BYTES,
    ask_keyring,
    read_secret_file,
    remove_from_keyring,
    run_for_secret,
    store_in_keyring,
)
from retinue.security.secrets import KeyringSecret, Secrets
from tests.security.filekeyring import FileKeyring, in_use

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


class Trouble(keyring.backend.KeyringBackend):
    """A keyring that answers with an exception, or not at all."""

    priority = 1.0

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.error = error
        self.released = threading.Event()

    def get_password(self, service: str, username: str) -> str | None:
        if self.error is not None:
            raise self.error
        self.released.wait()
        return None

    def set_password(self, service: str, username: str, password: str) -> None:
        raise NotImplementedError


def test_a_file_that_is_none_or_too_large_or_not_text_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(b"x" * (MAX_SECRET_BYTES + 1))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, told in (("fifo", "regular file"), ("large", "regular file"), ("", "regular file")):
        with pytest.raises(ConfigError, match=told):
            read_secret_file(str(tmp_path / name))
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_secret_file(str(tmp_path / "binary"))
    with pytest.raises(ConfigError, match="no such file"):
        read_secret_file(str(tmp_path / "missing"))


def test_a_file_as_large_as_allowed_is_read(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"x" * MAX_SECRET_BYTES)
    assert len(read_secret_file(str(tmp_path / "key"))) == MAX_SECRET_BYTES


@pytest.mark.slow
def test_a_program_that_hangs_dies_with_its_children(tmp_path: Path) -> None:
    child = tmp_path / "child"
    code = (
        f"import os,time; p=os.fork(); open({str(child)!r},'w').write(str(os.getpid())) if not p else 0; time.sleep(60)"
    )
    with pytest.raises(ConfigError, match=r"within 1\.5 seconds"):
        run_for_secret((sys.executable, "-S", "-c", code), ENVIRONMENT, 1.5)
    pid = int(child.read_text())
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline, "the child is still alive"
        time.sleep(0.01)


@pytest.mark.slow
def test_a_program_that_closes_its_output_and_goes_on_is_ended() -> None:
    code = "import os,time; os.close(1); time.sleep(60)"
    with pytest.raises(ConfigError, match="did not provide"):
        run_for_secret((sys.executable, "-S", "-c", code), ENVIRONMENT, 1.0)


def test_a_program_that_prints_without_end_is_stopped() -> None:
    with pytest.raises(ConfigError, match=f"more than {MAX_SECRET_BYTES} bytes"):
        run_for_secret(("yes",), ENVIRONMENT, 60)


def test_a_program_that_is_not_there_or_prints_no_text_is_explained() -> None:
    with pytest.raises(ConfigError, match="no such file"):
        run_for_secret(("/nowhere/at-all",), ENVIRONMENT, 5)
    with pytest.raises(ConfigError, match="not UTF-8"):
        run_for_secret(("printf", r"\377"), ENVIRONMENT, 5)


def test_what_a_failing_program_printed_is_not_told() -> None:
    with pytest.raises(ConfigError, match="exit code 3") as caught:
        run_for_secret(("sh", "-c", "echo secret-words; echo more-words >&2; exit 3"), ENVIRONMENT, 5)
    assert "words" not in str(caught.value)


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[None]:
    with in_use(FileKeyring(tmp_path / "ring.json")):
        yield


def test_the_keyring_keeps_gives_and_forgets(ring: None) -> None:
    secret = KeyringSecret("keyring", "main/openai:default")
    with pytest.raises(ConfigError, match="keyring set retinue main/openai:default"):
        Secrets({}).resolve(secret)
    store_in_keyring("retinue", secret.id, "from-the-ring")
    secrets = Secrets({})
    assert secrets.resolve(secret) == "from-the-ring"
    store_in_keyring("retinue", secret.id, "changed-meanwhile")
    assert secrets.resolve(secret) == "from-the-ring", "fetched once per run"
    secrets.forget(secret)
    assert secrets.resolve(secret) == "changed-meanwhile"
    remove_from_keyring("retinue", secret.id)
    remove_from_keyring("retinue", secret.id)
    assert ask_keyring("retinue", secret.id, 5) == ""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (keyring.errors.NoKeyringError("no backend"), "There is no keyring"),
        (keyring.errors.KeyringLocked("locked: hunter22"), r"cannot be used \(KeyringLocked\)"),
        (RuntimeError("D-Bus is gone"), r"cannot be used \(RuntimeError\)"),
    ],
)
def test_trouble_with_the_keyring_is_explained(error: Exception, told: str) -> None:
    with in_use(Trouble(error)), pytest.raises(ConfigError, match=told) as caught:
        ask_keyring("retinue", "x", 5)
    assert "hunter22" not in str(caught.value)


def test_a_keyring_that_waits_for_somebody_is_left_waiting() -> None:
    ring = Trouble(None)
    with in_use(ring), pytest.raises(ConfigError, match=r"within 0\.05 seconds"):
        ask_keyring("retinue", "x", 0.05)
    ring.released.set()


def test_a_test_that_uses_a_keyring_of_its_own_leaves_the_process_as_it_was(ring: None) -> None:
    """A process keeps its keyring for good, so one that stayed behind would decide over the tests that follow."""
    before = keyring.get_keyring()
    with in_use(Trouble(None)):
        assert keyring.get_keyring() is not before
    assert keyring.get_keyring() is before
