"""The first run as a new user has it, in a pseudo-terminal and in Chromium, with its steps and seconds.

    python scripts/first_run.py [--case checkout|wheel|offline|page] [--build] [--json]

A scripted model server stands in for the provider, and the key that is pasted is its key. `checkout` runs `make run` in
a copy of this checkout whose virtual environment is this one, so that nothing is downloaded. `wheel` starts Retinue in
an empty folder from the files of its wheel; with `--build` the wheel is built and installed with its dependencies into
a virtual environment of its own, for which the package index is needed. `offline` is the same where there is no network
but loopback; with `--build` the installation comes first. `page` answers the questions in Chromium.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pexpect

from retinue.testing.modelserver import running_server

ROOT = Path(__file__).resolve().parent.parent
KEY = "sk-ant-api03-first-run-0123456789"
ANSWER = "Five things: notes, plans, reminders, research and letters. Which one first?"
SECONDS = 120
"""Only something that hangs takes this long."""
USUAL_SERVERS = ("ollama", "llamacpp", "lmstudio", "vllm")
NOWHERE = "http://127.0.0.1:9"


class NotPossible(Exception):
    """This machine lacks what a case needs."""


@dataclass
class Course:
    """The steps of one first run, with the time at which each was done."""

    name: str
    started: float = field(default_factory=time.monotonic)
    steps: list[tuple[str, float]] = field(default_factory=list)

    def did(self, step: str) -> None:
        self.steps.append((step, time.monotonic() - self.started))

    def __str__(self) -> str:
        lines = [f"  {number:2}. {seconds:6.1f} s  {step}" for number, (step, seconds) in enumerate(self.steps, 1)]
        return "\n".join((f"{self.name}: {len(self.steps)} steps, {self.steps[-1][1]:.1f} s", *lines))


@dataclass
class Machine:
    """A new user's machine: a home folder of their own, and a provider that answers on loopback."""

    folder: Path
    port: int

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        settings = {
            "HOME": str(self.folder),
            "RETINUE_HOME": str(self.home),
            "RETINUE_GATEWAY_PORT": "0",
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
        }
        return {**kept, **settings, **more}

    def prepare(self) -> None:
        """Let the provider's address be the scripted server's, and the usual local servers be nowhere."""
        providers: dict[str, object] = {name: {"baseUrl": NOWHERE, "auth": "none"} for name in USUAL_SERVERS}
        providers["anthropic"] = {"baseUrl": f"http://127.0.0.1:{self.port}"}
        self.home.mkdir(parents=True)
        (self.home / "retinue.json").write_text(json.dumps({"models": {"providers": providers}}))


@contextmanager
def new_machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="first-run-") as name:
        folder = Path(name)
        with running_server(folder, ["ok", ANSWER]) as port:
            machine = Machine(folder, port)
            machine.prepare()
            yield machine


def guide(course: Course, command: Sequence[str], machine: Machine, folder: Path, **environment: str) -> None:
    """Answer the questions of `up` like a new user, until the first useful answer."""
    child = pexpect.spawn(
        command[0],
        list(command[1:]),
        env={**machine.environment(), **environment},
        cwd=str(folder),
        encoding="utf-8",
        timeout=SECONDS,
        dimensions=(50, 120),
    )
    try:
        child.expect_exact("Which model answers?")
        course.did("the first question is shown")
        child.expect_exact("Number, or `skip` [1]")
        child.sendline("1")
        child.expect_exact("Key (not shown)")
        child.waitnoecho()
        child.sendline(KEY)
        child.expect_exact("The key works")
        course.did("a key is pasted, tried and stored")
        child.expect_exact("Your name")
        child.sendline("Mira")
        child.expect_exact("A name for the agent")
        child.sendline("Basil")
        child.expect_exact("your own words [1]")
        child.sendline("")
        course.did("names and temper are given")
        child.expect_exact("or `skip` [1]")
        child.sendline("2")
        child.expect_exact(ANSWER[:30])
        course.did("the first useful answer")
    finally:
        child.close(force=True)


