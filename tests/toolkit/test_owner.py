"""The tools that reach the owner: notifications, questions and webhooks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.errors import UsageError
from retinue.core.keys import AgentId
from retinue.toolkit.owner import WebhookArguments, make_tools
from retinue.toolkit.parts import ToolParts
from retinue.tools.tool import Tool, ToolContext
from tests.toolkit.conftest import Person, call, failure, text_of

pytestmark = pytest.mark.anyio


@dataclass
class Contact:
    """Keeps what reached the owner."""

    notices: dict[str, str] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)

    def notify(self, agent: AgentId, key: str, text: str, *, loads_links: bool = True) -> str:
        self.notices[key] = text if loads_links else f"{text} (without previews)"
        return "it waits in the session agent:main:main"

    def check_webhook(self, name: str) -> None:
        if name in ("wake", *self.created):
            raise UsageError(f"There is a webhook '{name}' already. Choose another name.")

    def create_webhook(self, agent: AgentId, arguments: WebhookArguments) -> str:
        self.created.append(arguments.name)
        return f"/hooks/{arguments.name}"


@pytest.fixture
def contact() -> Contact:
    return Contact()


@pytest.fixture
def tools(parts: ToolParts, contact: Contact, monkeypatch: pytest.MonkeyPatch) -> dict[str, Tool[Any]]:
    monkeypatch.setattr(parts.services, "owner_contact", lambda: contact)
    return {tool.name: tool for tool in make_tools(parts)}


def answering(context: ToolContext, verdict: Verdict, because: str, by: str) -> ToolContext:
    async def ask(request: ApprovalRequest) -> ApprovalDecision:
        return ApprovalDecision(verdict, because, by)

    return replace(context, ask=ask)


async def test_a_notification_reaches_the_owner_once_for_each_call(
    tools: dict[str, Tool[Any]], contact: Contact, context: ToolContext
) -> None:
    told = await call(tools["ui_notify"], context, text="The build is done.")
    assert text_of(told) == "The owner is notified: it waits in the session agent:main:main."
    assert contact.notices == {"r1:c1": "The build is done."}


@pytest.mark.parametrize(
    ("tool", "verdict", "because", "expected"),
    [
        ("ui_confirm", Verdict.ALLOW_ONCE, "allowed by ada", "The owner answered yes."),
        ("ui_confirm", Verdict.DENY, "denied by ada", "The owner answered no."),
        ("ui_prompt", Verdict.ALLOW_ONCE, "allowed by ada: the red one", "The owner answered: the red one"),
        ("ui_prompt", Verdict.ALLOW_ONCE, "allowed by ada", "The owner answered yes, without a text."),
        ("ui_prompt", Verdict.DENY, "denied by ada: no time", "The owner does not want to answer."),
    ],
)
async def test_a_question_returns_what_the_owner_answered(
    tools: dict[str, Tool[Any]], context: ToolContext, tool: str, verdict: Verdict, because: str, expected: str
) -> None:
    asked = answering(context, verdict, because, "ada")
    assert text_of(await call(tools[tool], asked, question="Which one?")) == expected


async def test_a_question_that_nobody_answers_fails(tools: dict[str, Tool[Any]], context: ToolContext) -> None:
    alone = answering(context, Verdict.DENY, "no person is available", "")
    assert "did not answer: no person is available" in await failure(tools["ui_confirm"], alone, question="Now?")

    async def ask(request: ApprovalRequest) -> ApprovalDecision:
        await anyio.sleep_forever()
        raise AssertionError

    silent = replace(context, ask=ask)
    told = await failure(tools["ui_prompt"], silent, question="Now?", timeoutSeconds=1)
    assert told == "The owner did not answer within 1 seconds."


async def test_a_webhook_is_created_only_with_approval_and_the_model_sees_no_token(
    tools: dict[str, Tool[Any]], contact: Contact, attended: ToolContext, person: Person
) -> None:
    told = text_of(await call(tools["webhook_create"], attended, name="build", messageTemplate="{{payload.id}}"))
    assert contact.created == ["build"]
    assert person.asked[0].title.startswith("Create the webhook 'build'")
    assert "{{payload.id}}" in person.asked[0].detail
    assert "/hooks/build" in told
    (notice,) = contact.notices.values()
    assert "`retinue webhooks token build`" in notice
    assert "already" in await failure(tools["webhook_create"], attended, name="build")
    person.verdict = Verdict.DENY
    assert "was not created" in await failure(tools["webhook_create"], attended, name="other")
    assert "wrong arguments" in await failure(tools["webhook_create"], attended, name="../x")
    assert contact.created == ["build"]
