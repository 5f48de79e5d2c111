"""The tools of MCP servers as tools of the model, and the tool that reads their resources and prompts.

Their results are untrusted. A call needs approval after untrusted text unless the owner declared the tool read-only.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

from retinue.core.clock import IdFactory
from retinue.core.codec import dump_json
from retinue.core.errors import ToolFailed
from retinue.core.labels import Label
from retinue.core.messages import Image, Text
from retinue.core.model import ToolSpec
from retinue.security.untrusted_text import TextSource, sanitise_line, wrap_untrusted
from retinue.structs.schema_validator import make_validator
from retinue.toolkit.mcp.catalog import OfferedTool, is_read_only, is_selected, name_tool
from retinue.toolkit.mcp.servers import McpServers
from retinue.toolkit.parts import ToolParts
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument, compact_schema

if TYPE_CHECKING:
    from jsonschema_rs import Validator
    from mcp_types import CallToolResult

MAX_RESULT_CHARS = 1_000_000
MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_IMAGES = 8
RESOURCES_TOOL = "mcp_resources"


class JsonArguments(Arguments, frozen=True):
    """The arguments of a tool of a server, as the model wrote them."""

    values: dict[str, Any]


class ServerTool(Tool[JsonArguments], frozen=True, kw_only=True, dict=True):
    """A tool of a server, whose schema is JSON instead of a declaration."""

    offered: OfferedTool

    @cached_property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, compact_schema(self.offered.schema))

    @cached_property
    def validator(self) -> Validator:
        """What checks the arguments."""
        return make_validator(self.offered.schema)

    def parse(self, arguments: Mapping[str, Any]) -> JsonArguments:
        """Check the arguments against the server's schema; raise `ToolFailed` with every problem."""
        problems = [
            f"{'.'.join(map(str, fault.instance_path)) or 'arguments'}: {fault.message[:300]}"
            for fault in self.validator.iter_errors(dict(arguments))
        ]
        if problems:
            raise ToolFailed(f"`{self.name}` was called with wrong arguments: {'; '.join(problems[:5])}.")
        return JsonArguments(values=dict(arguments))


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the tools of all servers that are known, in the order of their names."""
    servers = parts.mcp
    if servers is None or not servers.enabled:
        return ()
    made: dict[str, Tool[Any]] = {}
    for server in servers.enabled:
        for tool in _make_server_tools(servers, server, parts.new_id):
            made.setdefault(tool.name, tool)
    if any(servers.catalog(name).has_resources or servers.catalog(name).has_prompts for name in servers.enabled):
        made[RESOURCES_TOOL] = _make_resources_tool(servers, parts.new_id)
    return tuple(made.values())


def _make_server_tools(servers: McpServers, server: str, new_id: IdFactory) -> Iterable[Tool[Any]]:
    settings = servers.enabled[server]
    for offered in servers.catalog(server).tools:
        if is_selected(offered.name, settings):
            yield ServerTool(
                name=name_tool(server, offered.name),
                summary=f"{offered.description[:80]} (MCP server {server})",
                description=f"From the MCP server {server}: {offered.description}",
                arguments=JsonArguments,
                run=partial(_call, servers, server, offered, new_id),
                deferred=True,
                parallel=settings.supports_parallel_tool_calls,
                read_only=is_read_only(offered.name, settings),
                plugin=f"mcp:{server}",
                offered=offered,
            )


async def _call(
    servers: McpServers,
    server: str,
    offered: OfferedTool,
    new_id: IdFactory,
    arguments: JsonArguments,
    context: ToolContext,
) -> ToolOutput:
    _require_sign_in(servers, server, context)
    result = await servers.call(server, context.agent, offered, arguments.values)
    return _read_result(server, result, new_id)


def _require_sign_in(servers: McpServers, server: str, context: ToolContext) -> None:
    """Raise `ToolFailed` if everybody has to sign in and the turn is not the owner's, who is the only one who can."""
    if servers.enabled[server].oauth.identity == "per-requester" and not context.owner:
        raise ToolFailed(f"The MCP server {server} needs a sign-in of each person, and only the owner is signed in.")


def _read_result(server: str, result: CallToolResult, new_id: IdFactory) -> ToolOutput:
    """Return what a tool returned: its texts between markers, then its images."""
    texts: list[str] = []
    images: list[Image] = []
    for block in result.content:
        shown = _read_block(block)
        if isinstance(shown, str):
            texts.append(shown)
        elif len(images) < MAX_IMAGES:
            images.append(shown)
    if not texts and result.structured_content is not None:
        texts.append(dump_json(result.structured_content))
    return _wrap(server, "\n\n".join(texts), new_id, images, is_error=bool(result.is_error))


