"""How a command line is read: exactly as two shells would, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.tools.shell.analysis import (
    MAX_CHARACTERS,
    MAX_NAMES,
    AnalysedCommand,
    CommandLocation,
    Joiner,
    NotAnalysable,
    OpenFolderListing,
    PipelineStep,
    analyse,
)
from retinue.tools.shell.lexer import Redirection


def argvs(text: str, place: CommandLocation | None = None) -> tuple[tuple[str, ...], ...]:
    read = analyse(text, place or CommandLocation())
    assert isinstance(read, AnalysedCommand), read
    return read.commands


def words(text: str, place: CommandLocation) -> tuple[str, ...]:
    [argv] = argvs(f"echo {text}", place)
    return argv[1:]


def refused(text: str, place: CommandLocation) -> str:
    read = analyse(f"echo {text}", place)
    assert isinstance(read, NotAnalysable), read
    return read.because


def test_words_quotes_and_operators_are_read() -> None:
    assert analyse("git log -n 5 | head -1 && pwd || echo 'a  $b' \"c;d\"x; ls;") == AnalysedCommand(
        (
            PipelineStep(Joiner.ALWAYS, (("git", "log", "-n", "5"), ("head", "-1"))),
            PipelineStep(Joiner.ON_SUCCESS, (("pwd",),)),
            PipelineStep(Joiner.ON_FAILURE, (("echo", "a  $b", "c;dx"),)),
            PipelineStep(Joiner.ALWAYS, (("ls",),)),
        )
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'' \"\" a'b'\"c\"", ("", "", "abc")),
        (r"a\ b \; \* \$x \\ \' \( \!", ("a b", ";", "*", "$x", "\\", "'", "(", "!")),
        (r'"a\"b" "\$x" "\\" "\`" "\n" "\a!"', ('a"b', "$x", "\\", "`", "\\n", "\\a!")),
        ('"foo$" "s/a$/b/" "a$|b" "$ x" foo$', ("foo$", "s/a$/b/", "a$|b", "$ x", "foo$")),
        ("'a\nb' \"c\td\"", ("a\nb", "c\td")),
        (
            "HEAD~1 HEAD^ HEAD@{1} {} a{}b x~ a!b ! [ ] a]",
            ("HEAD~1", "HEAD^", "HEAD@{1}", "{}", "a{}b", "x~", "a!b", "!", "[", "]", "a]"),
        ),
        ("a#b c # and the rest is | not & read", ("a#b", "c")),
        ("X=1 --x=y =z ü Á", ("X=1", "--x=y", "=z", "ü", "Á")),
        ("if then 'if'", ("if", "then", "if")),
    ],
)
def test_words_come_out_as_a_shell_gives_them(text: str, expected: tuple[str, ...]) -> None:
    assert words(text, CommandLocation()) == expected


def test_redirections_between_streams_and_to_nowhere_are_read() -> None:
    read = analyse("a >/dev/null 2>&1 | 2> /dev/null b x </dev/null >&2; c 1>&2 2>>/dev/null; d")
    assert read == AnalysedCommand(
        (
            PipelineStep(
                Joiner.ALWAYS,
                (("a",), ("b", "x")),
                ((Redirection(1), Redirection(2, 1)), (Redirection(2), Redirection(0), Redirection(1, 2))),
            ),
            PipelineStep(Joiner.ALWAYS, (("c",),), ((Redirection(1, 2), Redirection(2)),)),
            PipelineStep(Joiner.ALWAYS, (("d",),)),
        )
    )


NOT_ANALYSABLE = [
    *("ls & id", "ls &", "ls |& id", "ls &&& id", "ls\nid", "ls\rid", "ls\r\nid", "ls\n", "ls;\nid", "ls \\\nid"),
    *(
        "echo $(id)",
        "echo `id`",
        'echo "$(id)"',
        'echo "`id`"',
        'echo "$x"',
        "cat <<E\n$(id)\nE",
        "cat <(id)",
        "cat <<< x",
    ),
    *(
        "echo ${x:-$(id)}",
        "echo ${x@P}",
        "echo $((a[$(id)]))",
        "echo $[1+1]",
        r"$'\x72\x6d' x",
        '$"id"',
        "echo \"$'x'\"",
    ),
    *("{rm,-rf,x}", "echo a{b,c}", "echo {1..3}", "echo {a,b}", "echo {", "echo }", "echo {a{b}c}", "echo {}>x"),
    *("cat$IFS/etc/passwd", "X=rm; $X x", "X=1 ls", "X+=1 ls", "X[0]=1 ls", "'X'=1 ls", "X=", "a[1]=$(id) ls"),
    *("ls() { id; }; ls", "function f { id; }", "coproc id", "case x in x) id;; esac", "(id)", "if true; then id; fi"),
    *(
        "while true; do id; done",
        "time ls",
        "! ls",
        "[[ -f x ]]",
        "{ id; }",
        "for x in a",
        "select x",
        "until x",
        "then x",
    ),
    *(
        "ls > x",
        "ls >> x",
        "ls < x",
        "ls >| /dev/null",
        "ls &> /dev/null",
        "ls >& /dev/null",
        "ls 2>&1x",
        "ls >&1x",
        "ls >&-",
    ),
    *(
        "ls >/dev/nullx",
        "ls >/dev/null/x",
        "ls 3>/dev/null",
        "ls 12>/dev/null",
        "ls <>/dev/null",
        "ls>/dev/null",
        "a2>&1",
    ),
    *("ls '2'>/dev/null", "ls >'/dev/null'", ">/dev/null", "ls | >/dev/null", "ls >/dev/null>x", "ls {x}>/dev/null"),
    *("ls ;; id", "; ls", "&& ls", "ls && ; id", "ls |", "| ls", "ls || | id", "ls ||", "# nothing", "ls | # x"),
    *("echo 'open", 'echo "open', "echo \\", 'echo "\\', 'echo "a\\\nb"', "ls \0", "echo 'a\u202eb'", "echo \u200b"),
    *(
        "ls\u00a0-a",
        "ls\u2028id",
        "echo 'a\rb'",
        "echo 'a\x1bb'",
        "ls # \u202e",
        "ls # a\nid",
        "ls # a\rid",
        "'' x",
        '""',
        "%1",
        "%",
    ),
    *(
        "echo ~root",
        "echo ~+",
        "echo a:~/x",
        "echo --d=~/x",
        "echo ''~",
        "echo ~''",
        "echo ~\\x",
        "*",
        "l?",
        "[ab] x",
        "",
    ),
    *(
        "   ",
        "echo $x",
        "echo $1",
        "echo $?",
        "echo a$b",
        "echo a$'b'",
        'echo a$"b"',
        "echo $;",
        "echo $HOMEx",
        "echo ${HOMEx}",
    ),
]


@pytest.mark.parametrize("text", NOT_ANALYSABLE)
def test_everything_else_is_not_analysable(text: str, place: CommandLocation) -> None:
    assert isinstance(analyse(text, place), NotAnalysable)


def test_huge_commands_are_never_analysed() -> None:
    assert isinstance(analyse("echo " + "x" * MAX_CHARACTERS), NotAnalysable)
    assert isinstance(analyse("echo" + " x" * 5_000), NotAnalysable)


@pytest.mark.parametrize("home", ["/home/ada", "/root", "/home/ada.lovelace"])
def test_the_home_folder_is_put_in_where_it_is_known(home: str) -> None:
    expected = (home, f"{home}/x", home, f"{home}/x", f"a{home}", home)
    assert words('~ ~/x $HOME "$HOME/x" a${HOME} "${HOME}"', CommandLocation(home)) == expected


@pytest.mark.parametrize("home", ["/", "/home/a b", "/home/*", "home", "", "/home/$x", "/a/"])
def test_an_unusual_home_folder_is_left_to_a_shell(home: str) -> None:
    for text in ("~", "~/x", "$HOME", '"$HOME"'):
        assert isinstance(analyse(f"echo {text}", CommandLocation(home)), NotAnalysable)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "b.txt",
        "a.txt",
        "A.txt",
        "c.py",
        ".hidden",
        "sub/one.txt",
        "sub/.two",
        "sub/deep/x.txt",
        "other/one.txt",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.fixture
def place(folder: Path) -> Iterator[CommandLocation]:
    descriptor = os.open(folder, os.O_RDONLY)
    yield CommandLocation("/home/ada", OpenFolderListing(descriptor))
    os.close(descriptor)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*.txt", ("A.txt", "a.txt", "b.txt")),
        ("?.txt x*", ("A.txt", "a.txt", "b.txt", "x*")),
        ("[ab].txt [!a].txt [a-b].txt", ("a.txt", "b.txt", "A.txt", "b.txt", "a.txt", "b.txt")),
        ("*/one.txt", ("other/one.txt", "sub/one.txt")),
        ("sub/* ./sub/o*", ("sub/deep", "sub/one.txt", "./sub/one.txt")),
        ("*/ sub/*/", ("other/", "sub/", "sub/deep/")),
        ("*/*/x.txt", ("sub/deep/x.txt",)),
        (".h* sub/.t*", (".hidden", "sub/.two")),
        ("'*'.txt \\*.txt \"?\"*", ("*.txt", "*.txt", "?*")),
        ("a.txt/* missing/* --x=*.txt", ("a.txt/*", "missing/*", "--x=*.txt")),
        ("sub/./one* **", ("sub/./one.txt", "A.txt", "a.txt", "b.txt", "c.py", "other", "sub")),
    ],
)
def test_wildcards_become_file_names(text: str, expected: tuple[str, ...], place: CommandLocation) -> None:
    assert words(text, place) == expected


@pytest.mark.parametrize(
    "text",
    [
        *(
            "/etc/*",
            "../*",
            "sub/../*",
            "~/*",
            "$HOME/*",
            "sub//*",
            ".*",
            ".?",
            "sub/.*",
            "*\\\\",
            "[^a]*",
            "[[:alpha:]]*",
        ),
        *("[z-a]*", "[a", "a[", "[]a]*", "[a-Z]*", "[a-]*", "[!]*", "[]", "[a/b]*"),
    ],
)
def test_wildcards_that_shells_read_differently_or_that_lead_out_are_left_to_a_shell(
    text: str, place: CommandLocation
) -> None:
    refused(text, place)


def test_a_file_that_would_be_taken_for_an_option_is_refused(folder: Path, place: CommandLocation) -> None:
    (folder / "-rf").touch()
    assert "option" in refused("*", place)
    assert words("./* *.txt", place)[0] == "./-rf"


@pytest.mark.parametrize("name", ["a\nb", "a\x1bb", "a\u202eb", os.fsdecode(b"a\xff")])
def test_a_file_whose_name_cannot_be_shown_is_refused(folder: Path, place: CommandLocation, name: str) -> None:
    (folder / name).touch()
    assert "invisible" in refused("a*", place)
    assert words("b*", place) == ("b.txt",)


def test_names_whose_length_is_disputed_are_refused_where_it_matters(folder: Path, place: CommandLocation) -> None:
    (folder / "ü.txt").touch()
    refused("?.txt", place)
    assert words("*.txt", place)[-1] == "ü.txt"


def test_nothing_behind_a_link_is_looked_at(folder: Path, place: CommandLocation) -> None:
    (folder / "link").symlink_to("/etc")
    (folder / "dangling").symlink_to("nowhere")
    assert "symbolic link" in refused("link/*", place)
    assert "symbolic link" in refused("*/one.txt", place)
    assert "symbolic link" in refused("l*/", place)
    assert words("l* d*", place) == ("link", "dangling")


@pytest.mark.slow
def test_too_many_files_are_refused(folder: Path, place: CommandLocation) -> None:
    for number in range(MAX_NAMES):
        os.mknod(folder / f"n{number}")
    assert f"{MAX_NAMES:,}" in refused("n*", place)


def test_too_many_words_are_refused(folder: Path, place: CommandLocation) -> None:
    for number in range(3_000):
        os.mknod(folder / f"n{number}")
    assert len(words("n*", place)) == 3_000
    assert "words" in refused("n* n*", place)


def test_what_cannot_be_read_matches_nothing(folder: Path) -> None:
    file = os.open(folder / "a.txt", os.O_RDONLY)
    try:
        listing = OpenFolderListing(file)
        assert listing.names("") == ()
        assert listing.kind("x") is None
    finally:
        os.close(file)
    listing = OpenFolderListing(-1)
    assert (listing.names("sub"), listing.kind("sub/x")) == ((), None)


@pytest.mark.slow
def test_wildcards_in_two_parts_may_not_stand_for_too_many_files(folder: Path, place: CommandLocation) -> None:
    for outer in range(101):
        (folder / f"d{outer}").mkdir()
        for inner in range(100):
            os.mknod(folder / f"d{outer}" / f"{inner}")
    assert f"{MAX_NAMES:,} files" in refused("d*/*", place)
