"""Health, readiness and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import to_builtins
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse

from retinue.gateway.endpoint import RouteEndpoint
from retinue.gateway.gateway import Gateway, GatewayState, NotReady
from retinue.gateway.metrics import CONTENT_TYPE, gauge, memory_megabytes, render_metrics
from retinue.wire.protocol import Scope

if TYPE_CHECKING:
    from prometheus_client.core import Metric


async def healthz(gateway: Gateway, request: Request) -> JSONResponse:
    return JSONResponse({"ok": True})


async def readyz(gateway: Gateway, request: Request) -> JSONResponse:
    state = gateway.state
    ready = state.ready and not state.draining
    body: dict[str, object] = {"ok": ready, "draining": state.draining}
    if gateway.runtime.home.config.storage.url is not None:
        obstacle = await _find_obstacle(state)
        body["ok"] = ready = obstacle is None
        if obstacle is not None:
            body["reason"] = to_builtins(obstacle)
    return JSONResponse(body, 200 if ready else 503)


async def _find_obstacle(state: GatewayState) -> NotReady | None:
    """Return why a gateway of a team does not serve at the moment; None if it does."""
    if state.draining:
        return NotReady("draining", "The gateway is shutting down and accepts no more messages.")
    if not state.ready or state.find_obstacle is None:
        return NotReady("starting", "The gateway has not started yet.")
    return await state.find_obstacle()


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