def _read_block(block: Any) -> str | Image:
    """Return a part of a result; its class belongs to the SDK."""
    match block.type:
        case "text":
            return str(block.text)
        case "image" if _is_image(block.data, block.mime_type):
            return Image(block.mime_type, block.data)
        case "resource" if hasattr(block.resource, "text"):
            return f"{block.resource.uri}:\n{block.resource.text}"
        case "resource_link":
            return f"[resource {block.uri}: {block.name}]"
        case other:
            return f"[{other} that cannot be shown]"


def _is_image(data: str, mime_type: str) -> bool:
    if not mime_type.startswith("image/") or len(data) > MAX_IMAGE_BYTES * 4 // 3:
        return False
    try:
        return bool(base64.b64decode(data, validate=True))
    except binascii.Error:
        return False


def _wrap(
    server: str, text: str, new_id: IdFactory, images: Iterable[Image] = (), *, is_error: bool = False
) -> ToolOutput:
    if len(text) > MAX_RESULT_CHARS:
        text = f"{text[:MAX_RESULT_CHARS]}\n[the rest of {len(text):,} characters was left out]"
    wrapped = wrap_untrusted(
        text or "(no text)", TextSource.MCP, new_id=new_id, sender=f"MCP server {server}", warn=False
    )
    return ToolOutput((Text(wrapped), *images), Label.UNTRUSTED, is_error)


class ResourcesArguments(Arguments, frozen=True):
    server: str
    action: Literal["list", "read", "prompt", "instructions"] = argument(
        "list", description="list: resources and prompts; read: a resource; prompt: the text of a prompt"
    )
    uri: str | None = argument(None, description="for read")
    name: str | None = argument(None, description="for prompt")
    arguments: dict[str, str] = argument({}, description="for prompt")


def _make_resources_tool(servers: McpServers, new_id: IdFactory) -> Tool[Any]:
    async def run(arguments: ResourcesArguments, context: ToolContext) -> ToolOutput:
        server = arguments.server
        if server not in servers.enabled:
            raise ToolFailed(f"There is no MCP server '{server}'. There are: {', '.join(servers.enabled)}.")
        _require_sign_in(servers, server, context)
        async with servers.connection(server, context.agent).use() as opened:
            text = await _read_offer(arguments, opened.client, opened.catalog.instructions)
        return _wrap(server, text, new_id)

    return Tool(
        name=RESOURCES_TOOL,
        summary="Read resources, prompts and instructions of MCP servers",
        description="List or read the resources, prompts and instructions of an MCP server.",
        arguments=ResourcesArguments,
        run=run,
        deferred=True,
        read_only=True,
        plugin="mcp",
    )


async def _read_offer(arguments: ResourcesArguments, client: Any, instructions: str) -> str:
    """Return the text of what is asked for; `client` is that of the SDK."""
    match arguments.action:
        case "instructions":
            return instructions
        case "read":
            if arguments.uri is None:
                raise ToolFailed("`read` needs the `uri` of a resource.")
            result = await client.read_resource(arguments.uri)
            return "\n\n".join(getattr(each, "text", f"[binary data of {each.uri}]") for each in result.contents)
        case "prompt":
            if arguments.name is None:
                raise ToolFailed("`prompt` needs the `name` of a prompt.")
            prompt = await client.get_prompt(arguments.name, arguments.arguments)
            return "\n\n".join(f"{each.role}: {_read_block(each.content)}" for each in prompt.messages)
        case "list":
            return await _list_offers(client)


async def _list_offers(client: Any) -> str:
    lines: list[str] = []
    if client.server_capabilities.resources is not None:
        lines += [f"resource {each.uri}: {each.name}" for each in (await client.list_resources()).resources]
        templates = (await client.list_resource_templates()).resource_templates
        lines += [f"resource template {each.uri_template}: {each.name}" for each in templates]
    if client.server_capabilities.prompts is not None:
        for each in (await client.list_prompts()).prompts:
            names = ", ".join(one.name for one in each.arguments or ())
            lines.append(f"prompt {each.name}({names}): {each.description or ''}")
    return "\n".join(map(sanitise_line, lines)) or "The server has no resources and no prompts."
