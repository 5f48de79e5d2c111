"""A server with the tools, resources and prompts that the conformance suite looks for, to be served behind `/mcp`."""

from __future__ import annotations

import base64
import json
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp_types import (
    AudioContent,
    Completion,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
)

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
SOUND = base64.b64encode(b"RIFF$\0\0\0WAVEfmt ").decode()


def _embed(uri: str, text: str, mime_type: str = "text/plain") -> EmbeddedResource:
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=mime_type, text=text))


def _image() -> ImageContent:
    return ImageContent(type="image", data=PIXEL, mime_type="image/png")


def make_fixture() -> Server[Any]:
    """Return the server."""
    server = MCPServer("fixture", version="1")

    @server.tool(description="For the suite.", structured_output=False)
    def test_simple_text() -> str:
        return "This is a simple text response for testing."

    @server.tool(description="For the suite.", structured_output=False)
    def test_image_content() -> list[ImageContent]:
        return [_image()]

    @server.tool(description="For the suite.", structured_output=False)
    def test_audio_content() -> list[AudioContent]:
        return [AudioContent(type="audio", data=SOUND, mime_type="audio/wav")]

    @server.tool(description="For the suite.", structured_output=False)
    def test_embedded_resource() -> list[EmbeddedResource]:
        return [_embed("test://embedded-resource", "This is an embedded resource content.")]

    @server.tool(description="For the suite.", structured_output=False)
    def test_multiple_content_types() -> list[Any]:
        resource = _embed("test://mixed-content-resource", json.dumps({"test": "data"}), "application/json")
        return [TextContent(type="text", text="Multiple content types test:"), _image(), resource]

    @server.tool(description="For the suite.", structured_output=False)
    def test_error_handling() -> str:
        raise ValueError("This tool intentionally returns an error for testing")

    @server.tool(description="For the suite.", structured_output=False)
    async def test_tool_with_progress(ctx: Context[Any, Any]) -> str:
        for done in (0, 50, 100):
            await ctx.report_progress(done, 100)
            await anyio.sleep(0.05)
        return "done"

    @server.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        return base64.b64decode(PIXEL)

    @server.resource("test://template/{id}/data", mime_type="application/json")
    def template(id: str) -> str:  # noqa: A002 - the suite's name
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})

    @server.prompt(description="For the suite.")
    def test_simple_prompt() -> str:
        return "This is a simple prompt for testing."

    @server.prompt(description="For the suite.")
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt(description="For the suite.")
    def test_prompt_with_embedded_resource(resourceUri: str) -> UserMessage:  # noqa: N803 - the suite's name
        return UserMessage(_embed(resourceUri, "Embedded resource content for testing."))

    @server.prompt(description="For the suite.")
    def test_prompt_with_image() -> UserMessage:
        return UserMessage(_image())

    @server.completion()  # type: ignore[no-untyped-call, untyped-decorator]
    async def complete(_ref: Any, _argument: Any, _context: Any) -> Completion:
        return Completion(values=["paris", "park"], total=2, has_more=False)

    return server._lowlevel_server
