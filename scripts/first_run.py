"""The first run as a new user has it, in a pseudo-terminal and in Chromium, with its steps and seconds.

    python scripts/first_run.py [--case checkout|wheel|offline|page] [--build] [--json]

A scripted model server stands in for the provider, and the key that is pasted is its key. `checkout` runs `make run` in
a copy of this checkout whose virtual environment is this one, so that nothing is downloaded. `wheel` starts Retinue in
an empty folder from the files of its wheel; with `--build` the wheel is built, which downloads the build tool.
`offline` is the same where there is no network but loopback. `page` answers the questions in Chromium.
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
        for name in ("Makefile", "pyproject.toml", "constraints.txt", "README.md"):
            copy.mkdir(exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
        shutil.copytree(ROOT / "scripts", copy / "scripts")
        (copy / ".venv").symlink_to(sys.prefix)
        # What is installed is newer than what was copied, so that make installs nothing.
        for name in ("pyproject.toml", "constraints.txt", "scripts/setup.sh"):
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


def install_wheel(folder: Path, *, build: bool) -> dict[str, str]:
    """Put the files of the wheel into a folder; returns the environment in which they are used."""
    site = folder / "site"
    if build:
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(ROOT)]
        subprocess.run(argv, check=True, timeout=600)
    else:
        settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
        for package in settings["packages"]:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / package, site / Path(package).name, ignore=ignored)
        for source, target in settings["force-include"].items():
            shutil.copytree(ROOT / source, site / target)
    return {"PYTHONPATH": str(site)}


def run_wheel(*, build: bool = False) -> Course:
    """`retinue up` of an installed wheel in an empty folder."""
    course = Course("an installed wheel in an empty folder, in a terminal")
    with new_machine() as machine:
        empty = machine.folder / "empty"
        empty.mkdir()
        environment = install_wheel(machine.folder, build=build)
        course.did("the wheel is installed")
        command = [sys.executable, "-m", "retinue"]
        try:
            guide(course, [*command, "up"], machine, empty, **environment)
            found = subprocess.run(
                [sys.executable, "-c", "import retinue; print(retinue.__file__)"],
                env={**machine.environment(), **environment},
                cwd=empty,
                capture_output=True,
                text=True,
                check=True,
            )
            assert str(machine.folder) in found.stdout, "the checkout was used instead of the wheel"
        finally:
            stop_gateway(command, machine, **environment)
    return course


def run_offline() -> Course:
    """The installed wheel in a network namespace that has only loopback."""
    inside = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$0" "$@"']
    try:
        subprocess.run([*inside, "true"], check=True, capture_output=True, timeout=SECONDS)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotPossible("There are no network namespaces here (unshare, ip).") from error
    script = [sys.executable, __file__, "--case", "wheel", "--json"]
    done = subprocess.run([*inside, *script], capture_output=True, text=True, timeout=10 * SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"Without a network it failed: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    course = Course("an installed wheel without a network, in a terminal")
    course.steps = [(str(step), float(seconds)) for step, seconds in json.loads(done.stdout)["steps"]]
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


CASES: dict[str, Callable[[], Course]] = {
    "checkout": run_checkout,
    "wheel": run_wheel,
    "offline": run_offline,
    "page": run_page,
}


def main() -> None:
    """Run the chosen cases and print what each took."""
    parser = argparse.ArgumentParser(description="Try the first run of a new user.")
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="only this case; may be repeated")
    parser.add_argument("--build", action="store_true", help="build the wheel, which downloads the build tool")
    parser.add_argument("--json", action="store_true", help="print one JSON object per case")
    chosen = parser.parse_args()
    for name in chosen.case or CASES:
        course = run_wheel(build=True) if name == "wheel" and chosen.build else CASES[name]()
        print(json.dumps({"case": name, "steps": course.steps}) if chosen.json else course, flush=True)


if __name__ == "__main__":
    main()
