"""The files of the page, as the gateway serves them."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from retinue.config.sections.gateway import ControlUi
from retinue.gateway.routes.page import FOLDER
from retinue.structs.decode import DecodeError, decode
from tests.gateway.conftest import PATIENCE, Hall, open_hall

pytestmark = pytest.mark.anyio

FILES = sorted(path.name for path in FOLDER.iterdir())
MAKES_MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc"
    r"|\beval\b|new Function|setTimeout\(\s*[\"'`]|\.on[a-z]+\s*=|setAttributeNS"
)


async def get(hall: Hall, path: str) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=hall.url, timeout=PATIENCE, verify=False) as client:
        return await client.get(path)


async def test_the_page_comes_with_a_strict_policy_and_is_not_kept(hall: Hall) -> None:
    for path in ("/", "/page/page.js", "/page/page.css"):
        answer = await get(hall, path)
        assert answer.status_code == 200
        policy = [directive.strip() for directive in answer.headers["content-security-policy"].split(";")]
        assert policy[0] == "default-src 'none'"
        assert {"script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} < set(policy)
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"


async def test_every_file_is_served_as_what_it_is(hall: Hall) -> None:
    kinds = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
    for name in FILES:
        answer = await get(hall, f"/page/{name}")
        assert answer.headers["content-type"] == f"{kinds[name.rpartition('.')[2]]}; charset=utf-8"
        assert answer.content == (FOLDER / name).read_bytes()


@pytest.mark.parametrize(
    "path", ["/page/nothing.js", "/page/..%2fapp.py", "/page/../app.py", "/page/%2e%2e/app.py", "/page/", "/index.html"]
)
async def test_nothing_else_is_served(hall: Hall, path: str) -> None:
    assert (await get(hall, path)).status_code == 404


async def test_the_page_can_be_switched_off(tmp_path: Path) -> None:
    async with open_hall(tmp_path, gateway={"controlUi": {"enabled": False}}) as hall, hall.serving():
        assert (await get(hall, "/")).status_code == 404
        assert (await get(hall, "/page/page.js")).status_code == 404
        assert (await get(hall, "/healthz")).status_code == 200


async def test_the_page_can_be_served_under_a_path(tmp_path: Path) -> None:
    config = {"controlUi": {"basePath": "/assistant"}}
    async with open_hall(tmp_path, gateway=config) as hall, hall.serving():
        assert (await get(hall, "/assistant/")).status_code == 200
        assert (await get(hall, "/assistant/page/page.js")).status_code == 200
        bare = await get(hall, "/assistant")
        assert (bare.status_code, bare.headers["location"]) == (308, "/assistant/")
        assert (await get(hall, "/")).status_code == 404
        assert (await get(hall, "/page/page.js")).status_code == 404
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


def test_the_page_loads_only_its_own_files() -> None:
    first = (FOLDER / "index.html").read_text("utf-8")
    assert re.findall(r'(?:src|href)="([^"#]+)"', first) == ["data:,", "page/page.css", "page/page.js"]
    assert not re.search(r"<style|style=|\son[a-z]+=|<script(?![^>]*\ssrc=)", first)
    for path in FOLDER.glob("*.js"):
        imported = re.findall(r'from "([^"]+)"', path.read_text("utf-8"))
        assert all(name.startswith("./") and (FOLDER / name).is_file() for name in imported), path.name
    assert "url(" not in (FOLDER / "page.css").read_text("utf-8")


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_no_text_is_ever_parsed_as_markup_or_code(name: str) -> None:
    assert MAKES_MARKUP.findall((FOLDER / name).read_text("utf-8")) == []
