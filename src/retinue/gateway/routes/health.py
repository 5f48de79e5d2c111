"""Whether the gateway lives, whether it is ready, and what it counts."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse

from retinue.gateway.app import make_route_group, needs
from retinue.gateway.gateway import Gateway
from retinue.gateway.meters import Family, counter, gauge, histogram, render_metrics
from retinue.gateway.methods.system import memory_megabytes
from retinue.gateway.registry import Entry
from retinue.wire.protocol import Scope


def make_router(gateway: Gateway, entries: Mapping[str, Entry]) -> APIRouter:
    router = make_route_group()

    @router.get("/healthz", openapi_extra=needs(None), summary="Whether the process lives.")
    async def healthz() -> JSONResponse:
        return JSONResponse({"ok": True})

    @router.get("/readyz", openapi_extra=needs(None), summary="Whether messages are accepted.")
    async def readyz() -> JSONResponse:
        ready = gateway.ready and not gateway.draining
        return JSONResponse({"ok": ready, "draining": gateway.draining}, 200 if ready else 503)

    @router.get(
        "/metrics",
        openapi_extra=needs(Scope.READ),
        response_class=PlainTextResponse,
        summary="Counters and gauges for Prometheus.",
    )
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(render_metrics(_families(gateway)), media_type="text/plain; version=0.0.4")

    return router


def _families(gateway: Gateway) -> list[Family]:
    meters, runtime = gateway.meters, gateway.runtime
    age = (runtime.home.clock.now() - gateway.started_at).total_seconds()
    return [
        counter("retinue_turns_started", "Turns that began.", [(meters.turns_started, {})]),
        counter(
            "retinue_turns_finished",
            "Turns that ended, by how.",
            [(count, {"status": status}) for status, count in meters.turns_finished.items()],
        ),
        counter(
            "retinue_tokens", "Tokens of models.", [(count, {"kind": kind}) for kind, count in meters.tokens.items()]
        ),
        counter("retinue_cost_dollars", "What models cost.", [(meters.cost, {})]),
        counter(
            "retinue_calls",
            "Calls of methods, by outcome.",
            [(count, {"method": name, "outcome": end}) for (name, end), count in meters.calls.items()],
        ),
        counter(
            "retinue_refusals",
            "Requests and connections that were refused at the door.",
            [(count, {"code": code}) for code, count in meters.refusals.items()],
        ),
        counter(
            "retinue_turn_errors",
            "Turns that failed, by the kind of failure.",
            [(count, {"kind": kind}) for kind, count in meters.errors.items()],
        ),
        histogram("retinue_turn_seconds", "How long turns took.", meters.turn_seconds),
        gauge("retinue_messages_waiting", "Messages that wait for a turn.", runtime.services.inbox.count("waiting")),
        gauge(
            "retinue_messages_answering", "Messages that a turn answers now.", runtime.services.inbox.count("claimed")
        ),
        gauge("retinue_connections", "Clients that are connected.", len(gateway.connections)),
        gauge("retinue_turns_running", "Turns that run.", runtime.services.lanes.running),
        gauge("retinue_turns_waiting", "Turns that wait for a lane.", runtime.services.lanes.waiting),
        gauge("retinue_sessions_active", "Sessions with something to answer.", gateway.runtime.dispatcher.active),
        gauge("retinue_memory_bytes", "Memory of the process.", memory_megabytes() * 1_048_576),
        gauge("retinue_uptime_seconds", "Time since the start.", age),
    ]
