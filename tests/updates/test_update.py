"""An update leaves the old program or the new one; the home is touched only when the new one has been proven."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

import retinue as package
from retinue.core.errors import UsageError
from retinue.runtime.agents.agent import GatewayControl
from retinue.runtime.automation.backups import open_repository
from retinue.runtime.commands.config import ConfigTool
from retinue.runtime.home import Home, load_home
from retinue.runtime.updates.environment import RECORD, UpdateEnvironment, UpdateFailed
from retinue.runtime.updates.run import DoneUpdate, UpdateSteps, roll_back, update
from retinue.storage.files.descriptors import TEMPORARY_PREFIX
from retinue.storage.home_paths import HomePaths
from tests.cli.conftest import RunCommand
from tests.killing import KILLS, count_steps, kill_at


@pytest.fixture
def environment(tmp_path: Path) -> UpdateEnvironment:
    """An environment of two files that name their version."""
    prefix = tmp_path / "program"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "retinue").write_text(f"#!{prefix}/bin/python\nold\n")
    (prefix / "library.py").write_text("old\n")
    return UpdateEnvironment(prefix)


@pytest.fixture
def opened(retinue: RunCommand, home: Path) -> Home:
    retinue("init", "--yes")
    return load_home(HomePaths(home))


def install_in(environment: UpdateEnvironment) -> Callable[[], None]:
    """Return an installation as an installer does it: files are replaced one after the other."""

    def install() -> None:
        ignored = shutil.ignore_patterns(RECORD)
        shutil.copytree(environment.prefix, environment.new, copy_function=os.link, ignore=ignored)
        for path in (environment.new / "bin" / "retinue", environment.new / "library.py"):
            path.unlink()
            path.write_text("new\n")

    return install


def steps_of(environment: UpdateEnvironment, prove: Callable[[Path], None] = lambda home: None) -> UpdateSteps:
    return UpdateSteps(install_in(environment), prove, lambda: False, lambda: None)


class PlayedGateway:
    """A gateway that writes to the home as long as it runs, and migrates its database when it starts."""

    def __init__(self, home: Path, environment: UpdateEnvironment) -> None:
        self.running_version = "old"
        self.stops = True
        self.broken_version = ""
        self._home = home
        self._environment = environment

    def stop(self) -> bool:
        if not self.stops:
            raise UpdateFailed("it does not stop")
        was_running, self.running_version = bool(self.running_version), ""
        if was_running:
            (self._home / "workspace" / "last.md").write_text("Written before it stopped.")
        return was_running

    def start(self) -> None:
        (version,) = versions(self._environment)
        base = sqlite3.connect(self._home / "state.sqlite")
        (known,) = base.execute("PRAGMA user_version").fetchone()
        if version == "new":
            base.execute(f"PRAGMA user_version = {known + 1}")
            base.execute("CREATE TABLE newer (id)")
            base.commit()
        base.close()
        if version == self.broken_version:
            raise UpdateFailed("it does not start")
        self.running_version = version

    def steps(self, prove: Callable[[Path], None] = lambda home: None) -> UpdateSteps:
        return UpdateSteps(install_in(self._environment), prove, self.stop, self.start)


def versions(environment: UpdateEnvironment) -> set[str]:
    """The versions of the program's files; a kill may leave the unfinished copy of a record beside them."""
    files = (path for path in environment.prefix.rglob("*") if path.is_file() and path.name != RECORD)
    return {path.read_text().split()[-1] for path in files if not path.name.startswith(TEMPORARY_PREFIX)}


def run(opened: Home, environment: UpdateEnvironment, steps: UpdateSteps) -> DoneUpdate:
    return update(opened, environment, "9.9", steps, lambda text: None)


