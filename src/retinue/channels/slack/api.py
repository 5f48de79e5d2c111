"""Calls of Slack's Web API."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec

from retinue.channels.channel import AccountRefused, DeliveryFailed
from retinue.channels.service_client import ServiceClient, ServiceReply

_BAD_TOKEN = frozenset(
    {"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "not_allowed_token_type"}
)
_TEMPORARY = frozenset({"internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org"})
_AS_FORM = frozenset({"files.getUploadURLExternal", "conversations.history", "conversations.replies", "users.info"})


class SlackRefused(DeliveryFailed):
    """Slack answered with an error."""

    def __init__(self, method: str, error: str) -> None:
        temporary = error in _TEMPORARY
        super().__init__(f"Slack refused {method}: {error}.", final=not temporary, uncertain=temporary)
        self.error = error


class WebApi:
    """Calls methods with one token."""

    def __init__(self, root: str, token: str) -> None:
        self._root = root
        self._client = ServiceClient(root)
        self._headers = {"authorization": f"Bearer {token}"}
        self.close = self._client.close

    async def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call a method; arguments that are None are left out. Raises `DeliveryFailed` or `AccountRefused`."""
        given = {name: value for name, value in arguments.items() if value is not None}
        if method in _AS_FORM:
            form = {
                name: each if isinstance(each, str) else msgspec.json.encode(each).decode()
                for name, each in given.items()
            }
            reply = await self._client.request("POST", method, form=form, headers=self._headers)
        else:
            reply = await self._client.request("POST", method, data=given, headers=self._headers)
        return _check(method, reply)

    async def upload(self, address: str, data: bytes) -> None:
        """Send the content of a file to the address that Slack named."""
        reply = await self._client.request("POST", address, content=data)
        if reply.status != 200:
            raise DeliveryFailed(f"Slack did not take a file ({reply.status}).")

    async def download(self, address: str, max_bytes: int) -> bytes:
        # The token is only for Slack itself: a file can also be on another host.
        headers = self._headers if self._is_of_slack(address) else {}
        reply = await self._client.request("GET", address, headers=headers, max_bytes=max_bytes)
        if reply.status != 200:
            raise DeliveryFailed(f"Slack did not return the file ({reply.status}).", final=reply.status in (403, 404))
        return reply.body

    def _is_of_slack(self, address: str) -> bool:
        host, own = urlsplit(address).hostname or "", urlsplit(self._root).hostname
        return host == own or (own == "slack.com" and host.endswith(".slack.com"))


def _check(method: str, reply: ServiceReply) -> dict[str, Any]:
    if reply.status == 429:
        raise DeliveryFailed(f"Slack limits the rate of {method}.", retry_after=reply.retry_after or 1.0)
    answer = reply.json()
    if answer.get("ok") is True:
        return answer
    error = str(answer.get("error") or "")
    if error in _BAD_TOKEN:
        raise AccountRefused(f"Slack does not accept the token ({error}). Copy it again from the app's pages.")
    if error in ("ratelimited", "rate_limited"):
        raise DeliveryFailed(f"Slack limits the rate of {method}.", retry_after=reply.retry_after or 1.0)
    if not error:
        raise DeliveryFailed(f"Slack answered {reply.status} to {method}.", uncertain=True)
    raise SlackRefused(method, error)
