"""HTTP requests, against a server on this machine."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script


@dataclass
class Site:
    """A server that keeps what it was asked."""

    address: str = ""
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    busy: int = 0


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()

    class Page(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            site.asked.append((self.command, self.path, headers, body))
            status, found, data = 200, {"Content-Type": "application/json"}, b'{"items": [{"name": "tea"}]}'
            match self.path.partition("?")[0]:
                case "/pages":
                    last = "page=2" in self.path
                    data = json.dumps([3] if last else [1, 2]).encode()
                    found |= {} if last else {"Link": '</pages?page=2>; rel="next"'}
                case "/zipped":
                    data, found["Content-Encoding"] = gzip.compress(data), "gzip"
                case "/bomb":
                    data, found["Content-Encoding"] = gzip.compress(bytes(60_000_000), 1), "gzip"
                case "/cut":
                    data, found["Content-Encoding"] = gzip.compress(data)[:-9], "gzip"
                case "/empty":
                    data, found["Content-Encoding"] = b"", "gzip"
                case "/away":
                    status, found["Location"] = 302, site.address.replace("127.0.0.1", "localhost") + "/landed"
                case "/busy" if site.busy:
                    site.busy -= 1
                    status, found["Retry-After"] = 429, "0"
                case "/echo":
                    data = json.dumps(headers).encode()
                case "/missing":
                    status, data = 404, b'{"error": "gone"}'
            self.send_response(status)
            for name, value in found.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self.answer()

        def do_POST(self) -> None:
            self.answer()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keep the test's output quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        site.address = f"http://127.0.0.1:{server.server_port}"
        yield site
        server.shutdown()
        thread.join()


@pytest.fixture
def request_script(workspace: Workspace) -> Script:
    return script("http", "request.py", Workspace(workspace.folder, {"API_AUTH": "Bearer abc123"}))


def test_a_part_of_an_answer(request_script: Script, site: Site) -> None:
    address = f"{site.address}/zipped"
    assert request_script.run(address, "--query", "limit=2 3", "--select", "items.0.name") == "tea\n"
    assert site.asked[0][1] == "/zipped?limit=2+3"
    assert "has no 'items.1'" in request_script.fail(address, "--select", "items.1")
    assert request_script.json(address)["status"] == 200


def test_data_is_sent_as_what_it_is(request_script: Script, site: Site, workspace: Workspace) -> None:
    workspace.write("body.bin", b"\x00\x01")
    for given in (("--data", '{"a": 1}'), ("--data", "hello"), ("--data", "@body.bin"), ("--form", "a=1 2")):
        request_script.run(f"{site.address}/", *given)
    sent = [(method, headers["content-type"].partition(";")[0], body) for method, _, headers, body in site.asked]
    assert sent == [
        ("POST", "application/json", b'{"a": 1}'),
        ("POST", "text/plain", b"hello"),
        ("POST", "application/octet-stream", b"\x00\x01"),
        ("POST", "application/x-www-form-urlencoded", b"a=1+2"),
    ]


def test_a_secret_reaches_only_its_host_and_no_output(request_script: Script, site: Site) -> None:
    secret = ("--secret-header", "Authorization=API_AUTH")
    assert '"authorization": "[secret]"' in request_script.run(f"{site.address}/echo", *secret)
    assert site.asked[0][2]["authorization"] == "Bearer abc123"
    request_script.run(f"{site.address}/away", *secret)
    assert site.asked[-1][1] == "/landed"
    assert "authorization" not in site.asked[-1][2]
    assert "NOTHING is not set" in request_script.fail(site.address, "--secret-header", "A=NOTHING")


def test_errors_and_expectations_decide_the_status(request_script: Script, site: Site) -> None:
    assert "404 Not Found" in request_script.fail(f"{site.address}/missing")
    request_script.run(f"{site.address}/missing", "--expect", 404)
    assert "not 201" in request_script.fail(site.address, "--expect", 201)
    assert "more than 0 s" in request_script.fail(site.address, "--max-seconds", 0)


def test_a_busy_server_is_asked_again_but_never_to_change_something(request_script: Script, site: Site) -> None:
    site.busy = 1
    request_script.run(f"{site.address}/busy")
    site.busy = 1
    assert "429" in request_script.fail(f"{site.address}/busy", "--data", "{}")
    assert [method for method, *_ in site.asked] == ["GET", "GET", "POST"]


def test_all_pages_are_one_list(request_script: Script, site: Site) -> None:
    assert json.loads(request_script.run(f"{site.address}/pages", "--all-pages")) == [1, 2, 3]


def test_a_body_goes_to_a_new_file(request_script: Script, site: Site, workspace: Workspace) -> None:
    request_script.run(site.address, "--out", "x.json")
    assert workspace.read("x.json") == '{"items": [{"name": "tea"}]}'
    assert "exists" in request_script.fail(site.address, "--out", "x.json")


def test_bad_input_is_refused(request_script: Script) -> None:
    assert "not an address" in request_script.fail("file:///etc/passwd")
    assert "cannot reach 127.0.0.1:9" in request_script.fail("http://127.0.0.1:9/", "--retries", 0)
    assert "write NAME=VALUE" in request_script.fail("http://127.0.0.1:9/", "--header", "a\nb=c")
    assert "cannot read nowhere" in request_script.fail("http://127.0.0.1:9/", "--data", "@nowhere")


def test_what_cannot_be_decompressed_is_refused(request_script: Script, site: Site) -> None:
    assert "larger than 50,000,000 bytes" in request_script.fail(f"{site.address}/bomb")
    assert "its end is missing" in request_script.fail(f"{site.address}/cut")
    assert request_script.run(f"{site.address}/empty") == "\n"
