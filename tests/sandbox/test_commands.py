"""Commands in sandboxes, as the exec tool runs them."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from retinue.core.approval import ApprovalDecision, ApprovalRequest
from retinue.core.errors import StorageError, ToolFailed
from retinue.core.labels import Label
from retinue.sandbox.bubblewrap import Bubblewrap
from retinue.storage.files import Root
from retinue.storage.files.root import ReadOnlyRoot
from retinue.toolkit.processes.tools import process_tool
from retinue.tools.elevated import Elevation
from tests.sandbox.workbench import ASKS_ALWAYS, MAIN, PATIENCE_MS, Bench

AT_FDCWD, RENAME_EXCHANGE = -100, 2

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.mark.usefixtures("backend")
async def test_ordinary_work_goes_on_as_usual(bench: Bench) -> None:
    told = await bench.run(
        "cat notes.txt | tr a-z A-Z; mkdir d && echo new > d/f; cat < d/f; git init -q . && git status -s"
    )
    assert told.splitlines()[:2] == ["MINE", "new"]
    assert "?? notes.txt" in told
    assert (bench.workspace / "d/f").read_text() == "new\n"


@pytest.mark.usefixtures("backend")
async def test_a_harmless_command_is_confined_too(bench: Bench) -> None:
    assert await bench.run("ls | wc -l") == "1"
    assert bench.asked == []
    [command] = bench.table.of_agent(MAIN.agent)
    assert command.launch.enclosure is not None


@pytest.mark.usefixtures("backend")
async def test_every_program_of_a_pipeline_is_confined(bench: Bench) -> None:
    secret = bench.home / "retinue.json"
    told = await bench.run(f"cat {secret} | cat {secret} | cat - {secret}")
    assert told.count("cat:") == 3
    assert "{}" not in told


@pytest.mark.usefixtures("backend")
async def test_temporary_files_and_the_home_last_from_command_to_command(bench: Bench) -> None:
    await bench.run("echo one > $TMPDIR/a; echo two > ~/b")
    assert (await bench.run("cat $TMPDIR/a ~/b")).split() == ["one", "two"]
    own = bench.home / "sandboxes/agent-main"
    assert (own / "tmp/a").is_file()
    assert (own / "home/b").is_file()


@pytest.mark.usefixtures("backend")
async def test_the_environment_inside_is_the_sandboxes_own(bench: Bench) -> None:
    bench.rules = ASKS_ALWAYS
    told = await bench.run("env", arguments={"env": {"MINE": "1"}}, environment={"SKILL_KEY": "secret"})
    names = dict(line.partition("=")[::2] for line in told.splitlines())
    assert names["MINE"] == "1"
    assert "/outside" not in told
    assert "SKILL_KEY" not in names
    assert not any("SKILL_KEY" in line for line in bench.asked[0].explanation)


async def test_a_command_starts_in_the_folder_it_was_given(bench: Bench) -> None:
    (bench.workspace / "sub").mkdir()
    assert await bench.run("pwd", arguments={"workdir": "sub"}) == str(bench.workspace / "sub")


@pytest.mark.usefixtures("backend")
async def test_a_read_only_workspace_is_not_written(bench: Bench) -> None:
    bench.settings["workspaceAccess"] = "ro"
    told = await bench.run("cat notes.txt; echo changed > notes.txt; touch new")
    assert told.startswith("mine\n")
    assert (bench.workspace / "notes.txt").read_text() == "mine\n"
    assert not (bench.workspace / "new").exists()


@pytest.mark.usefixtures("backend")
async def test_without_access_the_workspace_is_not_there(bench: Bench) -> None:
    bench.settings["workspaceAccess"] = "none"
    work = bench.home / "sandboxes/agent-main/work"
    work.mkdir(parents=True)
    told = await bench.run(f"pwd; echo mine > kept; cat {bench.workspace}/notes.txt", root=work)
    assert told.splitlines()[0] == str(work)
    assert "mine" not in told
    assert (work / "kept").read_text() == "mine\n"


class Everything(Bench):
    """An agent whose workspace holds the home itself."""

    @property
    def workspace(self) -> Path:
        return self.home.parent


async def test_a_workspace_around_the_state_hides_it(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "project.txt").write_text("visible")
    wide = Everything(bench.home, bench.table, {})
    told = await wide.run(f"cat project.txt; ls -A {bench.home}; cat {bench.home}/retinue.json; touch {bench.home}/x")
    assert told.startswith("visible")
    assert "{}" not in told
    assert "Read-only file system" in told
    assert not (bench.home / "x").exists()


async def test_shown_folders_are_read_only(bench: Bench, tmp_path: Path) -> None:
    skills = tmp_path / "skills"
    skills.mkdir()
    (skills / "run.sh").write_text("echo from the skill\n")
    with Root.open(skills) as root:
        told = await bench.run(f"sh {skills}/run.sh; touch {skills}/x", readable=(root,))
    assert told.startswith("from the skill\n")
    assert not (skills / "x").exists()


@pytest.mark.usefixtures("backend")
async def test_whoever_is_asked_reads_which_sandbox_it_is(bench: Bench) -> None:
    bench.rules = ASKS_ALWAYS
    await bench.run("touch made")
    [request] = bench.asked
    assert request.title == "Run a command in the sandbox agent-main, the workspace writable, no network"


@pytest.mark.parametrize(
    "command",
    [
        "cat notes.txt | tr a-z A-Z | grep -c MINE",
        "for n in 1 2; do printf 1; done > made; wc -c < made | sed s/2/1/",
        "printf 'echo $((2 - 1))' > run.sh; bash run.sh",
        "python3 -c 'print(1)'",
        'x=$(cat notes.txt); test "$x" = mine && echo 1',
    ],
)
async def test_a_sandboxed_command_needs_no_approval_whatever_its_text(
    bench: Bench, backend: str, command: str
) -> None:
    bench.settings |= {"mode": "auto", "backend": backend, "workspaceAccess": None}
    assert await bench.run(command) == "1"
    assert bench.asked == []


async def test_commands_of_the_automatic_mode_need_approval_where_no_sandbox_works(bench: Bench) -> None:
    bench.settings |= {"mode": "auto", "backend": "ssh"}
    assert await bench.run("touch made && echo done") == "done"
    [request] = bench.asked
    assert request.title.startswith("Run a command on this machine, unconfined")


async def test_a_tainted_request_with_network_in_its_sandbox_needs_approval(bench: Bench) -> None:
    bench.settings["network"] = "proxy"
    await bench.run("touch made", label=Label.UNTRUSTED)
    assert len(bench.asked) == 1


@pytest.mark.usefixtures("backend")
async def test_a_command_cannot_change_what_git_or_retinue_obey(bench: Bench) -> None:
    guarded = {".git/config": "[core]\n", ".git/hooks/pre-push": "#!/bin/sh\n", ".git/info/exclude": "x\n"}
    nested = {f"deps/lib/{name}": text for name, text in guarded.items()}
    for name, text in {**guarded, **nested}.items():
        path = bench.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    spoil = "echo evil >> $g/config; echo evil > $g/hooks/post-commit; rm -f $g/hooks/pre-push; echo evil > $g/info/x"
    command = (
        f"for g in .git deps/lib/.git; do {spoil}; done; mkdir .retinue; echo evil > .retinue/x; echo fine > made;"
        " mv .git moved; mkdir -p .git/hooks; echo evil > .git/hooks/post-checkout; echo evil > .git/config"
    )
    told = await bench.run(command)
    assert (bench.workspace / "made").read_text() == "fine\n"
    assert {name: (bench.workspace / name).read_text() for name in {**guarded, **nested}} == {**guarded, **nested}
    assert sorted(path.name for path in bench.workspace.glob(".git/hooks/*")) == ["pre-push"]
    assert sorted(path.name for path in bench.workspace.glob("deps/lib/.git/hooks/*")) == ["pre-push"]
    assert not (bench.workspace / ".retinue").exists()
    assert "restored .retinue: commands may not change it" in told


@pytest.mark.usefixtures("backend")
async def test_a_guarded_file_is_restored_while_the_command_still_runs(bench: Bench) -> None:
    (bench.workspace / ".git/hooks").mkdir(parents=True)
    (bench.workspace / ".git/config").write_text("[core]\n")
    waits = "until ! test -e .git/hooks/post-commit && ! test -e .retinue; do sleep 0.05; done; echo gone"
    told = await bench.run(f"echo evil > .git/hooks/post-commit; mkdir .retinue; {waits}")
    assert "gone" in told.splitlines()


@pytest.mark.usefixtures("backend")
async def test_restoring_a_file_follows_no_link_that_a_command_made(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "hooks").mkdir(parents=True)
    (outside / "config").write_text("mine\n")
    (bench.workspace / ".git/hooks").mkdir(parents=True)
    (bench.workspace / ".git/config").write_text("[core]\n")
    await bench.run(f"mv .git moved; ln -s {outside} .git")
    assert (outside / "config").read_text() == "mine\n"
    assert list((outside / "hooks").iterdir()) == []


@pytest.mark.usefixtures("backend")
async def test_a_command_that_fails_because_of_the_sandbox_says_what_was_refused(bench: Bench, tmp_path: Path) -> None:
    secret = tmp_path / "outside.txt"
    secret.write_text("s3cret\n")
    assert f"The sandbox has no access to the path {secret}.)" in await bench.run(f"cat {secret}")
    assert "The sandbox has no access to the path /usr/made.)" in await bench.run("touch /usr/made")
    assert "no access" not in await bench.run("cat missing.txt")
    assert "no access" not in await bench.run("cat /nowhere/missing.txt")
    told = await bench.run("echo 'curl: (6) Could not resolve host: Example.org' >&2; exit 6")
    assert "The sandbox has no access to the host example.org.)" in told


@pytest.mark.usefixtures("backend")
async def test_a_command_sees_the_same_user_as_outside(bench: Bench) -> None:
    told = await bench.run("id -u; stat -c %u notes.txt; test -w notes.txt && echo writable")
    assert told.split() == [str(os.getuid()), str(os.getuid()), "writable"]


@pytest.mark.usefixtures("backend")
async def test_the_limit_of_processes_holds_for_every_user(bench: Bench) -> None:
    bench.settings["limits"] = {"processes": 40}
    script = (
        "import os, time\nn = 0\ntry:\n  for _ in range(200):\n    if os.fork() == 0: time.sleep(20); os._exit(0)\n"
        "    n += 1\nexcept OSError: pass\nprint('started', n, flush=True)"
    )
    (bench.workspace / "flood.py").write_text(script)
    told = await bench.run("python3 flood.py")
    found = re.search(r"started (\d+)", told)
    assert (int(found[1]) <= 40) if found else "killed: it started more than 40 processes" in told


async def test_elevated_commands_are_unconfined_and_say_so(bench: Bench) -> None:
    told = await bench.run(f"cat {bench.home}/retinue.json && touch made", elevated=Elevation.ON)
    assert told.startswith("{}")
    assert "unconfined" in bench.asked[0].title


async def test_a_session_that_is_not_confined_runs_unconfined(bench: Bench) -> None:
    bench.settings["mode"] = "non-main"
    assert await bench.run(f"cat {bench.home}/retinue.json && touch made") == "{}"
    assert "unconfined" in bench.asked[0].title


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"backend": "ssh"}, "ssh: no plugin provides it"),
        ({"backend": "podman"}, "podman: the program `podman` is not installed"),
        ({"backend": "landlock", "network": "proxy"}, "landlock has no network namespace"),
    ],
)
async def test_a_sandbox_that_is_missing_stops_the_command(bench: Bench, settings: dict[str, Any], why: str) -> None:
    bench.settings |= settings
    with pytest.raises(ToolFailed) as refused:
        await bench.run("touch made")
    assert why in str(refused.value)
    assert "apt-get install bubblewrap" in str(refused.value)
    assert bench.asked == [], "nobody is asked about what cannot run"
    assert not (bench.workspace / "made").exists()


async def test_a_machine_without_bubblewrap_says_what_to_install(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    monkeypatch.setattr("retinue.sandbox.bubblewrap.PROGRAMS", ("/nonexistent/bwrap",))
    confinement = bench.sandboxes.confine(MAIN)
    assert confinement is not None
    assert "the program `bwrap` is not installed" in str(Bubblewrap().find_problem(confinement))


async def test_a_bubblewrap_that_may_not_make_namespaces_is_not_used(
    monkeypatch: pytest.MonkeyPatch, bench: Bench, tmp_path: Path
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(
        '#!/bin/sh\nif [ "$1" = --version ]; then echo bubblewrap 0.9.0; exit 0; fi\n'
        "echo 'bwrap: No permissions to create new namespace' >&2; exit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr("retinue.sandbox.bubblewrap.PROGRAMS", (str(program),))
    confinement = bench.sandboxes.confine(MAIN)
    assert confinement is not None
    assert "No permissions to create new namespace" in str(Bubblewrap().find_problem(confinement))


@pytest.mark.usefixtures("backend")
async def test_a_command_may_tidy_up_before_it_is_killed(bench: Bench) -> None:
    told = await bench.run(
        "trap 'echo tidied > tidied; exit 0' TERM; echo ready; while :; do sleep 0.05; done",
        arguments={"timeoutSeconds": 1},
    )
    assert "killed after its time" in told
    assert (bench.workspace / "tidied").read_text() == "tidied\n"


@pytest.mark.usefixtures("backend")
async def test_nothing_outlives_a_command(bench: Bench) -> None:
    await bench.run("setsid sleep 4711.25 & setsid nohup sh -c 'trap \"\" TERM; sleep 4711.5' & sleep 0.2")
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"4711." in _read(path)]
    assert left == []


@pytest.mark.usefixtures("backend")
async def test_a_killed_supervisor_takes_the_sandbox_along(bench: Bench) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.run, "sleep 4713.25")
        await _until(lambda: bool(_running(b"4713.25") and bench.table.of_agent(MAIN.agent)))
        [command] = bench.table.of_agent(MAIN.agent)
        os.kill(command.process.pid, signal.SIGKILL)
    await _until(lambda: not _running(b"4713.25"))


@pytest.mark.usefixtures("backend")
async def test_what_a_killed_supervisor_had_started_ends_too(bench: Bench) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.run, "setsid sleep 4717.25 & sleep 4717.5; true")
        await _until(lambda: len(_programs(b"4717.25")) + len(_programs(b"4717.5")) == 2)
        [command] = bench.table.of_agent(MAIN.agent)
        os.kill(command.process.pid, signal.SIGKILL)
    await _until(lambda: not _programs(b"4717.5"))
    if bench.settings["backend"] == "bubblewrap":
        await _until(lambda: not _programs(b"4717.25"))
    for pid in _programs(b"4717.25"):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.usefixtures("backend")
async def test_input_reaches_a_confined_command(bench: Bench) -> None:
    told = await bench.run('while read -r line; do echo "got $line"; done', arguments={"background": True})
    identity = told.partition("Command ")[2].split()[0]
    manage = process_tool(bench.table)
    with Root.open(bench.workspace) as root:
        write = {"action": "write", "id": identity, "data": "one\n", "eof": True}
        await manage.run(manage.parse(write), bench.context(root))
        poll = {"action": "poll", "id": identity, "timeoutMs": PATIENCE_MS}
        output = await manage.run(manage.parse(poll), bench.context(root))
    assert "got one" in str(output.content)


async def test_file_tools_obey_a_read_only_workspace(bench: Bench) -> None:
    from retinue.toolkit.files.read_write import WriteArguments, write_file

    with ReadOnlyRoot.open(bench.workspace) as root, pytest.raises(ToolFailed, match="read-only for this session"):
        await write_file(WriteArguments(path="notes.txt", content="x"), bench.context(root))
    assert (bench.workspace / "notes.txt").read_text() == "mine\n"


async def test_the_plan_of_a_command_is_plain_data(bench: Bench) -> None:
    confinement = bench.sandboxes.confine(MAIN)
    assert confinement is not None
    wrapping = bench.sandboxes.with_backend(confinement, MAIN).wrap({"TOKEN": "secret-value"})
    assert json.loads(json.dumps(wrapping.plan()))["kind"] == "bubblewrap"
    assert "secret-value" not in " ".join(wrapping.options), "other users can read the words of a command"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _running(word: bytes) -> list[Path]:
    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if word in _read(path).split(b"\0")]


def _programs(word: bytes) -> list[int]:
    return [
        int(path.parent.name) for path in _running(word) if _read(path).startswith((b"/usr/bin/sleep\0", b"sleep\0"))
    ]


async def _until(happened: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not happened():
            await anyio.sleep(0.02)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("access", ["rw", "ro"])
async def test_a_session_kept_to_a_folder_sees_no_more_of_the_workspace(bench: Bench, access: str) -> None:
    bench.rules = ASKS_ALWAYS
    bench.settings["workspaceAccess"] = access
    part = bench.workspace / "team" / "part"
    part.mkdir(parents=True)
    (part / "in.txt").write_text("inside\n")
    (bench.workspace / "team" / "beside.txt").write_text("beside\n")
    command = "pwd; cat in.txt ../beside.txt ../../notes.txt; ls ../..; echo x > ../made"
    told = await bench.run(command, below="team/part")
    wrote = await bench.run("echo new > made && cat made", below="team/part")
    deeper = await bench.run("pwd", below="team", arguments={"workdir": "part"})
    lines = told.splitlines()
    assert lines[:2] == [str(part), "inside"]
    assert "beside\n" not in f"{told}\n"
    assert "mine" not in lines
    assert not (bench.workspace / "team" / "made").exists()
    assert ("new" in wrote.splitlines()) is (access == "rw")
    assert deeper == str(part)
    assert "restricted to team/part" in bench.asked[0].title


async def test_without_access_a_session_kept_to_a_folder_sees_its_stand_in_alone(bench: Bench) -> None:
    bench.settings["workspaceAccess"] = "none"
    work = bench.home / "sandboxes" / "agent-main" / "work"
    (work / "part").mkdir(parents=True)
    (work / "beside.txt").write_text("beside\n")
    told = await bench.run("pwd; cat ../beside.txt; echo x > made; ls", root=work, below="part")
    assert told.splitlines()[0] == str(work / "part")
    assert told.splitlines()[-1] == "made"
    assert "beside\n" not in told


@pytest.mark.usefixtures("backend")
async def test_a_link_put_in_the_place_of_the_folder_leads_nowhere(bench: Bench, tmp_path: Path) -> None:
    """A command of the whole workspace could do that while the one that is kept to the folder starts."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "key").write_text("s3cret\n")
    part = bench.workspace / "part"
    part.mkdir()

    async def swap(request: ApprovalRequest) -> ApprovalDecision:
        part.rename(bench.workspace / "old")
        part.symlink_to(elsewhere)
        return await bench.ask(request)

    bench.rules = ASKS_ALWAYS
    told = await bench.run("cat key; echo x > made", below="part", ask=swap)
    assert "was replaced by another one" in told
    assert "s3cret" not in told
    assert [path.name for path in elsewhere.iterdir()] == ["key"]


