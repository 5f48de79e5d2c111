"""Event streams: events are numbered, encoded once, sent to listeners and kept for a while."""

from __future__ import annotations

from collections import OrderedDict, deque
from json.encoder import encode_basestring_ascii as quote
from typing import Protocol

from msgspec import Struct

from retinue.wire import codec
from retinue.wire.frames import Wire

MAX_KEPT_PER_STREAM = 256 * 1024
MAX_KEPT = 8 * 1024 * 1024
"""How many characters of events are kept for clients that reconnect, per stream and in total."""


def encode_event(stream: str, seq: int, event: str, payload: Wire) -> str:
    """The frame of an event as JSON."""
    body = codec.encode(payload)
    return f'{{"type":"event","event":{quote(event)},"stream":{quote(stream)},"seq":{seq},"payload":{body}}}'


class StreamListener(Protocol):
    """A receiver of the events of a stream."""

    def push(self, frame: str) -> None:
        """Queue a frame; must not wait and not raise."""
        ...


class _Stream:
    def __init__(self, floor: int) -> None:
        self.kept: deque[tuple[int, str]] = deque()
        self.size = 0
        self.floor = floor
        """Events up to this number may have been dropped."""
        self.last = 0
        self.listeners: set[StreamListener] = set()


class Joined(Struct, frozen=True):
    """The newest number of a stream, the requested events that are kept, and whether some were dropped (`gap`)."""

    seq: int
    gap: bool
    frames: tuple[str, ...]


class EventHub:
    """All streams of a gateway. One counter numbers all events, so numbers grow in each stream and may have gaps."""

    def __init__(self, epoch: str) -> None:
        self.epoch = epoch
        self._streams: OrderedDict[str, _Stream] = OrderedDict()
        self._seq = 0
        self._size = 0
        self._forgotten = 0

    def publish(self, stream: str, event: str, payload: Wire) -> None:
        """Send an event to the listeners of a stream, and keep it for clients that reconnect."""
        self._seq += 1
        found = self._open(stream)
        frame = encode_event(stream, self._seq, event, payload)
        found.kept.append((self._seq, frame))
        found.last = self._seq
        found.size += len(frame)
        self._size += len(frame)
        while found.size > MAX_KEPT_PER_STREAM:
            self._drop_oldest(found)
        self._make_room()
        for listener in tuple(found.listeners):
            listener.push(frame)

    def join(self, listener: StreamListener, stream: str, after: int | None, epoch: str | None) -> Joined:
        """Add a listener to a stream; returns the events after a number, as far as they are kept."""
        found = self._open(stream)
        found.listeners.add(listener)
        if after is None:
            return Joined(self.position(stream), gap=False, frames=())
        if epoch != self.epoch:
            return Joined(self.position(stream), gap=True, frames=())
        frames = tuple(frame for seq, frame in found.kept if seq > after)
        return Joined(self.position(stream), gap=after < found.floor, frames=frames)

    def leave(self, listener: StreamListener, stream: str) -> None:
        found = self._streams.get(stream)
        if found is not None:
            found.listeners.discard(listener)
            if not found.listeners and not found.kept:
                self._forget(stream)

    def position(self, stream: str) -> int:
        """The number of the newest event of a stream."""
        found = self._streams.get(stream)
        return max(found.last, found.floor) if found else self._forgotten

    def _open(self, stream: str) -> _Stream:
        found = self._streams.get(stream)
        if found is None:
            found = self._streams[stream] = _Stream(self._forgotten)
        self._streams.move_to_end(stream)
        return found

    def _make_room(self) -> None:
        for name in tuple(self._streams) if self._size > MAX_KEPT else ():
            found = self._streams[name]
            while found.kept and self._size > MAX_KEPT:
                self._drop_oldest(found)
            if not found.kept and not found.listeners:
                self._forget(name)
            if self._size <= MAX_KEPT:
                return

    def _drop_oldest(self, stream: _Stream) -> None:
        seq, frame = stream.kept.popleft()
        stream.floor = seq
        stream.size -= len(frame)
        self._size -= len(frame)

    def _forget(self, name: str) -> None:
        found = self._streams.pop(name)
        self._forgotten = max(self._forgotten, found.floor, found.last)
