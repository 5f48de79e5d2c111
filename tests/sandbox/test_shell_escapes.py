"""Programs that can run other programs: a rule for all their arguments has no effect outside the sandbox."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.errors import ToolFailed
from retinue.tools.shell.allowlist import ArgvPattern, CommandRules
from retinue.tools.shell.decision import NeedsApproval, decide_command_line
from tests.sandbox.workbench import Bench

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ESCAPES = (
    *("vim -es -c ':!{hit}' -c ':q!'", "vi -c ':!{hit}' -c ':q!'", "ex -c ':!{hit}' -c q", "view -c ':!{hit}' -c q"),
    *("emacs --batch --eval '(shell-command \"{hit}\")'", "nano -s '{hit}' x", "ed -s x", "less x", "more x"),
    *("man -P '{hit}' ls", "find . -maxdepth 0 -exec {hit} ';'", "awk 'BEGIN {{system(\"{hit}\")}}'"),
    *("gawk 'BEGIN {{system(\"{hit}\")}}'", "mawk 'BEGIN {{system(\"{hit}\")}}'", "nawk 'BEGIN {{system(\"{hit}\")}}'"),
    *("tar cf /dev/null x --checkpoint=1 --checkpoint-action=exec='{hit}'", "tar xf x.tar -I '{hit}'"),
    *(
        "git -c core.pager='{hit}' -p log",
        "git -c alias.x='!{hit}' x",
        "git grep -O'{hit}' x",
        "git -c man.viewer=x -c man.x.cmd='{hit}' help -m log",
    ),
    *("python3 -c 'import os; os.system(\"{hit}\")'", "perl -e 'system(\"{hit}\")'", "ruby -e 'system(\"{hit}\")'"),
    *("php -r 'system(\"{hit}\");'", "lua -e 'os.execute(\"{hit}\")'", "tclsh x.tcl", "expect -c 'exec {hit}'"),
    *('node -e \'require("child_process").execSync("{hit}")\'', "ssh -o ProxyCommand='{hit}' x", "scp -S '{hit}' x y:"),
    *("sftp -S '{hit}' x", "rsync -e 'sh -c \"{hit}\"' x localhost:y", "zip z.zip x -T --unzip-command='{hit}'"),
    *(
        "env {hit}",
        "xargs -a x {hit}",
        "nice {hit}",
        "nohup {hit}",
        "timeout 5 {hit}",
        "stdbuf -o0 {hit}",
        "setsid {hit}",
    ),
    *(
        "ionice {hit}",
        "flock x {hit}",
        "script -qc '{hit}' /dev/null",
        "watch -x {hit}",
        "strace {hit}",
        "gdb -ex '!{hit}'",
    ),
    *(
        "nmap --script={folder}/x.nse localhost",
        "ftp -n <<< '!{hit}'",
        "telnet <<< '! {hit}'",
        "sed '1e {hit}' x",
        "sort --compress-program={tool} -S 1b x",
        "busybox sh -c '{hit}'",
    ),
    *(
        "bash -c '{hit}'",
        "dash -c '{hit}'",
        "sh -c '{hit}'",
        "zsh -c '{hit}'",
        "make -s --eval='x:\n\t{hit}' x",
        "split --filter='{hit}' x",
    ),
    *(
        "tcpdump -z {tool}",
        "sqlite3 /dev/null '.shell {hit}'",
        "mysql -e '\\! {hit}'",
        "psql -c '\\! {hit}'",
    ),
    *(
        "pip install .",
        "npm exec -c '{hit}'",
        "cargo --config 'build.rustc-wrapper=\"{tool}\"' build",
        "go run x.go",
        "curl -K x",
        "wget --use-askpass={tool} x",
    ),
    *(
        "openssl engine -t x",
        "cpio -o --rsh-command={tool} -F host:x",
        "docker run -v /:/x y",
        "systemctl edit x",
        "journalctl --cursor-file={outside}/hit",
        "crontab - <<< '* * * * * {hit}'",
    ),
    *(
        "at now <<< '{hit}'",
        "sudo {hit}",
        "su -c '{hit}'",
        "chroot / {hit}",
        "unshare {hit}",
        "nsenter -t 1 -m {hit}",
        "capsh -- -c '{hit}'",
    ),
    *(
        "run-parts parts",
        "screen -dm {hit}",
        "tmux new -d '{hit}'",
        "/lib64/ld-linux-x86-64.so.2 /usr/bin/{hit}",
        "m4 <<< 'syscmd({hit})'",
        "dc -e '!{hit}'",
        "gcc -wrapper {tool} x.c",
    ),
    *(
        "cp {tool} {outside}/hit",
        "tee {outside}/hit",
        "dd if=x of={outside}/hit",
        "ln -s x {outside}/hit",
        "install x {outside}/hit",
    ),
    *(
        "touch {outside}/hit",
        "mv x {outside}/hit",
        "truncate -s 1 {outside}/hit",
        "sort -o {outside}/hit x",
        "curl -o {outside}/hit file:///etc/passwd",
    ),
)


FILES = {
    "x": 'url = "file:///etc/passwd"\noutput = "OUTSIDE/hit"\n',
    "x.tcl": "exec HIT\n",
    "x.nse": 'os.execute("HIT")\n',
    "x.c": "int main(void) { return 0; }\n",
    "x.go": 'package main\nimport "os/exec"\nfunc main() { exec.Command("sh", "-c", "HIT").Run() }\n',
    "setup.py": 'import os\nos.system("HIT")\n',
    "Cargo.toml": '[package]\nname = "x"\nversion = "1.0.0"\n',
    "src/main.rs": "fn main() {}\n",
    "tool.sh": "#!/bin/sh\nHIT\n",
    "parts/tool": "#!/bin/sh\nHIT\n",
}
"""Files of the workspace that commands of the list read or run."""


@pytest.fixture
def outside() -> Iterator[Path]:
    with TemporaryDirectory(dir="/var") as made:
        yield Path(made)


def fill(template: str, outside: Path, workspace: Path) -> str:
    return template.format(hit=f"touch {outside}/hit", tool=workspace / "tool.sh", outside=outside, folder=workspace)


async def refuse(request: ApprovalRequest) -> ApprovalDecision:
    return ApprovalDecision(Verdict.DENY, "the user said no", "tester")


@pytest.mark.usefixtures("backend")
async def test_rules_for_any_arguments_have_no_effect_outside_the_sandbox(bench: Bench, outside: Path) -> None:
    bench.settings["mode"] = "auto"
    for name, text in FILES.items():
        (bench.workspace / name).parent.mkdir(exist_ok=True)
        (bench.workspace / name).write_text(
            text.replace("HIT", f"touch {outside}/hit").replace("OUTSIDE", str(outside))
        )
        (bench.workspace / name).chmod(0o700)
    installed = 0
    for template in ESCAPES:
        command = fill(template, outside, bench.workspace)
        program = command.split()[0]
        installed += shutil.which(program) is not None
        bench.rules = CommandRules(patterns=(ArgvPattern.parse(f"{program} **"),))
        with suppress(ToolFailed):
            await bench.run(command, ask=refuse, arguments={"timeout_seconds": 60})
        assert not (outside / "hit").exists(), command
    assert len({template.split()[0] for template in ESCAPES}) >= 40
    assert installed >= 30


ASKED_WITHOUT_SANDBOX = tuple(
    template
    for template in ESCAPES
    if template.split()[0]
    not in ("cp", "tee", "dd", "ln", "install", "touch", "mv", "truncate", "systemctl", "journalctl")
    and not template.startswith(
        ("pip ", "go run", "tclsh ", "nice ", "nohup ", "timeout ", "stdbuf ", "setsid ", "ionice ", "env ")
    )
)


@pytest.mark.parametrize("template", ASKED_WITHOUT_SANDBOX)
def test_without_a_sandbox_an_escape_is_a_question_whatever_the_rule(template: str) -> None:
    command = fill(template, Path("/var/x"), Path("/var/w"))
    rules = CommandRules(patterns=(ArgvPattern.parse(f"{command.split()[0]} **"),))
    assert isinstance(decide_command_line(command, rules), NeedsApproval)
