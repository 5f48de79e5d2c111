"""What a sandboxed command needs beyond its sandbox: who is asked, what it then gets, and what a failure tells."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.errors import ToolFailed
from retinue.core.labels import Label
from retinue.tools.shell.allowlist import ArgvPattern, AskWhen, CommandRules, Security
from retinue.tools.shell.needs import estimate_needs
from tests.sandbox.workbench import MAIN, Bench

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def rules(*patterns: str, **others: object) -> CommandRules:
    return CommandRules(patterns=tuple(map(ArgvPattern.parse, patterns)), **others)  # type: ignore[arg-type]


@pytest.fixture
def auto(bench: Bench) -> Bench:
    """The default mode, in which a command may leave its sandbox with approval."""
    bench.settings["mode"] = "auto"
    return bench


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that no sandbox shows."""
    with TemporaryDirectory(dir="/var") as made:
        yield Path(made)


async def refuse(request: ApprovalRequest) -> ApprovalDecision:
    return ApprovalDecision(Verdict.DENY, "the user said no", "tester")


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(
    "command",
    [
        *("echo $(id -u) > x && cat x", "for i in 1 2; do echo $i; done | wc -l", "python3 -c 'print(1)'"),
        *("printf '#!/bin/sh\\necho hi\\n' > s.sh; sh s.sh", "awk '{print $1}' notes.txt", "cat notes.txt | sort -r"),
        *("git init -q . && git log || true", "find . -name '*.txt' -exec cat {} +", "ls / /usr /etc/passwd", "ls ~"),
    ],
)
async def test_sandboxed_commands_need_no_approval(auto: Bench, command: str) -> None:
    await auto.run(command, ask=refuse)
    [ran] = auto.table.of_agent(MAIN.agent)
    assert ran.launch.enclosure is not None


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("curl -s https://example.org/x", "network access to example.org"),
        ("docker ps", "the service docker"),
        ("sudo ls", "to run outside the sandbox"),
        ("pip install something", "network access to any public host"),
        ("x=1; ssh host ls", "network access to host"),
        ("dd if=/dev/sda of=x", "the device /dev/sda"),
    ],
)
async def test_a_command_that_needs_more_is_asked_about(auto: Bench, command: str, needed: str) -> None:
    for answered in (rules(), rules("**", f"{command.split()[0]} **")):
        auto.rules = answered
        with pytest.raises(ToolFailed, match=f"It needs approval because it needs .*{needed}"):
            await auto.run(command, ask=refuse)
    auto.rules = rules(ask=AskWhen.OFF)
    with pytest.raises(ToolFailed, match="Approval is disabled"):
        await auto.run(command)
    assert auto.asked == []
    assert auto.table.of_agent(MAIN.agent) == []


@pytest.mark.usefixtures("backend")
async def test_a_path_outside_is_shown_after_one_approval(auto: Bench, outside: Path) -> None:
    (outside / "log.txt").write_text("far away\n")
    command = f"cat {outside}/log.txt; touch {outside}/new"
    assert "far away" in await auto.run(command)
    [request] = auto.asked
    assert request.title.startswith(f"Needs the path {outside}/log.txt")
    assert request.title.endswith("it can read what is there, including secrets")
    assert request.detail == command
    assert not (outside / "new").exists()
    assert auto.table.of_agent(MAIN.agent)[0].launch.enclosure is not None


@pytest.mark.usefixtures("backend")
async def test_a_refused_path_is_told_and_the_call_can_be_repeated(auto: Bench, outside: Path) -> None:
    (outside / "log.txt").write_text("far away\n")
    command = f"p={str(outside)[:4]}; q={str(outside)[4:]}; cat $p$q/log.txt"
    told = await auto.run(command, ask=refuse)
    assert f'repeat the call with needs: ["path:{outside}/log.txt"]' in told
    assert "far away" not in told
    again = {"needs": [f"path:{outside}/log.txt"]}
    assert await auto.run(command, arguments=again) == "far away"
    assert len(auto.asked) == 1


async def test_an_approved_host_is_reached_through_the_proxy_and_no_other(auto: Bench) -> None:
    told = await auto.run("echo $http_proxy; env", arguments={"needs": ["network:example.org"]})
    [request] = auto.asked
    assert request.title.startswith("Needs network access to example.org: run a command in the sandbox with it; ")
    assert told.splitlines()[0].startswith("http://127.0.0.1:")
    [ran] = auto.table.of_agent(MAIN.agent)
    assert ran.launch.enclosure is not None
    assert ran.launch.enclosure.confinement.hosts == ("example.org",)


async def test_without_namespaces_the_network_means_leaving(auto: Bench, backend: str) -> None:
    await auto.run("echo x", arguments={"needs": ["network:example.org"]})
    [ran] = auto.table.of_agent(MAIN.agent)
    assert (ran.launch.enclosure is None) is (backend == "landlock")
    if backend == "landlock":
        assert auto.asked == []  # echo only reads, wherever it runs


@pytest.mark.usefixtures("backend")
async def test_a_host_that_was_not_reached_is_told(auto: Bench) -> None:
    script = "import urllib.request; urllib.request.urlopen('http://nowhere.example')"
    told = await auto.run(f'python3 -c "{script}"', ask=refuse)
    assert 'repeat the call with needs: ["network:*"]' in told


