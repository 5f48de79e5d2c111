"""A home in which somebody has worked for weeks: what the pictures of the page show, and what its tests look at."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from retinue.automation.heartbeat import WakeLog, WakeReason, WakeRecord
from retinue.automation.job_fields import draft_job, read_job_fields
from retinue.automation.jobs import Job, JobStore
from retinue.automation.webhooks import CreatedWebhookStore
from retinue.core.approval import ApprovalRequest
from retinue.core.clock import random_id, random_uuid
from retinue.core.envelope import Origin, PeerKind, Source
from retinue.core.keys import AgentId, RunId, SessionId, SessionKey
from retinue.core.labels import Label
from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolResult, Usage, UserMessage
from retinue.dispatch.contacts import ContactStore
from retinue.dispatch.subagents import Child, ChildState, SubagentStore
from retinue.runtime.agents.workspace import open_sessions, seed_agent
from retinue.runtime.home import Home, load_home
from retinue.sessions.entries import Body, EntryId, MessageAdded, SettingChanged
from retinue.sessions.session import SPAWNED_BY
from retinue.sessions.usage import UsageRecord, append_usage
from retinue.skills.learning.proposals import ProposalStore, SkillProposal, read_base
from retinue.storage.database import DATABASE_NAME, SqliteDatabase
from retinue.storage.labels.file_labels import FileLabels, Via
from retinue.testing.clock import FrozenClock
from retinue.tools.approvals.store import Approval, ApprovalState, ApprovalStore
from tests.gateway.conftest import Hall

FENNEL, SCOUT = AgentId("main"), AgentId("scout")
CHILD = SessionKey.parse(f"agent:main:subagent:{'7' * 32}")

CONFIG: dict[str, Any] = {
    "agents": {
        "defaults": {
            "model": "test/test-model",
            "sandbox": {"mode": "auto"},
            "budget": {"perDay": {"usd": 4.0}, "background": {"usd": 1.5}},
        },
        "list": [{"id": "main", "default": True}, {"id": "scout", "model": "test/other"}],
    },
    "channels": {
        "telegram": {"enabled": False, "botToken": "40711:not-a-real-token"},
        "discord": {"enabled": False, "token": "not-a-real-token-either"},
    },
    "mcp": {
        "servers": {
            "library": {"url": "https://library.example/mcp", "enabled": False},
            "files": {"command": "mcp-server-files", "args": ["/srv/shared"], "enabled": False},
        }
    },
    "hooks": {
        "enabled": True,
        "token": "a-long-token-of-webhooks-0123456789",
        "presets": ["gmail"],
        "mappings": [{"match": {"path": "build"}, "name": "build", "messageTemplate": "Build {{payload.id}}."}],
    },
}

FILES = {
    "IDENTITY.md": "- **Name:** Fennel\n- **Emoji:** ☘\n- **Creature:** a gardener\n- **Vibe:** calm and exact\n",
    "SOUL.md": "# Soul\n\nBe brief. Say what you do not know. Ask before anything that leaves this house.\n",
    "USER.md": "# User\n\nMira, Lisbon time. Prefers trains to planes, and tables to long text.\n",
    "MEMORY.md": "# Memory\n\n- The projector belongs to Ada.\n- The long cable is in the blue box.\n",
    "memory/2026-11-12.md": "# Thursday\n\nAda talks about seeds on Friday. She needs the projector.\n",
    "memory/trip.md": "# Trip to Lisbon\n\n- Train until Hendaye, then the night train\n- Hotel near the river\n",
    "plan.md": "# Plan\n\n- [x] Choose the dates\n- [ ] Book the train\n- [ ] Ask Ada about the projector\n",
    "skills/garden/SKILL.md": "---\nname: garden\ndescription: Plan beds and sowing dates by the weather.\n---\n"
    "# Garden\n\nRead `beds.md` first.\n",
    "skills/invoices/SKILL.md": "---\nname: invoices\ndescription: Write and number invoices as PDF files.\nmetadata:\n"
    "  openclaw:\n    requires:\n      bins: [pandoc-of-invoices]\n---\n# Invoices\n\nNumber them by year.\n",
    "skills/reading-list/SKILL.md": "---\nname: reading-list\ndescription: Keep a list of articles and sum up one each "
    "evening.\n---\n# Reading list\n\n1. Read `list.md`.\n2. Sum up the oldest article.\n",
}

REVIEW = """Nearly. Two tests fail in `tests/test_rates.py`, both because the new fares have **no currency**:

```diff
-    total = sum(fare.amount for fare in fares)
+    total = sum(fare.amount for fare in fares if fare.currency == wanted)
```

| test | why it fails |
|---|---|
| `test_sum` | adds euros and francs |
| `test_empty` | expects `0.00`, gets `0` |

1. Give `Fare` a currency
2. Sum up by currency
3. Run the tests again

Shall I make the change? It touches *one* file.
"""

TITLES = (
    ("Trip to Lisbon", "When does the night train leave?", "At 18:35 from Hendaye, every day but Saturday."),
    ("Tax papers 2026", "Which receipts are missing?", "Three: **March rent**, the dentist, and the train in May."),
    ("Ada's talk on seeds", "What does she need?", "A projector, a clicker, and twenty chairs."),
    ("Recipe for quince jam", "How much sugar?", "700 g for each kilogram of fruit."),
    ("Broken boiler", "Draft a mail to the landlord.", "Dear Mr Costa, the boiler has been cold since Tuesday."),
    ("Names for the boat", None, "*Marram*, *Tern* and *Slack Water*."),
)
JOBS = (
    {"name": "Morning digest", "message": "Sum up the news and my calendar.", "cron": "30 7 * * 1-5"},
    {"name": "Water the plants", "message": "Remind me of the plants.", "every": "48h"},
    {"name": "Backup check", "message": "Look whether tonight's backup is complete.", "cron": "0 6 * * *"},
)


def fill(hall: Hall) -> None:
    """Write files, threads, runs, usage and proposals into a home that no gateway uses yet."""
    hall.config = CONFIG
    hall.write_config()
    seed_agent(open_home(hall, datetime.now(UTC)), FENNEL)  # a folder that Retinue created is trusted
    for name, text in FILES.items():
        path = hall.home.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    now = datetime.now(UTC)
    write_threads(hall, now)
    home = open_home(hall, now)
    write_usage_of_weeks(home, now)
    write_runs(hall, write_background(home, now), now)
    write_proposals(home, now)
    write_decisions(home, now)
    write_outside(home)


def open_home(hall: Hall, at: datetime) -> Home:
    """The home at a time in the past, so that what is written gets that time."""
    return load_home(hall.home, environment=hall.environment, clock=FrozenClock(at))


def write_threads(hall: Hall, now: datetime) -> None:
    """Conversations of the last weeks, of people, a job, a chat service and a sub-agent."""
    threads: list[tuple[str, timedelta, list[Body]]] = []
    for number, (title, asked, answer) in enumerate(TITLES):
        bodies = exchange(asked or "Some ideas, please.", answer)
        threads.append((f"agent:main:chat-{number:03}", timedelta(hours=2 + 19 * number), [*bodies, name(title)]))
    threads.append(("agent:main:chat-branch", timedelta(minutes=40), [*review(), name("Is the branch ready?")]))
    threads.append(
        ("agent:main:telegram:direct:40711", timedelta(hours=5), exchange("Are you there?", "Yes. What is it?"))
    )
    threads.append(("agent:scout:main", timedelta(hours=30), exchange("What is new in seed banks?", "Two papers.")))
    threads.append((CHILD.text, timedelta(minutes=50), exchange("Compare three night trains.", "Done.")))
    threads[-1][2].insert(0, SettingChanged(SPAWNED_BY, "agent:main:chat-branch"))
    for key, ago, bodies in threads:
        parsed = SessionKey.parse(key)
        assert open_sessions(open_home(hall, now - ago), parsed.agent).begin(parsed, bodies)


def write_runs(hall: Hall, job: Job, now: datetime) -> None:
    """The conversations of the latest runs of a job, all of the last day: older ones are archived by the gateway."""
    for number in range(3):
        told = exchange("Sum up the news and my calendar.", "Two meetings, light rain, one new paper on seed banks.")
        key = job.session_of(RunId(f"{number:032}"))
        assert open_sessions(open_home(hall, now - timedelta(hours=2 + 5 * number)), FENNEL).begin(key, told)


def write_decisions(home: Home, now: datetime) -> None:
    """Requests for approval with their decisions, what the audit log says, and a log."""
    wishes = (
        ("Run a command on this machine", "git push origin fares", ApprovalState.ALLOWED_ONCE, "page in Chromium"),
        ("Send 2 KB to fares.example", "curl -d @trip.json https://fares.example/book", ApprovalState.DENIED, "phone"),
        ("Delete a file", "rm old-plan.md", ApprovalState.EXPIRED, ""),
        ("Run a command on this machine", "pytest -q tests", ApprovalState.ALLOWED_ALWAYS, "terminal"),
    )
    with closing(SqliteDatabase(home.paths.path / DATABASE_NAME)) as database:
        store = ApprovalStore(database)
        for number, (title, command, state, who) in enumerate(wishes):
            at = now - timedelta(hours=3 + 20 * number)
            session = SessionKey.parse("agent:main:chat-branch")
            request = ApprovalRequest(f"APPR{number}", "exec", title, command, FENNEL, session)
            asked = Approval(request, "page", at, at + timedelta(minutes=30))
            with database.change() as base:
                stored = store.add(asked, base)
                ended = replace(stored, state=state, decided_at=at + timedelta(minutes=1), decided_by=who)
                store.settle(ended, base)
            home.audit.record("approval_decided", who or "nobody", {"command": command, "state": state.value})
    home.audit.record("config_changed", "owner", {"key": "agents.defaults.budget.perDay"})
    home.log_file.parent.mkdir(parents=True, exist_ok=True)
    lines = (
        ("INFO", "retinue.gateway", "ready on 127.0.0.1"),
        ("WARNING", "retinue.providers", "the model took 41 s to begin; the next one in the list is tried first"),
        ("INFO", "retinue.automation", "the job Morning digest ended: ok"),
        ("ERROR", "retinue.channels", "telegram did not answer; 2 messages wait"),
    )
    written = [
        {"time": (now - timedelta(minutes=50 - 10 * at)).isoformat(), "level": level, "logger": logger, "message": text}
        for at, (level, logger, text) in enumerate(lines)
    ]
    home.log_file.write_text("".join(f"{json.dumps(line)}\n" for line in written))


def write_outside(home: Home) -> None:
    """What came from outside: a file with a label, a person who asked for access, and a webhook without a token."""
    with closing(SqliteDatabase(home.paths.path / DATABASE_NAME)) as database:
        labels = FileLabels(database, home.clock, FENNEL, home.paths.workspace.resolve())
        labels.record(["plan.md"], Label.UNTRUSTED, Via.TOOL)
        origin = Origin("telegram", "default", PeerKind.DIRECT, "52118", sender="52118", sender_name="Ada Lind")
        ContactStore(database, home.clock).ask(origin)
        CreatedWebhookStore(database, home.clock).create(FENNEL, "greenhouse", "The greenhouse says: {{text}}", "now")


def name(title: str) -> Body:
    return SettingChanged("label", title)


def exchange(asked: str, answer: str) -> list[Body]:
    usage = Usage(input=1_800, output=140, cache_read=9_400, cost=0.011)
    return [
        MessageAdded(UserMessage((Text(asked),))),
        MessageAdded(AssistantMessage((Text(answer),), model="test/test-model", usage=usage)),
    ]


def review() -> list[Body]:
    """A longer exchange with tool calls, one of which failed."""
    run = RunId(random_id())
    steps = (
        ("read", {"path": "src/fares/rates.py"}, "class Fare:\n    amount: Decimal\n", False),
        ("read", {"path": "tests/test_rates.py"}, "def test_sum() -> None: ...\n", False),
        ("exec", {"command": "git log --oneline -3"}, "7f3a1c2 fares: add francs\n91bb0e4 rates: sum up\n", False),
        ("exec", {"command": "pytest -q tests"}, "2 failed, 31 passed in 2.10s\n", True),
    )
    bodies: list[Body] = [MessageAdded(UserMessage((Text("Is the branch ready to be merged?"),)), run)]
    for number, (tool, arguments, result, failed) in enumerate(steps):
        call = ToolCall(f"call_{number}", tool, arguments)
        bodies.append(MessageAdded(AssistantMessage((call,), model="test/test-model"), run))
        bodies.append(MessageAdded(ToolResult(call.id, tool, (Text(result),), is_error=failed), run))
    usage = Usage(input=3_100, output=420, cache_read=38_000, cost=0.034)
    bodies.append(MessageAdded(AssistantMessage((Text(REVIEW),), model="test/test-model", usage=usage), run))
    return bodies


def write_usage_of_weeks(home: Home, now: datetime) -> None:
    """Usage of seven weeks, with quiet weekends."""
    for agent, share in ((FENNEL, 1.0), (SCOUT, 0.35)):
        records = []
        for day in range(49):
            at = now - timedelta(days=day, minutes=20)
            busy = share * (0.25 if at.weekday() > 4 else 1.0) * (0.6 + (day * 7 % 10) / 12)
            for source, weight in ((Source.CHAT, 1.0), (Source.CRON, 0.2), (Source.HEARTBEAT, 0.1)):
                size = busy * weight
                usage = Usage(
                    input=int(22_000 * size),
                    output=int(6_500 * size),
                    cache_read=int(160_000 * size),
                    cache_write=int(9_000 * size),
                    cost=1.1 * size,
                )
                model = "test/test-model" if agent == FENNEL or day % 3 else "test/other"
                records.append(
                    UsageRecord(
                        at=at,
                        session_id=SessionId(f"week-{day}-{source.value}"),
                        entry=EntryId(random_id()),
                        session=f"agent:{agent}:main",
                        model=model,
                        source=source,
                        run=None,
                        usage=usage,
                    )
                )
        append_usage(home.paths.sessions(agent) / "usage", records)


def write_background(home: Home, now: datetime) -> Job:
    """Jobs with runs, a day of heartbeats, and a sub-agent; returns the first job."""
    added = []
    with closing(SqliteDatabase(home.paths.path / DATABASE_NAME)) as database:
        parent = SessionKey.parse("agent:main:chat-branch")
        task = "Compare three night trains."
        SubagentStore(database, home.clock).add(
            Child(
                RunId("7" * 32),
                parent,
                CHILD,
                task,
                "Night trains",
                True,
                now,
                state=ChildState.DONE,
                ended_at=now,
                told_at=now,
            )
        )
        jobs = JobStore(database, home.clock, random_uuid)
        for place, fields in enumerate(JOBS):
            job = jobs.add(draft_job(read_job_fields(fields), FENNEL, now, "UTC"))
            added.append(job)
            for day in range(5, 0, -1):
                clock = FrozenClock(now - timedelta(days=day, hours=place))
                store = JobStore(database, clock, random_uuid)
                run = store.begin(job, RunId(random_id()), "manual")
                assert run is not None
                failed = place == 2 and day == 2
                store.end(run, "failed" if failed else "ok", "The disk is full." if failed else "Sent to the chat.")
        log = WakeLog(database, home.clock)
        for hour in range(12, 0, -1):
            outcome = "skipped" if hour > 9 else "delivered" if hour == 4 else "quiet"
            detail = "outside of the active hours" if hour > 9 else "Ada asked for the clicker." if hour == 4 else ""
            at = now - timedelta(hours=hour)
            log.record(WakeRecord(FENNEL, at, WakeReason.INTERVAL, outcome, detail, tokens=0 if hour > 9 else 2_400))
    return added[0]


def write_proposals(home: Home, now: datetime) -> None:
    """A new skill and a change of one, which wait for a decision."""
    store = ProposalStore(home.paths.path)
    garden = home.paths.workspace / "skills" / "garden"
    changed = FILES["skills/garden/SKILL.md"] + "\nNever sow before the last frost; ask for the place first.\n"
    fresh = "---\nname: trains\ndescription: Compare night trains and their fares.\n---\n# Trains\n\nCompare three.\n"
    for identity, skill, text, base in (
        ("0a1b2c3d", "garden", changed, read_base(garden)[1]),
        ("4e5f6a7b", "trains", fresh, ""),
    ):
        store.add(
            SkillProposal(
                id=identity,
                agent="main",
                name=skill,
                reason="It was asked for three times in this week.",
                files={"SKILL.md": text},
                created_at=now.isoformat(),
                session="agent:main:main",
                run="run",
                label="owner",
                base=base,
            )
        )
