"""Auth profiles on disk: the credentials of an agent, and their usage.

`auth-profiles.json` belongs to one agent and is readable only by its owner. Unknown keys of the file are preserved.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from retinue.core.errors import ConfigError, UsageError
from retinue.core.model import Failure
from retinue.providers.base import CredentialKind
from retinue.providers.settings import CooldownSettings
from retinue.providers.vendors import canonical_provider
from retinue.security.secrets import Secret, describe_secret, dump_secret, parse_secret
from retinue.storage.files import make_private_dir, write_atomic
from retinue.storage.files.file_info import Stamp, stamp_path

log = logging.getLogger(__name__)

FILE_NAME = "auth-profiles.json"
Origin = Literal["agent", "main", "config", "environment"]

SHORT_COOLDOWNS = (timedelta(seconds=30), timedelta(minutes=1), timedelta(minutes=5))

# These failures concern the request or the answer, not the credential: one bad session must not
# block the others.
NO_COOLDOWN = frozenset({Failure.FORMAT, Failure.OVERFLOW, Failure.EMPTY})
_ID = re.compile(r"[a-z0-9][a-z0-9._-]*:[^\s:][^\s]{0,127}")


class Cooldown(Struct, frozen=True):
    """The cooldown of one credential for one model and one reason."""

    model: str
    reason: Failure
    until: datetime
    count: int
    failed_at: datetime

    def holds(self, now: datetime) -> bool:
        """Return whether the cooldown is active; one that starts in the future was recorded with a wrong clock."""
        return self.failed_at <= now < self.until


def next_cooldown(
    previous: Cooldown | None,
    model: str,
    reason: Failure,
    now: datetime,
    settings: CooldownSettings,
    retry_after: float | None = None,
) -> Cooldown | None:
    """Return the cooldown after a failure, longer each time; None if the failure does not concern the credential."""
    if reason in NO_COOLDOWN:
        return None
    window = timedelta(hours=settings.failure_window_hours)
    count = previous.count + 1 if previous and now - previous.failed_at <= window else 1
    duration = _duration(reason, count, settings)
    if retry_after is not None:
        duration = max(duration, timedelta(seconds=retry_after))
    return Cooldown(model, reason, now + duration, count, now)


def _duration(reason: Failure, count: int, settings: CooldownSettings) -> timedelta:
    match reason:
        case Failure.BILLING:
            first, longest = (
                timedelta(hours=settings.billing_backoff_hours),
                timedelta(hours=settings.billing_max_hours),
            )
        case Failure.AUTH:
            first = timedelta(minutes=settings.auth_backoff_minutes)
            longest = timedelta(minutes=settings.auth_max_minutes)
        case _:
            return SHORT_COOLDOWNS[min(count, len(SHORT_COOLDOWNS)) - 1]
    doubled: int = 2 ** min(count - 1, 16)
    return min(first * doubled, longest)


class Profile(Struct, frozen=True):
    """A credential and its name; the secret itself is not shown."""

    id: str
    provider: str
    kind: CredentialKind
    secret: Secret
    origin: Origin = "agent"
    expires: datetime | None = None
    refresh: str | None = None
    """The token that renews the secret, if it was received by signing in."""

    def __repr__(self) -> str:
        return f"Profile({self.id!r}, {self.origin!r})"

    def is_expired(self, now: datetime) -> bool:
        return self.refresh is None and self.is_due(now)

    def is_due(self, now: datetime) -> bool:
        """Return whether the secret has expired."""
        return self.expires is not None and self.expires <= now


class ProfileUsage(Struct, frozen=True):
    """The usage of a profile."""

    last_used: datetime | None = None
    cooldowns: tuple[Cooldown, ...] = ()


class ProfileSummary(Struct, frozen=True):
    """A profile for display, never with the key."""

    id: str
    provider: str
    kind: CredentialKind
    where: str
    origin: Origin
    expires: datetime | None
    last_used: datetime | None
    active_cooldowns: tuple[Cooldown, ...]


class ProfileFile:
    """One agent's `auth-profiles.json`. A change reads the file again under a lock, so two processes may share it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self.notes: list[str] = []
        """Messages about a file that could not be used, and what was done with it."""
        self._seen: tuple[Stamp, dict[str, Any]] = None, {}

    def profiles(self, origin: Origin = "agent") -> tuple[Profile, ...]:
        """Return the profiles in the file; invalid entries are skipped and logged."""
        found = []
        for profile_id, entry in _mapping(self._look().get("profiles")).items():
            try:
                found.append(read_profile(profile_id, entry, origin))
            except ConfigError as error:
                log.warning("auth profile %s in %s is not used: %s", profile_id, self.path, error)
        return tuple(found)

    def records(self) -> dict[str, ProfileUsage]:
        stats = _mapping(self._look().get("usageStats"))
        return {profile_id: _read_record(entry) for profile_id, entry in stats.items()}

    def add(self, profile: Profile) -> None:
        """Add or replace a profile; the failures of a replaced one are cleared."""
        if not _ID.fullmatch(profile.id):
            raise UsageError(
                f"'{profile.id}' is not a valid profile id. Use provider, colon and name, such as 'openai:work'."
            )
        with self._changing() as content:
            content.setdefault("profiles", {})[profile.id] = _write_profile(profile)
            _mapping(content.get("usageStats")).pop(profile.id, None)

    def remove(self, profile_id: str) -> bool:
        """Remove a profile; return False if it does not exist."""
        with self._changing() as content:
            _mapping(content.get("usageStats")).pop(profile_id, None)
            return _mapping(content.get("profiles")).pop(profile_id, None) is not None

    def update_record(self, profile_id: str, change: Callable[[ProfileUsage], ProfileUsage]) -> ProfileUsage:
        with self._changing() as content:
            stats = content.setdefault("usageStats", {})
            record = change(_read_record(stats.get(profile_id)))
            # Keys that another program stores in the file are preserved.
            stats[profile_id] = _mapping(stats.get(profile_id)) | _write_record(record)
        return record

    def _look(self) -> dict[str, Any]:
        """Return the file's content, read again only if it changed; callers must not modify it."""
        stamp = stamp_path(self.path)
        if stamp != self._seen[0]:
            self._seen = stamp, self._load()
        return self._seen[1]

    def _load(self) -> dict[str, Any]:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            if isinstance(found, dict):
                return found
            problem = "it is not a JSON object"
        except FileNotFoundError:
            return {}
        except OSError as error:
            problem = f"it cannot be read: {error.strerror}"
        except (ValueError, RecursionError):
            problem = "it is not valid JSON"
        self._add_note(
            f"The credentials in {self.path} are not used: {problem}. Fix the file, or move it away and add them "
            "again with `retinue models auth add`."
        )
        return {}

    def _add_note(self, text: str) -> None:
        if text not in self.notes:
            log.warning(text)
            self.notes.append(text)

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Any]]:
        make_private_dir(self.path.parent)
        # The lock is on the folder itself: the kernel releases it with the process, and no lock file is left.
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            self._set_aside_if_corrupt()
            content = {"version": 1, **self._load()}
            yield content
            text = json.dumps(content, ensure_ascii=False, indent=2)
            write_atomic(self.path, (text + "\n").encode())
        finally:
            os.close(folder)

    def _set_aside_if_corrupt(self) -> None:
        """Copy a file that cannot be read before it is overwritten."""
        try:
            if isinstance(json.loads(self.path.read_bytes()), dict):
                return
        except FileNotFoundError:
            return
        except (OSError, ValueError, RecursionError):
            pass
        aside = next(
            path for number in range(1, 10_000) if not (path := self.path.with_suffix(f".corrupt-{number}")).exists()
        )
        self.path.rename(aside)
        self._add_note(
            f"{self.path} could not be read; its content was kept in {aside.name} and a new file was started."
        )