@pytest.mark.usefixtures("backend")
async def test_a_folder_that_is_swapped_all_the_time_is_never_another(bench: Bench, tmp_path: Path) -> None:
    elsewhere, part, spare = tmp_path / "elsewhere", bench.workspace / "part", bench.workspace / "spare"
    elsewhere.mkdir()
    part.mkdir()
    (elsewhere / "key").write_text("s3cret\n")
    (part / "key").write_text("plain\n")
    spare.symlink_to(elsewhere)
    swapping, over = threading.Event(), threading.Event()

    def swap() -> None:
        rename = ctypes.CDLL(None).renameat2
        while not over.is_set():
            if swapping.wait(0.01) or part.is_symlink():
                rename(AT_FDCWD, bytes(part), AT_FDCWD, bytes(spare), RENAME_EXCHANGE)

    async def agree(request: ApprovalRequest) -> ApprovalDecision:
        swapping.set()
        return await bench.ask(request)

    swapper = threading.Thread(target=swap)
    swapper.start()
    told = []
    try:
        for _ in range(25):
            while part.is_symlink():
                await anyio.sleep(0.001)
            with suppress(ToolFailed, StorageError):  # some swaps are noticed before anything starts
                told.append(await bench.run("cat key", below="part", ask=agree))
            swapping.clear()
    finally:
        over.set()
        swapper.join()
    assert told
    assert "s3cret" not in "".join(told)


