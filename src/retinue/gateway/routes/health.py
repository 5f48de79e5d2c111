"""Health, readiness and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse

from retinue.gateway.endpoint import RouteEndpoint
from retinue.gateway.gateway import Gateway
from retinue.gateway.metrics import CONTENT_TYPE, gauge, memory_megabytes, render_metrics
from retinue.wire.protocol import Scope

if TYPE_CHECKING:
    from prometheus_client.core import Metric


async def healthz(gateway: Gateway, request: Request) -> JSONResponse:
    return JSONResponse({"ok": True})


async def readyz(gateway: Gateway, request: Request) -> JSONResponse:
    draining = gateway.state.draining
    ready = gateway.state.ready and not draining
    return JSONResponse({"ok": ready, "draining": draining}, 200 if ready else 503)


async def metrics(gateway: Gateway, request: Request) -> PlainTextResponse:
    families = (*gateway.state.metrics.families(), *_gauges(gateway))
    return PlainTextResponse(render_metrics(families), media_type=CONTENT_TYPE)


def _gauges(gateway: Gateway) -> Iterator[Metric]:
    runtime = gateway.runtime
    age = (runtime.home.clock.now() - gateway.state.started_at).total_seconds()
    yield gauge("retinue_messages_waiting", "Messages that wait for a turn.", runtime.services.inbox.count("waiting"))
    yield gauge(
        "retinue_messages_answering", "Messages that a turn is answering.", runtime.services.inbox.count("claimed")
    )
    yield gauge("retinue_connections", "Connected clients.", len(gateway.connections))
    yield gauge("retinue_turns_running", "Running turns.", runtime.services.lanes.running)
    yield gauge("retinue_turns_waiting", "Turns that wait for a lane.", runtime.services.lanes.waiting)
    yield gauge("retinue_sessions_active", "Sessions with unanswered messages.", gateway.runtime.dispatcher.active)
    yield gauge("retinue_memory_bytes", "Resident memory of the process.", memory_megabytes() * 1_048_576)
    yield gauge("retinue_uptime_seconds", "Seconds since the start.", age)


ENDPOINTS = (
    RouteEndpoint("GET", "/healthz", None, healthz, "Whether the process is alive."),
    RouteEndpoint("GET", "/readyz", None, readyz, "Whether messages are accepted."),
    RouteEndpoint(
        "GET", "/metrics", Scope.READ, metrics, "Counters and gauges for Prometheus.", media_type="text/plain"
    ),
)
