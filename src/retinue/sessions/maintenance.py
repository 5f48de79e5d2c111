"""Session maintenance: archives old sessions, and deletes the oldest archives if disk space is short."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct, field

from retinue.core.errors import RetinueError
from retinue.core.fence import Lease
from retinue.core.keys import SessionKey, SessionKind
from retinue.sessions.protocol import Archive, StoredSessions
from retinue.sessions.session import Session
from retinue.sessions.settings import MaintenanceSettings, share_of
from retinue.settings import format_duration, size_in_bytes

log = logging.getLogger(__name__)

RECENT = timedelta(days=1)
"""Sessions and archives used within this time are kept, whatever the settings say."""

LeaseOf = Callable[[SessionKey], Lease]


class MaintenancePlan(Struct, frozen=True):
    """What to archive and delete; `reasons` are by session key or file name, `remarks` are about unmet limits."""

    archive: tuple[Session, ...] = ()
    delete: tuple[Archive, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


class MaintenanceResult(Struct, frozen=True):
    """What was archived and deleted; `skipped` are messages about what was not."""

    archived: Mapping[SessionKey, Archive] = field(default_factory=dict)
    deleted: tuple[Archive, ...] = ()
    skipped: tuple[str, ...] = ()


def plan_maintenance(
    sessions: Sequence[Session], archives: Sequence[Archive], settings: MaintenanceSettings, now: datetime
) -> MaintenancePlan:
    """Decide what to archive and delete. Sessions are only archived; only archives are deleted."""
    reasons: dict[str, str] = {}
    movable = [session for session in sessions if _may_move(session, settings, now)]
    for session in movable:
        limit = settings.archive_dashboard_after if _is_dashboard(session.key) else settings.prune_after
        if now - session.updated_at > limit:
            reasons[session.key.text] = f"not used for {format_duration(limit)}"
    kept = len(sessions) - len(reasons)
    for session in sorted(movable, key=lambda session: session.updated_at):
        if kept <= settings.max_entries:
            break
        if session.key.text not in reasons:
            reasons[session.key.text] = f"there are more than {settings.max_entries} sessions"
            kept -= 1
    archive = tuple(session for session in movable if session.key.text in reasons)
    delete, remarks = _plan_removal(sessions, archives, settings, now, reasons)
    return MaintenancePlan(archive, delete, reasons, remarks)


def apply_plan(plan: MaintenancePlan, store: StoredSessions, lease_of: LeaseOf) -> MaintenanceResult:
    """Apply a plan. A session that is in use, or was used since, is kept."""
    archived: dict[SessionKey, Archive] = {}
    deleted: list[Archive] = []
    skipped: list[str] = []
    for planned in plan.archive:
        try:
            with lease_of(planned.key):
                if store.find(planned.key) != planned:
                    skipped.append(f"{planned.key} was used meanwhile and is kept.")
                    continue
                archived[planned.key] = store.delete(planned.key)
        except RetinueError as error:
            skipped.append(f"{planned.key} is kept: {error}")
    for archive in plan.delete:
        try:
            store.remove(archive)
        except RetinueError as error:
            skipped.append(f"{archive.name} is kept: {error}")
        else:
            deleted.append(archive)
    return MaintenanceResult(archived, tuple(deleted), tuple(skipped))


def run_maintenance(
    store: StoredSessions, settings: MaintenanceSettings, now: datetime, lease_of: LeaseOf
) -> tuple[MaintenancePlan, MaintenanceResult]:
    """Plan maintenance, apply the plan unless the mode is `warn`, and log it."""
    if not store.exists:
        return MaintenancePlan(), MaintenanceResult()
    plan = plan_maintenance(store.list(), store.archives(), settings, now)
    result = apply_plan(plan, store, lease_of) if settings.mode == "enforce" else MaintenanceResult()
    verb = "removed" if settings.mode == "enforce" else "would be removed"
    for name, reason in plan.reasons.items():
        log.info("%s %s: %s", name, verb, reason)
    for text in (*plan.remarks, *result.skipped):
        log.warning("%s", text)
    return plan, result


def _may_move(session: Session, settings: MaintenanceSettings, now: datetime) -> bool:
    """Return whether a session may be archived; the main session never is, because people return to it."""
    recent = RECENT if settings.preserve_recent == "off" else max(RECENT, settings.preserve_recent)
    return session.key.kind is not SessionKind.MAIN and now - session.updated_at >= recent


def _is_dashboard(key: SessionKey) -> bool:
    return key.text.split(":")[2:3] == ["dashboard"]


def _plan_removal(
    sessions: Iterable[Session],
    archives: Sequence[Archive],
    settings: MaintenanceSettings,
    now: datetime,
    reasons: dict[str, str],
) -> tuple[tuple[Archive, ...], tuple[str, ...]]:
    """Return the archives to delete, because they are old or space is short, and remarks if space is still short."""
    removable = [archive for archive in archives if now - archive.at >= RECENT]
    delete = list(_outlived(removable, settings, now, reasons))
    limit = size_in_bytes(settings.max_disk_bytes)
    share = share_of(settings.high_water_bytes)
    goal = min(limit, int(limit * share) if share is not None else size_in_bytes(settings.high_water_bytes))
    used = sum(session.size for session in sessions) + sum(archive.size for archive in archives)
    used -= sum(archive.size for archive in delete)
    if used <= limit:
        return tuple(delete), ()
    for archive in sorted(removable, key=lambda archive: archive.at):
        if used <= goal:
            break
        if archive.name not in reasons:
            reasons[archive.name] = f"transcripts take more than {settings.max_disk_bytes}"
            delete.append(archive)
            used -= archive.size
    if used <= limit:
        return tuple(delete), ()
    remark = (
        f"Transcripts take {used / 1024**2:,.0f} MB, more than session.maintenance.maxDiskBytes "
        f"({settings.max_disk_bytes}). No archives are left to delete; sessions are never deleted."
    )
    return tuple(delete), (remark,)


def _outlived(
    archives: Iterable[Archive], settings: MaintenanceSettings, now: datetime, reasons: dict[str, str]
) -> Iterator[Archive]:
    retention = settings.reset_archive_retention
    if retention == "keep":
        return
    for archive in archives:
        if archive.why == "reset" and now - archive.at > retention:
            reasons[archive.name] = f"archived by a reset more than {format_duration(retention)} ago"
            yield archive
