"""Links with tags."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script


@pytest.fixture
def bookmarks(workspace: Workspace) -> Script:
    return script("bookmarks", "bookmarks.py", workspace)


@pytest.fixture
def site() -> Iterator[str]:
    class Page(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            status = {"/": 200, "/old": 301, "/picky": 405}.get(self.path, 404)
            self.send_response(status)
            if status == 301:
                self.send_header("Location", "/")
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keep the test's output quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_link_is_kept_once_without_what_tracks(bookmarks: Script) -> None:
    bookmarks.run("add", "https://Example.org?utm_source=x&id=1", "--title", "Tea", "--tag", "Food")
    (kept,) = bookmarks.json("add", "https://example.org/?id=1&fbclid=2", "--tag", "drinks", "--note", "good")
    assert (kept["url"], kept["title"], kept["tags"]) == ("https://example.org/?id=1", "Tea", ["drinks", "food"])
    assert bookmarks.json("find", "tea", "GOOD", "--tag", "food") == [kept]
    assert bookmarks.json("find", "--tag", "work") == []
    assert bookmarks.json("tags") == [{"tag": "drinks", "count": 1}, {"tag": "food", "count": 1}]


def test_a_browser_reads_the_export_and_we_read_a_browsers(bookmarks: Script, workspace: Workspace) -> None:
    bookmarks.run("add", "https://example.org/?a=1&b=2", "--title", "<Tea>", "--tag", "food")
    bookmarks.run("export", "out.html")
    assert 'HREF="https://example.org/?a=1&amp;b=2"' in workspace.read("out.html")
    found = bookmarks.json("import", "out.html", "--file", "copy.jsonl")
    assert [(each["title"], each["tags"]) for each in found] == [("<Tea>", ["food"])]


def test_dead_and_moved_links_are_reported(bookmarks: Script, site: str) -> None:
    for path in ("/", "/old", "/gone", "/picky"):
        bookmarks.run("add", f"{site}{path}")
    bookmarks.run("add", "http://127.0.0.1:9/")
    states = {each["url"].rpartition("/")[2]: each["state"] for each in bookmarks.json("check", "127.0.0.1")}
    assert states["old"] == "moved"
    assert states["gone"].startswith("404")
    assert states[""].startswith("unreachable")
    assert set(states) == {"old", "gone", ""}


def test_bad_input_is_refused(bookmarks: Script, workspace: Workspace) -> None:
    assert "not a web address" in bookmarks.fail("add", "javascript:alert(1)")
    assert "there is no bookmark" in bookmarks.fail("remove", "https://example.org")
    assert "cannot read" in bookmarks.fail("import", "nowhere.html")
    workspace.write("bookmarks.jsonl", '{"title": "x"}\n')
    assert "line 1" in bookmarks.fail("find")
