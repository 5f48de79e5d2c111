"""A client of a gateway with the same interface as the runtime: `core.api.Assistant`, over a WebSocket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import msgspec

from retinue.client.link import ClientError, GatewayAddress, GatewayLink, LinkLost
from retinue.core.api import Display, Greeting, Missed
from retinue.core.approval import ApprovalRequest, Ask
from retinue.core.clock import random_uuid
from retinue.core.envelope import Inbound, Outbound, check_message_size
from retinue.core.errors import RetinueError, UsageError
from retinue.core.events import Accepted, ApprovalAsked, ApprovalGiven, Emit, Notice, TurnEvent, TurnFinished
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.storage.home_paths import HomePaths
from retinue.storage.process_locks import find_instance, read_local_token
from retinue.wire import approvals, codec, messages, sessions
from retinue.wire.frames import Event, Hello, Method, Params, TurnPayload, Wire
from retinue.wire.protocol import ErrorCode, Scope

log = logging.getLogger(__name__)

P = TypeVar("P", bound=Params)
R = TypeVar("R", bound=Wire)

PATIENCE_SECONDS = 30.0
"""How long to wait for a gateway that cannot be reached."""
WAIT_MS = 60_000
MAX_IDLE_STREAMS = 128
"""How many streams stay subscribed without a listener, so that the next message there needs no new subscription. A
gateway allows twice as many per connection."""
MISSED_SOME = "The connection was lost for a while. Some events of that time are not shown."

TurnNews = tuple[tuple[RunId, ...], TurnEvent] | None
"""An event of a turn with the runs that the turn answers; None if events were lost."""


class _Subscription:
    """A stream that the client is subscribed to: the last event that was seen, and the listeners."""

    def __init__(self, params: sessions.Subscribe) -> None:
        self.params = params
        self.seq = 0
        self.epoch: str | None = None
        self.listeners: list[Callable[[Event | None], None]] = []


class Client:
    """A client of a gateway. It implements `core.api.Assistant`."""

    def __init__(self, address: GatewayAddress) -> None:
        self.hello: Hello | None = None
        """The result of the last `connect`."""
        self._address = address
        self._link = GatewayLink(address, self._receive, self._resume_subscriptions)
        self._streams: dict[str, _Subscription] = {}
        self._own: set[RunId] = set()
        self._tasks: anyio.abc.TaskGroup | None = None

    async def call(self, method: Method[P, R], params: P, *, patience: float = PATIENCE_SECONDS) -> R:
        """Call a method; a request that may be repeated is sent again if the connection is lost meanwhile."""
        body = codec.to_plain(params)
        repeatable = not method.changes or hasattr(params, "idempotency_key")
        deadline = anyio.current_time() + patience
        while True:
            try:
                answer = await self._link.request(method.name, body, max(0.0, deadline - anyio.current_time()))
                return codec.convert(answer, method.result)
            except TimeoutError:
                raise RetinueError(self._address.explain_unreachable()) from None
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
        """The session that a person named."""
        try:
            found = await self.call(sessions.GET, messages.OfSession(session_key=session, agent=agent))
        except ClientError as error:
            raise UsageError(str(error)) from error
        return SessionKey.parse(found.key, default_agent=AgentId(found.agent))

    async def say(self, inbound: Inbound, show: Emit, ask: Ask | None = None) -> Outbound:
        """Send a message and show the events until it is answered; raises `MessageTooLarge` before it is sent."""
        check_message_size(inbound.text)
        async with self.following(inbound.session) as news:
            said = messages.Say(
                message=inbound.text,
                session_key=inbound.session.text,
                agent=inbound.session.agent,
                model=inbound.model,
                images=tuple(messages.Picture(each.media_type, each.data) for each in inbound.images),
                channel=inbound.channel,
                idempotency_key=random_uuid(),
            )
            accepted = await self.call(messages.AGENT if inbound.own_turn else messages.CHAT_SEND, said)
            run = RunId(accepted.run_id)
            self._own.add(run)
            await show(Accepted(run, inbound.session, accepted.accepted_at))
            outcome: list[Outbound | ClientError] = []
            ends: list[TurnFinished] = []

            async def show_and_record(event: TurnEvent) -> None:
                if isinstance(event, TurnFinished):
                    ends.append(event)
                await show(event)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._await_answer, run, outcome, news)
                await self._show_news(lambda runs: run in runs, news, show_and_record, ask)
                tasks.cancel_scope.cancel()
            self._own.discard(run)
            return _settle(outcome[0], ends, inbound.session)

    async def attend(self, session: SessionKey, show: Emit, ask: Ask | None) -> None:
        """Show the turns of a session that others started, with their approval requests, until cancelled."""
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
        """Wait for the answer to a message, without a time limit."""
        while True:
            waited = await self.call(messages.AGENT_WAIT, messages.Wait(run_id=run, timeout_ms=WAIT_MS))
            if waited.outbound is not None:
                return waited.outbound

    async def _show_news(
        self,
        concerns: Callable[[tuple[RunId, ...]], bool],
        news: asyncio.Queue[TurnNews | str],
        show: Emit,
        ask: Ask | None,
    ) -> None:
        """Show the events of some runs until the answer arrives; the gateway sends all events before it."""
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
                    case ApprovalAsked(request) if ask is not None and request.id not in asked:
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
                await self.call(approvals.APPROVALS_RESOLVE, resolve)
            except ClientError as error:
                if error.failure.code not in (ErrorCode.CONFLICT, ErrorCode.NOT_FOUND):
                    raise

    @asynccontextmanager
    async def following(self, session: SessionKey) -> AsyncIterator[asyncio.Queue[TurnNews | str]]:
        """The events of a session while the block runs; None in between means that events were lost."""
        news: asyncio.Queue[TurnNews | str] = asyncio.Queue()

        def listen(event: Event | None) -> None:
            if event is None:
                news.put_nowait(None)
            elif event.event == "turn":
                found = codec.convert(event.payload, TurnPayload)
                news.put_nowait((found.runs, found.event))

        params = sessions.Subscribe(session_key=session.text, agent=session.agent)
        async with self._listening(session.text, params, listen):
            yield news

    @asynccontextmanager
    async def _listening(
        self, name: str, params: sessions.Subscribe, listen: Callable[[Event | None], None]
    ) -> AsyncIterator[None]:
        stream = self._streams.setdefault(name, _Subscription(params))
        stream.listeners.append(listen)
        try:
            if stream.epoch is None:
                joined = await self.call(sessions.SUBSCRIBE, params)
                stream.seq, stream.epoch = max(stream.seq, joined.seq), joined.epoch
                await self._unsubscribe_idle()
            yield
        finally:
            stream.listeners.remove(listen)
            if stream.epoch is None and not stream.listeners:
                self._streams.pop(name, None)  # the subscription failed

    async def _unsubscribe_idle(self) -> None:
        """Unsubscribe from the oldest streams without listeners if there are too many of them."""
        idle = [(name, stream) for name, stream in self._streams.items() if not stream.listeners]
        for name, stream in idle[:-MAX_IDLE_STREAMS]:
            del self._streams[name]
            await self.call(sessions.UNSUBSCRIBE, stream.params)

    async def stop(self, session: SessionKey) -> bool:
        return (await self.call(messages.CHAT_ABORT, _of(session))).stopped

    async def missed(self, session: SessionKey) -> Sequence[Missed]:
        found = await self.call(messages.AGENT_MISSED, _of(session))
        return tuple(Missed(item.asked, item.outbound) for item in found.answers)

    async def confirm(self, run: RunId) -> None:
        await self.call(messages.AGENT_CONFIRM, messages.Confirm(run_id=run))

    async def introduce(self, session: SessionKey) -> sessions.Introduction:
        """The agent and model of a session."""
        return await self.call(sessions.INTRODUCE, _of(session))

    async def greet(self, session: SessionKey) -> Greeting:
        return msgspec.convert(await self.introduce(session), Greeting, from_attributes=True)

    async def display(self, session: SessionKey) -> Display:
        found = await self.introduce(session)
        return Display(found.shows_thinking, found.verbose, found.model or "", found.window, found.used)

    async def commands(self, session: SessionKey) -> Sequence[str]:
        return (await self.introduce(session)).commands

    async def drop(self) -> None:
        """Abort the connection, as a network failure would; the client reconnects at once."""
        await self._link.drop()

    async def run(self) -> None:
        """Stay connected until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            await self._link.run()

    def _resume_subscriptions(self, hello: Hello) -> None:
        self.hello = hello
        if self._streams and self._tasks is not None:
            self._tasks.start_soon(self._subscribe_again)

    async def _subscribe_again(self) -> None:
        """Subscribe again to streams with listeners, from the last event that was seen."""
        self._streams = {name: stream for name, stream in self._streams.items() if stream.listeners}
        for stream in tuple(self._streams.values()):
            if stream.epoch is None:
                continue  # its first subscription is in progress
            wanted = msgspec.structs.replace(stream.params, after=stream.seq, epoch=stream.epoch)
            try:
                joined = await self.call(sessions.SUBSCRIBE, wanted)
            except ClientError as error:
                log.warning("the subscription to %s has ended: %s", wanted.session_key, error)
                continue
            except RetinueError:
                return  # the next connection tries again
            stream.epoch = joined.epoch
            stream.seq = max(stream.seq, joined.seq) if not joined.gap else joined.seq
            if joined.gap:
                for listen in tuple(stream.listeners):
                    listen(None)

    def _receive(self, event: Event) -> None:
        stream = self._streams.get(event.stream)
        hello = self.hello
        if stream is None or hello is None:
            return
        if stream.epoch == hello.epoch and event.seq <= stream.seq:
            return  # sent again after a reconnect
        stream.seq, stream.epoch = event.seq, hello.epoch
        for listen in tuple(stream.listeners):
            listen(event)