def stop_gateway(command: Sequence[str], machine: Machine, **environment: str) -> None:
    argv = [*command, "gateway", "stop"]
    subprocess.run(
        argv, env={**machine.environment(), **environment}, capture_output=True, timeout=SECONDS, check=False
    )


def run_checkout() -> Course:
    """`make run` in a copy of the checkout; its virtual environment is this one."""
    course = Course("make run in a checkout, in a terminal")
    with new_machine() as machine:
        copy = machine.folder / "retinue"
        for name in ("Makefile", "pyproject.toml", "constraints.txt", "hatch_build.py", "README.md"):
            copy.mkdir(exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
        shutil.copytree(ROOT / "scripts", copy / "scripts")
        (copy / ".venv").symlink_to(sys.prefix)
        # What is installed is newer than what was copied, so that make installs nothing.
        for name in ("pyproject.toml", "constraints.txt", "hatch_build.py", "scripts/setup.sh"):
            os.utime(copy / name, (0, 0))
        stamp = Path(sys.prefix) / ".installed-to-run"
        existed = stamp.exists()
        stamp.touch()
        course.did("the checkout is there")
        try:
            guide(course, ["make", "run"], machine, copy)
        finally:
            stop_gateway([sys.executable, "-m", "retinue"], machine)
            if not existed:
                stamp.unlink()
    return course


@dataclass(frozen=True)
class Installed:
    """A Retinue that can be called, apart from the checkout: its interpreter and where that finds the package."""

    python: str
    site: Path | None = None

    @property
    def command(self) -> list[str]:
        return [self.python, "-m", "retinue"]

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self.site)} if self.site else {}


def lay_out_wheel(folder: Path) -> Installed:
    """Copy the files that the wheel contains into a folder; dependencies are those of this interpreter."""
    site = folder / "site"
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for package in settings["packages"]:
        shutil.copytree(ROOT / package, site / Path(package).name, ignore=shutil.ignore_patterns("__pycache__"))
    for source, target in settings["force-include"].items():
        shutil.copytree(ROOT / source, site / target)
    if (ROOT / "page" / "dist").is_dir():
        shutil.copytree(ROOT / "page" / "dist", site / "retinue" / "gateway" / "page")
    return Installed(sys.executable, site)


def build_and_install(folder: Path, course: Course) -> Installed:
    """Build the wheel, and install it with its dependencies into a virtual environment of its own."""
    python = str(folder / "venv" / "bin" / "python")
    run_step([sys.executable, "-m", "venv", str(folder / "venv")])
    course.did("a virtual environment is made")
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run_step([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder / "dist"), str(ROOT)])
    [wheel] = (folder / "dist").glob("*.whl")
    course.did(f"the wheel is built ({wheel.stat().st_size / 1e6:.1f} MB)")
    run_step([*pip, "install", str(wheel)])
    course.did("the wheel is installed with its dependencies")
    return Installed(python)


