"""Who is signed in: a copy of the sign-ins that clients of this gateway present, renewed from the database.

Requests are authenticated in the event loop, which must not wait for a database. `load` reads a sign-in before the
first request with it is authenticated; `watch` reads all of them again twice a second, so that a deactivated member, an
ended sign-in and a changed role take effect at once on every gateway.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection

import anyio
import anyio.to_thread

from retinue.core.clock import Clock
from retinue.core.errors import RetinueError
from retinue.gateway.auth.authenticator import MemberRights, Principal
from retinue.teams.access import AccessStore, LiveAccess
from retinue.teams.bearer import ACCESS
from retinue.teams.settings import SignInLimits

log = logging.getLogger(__name__)

WATCH_SECONDS = 0.5
RECORD_USE_SECONDS = 60.0
STALE_SECONDS = 30.0
"""Without the database, sign-ins are accepted for this time."""
FORGET_SECONDS = 900.0
"""A sign-in that was not used for this time, and has no connection, is read again before its next use."""
MAX_KNOWN = 10_000


class _Known:
    def __init__(self, live: LiveAccess, now: float) -> None:
        self.live = live
        self.read_at = now
        self.used_at = now
        self.recorded_at = now


Close = Callable[[Collection[str]], None]
"""Closes the connections of some principals, by their token ids."""


class SignInDirectory:
    """The sign-ins that this gateway knows."""

    def __init__(self, access: AccessStore, limits: Callable[[], SignInLimits], clock: Clock) -> None:
        self._access = access
        self._limits = limits
        self._clock = clock
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    async def load(self, token: str | None) -> None:
        """Read the sign-in of a token that is not known yet."""
        if token is None or not token.startswith(f"{ACCESS}_") or _digest(token) in self._known:
            return
        live = await anyio.to_thread.run_sync(self._access.check, token, self._limits())
        if live is not None:
            self._known[_digest(token)] = _Known(live, self._clock.monotonic())
            while len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)

    def find(self, token: str) -> Principal | None:
        """The client with a token, if the sign-in was loaded and is valid now."""
        known = self._known.get(_digest(token))
        if known is None or self._is_over(known):
            return None
        known.used_at = self._clock.monotonic()
        self._known.move_to_end(_digest(token))
        return make_principal(known.live)

    def forget(self, token_id: str) -> None:
        """Forget a sign-in that this gateway has ended."""
        for digest in [each for each, known in self._known.items() if _name(known.live) == token_id]:
            del self._known[digest]

    async def watch(self, connected: Callable[[], Collection[str]], end: Close, renew: Close) -> None:
        """Renew the copy until cancelled. `end` closes what is not valid any more, `renew` what has other rights."""
        while True:
            await anyio.sleep(WATCH_SECONDS)
            if not self._known:
                continue
            try:
                await self._read_again(connected(), end, renew)
            except RetinueError as error:
                log.warning("the sign-ins of members could not be checked: %s", error)
                renew([_name(known.live) for known in self._known.values() if self._is_stale(known)])

    async def _read_again(self, connected: Collection[str], end: Close, renew: Close) -> None:
        now = self._clock.monotonic()
        for digest, known in list(self._known.items()):
            if _name(known.live) in connected:
                known.used_at = now
            elif now - known.used_at > FORGET_SECONDS:
                del self._known[digest]
        asked = dict(self._known)
        await self._record_use(list(asked.values()))
        ids = {known.live.access.id for known in asked.values()}
        found = {live.access.id: live for live in await anyio.to_thread.run_sync(self._access.find, ids)}
        ended, changed = [], []
        for digest, known in asked.items():
            fresh, before = found.get(known.live.access.id), known.live
            if fresh is not None:
                known.live, known.read_at = fresh, now
            if fresh is None or self._is_over(known):
                self._known.pop(digest, None)
                ended.append(_name(before))
            elif make_principal(fresh) != make_principal(before):
                changed.append(_name(before))
        end(ended)
        renew(changed)

    async def _record_use(self, all_known: Collection[_Known]) -> None:
        pause = min(RECORD_USE_SECONDS, self._limits().idle.total_seconds() / 4)
        used = [known for known in all_known if known.used_at - known.recorded_at >= pause]
        if used:
            ids = [known.live.access.id for known in used]
            await anyio.to_thread.run_sync(self._access.record_use, ids)
            for known in used:
                known.recorded_at = known.used_at

    def _is_over(self, known: _Known) -> bool:
        return self._is_stale(known) or not known.live.is_valid(self._limits(), self._clock.now())

    def _is_stale(self, known: _Known) -> bool:
        return self._clock.monotonic() - known.read_at > STALE_SECONDS


def make_principal(live: LiveAccess) -> Principal:
    """The client that a sign-in makes: the member with the rights of the role."""
    member, limit = live.member, live.access.scopes
    rights = MemberRights(member.id, member.role.value, member.scopes_by_agent(limit))
    return Principal(_name(live), member.login, member.scopes(limit), member=rights)


def _name(live: LiveAccess) -> str:
    return f"member:{live.access.id}"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
