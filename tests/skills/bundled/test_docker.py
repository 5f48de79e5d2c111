"""Containers, through a stand-in for docker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script, stand_in

pytestmark = pytest.mark.slow  # a process for each call of the script

# Answers as docker does; what it answers lies next to it.
DOCKER = """import json, pathlib, sys
here = pathlib.Path(__file__).parent
given = json.loads((here / "containers.json").read_text())
match sys.argv[1:]:
    case ["ps", *_]:
        print("\\n".join(each["Id"] for each in given))
    case ["inspect", "--type", "container", *names]:
        print(json.dumps([each for each in given if each["Id"] in names]))
    case ["logs", *options, name]:
        print(f"{' '.join(options)} {name}: out")
        print("Traceback: no database", file=sys.stderr)
    case _:
        sys.exit("unknown command")
"""


def container(name: str, status: str = "running", **more: Any) -> dict[str, Any]:
    state = {"Status": status, **more.pop("State", {})}
    return {"Id": f"id-{name}", "Name": f"/{name}", "State": state, "Config": {"Image": f"{name}:1"}, **more}


@pytest.fixture
def docker(tmp_path: Path) -> Script:
    folder = tmp_path / "bin"
    stand_in(folder, "docker", DOCKER)
    give(tmp_path)
    return script("docker", "containers.py", Workspace(tmp_path, {"PATH": str(folder)}))


def give(folder: Path, *containers: dict[str, Any]) -> None:
    (folder / "bin" / "containers.json").write_text(json.dumps(containers))


def test_the_overview_shows_ports_and_dangerous_rights(docker: Script, tmp_path: Path) -> None:
    ports = {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8080"}], "81/tcp": None}
    mounts = [{"Source": "/var/run/docker.sock"}]
    give(
        tmp_path,
        container("web", NetworkSettings={"Ports": ports}, State={"Health": {"Status": "healthy"}}),
        container("tool", HostConfig={"Privileged": True, "NetworkMode": "host"}, Mounts=mounts),
    )
    assert docker.run("overview") == (
        "web  running (healthy)  web:1  127.0.0.1:8080->80/tcp\n"
        "tool  running  tool:1  privileged, host network, socket mounted\n"
    )


def test_only_containers_in_trouble_are_named_with_their_logs(docker: Script, tmp_path: Path) -> None:
    give(
        tmp_path,
        container("fine"),
        container("stopped", "exited", State={"ExitCode": 143}),
        container("ill", State={"Health": {"Status": "unhealthy"}}, RestartCount=5),
        container("dead", "exited", State={"ExitCode": 1, "OOMKilled": True}),
    )
    found = docker.json("problems", "--since", "2h", "--lines", 5)
    assert [(each["name"], each["problems"]) for each in found] == [
        ("ill", ["unhealthy", "5 restarts"]),
        ("dead", ["killed for lack of memory", "ended with status 1"]),
    ]
    assert found[0]["log"] == "--since=2h --tail=5 ill: out\nTraceback: no database\n"


def test_without_containers_there_is_nothing(docker: Script) -> None:
    assert docker.run("overview") == "None.\n"


def test_failures_are_passed_on(docker: Script, tmp_path: Path) -> None:
    give(tmp_path, {"Id": "x"})
    assert "unexpected answer" in docker.fail("overview")
    stand_in(tmp_path / "bin", "docker", "import sys; sys.exit('permission denied while connecting')")
    assert "must be allowed to use it" in docker.fail("overview")
    assert "podman is not installed" in docker.fail("overview", "--program", "podman")
