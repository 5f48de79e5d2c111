"""Hosts of the SSH configuration."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script, stand_in

pytestmark = pytest.mark.slow  # a process for each call of the script

CONFIG = """Include {folder}/more/*.conf
Host web db
  HostName 127.0.0.1
  User ada
  Port {port}
Host *.internal !x
  ProxyJump web
"""


@pytest.fixture
def port() -> Iterator[int]:
    """A port on which something greets as an SSH server does."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"SSH-2.0-Test_1\r\n")

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.fixture
def hosts(workspace: Workspace, port: int) -> Script:
    workspace.write("config", CONFIG.format(port=port, folder=workspace.folder))
    workspace.write("more/a.conf", "Host build.internal\n  HostName 10.0.0.9\n")
    return script("ssh", "hosts.py", workspace)


def test_hosts_are_listed_as_ssh_resolves_them(hosts: Script, port: int) -> None:
    build, web, db = hosts.json("list", "--config", "config")
    assert (web["name"], web["user"], web["address"], web["port"], web["jump"]) == ("web", "ada", "127.0.0.1", port, "")
    assert (build["name"], build["address"], build["jump"]) == ("build.internal", "10.0.0.9", "web")
    assert db["name"] == "db"


def test_a_host_that_answers_with_ssh_is_reachable(hosts: Script, workspace: Workspace) -> None:
    found = {each["name"]: each for each in hosts.json("check", "--config", "config")}
    assert (found["web"]["state"], found["web"]["server"]) == ("ok", "SSH-2.0-Test_1")
    assert found["build.internal"]["state"] == "not tried, it is behind web"
    workspace.write("config", "Host down\n  HostName 127.0.0.1\n  Port 9\n")
    assert hosts.json("check", "--config", "config")[0]["state"].startswith("unreachable")


def test_a_command_runs_on_several_hosts_without_questions(tmp_path: Path) -> None:
    stand_in(tmp_path / "bin", "ssh", "import sys; print(*sys.argv[1:]); sys.exit(3 if 'db' in sys.argv else 0)")
    hosts = script("ssh", "hosts.py", Workspace(tmp_path, {"PATH": str(tmp_path / "bin")}))
    arguments = ("run", "web", "db", "--config", "none", "--json", "--", "uptime", "-p")
    done = hosts.run(*arguments)
    assert '"status": 3' in done
    assert "BatchMode=yes -o ConnectTimeout=5 -o ForwardAgent=no web uptime -p" in done


def test_bad_input_is_refused(hosts: Script) -> None:
    assert "is not the name of a host" in hosts.fail("list", "--config", "config", "$(id)")
    assert "name the command after --" in hosts.fail("run", "web")
    assert "names no hosts" in hosts.fail("list", "--config", "nowhere")
