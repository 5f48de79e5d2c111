"""Tools that reach the owner: a notification, a question, a confirmation, and a webhook, which the owner must approve.

A question is an approval request, so it is shown on the page, in the terminal and in chats, and any of them answers it.
"""

from __future__ import annotations

import json
from typing import Any, Literal, Protocol

import anyio

from retinue.core.approval import ApprovalDecision, ApprovalRequest
from retinue.core.errors import RetinueError, ToolFailed
from retinue.core.keys import AgentId
from retinue.core.sinks import Sink
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.web.outflow import show_answer
from retinue.tools.approvals.view import QUESTION, YES_OR_NO, answer_text
from retinue.tools.sinks import TAINTED_REASON
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument, reported_to_model

MAX_CHARS = 4_000


class NotifyArguments(Arguments):
    text: str = argument(min_length=1, max_length=MAX_CHARS)


class QuestionArguments(Arguments):
    question: str = argument(min_length=1, max_length=MAX_CHARS)
    timeout_seconds: int = argument(300, ge=1, le=3_600, description="how long to wait for the answer")


class WebhookArguments(Arguments):
    name: str = argument(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="last part of its address")
    message_template: str = argument(
        "", max_length=MAX_CHARS, description="message you get; {{payload.a.b}} is a field. Default: the request"
    )
    wake_mode: Literal["now", "next-heartbeat"] = "now"


class OwnerContact(Protocol):
    """Reaches the owner; every method raises `RetinueError` if that is not possible."""

    def notify(self, agent: AgentId, key: str, text: str, *, loads_links: bool = True) -> str:
        """Send a notification, once for each key; return where it goes. `loads_links` allows previews of links."""
        ...

    def check_webhook(self, name: str) -> None:
        """Raise `UsageError` if no webhook of this name can be created."""
        ...

    def create_webhook(self, agent: AgentId, arguments: WebhookArguments) -> str:
        """Create a webhook without a token; return its path."""
        ...


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the tools that reach the owner."""
    contact = parts.services.owner_contact

    async def notify(arguments: NotifyArguments, context: ToolContext) -> ToolOutput:
        with reported_to_model(RetinueError):
            # A chat that loads a picture or a preview sends the address, which may contain what the agent has read.
            text, is_free = show_answer(arguments.text, context), not context.asks_at(Sink.FETCH)
            place = contact().notify(context.agent, f"{context.run}:{context.call_id}", text, loads_links=is_free)
        return ToolOutput.of(f"The owner is notified: {place}.")

    async def confirm(arguments: QuestionArguments, context: ToolContext) -> ToolOutput:
        decision = await _ask_owner(YES_OR_NO, arguments, context)
        return ToolOutput.of(f"The owner answered {'yes' if decision.allowed else 'no'}.")

    async def prompt(arguments: QuestionArguments, context: ToolContext) -> ToolOutput:
        decision = await _ask_owner(QUESTION, arguments, context)
        if not decision.allowed:
            return ToolOutput.of("The owner does not want to answer.")
        text = answer_text(decision)
        return ToolOutput.of(f"The owner answered: {text}" if text else "The owner answered yes, without a text.")

    async def create_webhook(arguments: WebhookArguments, context: ToolContext) -> ToolOutput:
        with reported_to_model(RetinueError):
            contact().check_webhook(arguments.name)
        await _require_approval(arguments, context)
        with reported_to_model(RetinueError):
            path = contact().create_webhook(context.agent, arguments)
            command = f"`retinue webhooks token {arguments.name}`"
            news = f"The webhook {path} was created. {command} creates its token and shows it once."
            contact().notify(context.agent, f"webhook:{context.run}:{context.call_id}", news)
        return ToolOutput.of(f"The webhook {path} was created. It works when the owner has run {command}.")

    return (
        Tool(
            "ui_notify",
            "Notify the owner",
            "Send a notification to the owner, who may not watch this conversation.",
            NotifyArguments,
            notify,
            deferred=True,
            owner_only=True,
        ),
        Tool(
            "ui_prompt",
            "Ask the owner",
            "Ask the owner a question and wait for the answer. To ask the person you talk to, just reply.",
            QuestionArguments,
            prompt,
            deferred=True,
            owner_only=True,
        ),
        Tool(
            "ui_confirm",
            "Ask yes or no",
            "Ask the owner a question with the answer yes or no, and wait for it.",
            QuestionArguments,
            confirm,
            deferred=True,
            owner_only=True,
        ),
        Tool(
            "webhook_create",
            "Create a webhook",
            "Create a webhook that sends you a message. The owner must approve it and gets its token.",
            WebhookArguments,
            create_webhook,
            deferred=True,
            parallel=False,
            owner_only=True,
            asks=True,
        ),
    )


async def _ask_owner(tool: str, arguments: QuestionArguments, context: ToolContext) -> ApprovalDecision:
    """Return the owner's decision; raise `ToolFailed` if nobody answers in time."""
    request = ApprovalRequest(
        context.call_id or context.run,
        tool,
        "The agent asks you a question",
        arguments.question,
        context.agent,
        context.session,
        explanation=(f"Note that {TAINTED_REASON}.",) if context.tainted else (),
    )
    with anyio.move_on_after(arguments.timeout_seconds):
        decision = await context.ask(request)
        if decision.by:
            return decision
        raise ToolFailed(f"The owner did not answer: {decision.because}.")
    raise ToolFailed(f"The owner did not answer within {arguments.timeout_seconds} seconds.")


async def _require_approval(arguments: WebhookArguments, context: ToolContext) -> None:
    facts = {
        "name": arguments.name,
        "messageTemplate": arguments.message_template or "the whole request",
        "wakeMode": arguments.wake_mode,
    }
    request = ApprovalRequest(
        context.call_id or context.run,
        "webhook_create",
        f"Create the webhook '{arguments.name}', through which other programs can send messages to the agent",
        json.dumps(facts, ensure_ascii=True, indent=2),
        context.agent,
        context.session,
        explanation=(f"Note that {TAINTED_REASON}.",) if context.tainted else (),
    )
    decision = await context.ask(request)
    if not decision.allowed:
        raise ToolFailed(f"The webhook was not created: {decision.because}.")
