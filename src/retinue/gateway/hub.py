"""Events to whoever follows them: numbered, kept for a while, encoded once."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from json import dumps
from typing import Protocol

from retinue.wire.frames import Wire

MOST_KEPT_PER_STREAM = 256 * 1024
MOST_KEPT = 8 * 1024 * 1024
"""Characters of events that are kept for those who come back, per stream and in all."""


class Follower(Protocol):
    """A connection as the hub sees it."""

    def push(self, frame: str) -> None:
        """Queue a frame; must neither wait nor raise."""
        ...


@dataclass(slots=True)
class _Stream:
    kept: deque[tuple[int, str]] = field(default_factory=deque)
    size: int = 0
    floor: int = 0
    """Events up to this number may be gone."""
    last: int = 0
    followers: set[Follower] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Joined:
    """What a follower gets: the newest number, whether events it asked for are gone, and those that are not."""

    seq: int
    gap: bool
    frames: tuple[str, ...]


class Hub:
    """All streams of a gateway. Numbers come from one counter, so they grow in each stream but may leave some out."""

    def __init__(self, epoch: str) -> None:
        self.epoch = epoch
        self._streams: OrderedDict[str, _Stream] = OrderedDict()
        self._seq = 0
        self._size = 0
        self._forgotten = 0

    def publish(self, stream: str, event: str, payload: Wire) -> None:
        """Tell the followers of a stream, and keep the event for those who come back."""
        self._seq += 1
        found = self._open(stream)
        body = payload.model_dump_json(by_alias=True, exclude_none=True)
        frame = f'{{"type":"event","event":{dumps(event)},"stream":{dumps(stream)},"seq":{self._seq},"payload":{body}}}'
        found.kept.append((self._seq, frame))
        found.last = self._seq
        found.size += len(frame)
        self._size += len(frame)
        while found.size > MOST_KEPT_PER_STREAM:
            self._drop_oldest(found)
        self._make_room()
        for follower in tuple(found.followers):
            follower.push(frame)

    def join(self, follower: Follower, stream: str, after: int | None, epoch: str | None) -> Joined:
        """Let somebody follow a stream from now on, and give them what came after a number, as far as it is there."""
        found = self._open(stream)
        found.followers.add(follower)
        if after is None:
            return Joined(self.position(stream), gap=False, frames=())
        if epoch != self.epoch:
            return Joined(self.position(stream), gap=True, frames=())
        frames = tuple(frame for seq, frame in found.kept if seq > after)
        return Joined(self.position(stream), gap=after < found.floor, frames=frames)

    def leave(self, follower: Follower, stream: str) -> None:
        found = self._streams.get(stream)
        if found is not None:
            found.followers.discard(follower)
            if not found.followers and not found.kept:
                self._forget(stream)

    def position(self, stream: str) -> int:
        """The number of the newest event of a stream."""
        found = self._streams.get(stream)
        return max(found.last, found.floor) if found else self._forgotten

    def _open(self, stream: str) -> _Stream:
        found = self._streams.get(stream)
        if found is None:
            found = self._streams[stream] = _Stream(floor=self._forgotten)
        self._streams.move_to_end(stream)
        return found

    def _make_room(self) -> None:
        for name in tuple(self._streams) if self._size > MOST_KEPT else ():
            found = self._streams[name]
            while found.kept and self._size > MOST_KEPT:
                self._drop_oldest(found)
            if not found.kept and not found.followers:
                self._forget(name)
            if self._size <= MOST_KEPT:
                return

    def _drop_oldest(self, stream: _Stream) -> None:
        seq, frame = stream.kept.popleft()
        stream.floor = seq
        stream.size -= len(frame)
        self._size -= len(frame)

    def _forget(self, name: str) -> None:
        found = self._streams.pop(name)
        self._forgotten = max(self._forgotten, found.floor, found.last)