def run_step(argv: Sequence[str]) -> None:
    """Run one step of an installation; its output is shown if it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10 * SECONDS, check=False)
    if done.returncode:
        raise NotPossible(f"This failed: {' '.join(argv)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


def run_wheel(*, build: bool = False, python: str | None = None) -> Course:
    """`retinue up` of an installed wheel in an empty folder; with `python`, of the one that is installed there."""
    course = Course("an installed wheel in an empty folder, in a terminal")
    with new_machine() as machine:
        empty = machine.folder / "empty"
        empty.mkdir()
        if python is not None:
            installed = Installed(python)
        elif build:
            installed = build_and_install(machine.folder, course)
        else:
            installed = lay_out_wheel(machine.folder)
            course.did("the wheel is laid out")
        environment = installed.environment
        try:
            guide(course, [*installed.command, "up"], machine, empty, **environment)
            found = subprocess.run(
                [installed.python, "-c", "import retinue; print(retinue.__file__)"],
                env={**machine.environment(), **environment},
                cwd=empty,
                capture_output=True,
                text=True,
                check=True,
            )
            assert not Path(found.stdout.strip()).is_relative_to(ROOT), "the checkout was used instead of the wheel"
        finally:
            stop_gateway(installed.command, machine, **environment)
    return course


def run_offline(*, build: bool = False) -> Course:
    """The installed wheel in a network namespace that has only loopback."""
    inside = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$0" "$@"']
    try:
        subprocess.run([*inside, "true"], check=True, capture_output=True, timeout=SECONDS)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotPossible("There are no network namespaces here (unshare, ip).") from error
    course = Course("an installed wheel without a network, in a terminal")
    with tempfile.TemporaryDirectory(prefix="first-run-") as folder:
        script = [sys.executable, __file__, "--case", "wheel", "--json"]
        if build:
            script += ["--python", build_and_install(Path(folder), course).python]
        before = time.monotonic() - course.started
        done = subprocess.run([*inside, *script], capture_output=True, text=True, timeout=10 * SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"Without a network it failed: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    course.steps += [(str(step), before + float(seconds)) for step, seconds in json.loads(done.stdout)["steps"]]
    return course


def run_page() -> Course:
    """The same questions on the page, in Chromium."""
    from playwright.sync_api import sync_playwright

    course = Course("the page, in Chromium")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    assert chromium is not None, "There is no Chromium here; `make system` installs it."
    command = [sys.executable, "-m", "retinue"]
    with new_machine() as machine:
        environment = machine.environment()

        def call(*arguments: str) -> dict[str, object]:
            argv = [*command, *arguments, "--json"]
            done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=SECONDS, check=True)
            answer: dict[str, object] = json.loads(done.stdout)
            return answer

        try:
            call("init")
            url = str(call("gateway", "start")["url"])
            code = str(call("gateway", "pair", "--scope", "admin")["code"])
            course.did("the gateway runs")
            with sync_playwright() as driver:
                browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
                page = browser.new_page()
                page.set_default_timeout(SECONDS * 1000)
                page.goto(f"{url}/#pair={code}")
                page.get_by_label("Key of a provider").fill(KEY)
                course.did("the page is open and signed in")
                page.get_by_role("button", name="Try the key").click()
                page.get_by_label("Your name").fill("Mira")
                course.did("a key is pasted, tried and stored")
                page.get_by_role("button", name="Continue").click()
                page.get_by_label("The agent's name").fill("Basil")
                page.get_by_role("button", name="Continue").click()
                page.get_by_role("button", name="Show me what you can do here").click()
                course.did("names and temper are given")
                page.get_by_text(ANSWER[:30]).first.wait_for()
                course.did("the first useful answer")
                browser.close()
            assert "- **Name:** Basil" in (machine.home / "workspace" / "IDENTITY.md").read_text()
        finally:
            stop_gateway(command, machine)
    return course


@dataclass(frozen=True)
class Options:
    """How the cases of the wheel get it: built and installed, as installed for `python`, or laid out."""

    build: bool = False
    python: str | None = None


CASES: dict[str, Callable[[Options], Course]] = {
    "checkout": lambda _: run_checkout(),
    "wheel": lambda chosen: run_wheel(build=chosen.build, python=chosen.python),
    "offline": lambda chosen: run_offline(build=chosen.build),
    "page": lambda _: run_page(),
}


def main() -> None:
    """Run the chosen cases and print what each took."""
    parser = argparse.ArgumentParser(description="Try the first run of a new user.")
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="only this case; may be repeated")
    parser.add_argument("--build", action="store_true", help="build the wheel and install it from the package index")
    parser.add_argument("--python", help="use the wheel that is installed for this interpreter")
    parser.add_argument("--json", action="store_true", help="print one JSON object per case")
    chosen = parser.parse_args()
    for name in chosen.case or CASES:
        try:
            course = CASES[name](Options(chosen.build, chosen.python))
        except NotPossible as problem:
            parser.exit(1, f"{name}: {problem}\n")
        print(json.dumps({"case": name, "steps": course.steps}) if chosen.json else course, flush=True)


if __name__ == "__main__":
    main()
