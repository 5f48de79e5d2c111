"""What may run unasked: the lexer never guesses, and the list of harmless commands is exact."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.tools.commands import (
    MAX_BYTES,
    MAX_CHARACTERS,
    Allow,
    Analysed,
    Consult,
    Deny,
    Joiner,
    NotAnalysable,
    Step,
    analyse,
    decide,
    judge,
    show_exactly,
)
from retinue.tools.harmless import harden


def argvs(text: str) -> tuple[tuple[str, ...], ...]:
    read = analyse(text)
    assert isinstance(read, Analysed), read
    return read.commands


def test_words_quotes_and_operators_are_read() -> None:
    assert analyse("git log -n 5 | head -1 && pwd || echo 'a  $b' \"c;d\"x; ls;") == Analysed(
        (
            Step(Joiner.ALWAYS, (("git", "log", "-n", "5"), ("head", "-1"))),
            Step(Joiner.ON_SUCCESS, (("pwd",),)),
            Step(Joiner.ON_FAILURE, (("echo", "a  $b", "c;dx"),)),
            Step(Joiner.ALWAYS, (("ls",),)),
        )
    )


def test_empty_and_joined_quotes_are_words() -> None:
    assert argvs("echo '' \"\" a'b'\"c\"") == (("echo", "", "", "abc"),)


def test_a_tilde_is_plain_only_inside_a_word() -> None:
    assert argvs("git diff HEAD~1 HEAD^") == (("git", "diff", "HEAD~1", "HEAD^"),)
    for text in ("ls ~", "ls ~root", "ls a:~/x", "ls --d=~/x", "ls ''~"):
        assert isinstance(analyse(text), NotAnalysable)


NOT_ANALYSABLE = [
    "ls & id",
    "ls &",
    "ls |& id",
    "ls &&& id",
    "ls\nid",
    "ls\rid",
    "ls\r\nid",
    "echo $(id)",
    "echo `id`",
    'echo "$(id)"',
    'echo "`id`"',
    "cat <<E\n$(id)\nE",
    "cat <(id)",
    "cat <<< x",
    "echo ${x:-$(id)}",
    "echo ${x@P}",
    "echo $((a[$(id)]))",
    r"$'\x72\x6d' x",
    "{rm,-rf,x}",
    "echo a{b,c}",
    "cat$IFS/etc/passwd",
    "X=rm; $X x",
    "X=1 ls",
    "X+=1 ls",
    "ls() { id; }; ls",
    "alias ls=id\nls",
    "function f { id; }",
    "coproc id",
    "case x in x) id;; esac",
    "(id)",
    "if true; then id; fi",
    "while true; do id; done",
    "time ls",
    "! ls",
    "[[ -f x ]]",
    "ls > x",
    "ls >> x",
    "ls 2>&1",
    "ls < x",
    "echo \\n",
    'echo "a!b"',
    "echo a!b",
    "ls *",
    "ls ?",
    "ls [ab]",
    "ls # comment",
    "ls ;; id",
    "; ls",
    "&& ls",
    "ls && ; id",
    "ls |",
    "| ls",
    "ls || | id",
    "echo 'open",
    'echo "open',
    "ls \0",
    "echo 'a\nb'",
    "echo 'a\u202eb'",
    "echo \u200b",
    "ls\u00a0-a",
    "ls\u2028id",
    "'' x",
    "",
    "   ",
]


@pytest.mark.parametrize("text", NOT_ANALYSABLE)
def test_everything_else_is_not_analysable(text: str) -> None:
    assert isinstance(analyse(text), NotAnalysable)
    assert not isinstance(judge(text), Allow)


CONSULTED = [
    "ls; rm -rf x",
    "ls && id",
    "ls | sh",
    "env -S 'sh -c id'",
    "env ls",
    "nice ls",
    "nohup ls",
    "timeout 5 ls",
    "stdbuf -o0 ls",
    "xargs ls",
    "find . -exec id",
    "busybox ls",
    "sudo ls",
    "script -c id",
    "flock x id",
    "python -c 'print(1)'",
    "node -e 1",
    "bash -c ls",
    "awk 1",
    "sed e",
    "jq -n env",
    "cat x",
    "grep x y",
    "./ls",
    "/bin/ls",
    "cd x",
    "eval ls",
    "git -c core.pager=id log",
    "git --exec-path=x log",
    "git -C .. log",
    "git log --output=x",
    "git log --outp=x",
    "git diff --ext-diff",
    "git diff --textconv",
    "git diff --no-index /etc/passwd x",
    "git diff /etc/passwd",
    "git diff ../x",
    "git log --show-signature",
    "git log --format=%G?",
    "git log --pretty='%h %GS'",
    "git branch new",
    "git branch -D main",
    "git commit -m x",
    "git fetch",
    "git",
    "git status --porcelain=v9",
    "sort -o f",
    "sort --output=f",
    "sort --compress-program=id",
    "sort --files0-from=x",
    "sort -T /tmp",
    "sort x",
    "sort -nr",
    "uniq a b",
    "head x",
    "head -n",
    "head -n x",
    "head --line=3",
    "tail -f",
    "tail -n 1 x",
    "wc x",
    "wc -lc",
    "wc --files0-from=x",
    "cut -f1 x",
    "cut -sf1",
    "tr a b c",
    "date -s 2020-01-01",
    "date 010101",
    "date -f x",
    "ls /etc",
    "ls ..",
    "ls a/../..",
    "ls --hyperlink",
    "uname x",
    "whoami x",
    "pwd -x",
]


@pytest.mark.parametrize("text", CONSULTED)
def test_a_command_not_known_to_be_harmless_is_asked_about(text: str) -> None:
    decision = judge(text)
    assert isinstance(decision, Consult)
    assert decision.because


ALLOWED = [
    *(
        "pwd",
        "ls",
        "ls -la",
        "ls -la src/retinue",
        "ls -- x",
        "date",
        "date -u +%s",
        "whoami",
        "uname -a",
        "echo hi; pwd",
    ),
    *(
        "ls | wc -l",
        "ls | sort -r | uniq -c | head -n 5",
        "ls | cut -d . -f 1 | tr a-z A-Z",
        "ls | tail -n +2",
        "ls | head -3",
    ),
    *(
        "git status",
        "git status -sb",
        "git status --porcelain=v2",
        "git log --oneline -5",
        "git log --since='2 days ago'",
    ),
    *(
        "git diff",
        "git diff --stat HEAD~1 -- src/x.py",
        "git diff main..topic",
        "git show HEAD --stat",
        "git branch --list",
    ),
    *(
        "git branch -a",
        "git log --format='%h %s'",
        "true && false || echo no",
        "sort -k 2 -t ,",
        "git rev-parse --short HEAD",
    ),
]


@pytest.mark.parametrize("text", ALLOWED)
def test_harmless_commands_are_allowed(text: str) -> None:
    assert isinstance(judge(text), Allow)


def test_git_is_told_to_start_no_other_program() -> None:
    decision = judge("git log -p; git status")
    assert isinstance(decision, Allow)
    assert decision.command.commands == (
        ("git", "log", "--no-ext-diff", "--no-textconv", "-p"),
        ("git", "status"),
    )
    assert harden(("ls", "log")) == ("ls", "log")


@pytest.mark.parametrize("text", ["", " \n", "ls\0", "x" * (MAX_BYTES + 1), "ls \ud800"])
def test_what_cannot_run_is_denied(text: str) -> None:
    assert isinstance(judge(text), Deny)


def test_huge_commands_are_never_analysed() -> None:
    assert isinstance(analyse("echo " + "x" * MAX_CHARACTERS), NotAnalysable)
    assert isinstance(analyse("echo" + " x" * 5_000), NotAnalysable)
    assert isinstance(judge("echo" + " x" * 40_000), Consult)
    assert isinstance(judge("echo" + " x" * 100_000), Deny)


def test_a_reading_can_be_decided_on_without_the_text() -> None:
    assert isinstance(decide(Analysed((Step(Joiner.ALWAYS, (("rm", "x"),)),))), Consult)


def test_what_a_person_sees_hides_nothing() -> None:
    text = "ls \u202e\u200b\x1b[2K\ttab\u00a0\u3164\ufe0f\U000e0041 ü\nrm"
    assert show_exactly(text) == ("ls ⟨U+202E⟩⟨U+200B⟩⟨U+001B⟩[2K⟨U+0009⟩tab⟨U+00A0⟩⟨U+3164⟩⟨U+FE0F⟩⟨U+E0041⟩ ü\nrm")
    assert show_exactly("x" * 90_000) == "x" * 90_000


plain = st.sampled_from(
    [" ", " ", "\t", "echo", "ls", "a", "b1", "'", '"', "''", "-n", "--x=y", "HEAD~1", "^", "%", "@", ",", ":"]
)
special = st.sampled_from([*"|&;<>(){}$`\\!*?[]#~=\n\r", "&&", "||", "X=1", "if", "\u00a0", "ü"])


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "dash"])
@settings(deadline=None, max_examples=400)
@given(pieces=st.lists(plain | plain | plain | plain | plain | special, min_size=2, max_size=14))
def test_shells_read_an_analysed_command_as_we_do(shell: str, pieces: list[str]) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    read = analyse("".join(pieces))
    if not isinstance(read, Analysed) or len(read.commands) != 1:
        return
    words = read.commands[0]
    # each word is printed by the shell between brackets; builtins and unknown commands are kept out of the way
    script = (
        f'show() {{ for word in "$@"; do printf "[%s]" "$word"; done; }}; show {"".join(pieces).rstrip().rstrip(";")}'
    )
    done = subprocess.run([program, "-c", script], capture_output=True, text=True, check=False, cwd="/")
    assert done.stdout == "".join(f"[{word}]" for word in words)
