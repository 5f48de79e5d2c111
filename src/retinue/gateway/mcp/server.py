"""The server of the official SDK with the gateway's tools. It needs the SDK, so it is imported when it is used."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from retinue import __version__
from retinue.core.codec import dump_json, load_json
from retinue.core.errors import RetinueError
from retinue.gateway.mcp.tools import BY_NAME, INSTRUCTIONS, TOOLS, GatewayTool, make_schema
from retinue.wire.frames import Method
from retinue.wire.protocol import Scope


class MethodCaller(Protocol):
    """The gateway, as one client of this server may use it."""

    @property
    def scopes(self) -> frozenset[Scope]: ...

    async def call(self, method: Method[Any, Any], params: dict[str, Any]) -> dict[str, Any]:
        """Call a method; raise `RetinueError` if that fails."""
        ...


def make_server(caller_of: Callable[[ServerRequestContext[Any, Any]], MethodCaller]) -> Server[Any]:
    """Return the server. `caller_of` returns the gateway as the sender of a request may use it."""

    async def list_tools(
        context: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        scopes = caller_of(context).scopes
        return ListToolsResult(tools=[_describe(tool) for tool in TOOLS if tool.scope in scopes])

    async def call_tool(context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
        tool = BY_NAME.get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"There is no tool '{params.name[:100]}'.")
        try:
            found = await caller_of(context).call(tool.method, tool.make_params(params.arguments or {}))
        except (RetinueError, ValueError) as error:
            text = str(error).encode("utf-8", "replace").decode()
            return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
        result = _replace_surrogates(tool.shape(found))
        return CallToolResult(content=[TextContent(type="text", text=dump_json(result))], structured_content=result)

    return Server(
        "retinue", version=__version__, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


def _replace_surrogates(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result without halves of characters, which old transcripts contain and the SDK cannot send."""
    text = json.dumps(result, ensure_ascii=False)
    return result if text.isascii() else load_json(text.encode("utf-8", "replace"))


def _describe(tool: GatewayTool) -> Tool:
    return Tool(
        name=tool.name,
        description=tool.description,
        input_schema=make_schema(tool.name),
        annotations=ToolAnnotations(read_only_hint=not tool.method.changes, open_world_hint=False),
    )