def _waiting(server: int) -> list[int]:
    """The supervisors without a command: the children of the server while no command runs."""
    return [int(pid) for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split()]


@pytest.mark.usefixtures("backend")
async def test_a_command_starts_though_the_waiting_supervisor_was_killed(bench: Bench) -> None:
    assert "one" in await bench.run("echo one")
    server = bench.table.server_pid
    assert server is not None
    await _until(lambda: len(_waiting(server)) == 1)
    [waiting] = _waiting(server)
    os.kill(waiting, signal.SIGKILL)
    await _until(lambda: ") Z " in Path(f"/proc/{waiting}/stat").read_text())
    assert "two" in await bench.run("echo two")
    assert "three" in await bench.run("echo three")


@pytest.mark.usefixtures("backend")
async def test_commands_leave_no_supervisor_and_no_descriptor_behind(bench: Bench) -> None:
    await bench.run("true")
    server = bench.table.server_pid
    assert server is not None
    await _until(lambda: len(_waiting(server)) == 1)
    before = len(list(Path(f"/proc/{server}/fd").iterdir()))
    for _ in range(3):
        await bench.run("true | true")
    await _until(lambda: len(_waiting(server)) == 1)
    assert len(list(Path(f"/proc/{server}/fd").iterdir())) == before


@pytest.mark.usefixtures("backend")
async def test_a_command_sees_no_descriptor_of_the_supervisor(bench: Bench) -> None:
    await bench.run("true")
    told = await bench.run("for n in {3..40}; do (: <&$n) 2>/dev/null && echo open $n; done; echo looked")
    assert told == "looked"