def test_the_new_version_is_proven_on_a_copy_and_then_used(opened: Home, environment: UpdateEnvironment) -> None:
    seen: list[str] = []

    def prove(copy: Path) -> None:
        seen.append((copy / "workspace" / "AGENTS.md").read_text())
        (copy / "workspace" / "AGENTS.md").write_text("migrated")
        assert copy != opened.paths.path
        assert versions(environment) == {"old"}

    done = run(opened, environment, steps_of(environment, prove))
    assert versions(environment) == {"new"}
    assert (opened.paths.path / "workspace" / "AGENTS.md").read_text() == seen[0] != "migrated"
    assert open_repository(opened).ids() == (done.backup,)
    assert not list(opened.paths.path.parent.glob(".*proving*"))


def test_an_update_that_fails_changes_nothing(opened: Home, environment: UpdateEnvironment) -> None:
    def fail(_copy: Path) -> None:
        raise UpdateFailed("it does not work")

    before = _content(opened.paths.path)
    with pytest.raises(UpdateFailed, match="does not work"):
        run(opened, environment, steps_of(environment, fail))
    assert versions(environment) == {"old"}
    assert not environment.new.exists()
    assert _content(opened.paths.path) == before


def test_an_update_is_undone_with_the_home(opened: Home, environment: UpdateEnvironment) -> None:
    run(opened, environment, steps_of(environment))
    (opened.paths.path / "workspace" / "later.md").write_text("After the update.")
    undone = roll_back(opened.paths, environment, open_repository(opened), steps_of(environment))
    assert versions(environment) == {"old"}
    assert undone.before == "9.9"
    assert not (opened.paths.path / "workspace" / "later.md").exists()
    assert list(opened.paths.path.parent.glob("home.before-restore-*/workspace/later.md"))
    with pytest.raises(UsageError, match="no update"):
        roll_back(opened.paths, environment, open_repository(opened), steps_of(environment))


def test_a_running_gateway_is_stopped_for_the_exchange_and_runs_the_new_version(
    opened: Home, environment: UpdateEnvironment
) -> None:
    gateway = PlayedGateway(opened.paths.path, environment)
    done = run(opened, environment, gateway.steps(lambda copy: _assert(gateway.running_version == "old")))
    assert gateway.running_version == "new"
    undone = roll_back(opened.paths, environment, open_repository(opened), gateway.steps())
    assert undone.backup == done.backup
    assert gateway.running_version == "old"
    assert (opened.paths.path / "workspace" / "last.md").exists(), "what it wrote before it stopped was lost"


def test_the_previous_version_runs_again_if_the_gateway_does_not_start(
    opened: Home, environment: UpdateEnvironment
) -> None:
    gateway = PlayedGateway(opened.paths.path, environment)
    gateway.broken_version = "new"
    version = _database_version(opened.paths.path)
    with pytest.raises(UpdateFailed, match=r"did not start with version 9\.9, so version .* runs again"):
        run(opened, environment, gateway.steps())
    assert gateway.running_version == "old"
    assert versions(environment) == {"old"}
    assert _database_version(opened.paths.path) == version
    assert len(list(opened.paths.path.glob("state.sqlite.migrated-*"))) == 1
    assert (opened.paths.path / "workspace" / "last.md").exists()


def test_a_gateway_that_does_not_stop_keeps_its_version(opened: Home, environment: UpdateEnvironment) -> None:
    gateway = PlayedGateway(opened.paths.path, environment)
    gateway.stops = False
    with pytest.raises(UpdateFailed, match="does not stop"):
        run(opened, environment, gateway.steps())
    assert gateway.running_version == "old"
    assert versions(environment) == {"old"}


