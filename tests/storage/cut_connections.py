"""A proxy before PostgreSQL that cuts or mutes the connection in the middle of a statement, once."""

from __future__ import annotations

import select
import socket
from contextlib import suppress
from threading import Thread
from types import TracebackType
from typing import Self

import psycopg


class CuttingProxy:
    """Cuts the first connection that sends `trigger`: after the server has answered if `forwarding`, else before.

    If `mute`, it stays open and nothing answers, as if the server had been stopped.
    """

    def __init__(self, url: str, trigger: bytes, *, forwarding: bool = False, mute: bool = False) -> None:
        with psycopg.connect(url) as base:
            self._server = f"{base.info.host}/.s.PGSQL.{base.info.port}"
        self._trigger = trigger
        self._forwarding = forwarding
        self._mute = mute
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = psycopg.conninfo.make_conninfo(
            url, host="127.0.0.1", port=str(port), sslmode="disable", gssencmode="disable"
        )
        self.cuts = 0
        self._thread = Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(self._server)
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    sent = ready.recv(65_536)
                    if not sent:
                        return
                    if ready is client and self._trigger in sent and not self.cuts:
                        self.cuts += 1
                        if self._mute:
                            while client.recv(65_536):
                                pass
                        elif self._forwarding:
                            server.sendall(sent)
                            server.recv(65_536)
                        return
                    (server if ready is client else client).sendall(sent)
