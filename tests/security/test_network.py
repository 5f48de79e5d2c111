"""Requests go where the policy allows, to the address that was checked, and nowhere else."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import subprocess
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from ipaddress import ip_address
from pathlib import Path

import httpx2
import pytest

from retinue.security.checked_transport import CheckedPool, CheckedTransport, PooledResponse, Waits
from retinue.security.fetch import Fetched, Outgoing, fetch, make_decompressor
from retinue.security.network import (
    MODEL_CHOSEN,
    OPERATOR,
    Address,
    AddressRefused,
    NetworkFailed,
    Policy,
    Resolve,
    check_url,
    resolve_host,
)
from tests.webserver import Request, WebServer, web_server

pytestmark = pytest.mark.anyio


def names(**hosts: str) -> Resolve:
    """A resolver that knows only these hosts (`_` for a dot), each with its addresses."""

    async def resolve(host: str, port: int) -> tuple[Address, ...]:
        found = hosts.get(host.replace(".", "_"))
        if found is None:
            raise OSError("unknown host")
        return tuple(map(ip_address, found.split()))

    return resolve


async def get(url: str, policy: Policy, **options: object) -> Fetched:
    settings: dict[str, object] = {"max_bytes": 10_000, "timeout": 20.0, "resolve": names(), **options}
    return await fetch(url, policy=policy, **settings)  # type: ignore[arg-type]


def allowing(*webs: WebServer, host: str = "127.0.0.1") -> Policy:
    return Policy(allow=frozenset(f"{host}:{web.port}" for web in webs))


async def test_a_page_comes_with_status_headers_and_media_type() -> None:
    async with web_server() as web:
        web.on("/a", "hello", kind="text/html; charset=latin-1", x_test="yes")
        got = await get(f"{web.url}/a?q=1#part", allowing(web))
    assert (got.status, got.body, got.media_type, got.charset) == (200, b"hello", "text/html", "latin-1")
    assert (got.headers["x-test"], got.truncated) == ("yes", False)
    assert web.requests[0].target == "/a?q=1"


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1/", "http://127.1/", "http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/"),
        *("http://①②⑦.⓪.⓪.①/", "http://%31%32%37.0.0.1/", "http://127.0.0.1./", "http://[::1]/", "http://[::]/"),
        *("http://[::ffff:127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/", "http://localhost/"),
        *("http://localhost./", "http://a.localhost/", "http://printer.local/", "http://metadata.google.internal/"),
        *("http://169.254.169.254/", "http://10.0.0.1/", "http://0.0.0.0/", "http://100.64.0.1/", "http://224.0.0.1/"),
        *("ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "http:///x", "example.com", ""),
        *("http://user:secret@example.com/", "http://exa mple.com/", "http://a\\b.com/", "http://example.com:99999/"),
        *("http://[fe80::1%25eth0]/", "http://example.com:0/", "http://good.com\\@evil.com/", "http://-x.com/"),
    ],
)
async def test_urls_that_a_model_may_not_choose(url: str) -> None:
    with pytest.raises(AddressRefused):
        await get(url, MODEL_CHOSEN)


@pytest.mark.parametrize(
    "addresses", ["127.0.0.1", "1.1.1.1 10.0.0.1", "::1", "169.254.169.254", "::ffff:192.168.0.1", "fd00:ec2::254"]
)
async def test_a_name_with_any_forbidden_address_is_refused(addresses: str) -> None:
    with pytest.raises(AddressRefused, match="not a public address"):
        await get("http://innocent.example/", MODEL_CHOSEN, resolve=names(innocent_example=addresses))


@pytest.mark.parametrize(
    "addresses", ["169.254.169.254", "fe80::1", "100.100.100.200", "0.0.0.0", "::ffff:169.254.1.1"]
)
async def test_operators_reach_private_addresses_but_never_metadata(addresses: str) -> None:
    with pytest.raises(AddressRefused):
        await get("http://box.example/", OPERATOR, resolve=names(box_example=addresses))
    with pytest.raises(AddressRefused):
        await get("http://metadata.google.internal/", OPERATOR, resolve=names(metadata_google_internal="1.1.1.1"))


async def test_an_operator_may_use_a_server_on_this_machine() -> None:
    async with web_server() as web:
        web.on("/", "mine")
        by_address = await get(web.url, OPERATOR)
        by_name = await get(f"http://box.lan:{web.port}/", OPERATOR, resolve=names(box_lan="127.0.0.1"))
    assert (by_address.body, by_name.body) == (b"mine", b"mine")


async def test_the_host_is_resolved_once_and_the_checked_address_is_dialled() -> None:
    asked: list[str] = []

    async def resolve(host: str, port: int) -> tuple[Address, ...]:
        asked.append(host)
        return (ip_address("127.0.0.1"),) if len(asked) == 1 else (ip_address("10.9.9.9"),)

    async with web_server() as web:
        web.on("/", "pinned")
        got = await get(f"http://rebind.example:{web.port}/", OPERATOR, resolve=resolve)
    assert got.body == b"pinned"
    assert asked == ["rebind.example"]
    assert web.requests[0].headers["host"] == f"rebind.example:{web.port}"


async def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    async with web_server() as web:
        web.on("/", "second")
        got = await get(f"http://two.example:{web.port}/", OPERATOR, resolve=names(two_example="127.0.0.9 127.0.0.1"))
    assert got.body == b"second"


async def test_an_unknown_host_is_a_failure_to_act_on() -> None:
    with pytest.raises(NetworkFailed, match="was not found"):
        await get("http://nowhere.example/", MODEL_CHOSEN)


async def test_the_system_resolves_names_that_it_knows() -> None:
    assert set(await resolve_host("localhost", 80)) <= {ip_address("127.0.0.1"), ip_address("::1")}


async def test_a_name_without_an_address_leads_nowhere() -> None:
    async def resolve(host: str, port: int) -> tuple[Address, ...]:
        return ()

    with pytest.raises(NetworkFailed, match="has no address"):
        await get("http://empty.example/", MODEL_CHOSEN, resolve=resolve)


async def test_a_url_can_be_judged_without_being_fetched() -> None:
    found = await check_url("http://fine.example/x", MODEL_CHOSEN, names(fine_example="1.1.1.1"))
    assert found == (ip_address("1.1.1.1"),)
    with pytest.raises(AddressRefused):
        await check_url("http://127.0.0.1/", MODEL_CHOSEN)


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with web_server() as web, web_server() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        web.on("/", "direct")
        assert (await get(web.url, OPERATOR)).body == b"direct"
        assert proxy.requests == []


async def test_redirects_are_followed_three_times_and_no_more() -> None:
    async with web_server() as web:
        web.on("/0", "end")
        for number in range(1, 6):
            web.redirect(f"/{number}", f"/{number - 1}")
        assert (await get(f"{web.url}/3", allowing(web))).body == b"end"
        with pytest.raises(NetworkFailed, match="more than 3"):
            await get(f"{web.url}/4", allowing(web))


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:1/", "http://169.254.169.254/", "file:///etc/passwd", "http://127.1/"]
)
async def test_a_redirect_to_a_forbidden_place_is_refused(target: str) -> None:
    async with web_server() as web:
        web.redirect("/", target)
        with pytest.raises(AddressRefused):
            await get(web.url, allowing(web))


async def test_an_operators_redirect_may_not_leave_its_origin() -> None:
    async with web_server() as web, web_server() as other:
        web.redirect("/out", f"{other.url}/")
        web.redirect("/in", "/here")
        web.on("/here", "here")
        assert (await get(f"{web.url}/in", OPERATOR)).body == b"here"
        with pytest.raises(AddressRefused, match="another origin"):
            await get(f"{web.url}/out", OPERATOR)
        assert other.requests == []


async def test_credentials_stay_with_their_origin() -> None:
    secrets = {"authorization": "Bearer x", "cookie": "a=b", "x-api-key": "k", "accept": "text/plain"}
    async with web_server() as web, web_server() as other:
        web.redirect("/same", "/out")
        web.redirect("/out", f"{other.url}/")
        other.on("/", "ok")
        await get(f"{web.url}/same", allowing(web, other), send=Outgoing(headers=secrets))
    assert web.requests[1].headers["authorization"] == "Bearer x"
    assert not {"authorization", "cookie", "x-api-key"} & other.requests[0].headers.keys()
    assert other.requests[0].headers["accept"] == "text/plain"


@pytest.mark.parametrize(("status", "method", "body"), [(302, "GET", b""), (303, "GET", b""), (307, "POST", b"form")])
async def test_a_redirected_form(status: int, method: str, body: bytes) -> None:
    async with web_server() as web:
        web.redirect("/", "/next", status)
        web.on("/next", "ok")
        await get(web.url, allowing(web), send=Outgoing("POST", {"content-type": "text/plain"}, b"form"))
    assert (web.requests[1].method, web.requests[1].body) == (method, body)


async def test_a_body_is_cut_at_the_cap() -> None:
    async with web_server() as web:
        web.on("/exact", "x" * 10_000)
        web.on("/more", "x" * 10_001)
        exact = await get(f"{web.url}/exact", allowing(web))
        more = await get(f"{web.url}/more", allowing(web))
    assert (len(exact.body), exact.truncated) == (10_000, False)
    assert (len(more.body), more.truncated) == (10_000, True)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate", "raw deflate"])
async def test_the_cap_counts_after_decompression(encoding: str) -> None:
    window = {"deflate": zlib.MAX_WBITS, "raw deflate": -zlib.MAX_WBITS}.get(encoding, 16 + zlib.MAX_WBITS)
    packer = zlib.compressobj(9, zlib.DEFLATED, window)
    bomb = packer.compress(b"\0" * 50_000_000) + packer.flush()
    async with web_server() as web:
        web.on("/", bomb, content_encoding=encoding.removeprefix("raw "))
        tracemalloc.start()
        got = await get(web.url, allowing(web))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert (len(got.body), got.truncated) == (10_000, True)
    assert peak < 10_000_000


@pytest.mark.parametrize("encoding", ["gzip, deflate", "br", "zstd", "compress"])
async def test_only_one_layer_of_a_known_compression_is_taken(encoding: str) -> None:
    async with web_server() as web:
        web.on("/", gzip.compress(b"x"), content_encoding=encoding)
        with pytest.raises(NetworkFailed, match="is not supported"):
            await get(web.url, allowing(web))


@pytest.mark.parametrize("cut", [1, 5, 50])
async def test_compressed_text_arrives_whole_in_any_pieces(cut: int) -> None:
    packed = {name: packing(b"hello " * 100) for name, packing in (("gzip", gzip.compress), ("deflate", zlib.compress))}

    async def send(request: Request, writer: asyncio.StreamWriter) -> None:
        data = packed[request.target[1:]]
        head = f"HTTP/1.1 200 X\r\ncontent-encoding: {request.target[1:]}\r\ncontent-length: {len(data)}\r\n\r\n"
        writer.write(head.encode())
        for start in range(0, len(data), cut):
            writer.write(data[start : start + cut])
            await writer.drain()
            await asyncio.sleep(0)

    async with web_server() as web:
        web.answers = dict.fromkeys(("/gzip", "/deflate"), send)
        for name in packed:
            assert (await get(f"{web.url}/{name}", allowing(web))).body == b"hello " * 100


async def test_damaged_compression_is_a_failure() -> None:
    async with web_server() as web:
        web.on("/", b"not gzip at all", content_encoding="gzip")
        with pytest.raises(NetworkFailed):
            await get(web.url, allowing(web))


async def test_endless_headers_are_refused() -> None:
    async with web_server() as web:
        web.on("/", "x", x_long="a" * 70_000)
        with pytest.raises(NetworkFailed):
            await get(web.url, allowing(web))
        web.on("/", "x", x_long="a" * 1_000_000)
        with pytest.raises(NetworkFailed):
            await get(web.url, allowing(web))


async def test_a_server_that_never_finishes_runs_out_of_time() -> None:
    async def drip(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 X\r\ncontent-length: 1000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with web_server() as web:
        web.answers["/"] = drip
        with pytest.raises(NetworkFailed, match=r"within 0\.3 seconds"):
            await get(web.url, allowing(web), timeout=0.3)


@pytest.mark.parametrize("answer", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 X\r\ncontent-length: 50\r\n\r\nshort"])
async def test_a_broken_server_is_a_failure(answer: bytes) -> None:
    async def broken(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    async with web_server() as web:
        web.answers["/"] = broken
        with pytest.raises(NetworkFailed):
            await get(web.url, allowing(web))


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's and a client's side of a certificate for `secure.example` alone."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "2",
            ),
            *("-subj", "/CN=secure.example", "-addext", "subjectAltName=DNS:secure.example"),
            *("-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
    )
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(cert, key)
    return server, ssl.create_default_context(cafile=str(cert))


@pytest.mark.slow
async def test_tls_is_verified_for_the_name_although_the_address_is_dialled(
    certificate: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    server, client = certificate
    resolve = names(secure_example="127.0.0.1", other_example="127.0.0.1")
    async with (
        web_server(server) as web,
        httpx2.AsyncClient(transport=CheckedTransport(OPERATOR, resolve, tls=client), trust_env=False) as http,
    ):
        web.on("/", "sealed")
        assert (await http.get(f"https://secure.example:{web.port}/")).text == "sealed"
        with pytest.raises(httpx2.ConnectError):
            await http.get(f"https://other.example:{web.port}/")
        pool = CheckedPool(OPERATOR, resolve, tls=client)
        assert await post(pool, f"https://secure.example:{web.port}/") == b"sealed"
        with pytest.raises(OSError):
            await post(pool, f"https://other.example:{web.port}/")
        await pool.aclose()


async def post(pool: CheckedPool, url: str) -> bytes:
    parsed = httpx2.URL(url)
    headers = [(b"host", parsed.netloc), (b"content-length", b"2")]
    response = await pool.post(parsed, headers, b"{}", Waits(connect=60.0, idle=60.0))
    try:
        return b"".join([part async for part in parts_of(response)])
    finally:
        response.close()


async def parts_of(response: PooledResponse) -> AsyncIterator[bytes]:
    while part := await response.receive():
        yield part


async def test_a_pool_sends_to_the_next_address_if_one_refuses_connections() -> None:
    async with web_server() as web:
        web.on("/", "here")
        pool = CheckedPool(OPERATOR, names(two_example="127.0.0.2 127.0.0.1", bad_example="127.0.0.1 169.254.169.254"))
        assert await post(pool, f"http://two.example:{web.port}/") == b"here"
        assert await post(pool, f"http://two.example:{web.port}/") == b"here"
        with pytest.raises(AddressRefused):
            await post(pool, f"http://bad.example:{web.port}/")
        await pool.aclose()
    assert [request.headers["host"] for request in web.requests] == [f"two.example:{web.port}"] * 2


@pytest.mark.slow
async def test_a_certificate_that_the_system_does_not_trust_is_refused(
    certificate: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    server, _ = certificate
    async with (
        web_server(server) as web,
        httpx2.AsyncClient(
            transport=CheckedTransport(OPERATOR, names(secure_example="127.0.0.1")), trust_env=False
        ) as http,
    ):
        web.on("/", "sealed")
        with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await http.get(f"https://secure.example:{web.port}/")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "identity"])
async def test_what_follows_a_compressed_body_is_neither_kept_nor_read_for_ever(encoding: str) -> None:
    packed = {"gzip": gzip.compress(b"short"), "deflate": zlib.compress(b"short"), "identity": b"short"}[encoding]
    sent = 0

    async def go_on(request: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(f"HTTP/1.1 200 X\r\ncontent-encoding: {encoding}\r\n\r\n".encode() + packed)
        while not writer.is_closing():
            writer.write(b"\0" * 65_536)
            sent += 65_536
            await writer.drain()

    async with web_server() as web:
        web.answers["/"] = go_on
        got = await get(web.url, allowing(web))
    assert got.body.startswith(b"short")
    assert got.truncated
    assert sent < 20_000_000, "nobody reads on when there is nothing more to learn"


def test_nothing_is_kept_of_what_follows_a_compressed_body() -> None:
    inflater = make_decompressor("gzip")
    assert inflater.feed(gzip.compress(b"short"), 100) == b"short"
    tracemalloc.start()
    for _ in range(100):
        assert inflater.feed(bytes(65_536), 95) == b""
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
