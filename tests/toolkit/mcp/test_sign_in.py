"""Signing in to an MCP server with OAuth, in a browser that follows redirects."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from retinue.core.errors import UsageError
from retinue.runtime.home import load_home
from retinue.runtime.inspect.mcp import sign_in, try_server
from retinue.storage.home_paths import HomePaths

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

OAUTH_SERVER = Path(__file__).with_name("oauth_server.py")


@asynccontextmanager
async def serving_on_port(*argv: str) -> AsyncIterator[int]:
    """Run a server whose last argument is a free port, until it can be connected to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    async with await anyio.open_process([*argv, str(port)], stdin=None, stdout=None, stderr=None) as process:
        try:
            with anyio.fail_after(60):
                while True:
                    try:
                        await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
                        break
                    except OSError:
                        await anyio.sleep(0.05)
            yield port
        finally:
            process.kill()


def visit(address: str) -> None:
    """Open an address as a browser does, in the background."""
    threading.Thread(target=lambda: httpx2.get(address, follow_redirects=True, timeout=60), daemon=True).start()


async def test_a_sign_in_is_stored_and_used_later(tmp_path: Path) -> None:
    async with serving_on_port(sys.executable, str(OAUTH_SERVER)) as port:
        paths = HomePaths(tmp_path / "home")
        paths.path.mkdir()
        url = f"http://127.0.0.1:{port}/mcp"
        paths.config_file.write_text(
            f'{{mcp: {{servers: {{guarded: {{url: "{url}", auth: "oauth"}}, open: {{url: "{url}"}}}}}}}}'
        )
        home = load_home(paths)
        assert "retinue mcp login guarded" in (await try_server(home, "guarded")).problem
        assert (await try_server(home, "open")).problem, "there is no way in without a sign-in"
        with pytest.raises(UsageError, match="has no sign-in"):
            await sign_in(home, "open", visit)

        signed_in = await sign_in(home, "guarded", visit)
        assert signed_in.problem == ""
        assert [tool.name for tool in signed_in.catalog.tools] == ["secret"]
        stored = paths.path / "mcp" / "sign-in" / "guarded.json"
        assert stored.stat().st_mode & 0o777 == 0o600
        assert '"profile":"mcp:guarded"' in home.audit.path.read_text().replace(" ", "")
        assert (await try_server(load_home(paths), "guarded")).problem == "", "the tokens are used again"

        paths.config_file.write_text(f'{{mcp: {{servers: {{guarded: {{url: "{url}?other", auth: "oauth"}}}}}}}}')
        assert "mcp login" in (await try_server(load_home(paths), "guarded")).problem, "tokens are for one address"
