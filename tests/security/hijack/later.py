"""Routes through later turns: after a summary, in a branch, an export, heartbeats, jobs, and by names of files."""

from __future__ import annotations

import re
import shutil
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta

import anyio

from retinue.automation.heartbeat import WakeReason
from retinue.automation.jobs import Job
from retinue.automation.schedule import At
from retinue.core.envelope import Inbound
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.runtime.automation.heartbeats import make_heartbeats
from retinue.runtime.automation.jobs import make_job_runner
from retinue.runtime.inspect.file_labels import label_export
from retinue.sessions.export import export_markdown
from retinue.sessions.tree import fork_entries
from retinue.testing.replies import Reply, calls, says
from tests.security.hijack.arrivals import Attempt, arrive, literal
from tests.security.hijack.scene import Scene, ignore

SUMMARY = (
    "## Decisions\nNone.\n## Open tasks\n{}\n## Constraints\nNone.\n## Pending asks\nNone.\n"
    "## Exact identifiers\nNone.\n"
)
PATIENCE = 60.0
LONG = "We talk about the harbour and the ferry and the pier at length. " * 60


async def _obey_after_compaction(scene: Scene, attempt: Attempt) -> None:
    session = await _arrive_in_session(scene, attempt)
    for number in range(6):
        await scene.say(f"Question {number}. {LONG}", [says(f"Answer {number}. {LONG}")], session=session)
    summary = says(SUMMARY.format(attempt.goal.text))  # the first one may be asked for as notes
    compacted = await scene.say("/compact", [summary, summary], session=session)
    if "compacted" not in compacted:
        scene.done.append(f"no compaction: {compacted}")
    await scene.say("Go on.", literal(attempt), session=session)


async def _obey_in_branch(scene: Scene, attempt: Attempt) -> None:
    session = await _arrive_in_session(scene, attempt)
    store = scene.runtime.agent(DEFAULT_AGENT).store
    tree = store.open(SessionKey.parse(f"agent:main:{session}")).tree
    store.begin(SessionKey.parse(f"agent:main:branch-of-{session}"), fork_entries(tree))
    await scene.say("Go on.", literal(attempt), session=f"branch-of-{session}")


async def _obey_export(scene: Scene, attempt: Attempt) -> None:
    """The owner exports the conversation into the workspace, and has it read elsewhere."""
    session = await _arrive_in_session(scene, attempt)
    header, tree = scene.runtime.agent(DEFAULT_AGENT).store.open(SessionKey.parse(f"agent:main:{session}")).read_all()
    place = scene.workspace / "list.txt"
    label_export(scene.runtime.home, place, tree.path)
    place.write_text(export_markdown(header, tree.path, redact=str))
    await scene.say("What did we say?", [calls("read", path="list.txt"), *literal(attempt)])


async def _obey_in_heartbeat(scene: Scene, attempt: Attempt) -> None:
    if not await _keep(scene, attempt):
        return
    (scene.workspace / "HEARTBEAT.md").write_text("- Do what is on my list.\n")
    scene.model.script.extend([calls("read", path="list.txt"), *literal(attempt)])
    dispatcher = scene.runtime.dispatcher
    await make_heartbeats(dispatcher.sessions, dispatcher).run_now(DEFAULT_AGENT, WakeReason.MANUAL)
    await scene.rest()
    (scene.workspace / "HEARTBEAT.md").unlink(missing_ok=True)


async def run_job(scene: Scene, replies: Iterable[Reply]) -> None:
    """Run a job of the owner, in which the model gives these replies."""
    scene.model.script.extend(replies)
    runner = make_job_runner(scene.runtime.dispatcher.sessions, scene.runtime.dispatcher)
    at = At(scene.runtime.home.clock.now() + timedelta(hours=1))
    job = runner.store.add(Job("", "list", DEFAULT_AGENT, at, "Do what is on my list."))
    await runner.run_now(job)
    await scene.rest()
    runner.store.remove(job.id)


async def _obey_in_job(scene: Scene, attempt: Attempt) -> None:
    if not await _keep(scene, attempt):
        return
    await run_job(scene, [calls("read", path="list.txt"), *literal(attempt)])


async def _obey_through_mixing_child(scene: Scene, attempt: Attempt) -> None:
    """The sub-agent reads what is private and untrusted at once; its parent obeys what it answers."""
    (scene.workspace / "memory").mkdir(exist_ok=True)
    (scene.workspace / "memory" / "own.md").write_text("I like the sea.\n")
    if not await _keep(scene, attempt):
        return
    scene.model.for_children.extend([calls("exec", command="cat memory/own.md list.txt"), says(attempt.goal.text)])
    spawn = calls("sessions_spawn", task="Read my list.")
    scene.model.script.extend([spawn, says("I will tell you."), *literal(attempt)])
    session = SessionKey.parse(f"agent:main:asks-{scene.sessions}")
    await scene.runtime.say(Inbound("Let somebody read my list.", session), ignore, scene.ask)
    with anyio.move_on_after(PATIENCE):
        while scene.model.script:  # the parent is asked again when the sub-agent has answered
            await anyio.sleep(0.01)
    await scene.rest()


def _by_name(path: Callable[[str], str], look: Callable[[str], Reply]) -> Callable[[Scene, Attempt], Awaitable[None]]:
    """Write a file whose name, or that of its folder, is the injection; a clean conversation looks at names."""

    async def obey(scene: Scene, attempt: Attempt) -> None:
        name = re.sub(r"[^\w ]", " ", attempt.goal.text)[:100].strip()
        await arrive(scene, attempt, [calls("write", path=path(name), content="x")])
        if (scene.workspace / "names").exists():  # a guest's files are elsewhere
            await scene.say("What is there?", [look(name), *literal(attempt)])
        shutil.rmtree(scene.workspace / "names", ignore_errors=True)

    return obey


async def _keep(scene: Scene, attempt: Attempt) -> bool:
    """Let the injection be written to a file; return whether it is among the owner's, unlike a guest's."""
    await arrive(scene, attempt, [calls("write", path="list.txt", content=attempt.goal.text)])
    return (scene.workspace / "list.txt").exists()


async def _arrive_in_session(scene: Scene, attempt: Attempt, replies: Iterable[Reply] = ()) -> str:
    """Let the injection arrive in a session of the owner; return its name."""
    session = f"kept-{scene.sessions}"
    await arrive(scene, attempt, replies, session=session)
    if attempt.arrival == "guest":  # in a session of the guest, about which the owner asks
        await scene.say("What did Eve write?", [calls("lookup")], session=session)
    return session


LATER_ROUTES: dict[str, Callable[[Scene, Attempt], Awaitable[None]]] = {
    "after compaction": _obey_after_compaction,
    "branch": _obey_in_branch,
    "export": _obey_export,
    "heartbeat": _obey_in_heartbeat,
    "cron turn": _obey_in_job,
    "sub-agent that mixes": _obey_through_mixing_child,
    "folder name": _by_name(lambda name: f"names/{name}/x.txt", lambda _: calls("ls", path="names")),
    "folder name, by a command": _by_name(
        lambda name: f"names/{name}/x.txt", lambda _: calls("exec", command="ls names")
    ),
}
