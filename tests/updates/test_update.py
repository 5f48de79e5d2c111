"""An update leaves the old program or the new one; the home is touched only when the new one has been proven."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import retinue as package
from retinue.core.errors import UsageError
from retinue.runtime.automation.backups import open_repository
from retinue.runtime.home import Home, load_home
from retinue.runtime.updates.environment import UpdateEnvironment, UpdateFailed
from retinue.runtime.updates.run import RECORD, DoneUpdate, UpdateSteps, roll_back, update
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
        shutil.copytree(environment.prefix, environment.new, copy_function=os.link)
        for path in (environment.new / "bin" / "retinue", environment.new / "library.py"):
            path.unlink()
            path.write_text("new\n")

    return install


def steps_of(environment: UpdateEnvironment, prove: Callable[[Path], None] = lambda home: None) -> UpdateSteps:
    return UpdateSteps(install_in(environment), prove, lambda: None)


def versions(environment: UpdateEnvironment) -> set[str]:
    files = (path for path in environment.prefix.rglob("*") if path.is_file() and path.name != RECORD)
    return {path.read_text().split()[-1] for path in files}


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
    undone = roll_back(opened.paths, environment, open_repository(opened))
    assert versions(environment) == {"old"}
    assert undone.before == "9.9"
    assert not (opened.paths.path / "workspace" / "later.md").exists()
    assert list(opened.paths.path.parent.glob("home.before-restore-*/workspace/later.md"))
    with pytest.raises(UsageError, match="no update"):
        roll_back(opened.paths, environment, open_repository(opened))


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


@pytest.mark.slow
def test_a_real_environment_is_updated_and_a_broken_version_refused(home: Path, tmp_path: Path) -> None:
    """Two wheels of this source in a folder, and pip without an index."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    make_wheel(wheels, "9.0")
    prefix = tmp_path / "program"
    venv.create(prefix, with_pip=True, symlinks=True)
    (site,) = prefix.glob("lib/python*/site-packages")
    # The dependencies come from the environment of the tests; Retinue itself does not, since that one is editable.
    (site / "dependencies.pth").write_text(f"import sys; sys.path.append({json.dumps(_own_site_packages())})\n")
    variables = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "RETINUE_HOME": str(home), "PIP_NO_INDEX": "1"}
    variables |= {"PIP_FIND_LINKS": str(wheels), "PIP_NO_DEPS": "1"}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(arguments, env=variables, capture_output=True, text=True, check=False, timeout=300)

    program = str(prefix / "bin" / "retinue")
    installed = call(str(prefix / "bin" / "python"), "-m", "pip", "install", "--quiet", "--force-reinstall", "retinue")
    assert installed.returncode == 0, installed.stderr
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


def make_wheel(folder: Path, version: str, *, broken: bool = False) -> None:
    """Make a wheel of this source with another version number."""
    source = Path(package.__file__).parent
    info = f"retinue-{version}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: retinue\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nretinue = retinue.cli.main:main\n",
    }
    with zipfile.ZipFile(folder / f"retinue-{version}-py3-none-any.whl", "w") as wheel:
        for path in sorted(source.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path != source / "__init__.py":
                wheel.write(path, f"retinue/{path.relative_to(source)}")
        end = "raise SystemExit(3)\n" if broken else ""
        wheel.writestr("retinue/__init__.py", f'__version__ = "{version}"\n{end}')
        for name, text in files.items():
            wheel.writestr(name, text)
        names = "".join(f"{name},,\n" for name in [*wheel.namelist(), f"{info}/RECORD"])
        wheel.writestr(f"{info}/RECORD", names)


def _own_site_packages() -> str:
    return next(path for path in sys.path if path.endswith("site-packages"))


def _content(home: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in sorted(home.rglob("*"))
        if path.is_file() and not path.is_relative_to(home / "logs")
    }