@pytest.mark.parametrize(
    "need", ["", "network", "network:", "network:a b", "path:x", "device:/etc", "unsandboxed:x", "x:y"]
)
async def test_a_need_that_is_none_is_refused(auto: Bench, need: str) -> None:
    with pytest.raises(ToolFailed, match="is not a need"):
        await auto.run("ls", arguments={"needs": [need]})


@pytest.mark.usefixtures("backend")
async def test_a_required_sandbox_is_never_left(bench: Bench) -> None:
    with pytest.raises(ToolFailed, match="never gives to run outside"):
        await bench.run("touch made", arguments={"needs": ["unsandboxed"]})
    await bench.run("sudo touch made")
    [ran] = bench.table.of_agent(MAIN.agent)
    assert ran.launch.enclosure is not None
    assert bench.asked == []


@pytest.mark.usefixtures("backend")
async def test_a_rule_for_one_command_lets_it_leave_and_one_for_any_words_does_not(auto: Bench) -> None:
    needs = {"needs": ["unsandboxed"]}
    auto.rules = rules("touch made")
    await auto.run("touch made", arguments=needs, ask=refuse)
    assert auto.table.of_agent(MAIN.agent)[0].launch.enclosure is None
    auto.rules = rules("touch **")
    with pytest.raises(ToolFailed, match="to run outside the sandbox"):
        await auto.run("touch made", arguments=needs, ask=refuse)
    auto.rules = rules(security=Security.DENY)
    with pytest.raises(ToolFailed, match="disabled"):
        await auto.run("touch made", arguments=needs)


@pytest.mark.usefixtures("backend")
async def test_text_from_outside_makes_leaving_a_question_even_for_a_rule(auto: Bench) -> None:
    auto.rules = rules("touch made")
    with pytest.raises(ToolFailed, match="untrusted text"):
        await auto.run("touch made", arguments={"needs": ["unsandboxed"]}, ask=refuse, label=Label.UNTRUSTED)
    await auto.run("touch made", ask=refuse, label=Label.UNTRUSTED)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("command", ["git show HEAD:a.txt", "git log -p | head -n 1", "x=1; git show HEAD:a.txt"])
async def test_sandboxed_git_starts_no_program_of_the_repository(auto: Bench, command: str) -> None:
    folder = auto.workspace
    trap = folder / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {folder}/sprung\nexec cat\n")
    trap.chmod(0o700)
    (folder / "a.txt").write_text("one\n")
    (folder / ".gitattributes").write_text("*.txt diff=evil filter=evil\n")
    quiet = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*quiet, *words], cwd=folder, check=True, capture_output=True, env={**os.environ, "HOME": "/"})
    for name, value in (
        ("core.repositoryformatversion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", "foo::anything"),
        ("protocol.foo.allow", "always"),
        ("alias.remote-foo", f"!{trap}"),
        ("core.fsmonitor", str(trap)),
        ("core.pager", str(trap)),
        ("filter.evil.clean", str(trap)),
    ):
        subprocess.run(["git", "config", name, value], cwd=folder, check=True)
    blob = subprocess.run(["git", "rev-parse", "HEAD:a.txt"], cwd=folder, check=True, capture_output=True, text=True)
    hash_ = blob.stdout.strip()
    (folder / ".git" / "objects" / hash_[:2] / hash_[2:]).unlink()
    (folder / "sprung").unlink(missing_ok=True)
    await auto.run(command, ask=refuse)
    await auto.run("git status", ask=refuse)
    assert not (folder / "sprung").exists()


async def test_variables_of_skills_reach_only_commands_that_were_granted_more(auto: Bench) -> None:
    key = {"MAPS_KEY": "secret-77"}
    assert "secret-77" not in await auto.run("touch x; env", environment=key)
    assert auto.asked == []
    assert "secret-77" in await auto.run("touch x; env", arguments={"needs": ["network:maps.example"]}, environment=key)
    assert "Variables of skills: MAPS_KEY" in auto.asked[0].explanation


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("wget --save-cookies jar.txt --keep-session-cookies www.example.org", ["network:www.example.org"]),
        ("wget -i list.txt", ["network:*"]),
        ("curl -o file.zip example.org/file", ["network:example.org"]),
        ("curl -i example.org", ["network:example.org"]),
        ("ssh -c aes128-ctr -i key.pem -C user@example.org ls", ["network:example.org", "unsandboxed"]),
        ("ssh example.org --help", ["network:example.org", "unsandboxed"]),
        ("socat tcp-listen:3180,fork -", ["unsandboxed"]),
        ("socat - tcp:example.org:80", ["network:example.org", "unsandboxed"]),
        ("scp one two", []),
        ("scp one example.org:two", ["network:example.org", "unsandboxed"]),
        *((command, []) for command in ("mount", "swapon --show", "dpkg -S /bin/ls", "rpm -qa", "go install ./cmd/x")),
        *((command, []) for command in ("terraform fmt", "terraform validate", "curl file:///usr/share/x")),
        ("mount /dev/sda1 /mnt", ["device:/dev/sda1", "unsandboxed"]),
        ("dpkg -i x.deb", ["network:*", "unsandboxed"]),
        ("terraform plan", ["service:terraform"]),
        ("git push --help", []),
        ("docker ps --help", []),
    ],
)
def test_a_need_names_the_host_and_not_the_value_of_an_option(command: str, needed: list[str]) -> None:
    assert [str(need) for need in estimate_needs([tuple(command.split())], command)] == needed
