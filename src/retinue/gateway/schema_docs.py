"""The published documents of the protocol: OpenAPI, AsyncAPI, and a page that lists all methods."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from retinue import __version__
from retinue.gateway.app import list_endpoints
from retinue.gateway.endpoint import OPENAI_PROBLEM, OPENAI_TAGS, RouteEndpoint
from retinue.wire import codec, team
from retinue.wire.frames import EVENTS, Connect, Event, Failure, Hello, Request, Response
from retinue.wire.methods import METHODS as METHODS_OF_ALL
from retinue.wire.protocol import PROTOCOL, SOCKET_PATH, Scope

METHODS = METHODS_OF_ALL | {method.name: method for method in team.METHODS}
"""All methods, also those that only a gateway with a team has."""
ERRORS = {
    "400": "The request is not valid.",
    "401": "There is no valid token.",
    "403": "The token does not allow it, or the request came from a page of a foreign origin.",
    "404": "It does not exist.",
    "409": "It was changed meanwhile.",
    "413": "The body is too large.",
    "422": "The request was valid but failed.",
    "429": "Too many failed attempts.",
    "503": "The gateway is too busy or is shutting down; try again later.",
}
SCHEMAS = "#/components/schemas/"
PUBLIC = "public"
SCOPE_FIELD = "x-scope"


def make_openapi() -> dict[str, Any]:
    """All operations over HTTP; each method of the WebSocket is also `POST /rpc/<method>`."""
    endpoints = [endpoint for endpoint in list_endpoints() if endpoint.in_schema]
    wire = _WireSchemas()
    own = list(dict.fromkeys(kind for each in endpoints for kind in (each.body, each.result) if kind is not None))
    references, components = codec.describe(own, SCHEMAS + "{name}")
    places = dict(zip(own, references, strict=True))
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        path = re.sub(r":\w+}", "}", endpoint.path)
        paths.setdefault(path, {})[endpoint.verb.lower()] = _describe_endpoint(endpoint, path, places)
    for name, method in METHODS.items():
        paths[f"/rpc/{name}"] = {
            "post": {
                "operationId": name.replace(".", "_"),
                "summary": method.summary,
                "tags": ["methods"],
                **_security(method.scope),
                "requestBody": {"required": True, "content": _json(wire.place(method.params))},
                "responses": {
                    "200": {"description": method.result.__doc__ or "", "content": _json(wire.place(method.result))},
                    **_errors("Problem"),
                },
            }
        }
    problem = {"type": "object", "properties": {"error": wire.place(Failure)}, "required": ["error"]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Retinue gateway", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**components, **wire.components, "Problem": problem, "CompatProblem": OPENAI_PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe_endpoint(
    endpoint: RouteEndpoint, path: str, places: Mapping[type[Struct], dict[str, Any]]
) -> dict[str, Any]:
    name = endpoint.name or getattr(endpoint.act, "__name__", "")
    schema: dict[str, Any] = {} if endpoint.result is None else places[endpoint.result]
    if endpoint.media_type.startswith("text/"):
        schema = {"type": "string"}
    operation: dict[str, Any] = {
        "operationId": re.sub(r"\W", "_", f"{name}{path}") + f"_{endpoint.verb.lower()}",
        "summary": endpoint.summary,
        **_security(endpoint.scope),
        "responses": {
            "200": {"description": "Successful Response", "content": {endpoint.media_type: {"schema": schema}}},
            **_errors("CompatProblem" if OPENAI_TAGS & set(endpoint.tags) else "Problem"),
        },
    }
    if endpoint.tags:
        operation["tags"] = list(endpoint.tags)
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(places[endpoint.body])}
    parameters = re.findall(r"{(\w+)}", path)
    if parameters:
        operation["parameters"] = [
            {"in": "path", "name": each, "required": True, "schema": {"type": "string"}} for each in parameters
        ]
    return operation


def _security(scope: Scope | None) -> dict[str, Any]:
    if scope is None:
        return {SCOPE_FIELD: PUBLIC, "security": []}
    return {SCOPE_FIELD: scope.value, "security": [{"token": []}]}


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _errors(component: str) -> dict[str, Any]:
    content = _json({"$ref": SCHEMAS + component})
    return {status: {"description": text, "content": content} for status, text in ERRORS.items()}


class _WireSchemas:
    """The schemas of all values of the protocol."""

    def __init__(self) -> None:
        kinds: list[type[Struct]] = [Request, Response, Event, Connect, Hello, Failure]
        kinds += [kind for method in METHODS.values() for kind in (method.params, method.result)]
        kinds += [payload for payload, _ in EVENTS.values()]
        kinds = list(dict.fromkeys(kinds))
        # The prefix keeps these names apart from those of the routes' own types.
        references, components = codec.describe(kinds, SCHEMAS + "wire.{name}")
        self.components = {f"wire.{name}": schema for name, schema in components.items()}
        self._places = dict(zip(kinds, references, strict=True))

    def place(self, kind: type[Struct]) -> dict[str, Any]:
        """The reference to a type's schema."""
        return self._places[kind]


def make_asyncapi() -> dict[str, Any]:
    """The frames of the WebSocket, and the payload of every event."""
    wire = _WireSchemas()
    requests = {
        name: {"name": name, "summary": method.summary, "payload": wire.place(method.params)}
        for name, method in METHODS.items()
    }
    results = {
        f"{name}.result": {"name": f"{name}.result", "payload": wire.place(method.result)}
        for name, method in METHODS.items()
    }
    events = {
        name: {"name": name, "summary": summary, "payload": wire.place(payload)}
        for name, (payload, summary) in EVENTS.items()
    }
    frames = {
        kind.__name__: {"name": kind.__name__, "payload": wire.place(kind)}
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
            "schemas": wire.components,
        },
    }


def render_openapi() -> str:
    return render_document(make_openapi())


def render_asyncapi() -> str:
    return render_document(make_asyncapi())


def render_document(document: Mapping[str, Any]) -> str:
    """A document in a stable form: two versions differ only in what has changed."""
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def render_methods() -> str:
    """The page that lists all methods and events."""
    lines = [
        "# Methods and events of the gateway",
        "",
        "This page is generated from the code. [The gateway's protocol](../gateway-protocol.md) explains their use;",
        "`gateway-asyncapi.json` and `gateway-openapi.json` describe every field.",
        "",
        "## Methods",
        "",
        "| method | scope | parameters | result | |",
        "|---|---|---|---|---|",
    ]
    for method in METHODS.values():
        params = ", ".join(f"`{field.encode_name}{'' if field.required else '?'}`" for field in _fields(method.params))
        result = ", ".join(f"`{field.encode_name}`" for field in _fields(method.result))
        lines.append(f"| `{method.name}` | {method.scope} | {params or '–'} | {result} | {method.summary} |")
    lines += [
        "",
        "A parameter without `?` is required.",
        "",
        "## Events",
        "",
        "| event | payload | |",
        "|---|---|---|",
    ]
    for name, (payload, summary) in EVENTS.items():
        lines.append(f"| `{name}` | {', '.join(f'`{field.encode_name}`' for field in _fields(payload))} | {summary} |")
    return "\n".join(lines) + "\n"


def _fields(kind: type[Struct]) -> Sequence[msgspec.structs.FieldInfo]:
    return msgspec.structs.fields(kind)
