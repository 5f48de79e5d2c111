#!/usr/bin/env python3
"""Send an HTTP request and print the answer."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import sys
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

MAX_BYTES = 50_000_000
MAX_SHOWN = 20_000
MAX_PAGES = 100
RETRIES = 3
WINDOW_BITS = {"gzip": 31, "deflate": 15}
READS = frozenset(("GET", "HEAD", "OPTIONS"))


class RequestError(Exception):
    """The request cannot be carried out; the message says why."""


@dataclass(frozen=True)
class Answer:
    url: str
    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float

    def content(self) -> Any:
        """The body as JSON if it is that, else as text."""
        text = self.body.decode("utf-8", "replace")
        if "json" in self.headers.get("content-type", ""):
            try:
                return json.loads(text)
            except ValueError:
                return text
        return text


class SameHostRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but hands headers with secrets only to the same host."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        found = super().redirect_request(req, fp, code, msg, headers, newurl)
        if found is not None and urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            for name in list(found.headers):
                if name.lower() not in ("accept", "user-agent", "accept-encoding"):
                    found.remove_header(name)
        return found


def send(url: str, options: argparse.Namespace, headers: dict[str, str], data: bytes | None) -> Answer:
    if urlsplit(url).scheme not in ("http", "https"):
        raise RequestError(f"{url!r} is not an address of http or https")
    request = urllib.request.Request(url, data, headers, method=options.method)
    opener = urllib.request.build_opener(SameHostRedirects)
    began = time.monotonic()
    try:
        try:
            answer = opener.open(request, timeout=options.timeout)
        except urllib.error.HTTPError as refused:
            answer = refused
        with answer:
            body = answer.read(MAX_BYTES + 1)
            status, found = answer.status, {name.lower(): value for name, value in answer.headers.items()}
            url = answer.url
    except (OSError, http.client.HTTPException, ValueError) as failure:
        raise RequestError(f"cannot reach {urlsplit(url).netloc}: {getattr(failure, 'reason', failure)}") from failure
    if len(body) > MAX_BYTES:
        raise RequestError(f"the answer is larger than {MAX_BYTES:,} bytes")
    return Answer(url, status, found, unpack(body, found.get("content-encoding", "")), time.monotonic() - began)


def unpack(body: bytes, encoding: str) -> bytes:
    """Return the content of a compressed body; a small body can contain gigabytes."""
    if not body or encoding not in WINDOW_BITS:  # answers to HEAD name an encoding, too
        return body
    unpacker = zlib.decompressobj(WINDOW_BITS[encoding])
    try:
        content = unpacker.decompress(body, MAX_BYTES + 1)
    except zlib.error as failure:
        raise RequestError(f"the answer cannot be decompressed: {failure}") from failure
    if len(content) > MAX_BYTES:
        raise RequestError(f"the answer is larger than {MAX_BYTES:,} bytes")
    if not unpacker.eof:
        raise RequestError("the answer cannot be decompressed: its end is missing")
    return content


def send_patiently(url: str, options: argparse.Namespace, headers: dict[str, str], data: bytes | None) -> Answer:
    for attempt in range(RETRIES + 1):
        answer = send(url, options, headers, data)
        if options.method not in READS or (answer.status != 429 and answer.status < 500) or attempt == options.retries:
            break
        wait = answer.headers.get("retry-after", "")
        time.sleep(min(float(wait) if wait.isdigit() else 2.0**attempt, 30))
    return answer


def pair(text: str, what: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name or "\n" in text or "\r" in text:
        raise RequestError(f"cannot read the {what} {text!r}; write NAME=VALUE")
    return name, value


def make_headers(options: argparse.Namespace) -> tuple[dict[str, str], list[str]]:
    headers = {"User-Agent": "retinue-http/1.0", "Accept": "*/*", "Accept-Encoding": "gzip, deflate"}
    headers |= dict(pair(text, "header") for text in options.header)
    secrets = []
    for text in options.secret_header:
        name, variable = pair(text, "header")
        value = os.environ.get(variable, "").strip()
        if not value:
            raise RequestError(f"the variable {variable} is not set")
        headers[name] = value
        secrets.append(value)
    return headers, secrets


def make_body(options: argparse.Namespace, headers: dict[str, str]) -> bytes | None:
    given = {name.lower() for name in headers}
    if options.form:
        headers |= {} if "content-type" in given else {"Content-Type": "application/x-www-form-urlencoded"}
        return urlencode([pair(text, "field") for text in options.form]).encode()
    if options.data is None:
        return None
    if options.data.startswith("@"):
        try:
            data = Path(options.data[1:]).read_bytes()
        except OSError as failure:
            raise RequestError(f"cannot read {options.data[1:]}: {failure}") from failure
    else:
        data = options.data.encode()
    if "content-type" not in given:
        try:
            json.loads(data)
            headers["Content-Type"] = "application/json"
        except ValueError:
            headers["Content-Type"] = (
                "application/octet-stream" if options.data.startswith("@") else "text/plain; charset=utf-8"
            )
    return data


def select(content: Any, path: str) -> Any:
    for key in path.split("."):
        try:
            content = content[int(key)] if isinstance(content, list) else content[key]
        except (KeyError, IndexError, ValueError, TypeError):
            known = ", ".join(list(content)[:20]) if isinstance(content, dict) else f"{type(content).__name__}"
            raise RequestError(f"the answer has no {path!r}; at {key!r} there is: {known}") from None
    return content


def next_page(answer: Answer) -> str:
    found = re.search(r'<([^>]+)>\s*;[^,]*\brel="?next"?', answer.headers.get("link", ""))
    return urljoin(answer.url, found[1]) if found else ""


def fetch(options: argparse.Namespace, headers: dict[str, str]) -> list[Answer]:
    url = options.url
    if options.query:
        query = urlencode([pair(text, "query") for text in options.query])
        url += ("&" if "?" in url else "?") + query
    data = make_body(options, headers)
    answers = [send_patiently(url, options, headers, data)]
    while options.all_pages and len(answers) < MAX_PAGES and (url := next_page(answers[-1])):
        if urlsplit(url)[:2] != urlsplit(answers[0].url)[:2]:
            raise RequestError(f"the next page is on another host, {urlsplit(url).netloc}; ask for it by itself")
        answers.append(send_patiently(url, options, headers, None))
    return answers


def judge(answer: Answer, options: argparse.Namespace) -> str:
    """Return what is wrong with an answer, or nothing."""
    if options.expect is not None and answer.status != options.expect:
        return f"the status is {answer.status}, not {options.expect}"
    if options.expect is None and answer.status >= 400:
        return f"{answer.status} {http.client.responses.get(answer.status, '')}".rstrip()
    if options.max_seconds is not None and answer.seconds > options.max_seconds:
        return f"the answer took {answer.seconds:.2f} s, more than {options.max_seconds:g} s"
    return ""


def render(answers: list[Answer], options: argparse.Namespace) -> str:
    content = answers[-1].content()
    if options.all_pages:
        pages = [answer.content() for answer in answers]
        content = [item for page in pages for item in (page if isinstance(page, list) else [page])]
    if options.select:
        content = select(content, options.select)
    if options.json:
        last = answers[-1]
        shown = {
            "url": last.url,
            "status": last.status,
            "seconds": round(last.seconds, 3),
            "headers": last.headers,
            "body": content,
        }
        return json.dumps(shown, ensure_ascii=False, indent=2)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=2)
    if len(text) > MAX_SHOWN:
        text = f"{text[:MAX_SHOWN]}\n({len(text):,} characters; use --select or --out)"
    return text


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--method", type=str.upper, default=None)
    for option, text in (("query", "part of the address"), ("header", "header"), ("form", "field of a form")):
        parser.add_argument(f"--{option}", action="append", default=[], metavar="NAME=VALUE", help=text)
    parser.add_argument(
        "--secret-header", action="append", default=[], metavar="NAME=VARIABLE", help="header from a variable"
    )
    parser.add_argument("--data", help="the body, or @FILE")
    parser.add_argument("--expect", type=int, metavar="STATUS")
    parser.add_argument("--max-seconds", type=float)
    parser.add_argument("--timeout", type=float, default=30)
    parser.add_argument("--retries", type=int, default=RETRIES, choices=range(RETRIES + 1))
    parser.add_argument("--select", metavar="PATH", help="a part of a JSON answer, such as items.0.name")
    parser.add_argument("--all-pages", action="store_true", help="follow links to the next page")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--out", type=Path, help="write the body to this new file")
    form.add_argument("--json", action="store_true", help="print status, headers and body as JSON")
    options = parser.parse_args(argv)
    options.method = options.method or ("POST" if options.data is not None or options.form else "GET")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        headers, secrets = make_headers(options)
        answers = fetch(options, headers)
        problem = judge(answers[-1], options)
        if options.out is not None and not problem:
            with options.out.open("xb") as file:
                file.write(answers[-1].body)
            text = f"Wrote {len(answers[-1].body):,} bytes to {options.out}."
        else:
            text = render(answers, options)
    except (RequestError, OSError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    print(text)
    if problem:
        print(f"error: {problem}", file=sys.stderr)
    return int(bool(problem))


if __name__ == "__main__":
    sys.exit(main())