def summarise(profile: Profile, record: ProfileUsage, now: datetime) -> ProfileSummary:
    """Return the summary of a profile for lists."""
    return ProfileSummary(
        id=profile.id,
        provider=profile.provider,
        kind=profile.kind,
        where=describe_secret(profile.secret),
        origin=profile.origin,
        expires=profile.expires,
        last_used=record.last_used,
        active_cooldowns=tuple(cooldown for cooldown in record.cooldowns if cooldown.holds(now)),
    )


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def read_profile(profile_id: str, entry: object, origin: Origin) -> Profile:
    """Return a profile of a file; raise `ConfigError` if it cannot be used."""
    fields = _mapping(entry)
    provider = canonical_provider(str(fields.get("provider") or profile_id.partition(":")[0]))
    match fields.get("type"):
        case "api_key":
            kind: CredentialKind = "api_key"
            value = fields.get("keyRef") or fields.get("key")
        case "token":
            kind = "token"
            value = fields.get("tokenRef") or fields.get("token")
        case "oauth" if fields.get("refresh"):
            kind = "token"
            value = fields.get("access")
        case other:
            raise ConfigError(f"profiles of type '{other}' are not supported; use api_key, token or oauth")
    if not value:
        raise ConfigError("it has no key")
    refresh = fields["refresh"] if fields["type"] == "oauth" else None
    expires = _read_time(fields.get("expires"))
    return Profile(profile_id, provider, kind, parse_secret(value), origin, expires, str(refresh) if refresh else None)


def _write_profile(profile: Profile) -> dict[str, Any]:
    field = "key" if profile.kind == "api_key" else "token"
    name = field if isinstance(profile.secret, str) else f"{field}Ref"
    if profile.refresh is not None:
        access = dump_secret(profile.secret)
        signed_in = {"type": "oauth", "provider": profile.provider, "access": access, "refresh": profile.refresh}
        return signed_in | ({"expires": _write_time(profile.expires)} if profile.expires else {})
    written: dict[str, Any] = {"type": profile.kind, "provider": profile.provider, name: dump_secret(profile.secret)}
    if profile.expires is not None:
        written["expires"] = _write_time(profile.expires)
    return written


def _read_record(entry: object) -> ProfileUsage:
    fields = _mapping(entry)
    listed = fields.get("cooldowns")
    cooldowns = [
        cooldown
        for item in (listed if isinstance(listed, list) else ())
        if (cooldown := _read_cooldown(_mapping(item)))
    ]
    return ProfileUsage(_read_time(fields.get("lastUsed")), tuple(cooldowns))


def _read_cooldown(fields: Mapping[str, Any]) -> Cooldown | None:
    until, failed_at = _read_time(fields.get("until")), _read_time(fields.get("lastFailureAt"))
    count = fields.get("errorCount")
    if until is None or failed_at is None or not isinstance(count, int) or fields.get("reason") not in list(Failure):
        return None
    return Cooldown(str(fields.get("model")), Failure(fields["reason"]), until, count, failed_at)


def _write_record(record: ProfileUsage) -> dict[str, Any]:
    cooldowns = [
        {
            "model": cooldown.model,
            "reason": str(cooldown.reason),
            "until": _write_time(cooldown.until),
            "errorCount": cooldown.count,
            "lastFailureAt": _write_time(cooldown.failed_at),
        }
        for cooldown in record.cooldowns
    ]
    return {"lastUsed": _write_time(record.last_used) if record.last_used else None, "cooldowns": cooldowns}


def _read_time(value: object) -> datetime | None:
    """Parse a time in milliseconds since 1970."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return datetime.fromtimestamp(value / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def _write_time(value: datetime) -> int:
    return round(value.timestamp() * 1000)
