"""The files of the page, as the gateway serves them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from retinue import __version__
from retinue.cli.main import run
from retinue.config.sections.gateway import ControlUi
from retinue.gateway import page_files
from retinue.gateway.page_files import MEDIA_TYPES, describe_page, find_page
from retinue.structs.decode import DecodeError, decode
from tests.gateway.conftest import PATIENCE, Hall, open_hall

pytestmark = pytest.mark.anyio

SOURCES = Path(__file__).parents[2] / "page"
FOLDER = find_page() or Path("the page was not built: run `make page`")
"""The page as it was built; tests that need it fail if there is none."""
FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.suffix in MEDIA_TYPES)
MAX_FIRST_VIEW = 200_000
MAX_ALL = 400_000
MAKES_MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc"
    r"|\beval\b|new Function|setTimeout\(\s*[\"'`]|\.on[a-z]+\s*=|setAttributeNS|dangerouslySetInnerHTML"
)


async def get(hall: Hall, path: str, encoding: str = "gzip") -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=hall.url, timeout=PATIENCE, verify=False) as client:
        return await client.get(path, headers={"Accept-Encoding": encoding})


@pytest.mark.slow
async def test_the_page_comes_with_a_strict_policy_and_is_not_kept(hall: Hall) -> None:
    for path in ("/", *(f"/{name}" for name in FILES if name != "index.html")):
        answer = await get(hall, path)
        assert answer.status_code == 200
        policy = [directive.strip() for directive in answer.headers["content-security-policy"].split(";")]
        assert policy[0] == "default-src 'none'"
        assert {"script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} < set(policy)
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.slow
async def test_every_file_is_served_as_what_it_is(hall: Hall) -> None:
    assert FILES
    for name in FILES:
        path = "/" if name == "index.html" else f"/{name}"
        for encoding in ("identity", "gzip"):
            answer = await get(hall, path, encoding)
            assert answer.headers["content-type"].startswith(MEDIA_TYPES[Path(name).suffix])
            assert answer.content == (FOLDER / name).read_bytes()
            is_packed = encoding == "gzip" and (FOLDER / f"{name}.gz").is_file()
            assert answer.headers.get("content-encoding") == ("gzip" if is_packed else None)
            assert answer.headers["vary"] == "Accept-Encoding"


@pytest.mark.parametrize(
    "path",
    [
        "/page/nothing.js",
        "/page/..%2fapp.py",
        "/page/../app.py",
        "/page/%2e%2e/app.py",
        "/page/",
        "/index.html",
        "/manifest.json",
        "/.sources",
    ],
)
async def test_nothing_else_is_served(hall: Hall, path: str) -> None:
    assert (await get(hall, path)).status_code == 404


async def test_the_page_can_be_switched_off(tmp_path: Path) -> None:
    async with open_hall(tmp_path, gateway={"controlUi": {"enabled": False}}) as hall, hall.serving():
        assert (await get(hall, "/")).status_code == 404
        assert (await get(hall, "/icon.svg")).status_code == 404
        assert (await get(hall, "/healthz")).status_code == 200


async def test_the_page_can_be_served_under_a_path(tmp_path: Path) -> None:
    config = {"controlUi": {"basePath": "/assistant"}}
    async with open_hall(tmp_path, gateway=config) as hall, hall.serving():
        assert (await get(hall, "/assistant/")).status_code == 200
        assert (await get(hall, "/assistant/icon.svg")).status_code == 200
        bare = await get(hall, "/assistant")
        assert (bare.status_code, bare.headers["location"]) == (308, "/assistant/")
        assert (await get(hall, "/")).status_code == 404
        assert (await get(hall, "/icon.svg")).status_code == 404
        for path in ("/ws", "/assistant/ws"):
            async with connect(f"ws://{hall.host}{path}", proxy=None) as socket:
                await socket.send('{"type": "req", "id": "1", "method": "connect"}')
                assert "unauthenticated" in str(await socket.recv())
        with pytest.raises(InvalidStatus):
            await connect(f"ws://{hall.host}/elsewhere/ws", proxy=None)


@pytest.mark.parametrize("path", ["assistant", "/a b", "//", "/../x", "/a?b", "/é", ""])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(DecodeError, match="must be a path"):
        decode(ControlUi, {"basePath": path})


async def test_without_a_built_page_the_gateway_says_so_and_works(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_files, "_PLACES", ())
    answer = await get(hall, "/")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "its page was not built" in answer.text
    assert "script" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert (await get(hall, "/icon.svg")).status_code == 404
    assert (await get(hall, "/healthz")).status_code == 200
    assert describe_page(find_page()).built is False


def test_the_page_is_small(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["page", "info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["built"] is True
    assert facts["version"] == __version__
    assert 0 < facts["firstViewGzip"] <= MAX_FIRST_VIEW
    assert facts["firstViewGzip"] < facts["gzip"] <= MAX_ALL
    assert facts["gzip"] < facts["bytes"]


def test_the_page_loads_only_its_own_files() -> None:
    first = (FOLDER / "index.html").read_text("utf-8")
    loaded = re.findall(r'(?:src|href)="([^"#]+)"', first)
    assert loaded
    assert {name.removeprefix("./") for name in loaded} <= set(FILES)
    assert not re.search(r"<style|style=|\son[a-z]+=|<script(?![^>]*\ssrc=)", first)
    for name in FILES:
        if name.endswith(".css"):
            assert "url(" not in (FOLDER / name).read_text("utf-8")


SOURCE_FILES = sorted(path.relative_to(SOURCES).as_posix() for path in (SOURCES / "src").rglob("*.ts*"))


def test_no_text_is_ever_parsed_as_markup_or_code() -> None:
    assert "src/main.tsx" in SOURCE_FILES
    found = {name: MAKES_MARKUP.findall((SOURCES / name).read_text("utf-8")) for name in SOURCE_FILES}
    assert {name for name, matches in found.items() if matches} == set()


def test_the_lock_file_names_no_address_and_every_package_has_a_hash() -> None:
    text = (SOURCES / "package-lock.json").read_text("utf-8")
    assert "://" not in text
    packages = {name: facts for name, facts in json.loads(text)["packages"].items() if name}
    assert packages
    assert all(facts["integrity"].startswith("sha512-") for facts in packages.values())