def test_a_gateway_is_started_again_if_the_exchange_fails(
    opened: Home, environment: UpdateEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError("The file system is read-only.")

    gateway = PlayedGateway(opened.paths.path, environment)
    monkeypatch.setattr(UpdateEnvironment, "switch", fail)
    with pytest.raises(OSError, match="read-only"):
        run(opened, environment, gateway.steps())
    assert gateway.running_version == "old"


@pytest.mark.anyio
async def test_an_agent_cannot_start_an_update_that_systemd_would_end(
    opened: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def apply() -> dict[str, object]:
        return {}

    tool = ConfigTool(opened, GatewayControl(apply, lambda _reason: None))
    monkeypatch.setenv("SYSTEMD_EXEC_PID", str(os.getpid()))
    with pytest.raises(UsageError, match="systemd runs this gateway"):
        await tool.update()


@pytest.mark.slow
def test_a_killed_update_leaves_the_old_program_or_the_new_one(
    opened: Home, environment: UpdateEnvironment, tmp_path: Path
) -> None:
    saved = tmp_path / "saved"
    shutil.copytree(environment.prefix, saved)
    before = _content(opened.paths.path)
    steps = count_steps(lambda: run(opened, environment, steps_of(environment)))
    for seed in range(KILLS):
        for folder in (environment.prefix, environment.previous):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(saved, environment.prefix)
        kill_at(lambda: run(opened, environment, steps_of(environment)), random.Random(seed).randrange(1, steps))
        assert versions(environment) in ({"old"}, {"new"}), f"after the kill of run {seed}"
        environment.discard()
        assert environment.previous.exists() == (versions(environment) == {"new"}), f"after the kill of run {seed}"
        assert _content(opened.paths.path) == before
    run(opened, environment, steps_of(environment))
    assert versions(environment) == {"new"}
    assert not environment.new.exists()


def test_a_program_that_cannot_be_updated_here_says_what_to_do(retinue: RunCommand, home: Path) -> None:
    told = retinue("update", "--check", "--json").data["error"]
    assert told["kind"] == "UsageError"
    assert "git pull" in told["message"]


def test_the_present_version_proves_itself(retinue: RunCommand, home: Path) -> None:
    retinue("init", "--yes")
    found = retinue("update", "--prove", "--json")
    assert found.data["version"] == package.__version__
    assert [problem for problem in found.data["problems"] if "model" not in problem] == []


Call = Callable[..., "subprocess.CompletedProcess[str]"]


def install_program(home: Path, tmp_path: Path, wheels: Path) -> tuple[str, Call]:
    """Install the wheel of this folder into a new environment; return the program, and a function that calls it."""
    prefix = tmp_path / "program"
    venv.create(prefix, symlinks=True)
    (site,) = prefix.glob("lib/python*/site-packages")
    # The dependencies and pip come from the environment of the tests; Retinue does not, since that one is editable.
    (site / "dependencies.pth").write_text(f"import sys; sys.path.append({json.dumps(_own_site_packages())})\n")
    variables = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "RETINUE_HOME": str(home), "PIP_NO_INDEX": "1"}
    # Only a part of the modules is imported here, so compiling all of them with each version would be most of the work.
    variables |= {"PIP_FIND_LINKS": str(wheels), "PIP_NO_DEPS": "1", "PIP_NO_COMPILE": "1"}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(arguments, env=variables, capture_output=True, text=True, check=False, timeout=300)

    program = str(prefix / "bin" / "retinue")
    installed = call(str(prefix / "bin" / "python"), "-m", "pip", "install", "--quiet", "--force-reinstall", "retinue")
    assert installed.returncode == 0, installed.stderr
    return program, call


@pytest.mark.slow
def test_a_real_environment_is_updated_and_a_broken_version_refused(home: Path, tmp_path: Path) -> None:
    """Two wheels of this source in a folder, and pip without an index."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    make_wheel(wheels, "9.0")
    program, call = install_program(home, tmp_path, wheels)
    assert call(program, "init", "--yes").returncode == 0
    none = call(program, "update", "--check", "--json")
    assert json.loads(none.stdout) == {"version": "9.0", "available": None}, none.stderr

    make_wheel(wheels, "9.2", broken=True)
    assert json.loads(call(program, "update", "--check", "--json").stdout)["available"] == "9.2"
    refused = call(program, "update", "--json")
    assert "does not start" in json.loads(refused.stdout)["error"]["message"]
    assert call(program, "--version").stdout.split()[-1] == "9.0"

    (wheels / "retinue-9.2-py3-none-any.whl").unlink()
    make_wheel(wheels, "9.1")
    done = call(program, "update", "--json")
    assert json.loads(done.stdout)["after"] == "9.1", done.stdout + done.stderr
    assert call(program, "--version").stdout.split()[-1] == "9.1"
    back = call(program, "update", "--roll-back", "--yes", "--json")
    assert json.loads(back.stdout)["after"] == "9.0", back.stdout + back.stderr
    assert call(program, "--version").stdout.split()[-1] == "9.0"


@pytest.mark.slow
def test_a_running_gateway_is_updated_and_one_that_fails_is_taken_back(home: Path, tmp_path: Path) -> None:
    """With the gateway of a real environment: its address stays, and so does what it knows."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    make_wheel(wheels, "9.0")
    program, call = install_program(home, tmp_path, wheels)
    assert call(program, "init", "--yes").returncode == 0
    started = json.loads(call(program, "gateway", "start", "--port", "0", "--json").stdout)
    try:
        added = call(program, "cron", "add", "--name", "tea", "--every", "6h", "-m", "Drink tea.")
        assert added.returncode == 0, added.stderr
        make_wheel(wheels, "9.1")
        done = call(program, "update", "--yes", "--json")
        assert json.loads(done.stdout)["gatewayRestarted"] is True, done.stdout + done.stderr
        now = json.loads(call(program, "gateway", "status", "--json").stdout)
        assert (now["version"], now["url"]) == ("9.1", started["url"])
        assert now["pid"] != started["pid"]

        # This version answers a test turn, migrates the database, and fails in its gateway only.
        schema = "STATE_SCHEMA = (*STATE_SCHEMA, ('CREATE TABLE newer (id)',))\n"
        last = {"storage/database/state_schema.py": schema, "gateway/server.py": "raise SystemExit('It is broken.')\n"}
        make_wheel(wheels, "9.2", added=last)
        version = _database_version(home)
        failed = call(program, "update", "--yes", "--json")
        message = json.loads(failed.stdout)["error"]["message"]
        assert "did not start with version 9.2, so version 9.1 runs again" in message
        now = json.loads(call(program, "gateway", "status", "--json").stdout)
        assert (now["version"], now["url"]) == ("9.1", started["url"])
        assert _database_version(home) == version
        assert [job["name"] for job in json.loads(call(program, "cron", "list", "--json").stdout)] == ["tea"]

        back = call(program, "update", "--roll-back", "--yes", "--json")
        assert json.loads(back.stdout)["after"] == "9.0", back.stdout + back.stderr
        now = json.loads(call(program, "gateway", "status", "--json").stdout)
        assert (now["version"], now["url"]) == ("9.0", started["url"])
    finally:
        call(program, "gateway", "stop")


def make_wheel(folder: Path, version: str, *, broken: bool = False, added: Mapping[str, str] | None = None) -> None:
    """Make a wheel of this source with another version number, and with text `added` to the end of some modules."""
    source = Path(package.__file__).parent
    info = f"retinue-{version}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: retinue\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nretinue = retinue.cli.main:main\n",
    }
    with zipfile.ZipFile(folder / f"retinue-{version}-py3-none-any.whl", "w") as wheel:
        for path in sorted(source.rglob("*")):
            name = str(path.relative_to(source))
            if path.is_file() and "__pycache__" not in path.parts and name != "__init__.py":
                wheel.writestr(f"retinue/{name}", path.read_bytes() + (added or {}).get(name, "").encode())
        end = "raise SystemExit(3)\n" if broken else ""
        wheel.writestr("retinue/__init__.py", f'__version__ = "{version}"\n{end}')
        for name, text in files.items():
            wheel.writestr(name, text)
        names = "".join(f"{name},,\n" for name in [*wheel.namelist(), f"{info}/RECORD"])
        wheel.writestr(f"{info}/RECORD", names)


def _assert(condition: bool) -> None:
    assert condition


def _database_version(home: Path) -> int:
    with closing(sqlite3.connect(home / "state.sqlite")) as base:
        return int(base.execute("PRAGMA user_version").fetchone()[0])


def _own_site_packages() -> str:
    return next(path for path in sys.path if path.endswith("site-packages"))


def _content(home: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in sorted(home.rglob("*"))
        if path.is_file() and not path.is_relative_to(home / "logs")
    }
