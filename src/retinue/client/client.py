"""Talking to a gateway as if it were the runtime: the same `Assistant`, over a socket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import anyio

from retinue.client.link import ClientError, Door, Link, LinkLost
from retinue.core.api import Display, Greeting, Missed
from retinue.core.approval import ApprovalRequest, Ask, nobody_to_ask
from retinue.core.clock import random_uuid
from retinue.core.envelope import Inbound, Outbound
from retinue.core.errors import RetinueError, UsageError
from retinue.core.events import Accepted, ApprovalAsked, ApprovalGiven, Emit, Notice, TurnEvent, TurnFinished
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.storage.home_paths import HomePaths
from retinue.storage.instance import find_instance, read_local_token
from retinue.wire import agent as talking
from retinue.wire import approvals, sessions
from retinue.wire.events import decode_turn
from retinue.wire.frames import Event, Hello, Params, Wire
from retinue.wire.method import Method
from retinue.wire.protocol import ErrorCode

log = logging.getLogger(__name__)

P = TypeVar("P", bound=Params)
R = TypeVar("R", bound=Wire)

PATIENCE_SECONDS = 30.0
"""How long to wait for a gateway that is gone, and may come back."""
WAIT_MS = 60_000
MOST_FOLLOWED = 128
"""Streams that stay followed after their last listener left: whoever talks again there need not ask. A gateway lets a
connection follow twice as many."""
MISSED_SOME = "The connection was lost for a while; some of what happened meanwhile is not shown."

TurnNews = tuple[tuple[RunId, ...], TurnEvent] | None
"""An event of a turn with the messages that the turn answers; None where events were lost."""


@dataclass
class _Stream:
    """A stream that is followed: up to where it was seen, and who listens."""

    params: sessions.Subscribe
    seq: int = 0
    epoch: str | None = None
    listeners: list[Callable[[Event | None], None]] = field(default_factory=list)


class Client:
    """A gateway's client. It satisfies `core.api.Assistant`."""

    def __init__(self, door: Door) -> None:
        self.hello: Hello | None = None
        """What the gateway said at the last `connect`."""
        self._door = door
        self._link = Link(door, self._hear, self._greeted)
        self._streams: dict[str, _Stream] = {}
        self._own: set[RunId] = set()
        self._tasks: anyio.abc.TaskGroup | None = None

    async def call(self, method: Method[P, R], params: P, *, patience: float = PATIENCE_SECONDS) -> R:
        """Call a method; what may be sent twice is sent again where the connection is lost meanwhile."""
        body = params.model_dump(mode="json", by_alias=True, exclude_unset=True)
        repeatable = not method.changes or hasattr(params, "idempotency_key")
        deadline = anyio.current_time() + patience
        while True:
            try:
                answer = await self._link.request(method.name, body, max(0.0, deadline - anyio.current_time()))
                return method.result.model_validate(answer)
            except TimeoutError:
                raise RetinueError(self._door.explain_silence()) from None
            except LinkLost:
                if not repeatable:
                    raise
            except ClientError as error:
                if error.failure.code is not ErrorCode.SHUTTING_DOWN or not repeatable:
                    raise
                if anyio.current_time() >= deadline:
                    raise
                await anyio.sleep(0.1)

    async def session_key(self, session: str | None, agent: str | None) -> SessionKey:
        """The session a person named."""
        try:
            found = await self.call(sessions.GET, talking.OfSession(session_key=session, agent=agent))
        except ClientError as error:
            raise UsageError(str(error)) from error
        return SessionKey.parse(found.key, default_agent=AgentId(found.agent))

    async def say(self, inbound: Inbound, show: Emit, ask: Ask = nobody_to_ask) -> Outbound:
        """Say something and show what happens until it is answered."""
        async with self.following(inbound.session) as news:
            said = talking.Say(
                message=inbound.text,
                session_key=inbound.session.text,
                agent=inbound.session.agent,
                model=inbound.model,
                images=[talking.Picture(media_type=each.media_type, data=each.data) for each in inbound.images],
                channel=inbound.channel,
                idempotency_key=random_uuid(),
            )
            accepted = await self.call(talking.AGENT, said)
            run = RunId(accepted.run_id)
            self._own.add(run)
            await show(Accepted(run, inbound.session, accepted.accepted_at))
            outcome: list[Outbound | ClientError] = []
            ends: list[TurnFinished] = []

            async def show_and_note(event: TurnEvent) -> None:
                if isinstance(event, TurnFinished):
                    ends.append(event)
                await show(event)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._await_answer, run, outcome, news)
                await self._show_news(lambda runs: run in runs, news, show_and_note, ask)
                tasks.cancel_scope.cancel()
            self._own.discard(run)
            return _settle(outcome[0], ends, inbound.session)

    async def attend(self, session: SessionKey, show: Emit, ask: Ask) -> None:
        """Show the turns of a session that others began, and ask what they ask, until cancelled."""
        async with self.following(session) as news:
            await self._show_news(self._own.isdisjoint, news, show, ask)

    async def _await_answer(
        self, run: RunId, outcome: list[Outbound | ClientError], news: asyncio.Queue[TurnNews | str]
    ) -> None:
        try:
            outcome.append(await self.wait(run))
        except ClientError as error:
            outcome.append(error)
        news.put_nowait("answered")

    async def wait(self, run: RunId) -> Outbound:
        """Wait for the answer to a message, however long it takes."""
        while True:
            waited = await self.call(talking.AGENT_WAIT, talking.Wait(run_id=run, timeout_ms=WAIT_MS))
            if waited.outbound is not None:
                return waited.outbound.value()

    async def _show_news(
        self,
        concerns: Callable[[tuple[RunId, ...]], bool],
        news: asyncio.Queue[TurnNews | str],
        show: Emit,
        ask: Ask,
    ) -> None:
        """Show the events that concern somebody until the answer is there; the gateway sends all of them before it."""
        asked: dict[str, anyio.CancelScope] = {}
        async with anyio.create_task_group() as tasks:
            while (item := await news.get()) != "answered":
                if item is None or isinstance(item, str):
                    if concerns(tuple(self._own)):
                        await show(Notice(MISSED_SOME))
                    continue
                runs, event = item
                if not concerns(runs):
                    continue
                match event:
                    case ApprovalAsked(request) if ask is not nobody_to_ask and request.id not in asked:
                        asked[request.id] = anyio.CancelScope()
                        tasks.start_soon(self._ask, request, ask, asked[request.id])
                    case ApprovalGiven(request, _) if request.id in asked:
                        asked[request.id].cancel()
                await show(event)
            tasks.cancel_scope.cancel()

    async def _ask(self, request: ApprovalRequest, ask: Ask, scope: anyio.CancelScope) -> None:
        with scope:
            decision = await ask(request)
            resolve = approvals.Resolve(id=request.id, verdict=decision.verdict, binding=request.binding)
            try:
                await self.call(approvals.RESOLVE, resolve)
            except ClientError as error:
                if error.failure.code not in (ErrorCode.CONFLICT, ErrorCode.NOT_FOUND):
                    raise

    @asynccontextmanager
    async def following(self, session: SessionKey) -> AsyncIterator[asyncio.Queue[TurnNews | str]]:
        """The events of a session while the block runs; None in between tells that some were lost."""
        news: asyncio.Queue[TurnNews | str] = asyncio.Queue()

        def listen(event: Event | None) -> None:
            if event is None:
                news.put_nowait(None)
            elif event.event == "turn":
                news.put_nowait(decode_turn(event.payload))

        params = sessions.Subscribe(session_key=session.text, agent=session.agent)
        async with self._listening(session.text, params, listen):
            yield news

    @asynccontextmanager
    async def _listening(
        self, name: str, params: sessions.Subscribe, listen: Callable[[Event | None], None]
    ) -> AsyncIterator[None]:
        stream = self._streams.setdefault(name, _Stream(params))
        stream.listeners.append(listen)
        try:
            if stream.epoch is None:
                joined = await self.call(sessions.SUBSCRIBE, params)
                stream.seq, stream.epoch = max(stream.seq, joined.seq), joined.epoch
                await self._leave_others()
            yield
        finally:
            stream.listeners.remove(listen)
            if stream.epoch is None and not stream.listeners:
                self._streams.pop(name, None)  # it was never followed, and is no more

    async def _leave_others(self) -> None:
        """Follow no more what nobody listens to, where there are many of them; those longest known go first."""
        idle = [(name, stream) for name, stream in self._streams.items() if not stream.listeners]
        for name, stream in idle[:-MOST_FOLLOWED]:
            del self._streams[name]
            await self.call(sessions.UNSUBSCRIBE, stream.params)

    async def stop(self, session: SessionKey) -> bool:
        return (await self.call(talking.CHAT_ABORT, _of(session))).stopped

    async def missed(self, session: SessionKey) -> Sequence[Missed]:
        found = await self.call(talking.AGENT_MISSED, _of(session))
        return tuple(Missed(item.asked, item.outbound.value()) for item in found.answers)

    async def confirm(self, run: RunId) -> None:
        await self.call(talking.AGENT_CONFIRM, talking.Confirm(run_id=run))

    async def introduce(self, session: SessionKey) -> sessions.Introduction:
        """Who answers in a session, and how."""
        return await self.call(sessions.INTRODUCE, _of(session))

    async def greet(self, session: SessionKey) -> Greeting:
        found = await self.introduce(session)
        return Greeting(
            found.name,
            found.workspace,
            found.messages,
            found.model,
            found.because,
            found.how_to_change,
            found.is_tiny,
            found.advice,
            found.caution,
        )

    async def display(self, session: SessionKey) -> Display:
        found = await self.introduce(session)
        return Display(found.shows_thinking, found.verbose)

    async def commands(self, session: SessionKey) -> Sequence[str]:
        return (await self.introduce(session)).commands

    async def drop(self) -> None:
        """Cut the connection, as a network would; another is made at once."""
        await self._link.drop()

    async def run(self) -> None:
        """Stay connected until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            await self._link.run()

    def _greeted(self, hello: Hello) -> None:
        self.hello = hello
        if self._streams and self._tasks is not None:
            self._tasks.start_soon(self._resume)

    async def _resume(self) -> None:
        """Follow again what somebody listens to, from where it was seen last."""
        self._streams = {name: stream for name, stream in self._streams.items() if stream.listeners}
        for stream in tuple(self._streams.values()):
            if stream.epoch is None:
                continue  # whoever wants it is about to follow it
            wanted = stream.params.model_copy(update={"after": stream.seq, "epoch": stream.epoch})
            try:
                joined = await self.call(sessions.SUBSCRIBE, wanted)
            except ClientError as error:
                log.warning("%s is not followed any more: %s", wanted.session_key, error)
                continue
            except RetinueError:
                return  # the next connection tries again
            stream.epoch = joined.epoch
            stream.seq = max(stream.seq, joined.seq) if not joined.gap else joined.seq
            if joined.gap:
                for listen in tuple(stream.listeners):
                    listen(None)

    def _hear(self, event: Event) -> None:
        stream = self._streams.get(event.stream)
        hello = self.hello
        if stream is None or hello is None:
            return
        if stream.epoch == hello.epoch and event.seq <= stream.seq:
            return  # told again after a reconnect
        stream.seq, stream.epoch = event.seq, hello.epoch
        for listen in tuple(stream.listeners):
            listen(event)


def _settle(outcome: Outbound | ClientError, ends: Sequence[TurnFinished], session: SessionKey) -> Outbound:
    """What became of a message.

    A gateway that restarted knows nothing of the commands it carried out before, `/restart` among them: what it told
    at their end is their answer.
    """
    if isinstance(outcome, Outbound):
        return outcome
    if outcome.failure.code is not ErrorCode.NOT_FOUND or not ends:
        raise outcome
    end = ends[-1]
    return Outbound(end.run, session, "", end.status, end.text, error=end.error)


def _of(session: SessionKey) -> talking.OfSession:
    return talking.OfSession(session_key=session.text, agent=session.agent)


@asynccontextmanager
async def open_client(door: Door) -> AsyncIterator[Client]:
    """A client that is connected while the block runs; raises where the gateway cannot be reached or refuses."""
    client = Client(door)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.run)
        yield client
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def open_local_client(
    home: HomePaths, *, name: str = "retinue", asks: bool = False
) -> AsyncIterator[Client | None]:
    """A client of the gateway that runs on a home of this machine; None where none runs."""
    found = find_instance(home)
    if found is None or not found.url:
        yield None
        return

    def find_url() -> str | None:
        """Where the gateway is now: one that restarts may take another port."""
        now = find_instance(home)
        return now.url if now is not None else None

    door = Door(found.url, lambda: read_local_token(home), name, asks=asks, moved=find_url)
    async with open_client(door) as client:
        yield client
