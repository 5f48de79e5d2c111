"""An endpoint on this machine that embeds texts directly and in batches, as OpenAI does."""

from __future__ import annotations

import email.parser
import email.policy
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def embed(text: str) -> list[float]:
    """A vector that tells texts apart."""
    return [float(len(text)), float(text.count("e")), 1.0]


@dataclass
class BatchServer:
    """Batches go through `stages`, one at each look; the last one stays.

    `broken` texts have an error in the answer. `refused` maps "METHOD path-prefix" to a status given in its place.
    """

    stages: tuple[str, ...] = ("validating", "in_progress", "completed")
    broken: tuple[str, ...] = ()
    refused: dict[str, int] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    embedded_directly: list[str] = field(default_factory=list)
    looks: dict[str, int] = field(default_factory=dict)
    running_at_once: int = 0

    @contextmanager
    def running(self) -> Iterator[str]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _answering(self))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, bytes]:
        self.asked.append(f"{method} {path}")
        for prefix, status in self.refused.items():
            if f"{method} {path}".startswith(prefix):
                return status, b'{"error": {"message": "not today"}}'
        match method, path.strip("/").split("/"):
            case "POST", ["embeddings"]:
                texts = json.loads(body)["input"]
                self.embedded_directly += texts
                rows = [{"index": n, "embedding": embed(text)} for n, text in enumerate(texts)]
                return 200, json.dumps({"data": rows}).encode()
            case "POST", ["files"]:
                name = f"file-{len(self.files)}"
                self.files[name] = _uploaded(headers["Content-Type"], body)
                return 200, json.dumps({"id": name, "purpose": "batch"}).encode()
            case "POST", ["batches"]:
                return 200, json.dumps(self._start(json.loads(body))).encode()
            case "POST", ["batches", name, "cancel"]:
                self.batches[name]["status"] = "cancelling"
                return 200, json.dumps(self.batches[name]).encode()
            case "GET", ["batches", name]:
                return 200, json.dumps(self._look(name)).encode()
            case "GET", ["files", name, "content"]:
                return 200, self.files[name]
            case "DELETE", ["files", name]:
                del self.files[name]
                return 200, json.dumps({"deleted": True}).encode()
            case _:
                return 404, b"{}"

    def _start(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert asked["endpoint"] == "/v1/embeddings"
        assert asked["completion_window"] == "24h"
        name = f"batch_{len(self.batches)}"
        total = self.files[asked["input_file_id"]].count(b"\n")
        self.batches[name] = {
            "id": name,
            "status": "validating",
            "input_file_id": asked["input_file_id"],
            "request_counts": {"total": total, "completed": 0, "failed": 0},
        }
        unfinished = sum(batch["status"] not in ("completed", "failed", "expired") for batch in self.batches.values())
        self.running_at_once = max(self.running_at_once, unfinished)
        return self.batches[name]

    def _look(self, name: str) -> dict[str, Any]:
        seen = self.looks[name] = self.looks.get(name, -1) + 1
        batch = self.batches[name]
        batch["status"] = self.stages[min(seen, len(self.stages) - 1)]
        if batch["status"] == "failed":
            batch["errors"] = {"data": [{"code": "token_limit_exceeded", "message": "too many tokens are enqueued"}]}
        if batch["status"] in ("completed", "expired") and "output_file_id" not in batch:
            self._finish(name, batch)
        return batch

    def _finish(self, name: str, batch: dict[str, Any]) -> None:
        good, bad = [], []
        requests = [json.loads(line) for line in self.files[batch["input_file_id"]].splitlines()]
        expired = batch["status"] == "expired"
        for n, request in enumerate(requests):
            assert (request["method"], request["url"]) == ("POST", "/v1/embeddings")
            text = request["body"]["input"]
            row: dict[str, Any] = {"id": f"r{n}", "custom_id": request["custom_id"], "response": None, "error": None}
            if expired and n % 2:
                bad.append(row | {"error": {"code": "batch_expired", "message": "this request was too late"}})
            elif any(word in text for word in self.broken):
                body = {"error": {"message": "this text cannot be embedded"}}
                bad.append(row | {"response": {"status_code": 400, "body": body}})
            else:
                found = {"data": [{"index": 0, "embedding": embed(text)}]}
                good.append(row | {"response": {"status_code": 200, "body": found}})
        batch["output_file_id"] = f"{name}-out"
        # The order of answers is not the order of requests.
        self.files[f"{name}-out"] = b"".join(json.dumps(row).encode() + b"\n" for row in reversed(good))
        if bad:
            batch["error_file_id"] = f"{name}-err"
            self.files[f"{name}-err"] = b"".join(json.dumps(row).encode() + b"\n" for row in bad)
        batch["request_counts"] |= {"completed": len(good), "failed": len(bad)}


def _uploaded(kind: str, body: bytes) -> bytes:
    parser = email.parser.BytesParser(policy=email.policy.HTTP)
    whole = parser.parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body)
    parts = {part.get_param("name", header="content-disposition"): part for part in whole.iter_parts()}
    assert parts["purpose"].get_content().strip() == "batch"
    data = parts["file"].get_payload(decode=True)
    assert isinstance(data, bytes)
    return data


def _answering(server: BatchServer) -> type[BaseHTTPRequestHandler]:
    class Answer(BaseHTTPRequestHandler):
        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Transfer-Encoding") == "chunked":
                body = self._read_chunks()
            status, data = server.answer(self.command, self.path, self.headers, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _read_chunks(self) -> bytes:
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        do_GET = do_POST = do_DELETE = _do  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Answer
