"""The protocol as documents, made from the code: OpenAPI for HTTP, AsyncAPI for the socket, a page for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic.json_schema import JsonSchemaMode, models_json_schema

from retinue import __version__
from retinue.gateway.app import NEEDS, make_app
from retinue.gateway.compat.errors import PROBLEM, TAGS
from retinue.gateway.gateway import Gateway
from retinue.wire.events import EVENTS
from retinue.wire.frames import Connect, Event, Failure, Hello, Request, Response, Wire
from retinue.wire.methods import METHODS
from retinue.wire.protocol import PROTOCOL, SOCKET_PATH

REFUSALS = {
    "400": "The request cannot be understood.",
    "401": "There is no valid token.",
    "403": "The token does not allow it, or the request came from a page elsewhere.",
    "404": "There is no such thing.",
    "409": "Somebody changed it meanwhile.",
    "413": "The body is too large.",
    "422": "It could not be done.",
    "429": "Too many failed attempts.",
    "503": "Too busy, or about to end; try again.",
}


def make_openapi() -> dict[str, Any]:
    """What is served over HTTP; each method of the socket is there as `POST /rpc/<method>`."""
    # Only what the routes declare is read here; nothing is called.
    app = make_app(cast("Gateway", None), {})
    document = app.openapi()
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    wire = _describe_models()
    schemas |= wire.schemas
    schemas["Problem"] = {"type": "object", "properties": {"error": wire.output(Failure)}, "required": ["error"]}
    schemas["CompatProblem"] = PROBLEM
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for name, method in METHODS.items():
        content = {"application/json": {"schema": wire.input(method.params)}}
        result = {"application/json": {"schema": wire.output(method.result)}}
        document["paths"][f"/rpc/{name}"] = {
            "post": {
                "operationId": name.replace(".", "_"),
                "summary": method.summary,
                "tags": ["methods"],
                NEEDS: method.scope.value,
                "security": [{"token": []}],
                "requestBody": {"required": True, "content": content},
                "responses": {"200": {"description": method.result.__doc__ or "", "content": result}},
            }
        }
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"] |= _refusals(operation)
    return document


def make_asyncapi() -> dict[str, Any]:
    """The frames of the socket, and the payload of every event."""
    wire = _describe_models()
    requests = {
        name: {"name": name, "summary": method.summary, "payload": wire.input(method.params)}
        for name, method in METHODS.items()
    }
    results = {
        f"{name}.result": {"name": f"{name}.result", "payload": wire.output(method.result)}
        for name, method in METHODS.items()
    }
    events = {
        name: {"name": name, "summary": summary, "payload": wire.output(payload)}
        for name, (payload, summary) in EVENTS.items()
    }
    frames = {
        kind.__name__: {"name": kind.__name__, "payload": wire.output(kind)}
        for kind in (Request, Response, Event, Connect, Hello)
    }
    references = {name: {"$ref": f"#/components/messages/{name}"} for name in ("Request", "Response", "Event")}
    channel = {"$ref": "#/channels/socket"}
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Retinue gateway", "version": __version__, "description": f"Protocol {PROTOCOL}."},
        "servers": {"local": {"host": "127.0.0.1:18790", "protocol": "ws"}},
        "channels": {"socket": {"address": SOCKET_PATH, "messages": references}},
        "operations": {
            "ask": {
                "action": "receive",
                "channel": channel,
                "messages": [{"$ref": "#/channels/socket/messages/Request"}],
            },
            "tell": {
                "action": "send",
                "channel": channel,
                "messages": [
                    {"$ref": "#/channels/socket/messages/Response"},
                    {"$ref": "#/channels/socket/messages/Event"},
                ],
            },
        },
        "components": {
            "messages": {**frames, **requests, **results, **events},
            "schemas": wire.schemas,
        },
    }


def render_openapi() -> str:
    return render_document(make_openapi())


def render_asyncapi() -> str:
    return render_document(make_asyncapi())


def render_document(document: Mapping[str, Any]) -> str:
    """A document as its file has it: two versions of it differ only where they say something else."""
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def render_methods() -> str:
    """A page that lists methods and events."""
    lines = [
        "# Methods and events of the gateway",
        "",
        "This page is made from the code. [The gateway's protocol](../gateway-protocol.md) explains how they are used;",
        "`gateway-asyncapi.json` and `gateway-openapi.json` beside it have every field.",
        "",
        "## Methods",
        "",
        "| method | scope | parameters | result | |",
        "|---|---|---|---|---|",
    ]
    for method in METHODS.values():
        params = ", ".join(f"`{_spell(name, info.is_required())}`" for name, info in _fields(method.params))
        result = ", ".join(f"`{name}`" for name, _ in _fields(method.result))
        lines.append(f"| `{method.name}` | {method.scope} | {params or '–'} | {result} | {method.summary} |")
    lines += [
        "",
        "A parameter without `?` must be given.",
        "",
        "## Events",
        "",
        "| event | payload | |",
        "|---|---|---|",
    ]
    for name, (payload, summary) in EVENTS.items():
        lines.append(f"| `{name}` | {', '.join(f'`{field}`' for field, _ in _fields(payload))} | {summary} |")
    return "\n".join(lines) + "\n"


def _fields(model: type[Wire]) -> list[tuple[str, Any]]:
    return [(info.alias or name, info) for name, info in model.model_fields.items()]


def _spell(name: str, required: bool) -> str:  # noqa: FBT001 - one flag of one row
    return name if required else f"{name}?"


@dataclass(frozen=True, slots=True)
class _Models:
    """The schemas of all values on the wire, and where each model's is; two models of one name have two schemas."""

    schemas: dict[str, Any]
    places: Mapping[tuple[Any, JsonSchemaMode], Mapping[str, Any]]

    def input(self, model: type[Wire]) -> dict[str, Any]:
        """What may be sent as this model."""
        return dict(self.places[model, "validation"])

    def output(self, model: type[Wire]) -> dict[str, Any]:
        """What is received as this model."""
        return dict(self.places[model, "serialization"])


def _describe_models() -> _Models:
    inputs: list[type[Wire]] = [Connect, *(method.params for method in METHODS.values())]
    outputs: list[type[Wire]] = [Request, Response, Event, Connect, Hello, Failure]
    outputs += [method.result for method in METHODS.values()]
    outputs += [payload for payload, _ in EVENTS.values()]
    wanted: list[tuple[Any, JsonSchemaMode]] = [(model, "validation") for model in dict.fromkeys(inputs)]
    wanted += [(model, "serialization") for model in dict.fromkeys(outputs)]
    # A name of their own: routes bring models, too, and one may be called the same.
    places, document = models_json_schema(wanted, ref_template="#/components/schemas/wire.{model}")
    located: dict[tuple[Any, JsonSchemaMode], dict[str, Any]] = {**places}
    return _Models({f"wire.{name}": schema for name, schema in document["$defs"].items()}, located)


def _refusals(operation: dict[str, Any]) -> dict[str, Any]:
    shape = "CompatProblem" if TAGS & set(operation.get("tags", ())) else "Problem"
    problem = {"application/json": {"schema": {"$ref": f"#/components/schemas/{shape}"}}}
    return {status: {"description": text, "content": problem} for status, text in REFUSALS.items()}
