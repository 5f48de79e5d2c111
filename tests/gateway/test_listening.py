"""The address that the gateway listens on, by its settings."""

from __future__ import annotations

import subprocess
import sys

import pytest

from retinue.config.sections.gateway import GatewaySettings
from retinue.core.errors import ConfigError, RetinueError
from retinue.gateway.transport import choose_host, listen
from retinue.structs.decode import decode

ASK = """
from retinue.config.sections.gateway import GatewaySettings
from retinue.core.errors import ConfigError
from retinue.gateway.transport import choose_host, listen
from retinue.structs.decode import decode

try:
    host = choose_host(decode(GatewaySettings, {"bind": "tailnet"}))
    print(listen(host, 0).getsockname()[0])
except ConfigError as error:
    print(error)
"""


def ask_in_network(setup: str) -> str:
    """Ask for the tailnet's address on a machine that has only the given network."""
    argv = ["unshare", "--map-root-user", "--net", "sh", "-c", f'{setup} && exec "$0" -c "$1"', sys.executable, ASK]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_on_a_tailnet_it_listens_there_and_nowhere_else() -> None:
    assert ask_in_network("ip address add 100.64.0.7/10 dev lo && ip link set lo up") == "100.64.0.7"


@pytest.mark.slow
@pytest.mark.parametrize("setup", ["true", "ip link set lo up && ip address add 10.1.2.3/0 dev lo"])
def test_without_a_tailnet_it_says_what_to_do(setup: str) -> None:
    assert "Start Tailscale" in ask_in_network(setup)


def test_a_tailnet_is_no_place_for_a_gateway_that_lets_anybody_in() -> None:
    with pytest.raises(ConfigError):
        choose_host(decode(GatewaySettings, {"bind": "tailnet", "auth": {"mode": "none"}}))


def test_an_address_of_somebody_else_is_told_from_a_port_that_is_taken() -> None:
    with pytest.raises(RetinueError, match=r"gateway\.customBindHost"):
        listen("203.0.113.7", 0)
    taken = listen("127.0.0.1", 0)
    taken.listen()
    with taken, pytest.raises(RetinueError, match="Stop the program that uses the port"):
        listen("127.0.0.1", taken.getsockname()[1])
