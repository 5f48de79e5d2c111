"""RSS and Atom feeds."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script

RSS = """<?xml version="1.0"?>
<rss version="2.0"><channel><title>Town &amp; Country</title>
<item><title>Old</title><link>/old</link><guid>1</guid><pubDate>Mon, 13 May 2030 08:00:00 +0200</pubDate></item>
<item><title>New</title><link>https://example.org/new</link><guid>2</guid>
<pubDate>Tue, 14 May 2030 08:00:00 +0200</pubDate>
<description>&lt;p&gt;Rain &amp;amp; wind&lt;/p&gt;&lt;script&gt;steal()&lt;/script&gt;</description></item>
</channel></rss>"""

ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Atom</title>
<entry><title type="html">&lt;b&gt;Bold&lt;/b&gt; move</title><id>tag:1</id><updated>2030-05-14T06:00:00Z</updated>
<link rel="self" href="/self"/><link href="/page"/><summary>Short</summary></entry></feed>"""

RDF = """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"
 xmlns:dc="http://purl.org/dc/elements/1.1/"><channel><title>RDF</title></channel>
<item><title>One</title><link>https://example.org/1</link><dc:date>2030-05-14</dc:date></item></rdf:RDF>"""


@pytest.fixture
def feeds(workspace: Workspace) -> Script:
    return script("feeds", "feeds.py", workspace)


@pytest.fixture
def site() -> Iterator[str]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = {"/rss": RSS, "/atom": ATOM}.get(self.path, "")
            self.send_response(200 if body else 404)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keep the test's output quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_rss_is_read_from_the_web_newest_first(feeds: Script, site: str) -> None:
    new, old = feeds.json("read", f"{site}/rss")
    assert new == {
        "feed": "Town & Country",
        "title": "New",
        "link": "https://example.org/new",
        "published": "2030-05-14T06:00+00:00",
        "summary": "Rain & wind",
        "id": "2",
    }
    assert old["link"] == f"{site}/old"


def test_atom_is_read(feeds: Script, site: str) -> None:
    (entry,) = feeds.json("read", f"{site}/atom")
    assert (entry["title"], entry["link"], entry["summary"]) == ("Bold move", f"{site}/page", "Short")


def test_rss_one_is_read_from_a_file(feeds: Script, workspace: Workspace) -> None:
    workspace.write("feed.xml", RDF)
    (entry,) = feeds.json("read", "feed.xml")
    assert (entry["feed"], entry["title"], entry["published"]) == ("RDF", "One", "2030-05-14T00:00+00:00")


def test_only_unseen_entries_are_new(feeds: Script, workspace: Workspace) -> None:
    workspace.write("feed.xml", RSS)
    workspace.write("feeds.txt", "# news\nfeed.xml # local\n\nfeed.xml\n")
    assert [entry["id"] for entry in feeds.json("new", "--keep-unseen")] == ["2", "1"]
    assert [entry["id"] for entry in feeds.json("new")] == ["2", "1"]
    assert feeds.run("new") == "Nothing new.\n"
    workspace.write("feed.xml", RSS.replace("<item>", "<item><title>Third</title><guid>3</guid></item><item>", 1))
    assert [entry["id"] for entry in feeds.json("new")] == ["3"]


def test_an_entry_that_left_the_feed_and_returns_is_not_new(feeds: Script, workspace: Workspace) -> None:
    workspace.write("feeds.txt", "feed.xml\n")
    workspace.write("feed.xml", RSS)
    feeds.run("new")
    workspace.write("feed.xml", RDF)
    feeds.run("new")
    workspace.write("feed.xml", RSS)
    assert feeds.json("new") == []


def test_one_failing_feed_does_not_stop_the_others(feeds: Script, workspace: Workspace, site: str) -> None:
    workspace.write("feeds.txt", f"{site}/gone\n{site}/rss\n")
    printed, warned = feeds.run_loudly("new")
    assert "New" in printed
    assert "/gone: HTTP Error 404" in warned


def test_when_every_feed_fails_it_is_an_error(feeds: Script, workspace: Workspace, site: str) -> None:
    workspace.write("feeds.txt", f"{site}/gone\n")
    assert "no feed could be read" in feeds.fail("new")
    assert not (workspace.folder / "feeds-seen.json").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<html><body>hello</body></html>", "not a feed but a <html> document"),
        ("no xml at all", "this is not a feed"),
        ("", "this is not a feed"),
        ('<!DOCTYPE rss [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><rss>&b;</rss>', "XML entity 'a'"),
        ('<!DOCTYPE rss [<!ENTITY x SYSTEM "file:///etc/passwd">]><rss>&x;</rss>', "XML entity 'x'"),
    ],
)
def test_what_is_no_feed_is_refused(feeds: Script, workspace: Workspace, content: str, message: str) -> None:
    workspace.write("feed.xml", content)
    assert message in feeds.fail("read", "feed.xml")


def test_a_huge_feed_is_refused(feeds: Script, workspace: Workspace) -> None:
    workspace.write("feed.xml", RSS + " " * 5_000_001)
    assert "larger than 5 MB" in feeds.fail("read", "feed.xml")


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://example.org/feed", "missing.xml", "http://"])
def test_other_addresses_are_refused(feeds: Script, address: str) -> None:
    assert "no feed could be read" in feeds.fail("read", address)


def test_control_characters_and_bad_dates_do_not_get_through(feeds: Script, workspace: Workspace) -> None:
    item = "<item><title>A&#x202e;B&#x9;C</title><pubDate>soon, really</pubDate><description>" + "x" * 900
    workspace.write("feed.xml", f"<rss><channel>{item}</description></item></channel></rss>")
    (entry,) = feeds.json("read", "feed.xml")
    assert (entry["title"], entry["published"], len(entry["summary"])) == ("A B C", "", 300)


def test_missing_lists_and_broken_memories_are_reported(feeds: Script, workspace: Workspace) -> None:
    assert "there is no feeds.txt" in feeds.fail("new")
    workspace.write("feeds.txt", "# nothing\n")
    assert "names no feed" in feeds.fail("new")
    workspace.write("feed.xml", RSS)
    workspace.write("feeds.txt", "feed.xml\n")
    workspace.write("feeds-seen.json", json.dumps([1, 2]))
    assert "delete it to start afresh" in feeds.fail("new")
