"""`retinue gateway pair` and `install`: what a person needs to connect a phone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from retinue.cli.gateway_access import draw_qr_code
from retinue.config.sections.gateway import GatewaySettings
from retinue.gateway.auth import request_source
from retinue.gateway.auth.request_source import address_for_others
from retinue.storage import process_locks
from retinue.storage.process_locks import InstanceFacts
from tests.cli.conftest import RunCommand


@pytest.fixture
def in_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway runs, and this machine has an address in a network."""
    monkeypatch.setattr(process_locks, "find_instance", lambda home: InstanceFacts(1, "http://127.0.0.1:18790"))
    monkeypatch.setattr(request_source, "find_network_address", lambda: "192.168.1.20")


def configure(home: Path, bind: str) -> None:
    home.mkdir(parents=True)
    (home / "retinue.json").write_text(json.dumps({"gateway": {"bind": bind}}))


@pytest.mark.usefixtures("in_a_network")
def test_a_gateway_on_a_network_gets_an_address_and_a_qr_code(retinue: RunCommand, home: Path) -> None:
    configure(home, "lan")
    found = retinue("gateway", "pair", "--scope", "write", "--json").data
    assert found["address"] == "http://192.168.1.20:18790/"
    assert found["link"] == f"http://192.168.1.20:18790/#pair={found['code']}"
    assert found["expiresAt"] > "2026"
    shown = retinue("gateway", "pair", "--scope", "write").out
    assert re.search(r"code +[A-Z0-9]{4}-[A-Z0-9]{4}\n", shown)
    assert "http://192.168.1.20:18790/" in shown
    assert re.search(r"allows +write\n", shown)
    assert "it can be used once" in shown
    assert shown.count("█") > 100


@pytest.mark.usefixtures("in_a_network")
def test_a_gateway_on_loopback_says_how_a_phone_could_reach_it(retinue: RunCommand, home: Path) -> None:
    configure(home, "loopback")
    shown = retinue("gateway", "pair").out
    assert "http://127.0.0.1:18790/" in shown
    assert "retinue config set gateway.bind lan" in shown
    assert "█" not in shown


def test_without_a_gateway_the_code_comes_with_how_to_start_one(retinue: RunCommand, home: Path) -> None:
    home.mkdir()
    shown = retinue("gateway", "pair").out
    assert "retinue gateway start" in shown


def test_a_qr_code_is_a_square_with_a_light_border() -> None:
    lines = draw_qr_code("http://192.168.1.20:18790/#pair=ABCD-EFGH").splitlines()
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) // 2 <= len(lines) <= len(lines[0]) // 2 + 1
    assert set(lines[0]) == {"█"}
    assert all(line.startswith("██") and line.endswith("██") for line in lines)


@pytest.mark.skipif(shutil.which("zbarimg") is None, reason="zbarimg, which reads QR codes, is not installed")
def test_a_camera_reads_the_link_from_a_dark_terminal(tmp_path: Path) -> None:
    link = "http://192.168.1.20:18790/#pair=ABCD-EFGH"
    light = {"█": (255, 255), "▀": (255, 0), "▄": (0, 255), " ": (0, 0)}
    lines = draw_qr_code(link).splitlines()
    rows = [[0] * 4 + [light[cell][half] for cell in line] + [0] * 4 for line in lines for half in (0, 1)]
    picture = [[0] * len(rows[0])] * 4 + rows + [[0] * len(rows[0])] * 4
    pixels = b"".join(bytes(value for value in row for _ in range(6)) * 6 for row in picture)
    file = tmp_path / "terminal.pgm"
    file.write_bytes(f"P5 {len(rows[0]) * 6} {len(picture) * 6} 255\n".encode() + pixels)
    read = subprocess.run(["zbarimg", "-q", "--raw", str(file)], capture_output=True, text=True, check=True)
    assert read.stdout.strip() == link


@pytest.mark.parametrize(
    ("bind", "url", "expected"),
    [
        ("loopback", "http://127.0.0.1:1", None),
        ("auto", "http://127.0.0.1:1", None),
        ("lan", "http://127.0.0.1:1", "http://192.168.1.20:1"),
        ("tailnet", "http://100.64.0.7:1", "http://100.64.0.7:1"),
        ("custom", "http://[fd00::5]:1", "http://[fd00::5]:1"),
    ],
)
@pytest.mark.usefixtures("in_a_network")
def test_the_address_for_other_devices(bind: str, url: str, expected: str | None) -> None:
    assert address_for_others(GatewaySettings(bind=bind), url) == expected  # type: ignore[arg-type]


def test_without_a_network_there_is_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_source, "find_network_address", lambda: None)
    assert address_for_others(GatewaySettings(bind="lan"), "http://127.0.0.1:1") is None


def test_the_service_comes_with_how_to_keep_it_running(
    retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    monkeypatch.setattr("sys.platform", "linux")
    ran = retinue("gateway", "install")
    assert "loginctl enable-linger" in ran.out
