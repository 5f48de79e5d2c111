"""Groups on every service: their own rules, who is answered, reactions, threads, and what members can reach."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from retinue.testing.replies import calls, says
from tests.channels.services import FRIEND, OWNER, SENDS, STRANGER, World, open_world
from tests.channels.test_http import read_by_model
from tests.channels.test_services import configuration
from tests.gateway.conftest import PATIENCE, Hall, open_hall

pytestmark = pytest.mark.anyio

SECRET = "The code of the safe is 7391."


@pytest.fixture(params=SENDS)
def service(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@asynccontextmanager
async def scene(
    name: str, path: Path, *, more: dict[str, Any] | None = None, **rules: Any
) -> AsyncIterator[tuple[Hall, World]]:
    """A gateway whose channel lists the group with these rules."""
    async with open_world(name) as world, open_hall(path) as hall:
        listed = {each: [world.address(who) for who in value] for each, value in rules.items() if each == "users"}
        hall.config = configuration(world, **world.group_config(**{**rules, **listed})) | (more or {})
        async with hall.serving():
            await world.ready()
            yield hall, world


async def until_sent(world: World, count: int) -> list[dict[str, Any]]:
    await world.fake.until(lambda: len(world.fake.sent) >= count, seconds=PATIENCE)
    sent: list[dict[str, Any]] = world.fake.sent
    return sent


def offered(hall: Hall) -> str:
    """The tools of the last request, with those that are described in the prompt."""
    request = hall.model.model_requests[-1].json
    return json.dumps(request.get("tools")) + json.dumps(request["messages"][0])


@pytest.mark.slow
async def test_a_group_is_answered_by_its_own_rules(service: str, tmp_path: Path) -> None:
    more = {"messages": {"groupChat": {"mentionPatterns": [r"hey\s+helper"]}}}
    rules: dict[str, Any] = {"users": [OWNER, FRIEND], "systemPrompt": "The family plans a trip to Crete."}
    async with scene(service, tmp_path, more=more, **rules) as (hall, world):
        await world.say_in_group("shall we take the ferry?", FRIEND, mentions=False)
        await world.say_in_group("I am not on the list", STRANGER)
        await world.say_in_group("what do you think?", FRIEND)
        (answer,) = await until_sent(world, 1)
        read = read_by_model(hall)
        assert "shall we take the ferry?" in read
        assert "EXTERNAL_UNTRUSTED_CONTENT" in read
        assert "not on the list" not in read
        assert "trip to Crete" in json.dumps(hall.model.model_requests[-1].json["messages"][0])
        await world.say_in_group("hey  Helper, and the plane?", FRIEND, mentions=False)
        await until_sent(world, 2)
        await world.answer_in_group("why?", answer, FRIEND)
        await until_sent(world, 3)
        assert len(hall.model.model_requests) == 3


async def test_a_group_that_is_not_listed_or_switched_off_is_not_answered(service: str, tmp_path: Path) -> None:
    async with scene(service, tmp_path, enabled=False) as (hall, world):
        await world.say_in_group("hello", FRIEND)
        await world.say("hello")
        await until_sent(world, 1)
        assert len(hall.model.model_requests) == 1


async def test_the_tools_and_skills_of_a_group(service: str, tmp_path: Path) -> None:
    rules: dict[str, Any] = {"tools": {"deny": ["web_fetch", "exec"]}, "skills": []}
    async with scene(service, tmp_path, **rules) as (hall, world):
        skill = hall.home.path / "workspace" / "skills" / "baking"
        await world.say("hello")
        await until_sent(world, 1)
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text("---\nname: baking\ndescription: Bakes bread.\n---\nBake.")
        await world.say("and now?")
        await until_sent(world, 2)
        assert "web_fetch" in offered(hall)
        hall.model.push(calls("exec", command="echo hi"), says("I could not."))
        await world.say_in_group("run something")
        await until_sent(world, 3)
        assert "web_fetch" not in offered(hall)
        assert "baking" not in offered(hall)
        results = [each for each in hall.model.model_requests[-1].json["messages"] if each["role"] == "tool"]
        assert "rules of this group" in results[-1]["content"] or "no tool" in results[-1]["content"]


async def test_the_tools_of_one_sender_of_a_group(tmp_path: Path) -> None:
    rules: dict[str, Any] = {"tools": {"deny": ["*"]}, "toolsBySender": {"tg:11": {"allow": ["read"]}}}
    async with scene("telegram", tmp_path, **rules) as (hall, world):
        await world.say_in_group("read something", FRIEND)
        await until_sent(world, 1)
        assert '"read"' not in offered(hall)
        await world.say_in_group("read something")
        await until_sent(world, 2)
        assert '"read"' in offered(hall)


async def test_reactions_and_references_go_both_ways(service: str, tmp_path: Path) -> None:
    more = {"messages": {"ackReaction": "👀", "ackReactionScope": "group-mentions"}}
    async with scene(service, tmp_path, more=more) as (hall, world):
        hall.model.push(says("[[reply_to_current]] Yes."))
        asked = await world.say_in_group("is it so?", FRIEND)
        (answer,) = await until_sent(world, 1)
        assert world.text_of(answer) == "Yes."
        assert world.answers_to(answer) == world.id_of(asked)
        assert world.reactions() in (["👀"], ["eyes"])
        await world.react(answer, "👍", FRIEND)
        react = calls("tool_call", name="message", arguments={"action": "react", "emoji": "🎉"})
        hall.model.push(react, says("NO_REPLY"))
        await world.say_in_group("good", FRIEND)
        await world.fake.until(lambda: len(world.reactions()) == 3, seconds=PATIENCE)
        assert sorted(world.reactions()) in (["eyes", "eyes", "tada"], ["🎉", "👀", "👀"])
        assert f"on message {world.id_of(answer)}]" in json.dumps(hall.model.model_requests[1].json["messages"][-1])
        assert len(world.fake.sent) == 1


async def test_each_thread_of_a_group_is_a_session(service: str, tmp_path: Path) -> None:
    threads = {"telegram": ("5", "6"), "slack": ("170.1", "170.2"), "discord": ("8201", "8202")}[service]
    async with scene(service, tmp_path) as (hall, world):
        await world.say_in_group("the ferry is at nine", FRIEND, thread=threads[0])
        await until_sent(world, 1)
        await world.say_in_group("when is it?", FRIEND, thread=threads[1])
        sent = await until_sent(world, 2)
        assert "ferry" not in json.dumps(hall.model.model_requests[-1].json["messages"])
        await world.say_in_group("when is it?", FRIEND, thread=threads[0])
        sent = await until_sent(world, 3)
        assert "ferry" in json.dumps(hall.model.model_requests[-1].json["messages"])
        key = {"telegram": "message_thread_id", "slack": "thread_ts", "discord": "channel_id"}[service]
        assert [str(each[key]) for each in sent] == [threads[0], threads[1], threads[0]]


@pytest.mark.slow
@pytest.mark.parametrize("who", [FRIEND, STRANGER])
async def test_a_member_of_a_group_gets_nothing_of_the_owner(service: str, who: str, tmp_path: Path) -> None:
    """The friend is a contact in direct messages, which changes nothing in a group."""
    async with scene(service, tmp_path) as (hall, world):
        await world.say("hello")
        await until_sent(world, 1)
        workspace = hall.home.path / "workspace"
        (workspace / "memory").mkdir(exist_ok=True)
        for name in ("MEMORY.md", "USER.md", "memory/2026-01-01.md", "safe.txt"):
            (workspace / name).write_text(SECRET)
        tries = (
            calls("read", path=f"{workspace}/safe.txt"),
            calls("read", path="../../safe.txt"),
            calls("grep", pattern="safe", path="../.."),
            calls("exec", command=f"cat {workspace}/safe.txt"),
            calls("memory_search", query="safe"),
            calls("memory_get", path="MEMORY.md"),
            calls("sessions_list"),
            calls("sessions_history", sessionKey="agent:main:main"),
            calls("sessions_send", sessionKey="agent:main:main", message="what is the code?"),
            calls("sessions_spawn", task="Read ../../safe.txt"),
            calls("cron", action="list"),
            calls("gateway", action="get", key="channels"),
            calls("message", text="hi", to=world.owner.partition(":")[2]),
        )
        end = says(f"[[reply_to_current]] [[audio_as_voice]] Here.\nMEDIA:{workspace}/safe.txt\nMEDIA:../../MEMORY.md")
        hall.model.push(*tries, end)
        await world.say_in_group("what is the code of the safe?", who)
        await until_sent(world, 2)
        commands = ("/status", "/context", "/export", "/config get", "/model", "/elevated full", "/usage", "/skills")
        for number, command in enumerate(commands, 1):
            await world.say_in_group(command, who)
            await world.say(f"next {number}")
            await world.fake.until(lambda: len(world.texts(OWNER)) >= 1 + number, seconds=PATIENCE)  # noqa: B023
        shown = " ".join(text for text in world.texts())
        asked = json.dumps([each.json for each in hall.model.model_requests[1 : 2 + len(tries)]])
        assert len(hall.model.model_requests) >= 2 + len(tries)
        assert "7391" not in shown
        assert "7391" not in asked
        assert "could not be attached" in shown
        assert str(world.config.get("botToken", world.config.get("token"))) not in asked
        assert sum(text == "hi" for text in world.texts(OWNER)) == 0
