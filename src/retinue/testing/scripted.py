"""A scripted model provider in the same process."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable

import anyio
import anyio.lowlevel

from retinue.core.messages import StopReason
from retinue.core.model import Failure, ModelEvent, ModelRequest
from retinue.providers.base import Credential, Timeouts
from retinue.providers.failures import CallFailed, failure_from_response
from retinue.providers.stream import Delta, Draft, deliver
from retinue.testing.replies import SCRIPT_IS_OVER, Fault, Reply, refuses

Respond = Callable[[ModelRequest], Reply]


class ScriptedProvider:
    """A provider that answers with its replies in order and records the requests.

    A reply may also be a function of the request, for tests in which the answer depends on the question.
    """

    def __init__(self, *replies: Reply | Respond, id: str = "scripted", timeouts: Timeouts | None = None) -> None:  # noqa: A002
        self.id = id
        self.requests: list[ModelRequest] = []
        self.credentials: list[Credential | None] = []
        self._replies = deque(replies)
        self._timeouts = timeouts or Timeouts()

    def push(self, *replies: Reply | Respond) -> None:
        """Add replies to the end of the script."""
        self._replies.extend(replies)

    def stream(self, request: ModelRequest, credential: Credential | None = None) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        self.credentials.append(credential)
        found = self._replies.popleft() if self._replies else refuses(400, SCRIPT_IS_OVER)
        reply = found if isinstance(found, Reply) else found(request)

        def source(draft: Draft) -> AsyncGenerator[Delta, None]:
            return _act(reply, draft)

        return deliver(source, request, self._timeouts)

    async def aclose(self) -> None:
        """Do nothing."""


async def _act(reply: Reply, draft: Draft) -> AsyncGenerator[Delta, None]:
    if reply.status != 200:
        raise failure_from_response(reply.status, reply.text, reply.headers)
    await anyio.lowlevel.checkpoint()
    if reply.thinking and (thought := draft.add_reasoning(reply.thinking)):
        yield thought
    for word in reply.text.splitlines(keepends=True):
        if piece := draft.add_text(word):
            yield piece
    for index, call in enumerate(reply.calls):
        if delta := draft.add_call(index, name=call.name, arguments=call.arguments):
            yield delta
    match reply.fault:
        case None:
            draft.usage = reply.usage
            draft.stop = StopReason.LENGTH if reply.cut_short else StopReason.END
        case Fault.HANG | Fault.DRIP:
            await anyio.sleep_forever()
        case Fault.CUT | Fault.UNFINISHED:
            pass
        case Fault.BAD_UTF8 | Fault.BAD_JSON | Fault.FLOOD:
            raise CallFailed(Failure.SERVER, "the scripted endpoint broke its protocol")