def _settle(outcome: Outbound | ClientError, ends: Sequence[TurnFinished], session: SessionKey) -> Outbound:
    """The outcome of a message.

    A gateway that has restarted does not know the commands that it ran before, such as `/restart`: their last event has
    the answer.
    """
    if isinstance(outcome, Outbound):
        return outcome
    if outcome.failure.code is not ErrorCode.NOT_FOUND or not ends:
        raise outcome
    end = ends[-1]
    return Outbound(end.run, session, "", end.status, end.text, error=end.error)


def _of(session: SessionKey) -> messages.OfSession:
    return messages.OfSession(session_key=session.text, agent=session.agent)


@asynccontextmanager
async def open_client(address: GatewayAddress) -> AsyncIterator[Client]:
    """A client that is connected while the block runs."""
    client = Client(address)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.run)
        yield client
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def open_local_client(
    home: HomePaths, *, name: str = "retinue", asks: bool = False, scopes: tuple[Scope, ...] | None = None
) -> AsyncIterator[Client | None]:
    """A client of the gateway of a local home; None if no gateway is running."""
    found = find_instance(home)
    if found is None or not found.url:
        yield None
        return

    def find_url() -> str | None:
        """The URL of the gateway now; a restarted gateway may have another port."""
        now = find_instance(home)
        return now.url if now is not None else None

    address = GatewayAddress(found.url, lambda: read_local_token(home), name, asks=asks, moved=find_url, scopes=scopes)
    async with open_client(address) as client:
        yield client
