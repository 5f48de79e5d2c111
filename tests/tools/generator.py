"""Commands to try on a reader: everyday and dangerous pieces, mixed, quoted and broken at random."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.tools.dialects import BUILTINS, PROGRAMS

_WORDS = (
    *("a.txt", "-n", "--x=y", "src", "*.txt", "*", "a?b", "[ab]*", "[!a]*", "[a-c].py", "sub/*", "*/one.txt"),
    *("sub/*/", "'a b'", "'$x'", "'a;id'", '"a b"', '"a\\"b"', '"a\\\\b"', '"\\$x"', '"foo$"', "a\\ b", "\\;", "\\*"),
    *("\\(", "{}", "HEAD~1", "HEAD@{1}", "~", "~/x", "$HOME", '"$HOME/x"', "${HOME}", "a=b", "X=1", "!", "!x", "a!b"),
    *("#x", "a#b", "%", "^", "@", ":", ",", "2", "10", "ü", "Á", "ā", "''", '""', "'*'", '"*"', "\\a", "\\~"),
    *("~root", "a:~", "--d=~/x", ".", "..", "/etc", "/bin/ls", "./x", "a,b", "{a}", "$", "foo$", "]", "[", "a]"),
    *(".h*", "s/a/b/g", "'s/a/b/g'", "-", "--", '"s/a$/b/"', '"a$|b"', '"$ "', '"x$,y"', '"$%"', '"$=1"', '"$:"'),
    *('"$."', '"a$b"', '"$HOME$"', "$HOME/a", "$HOMEx", "'a\nb'", "'\t'", '"!"', '"a!b"', "a~", "=", "=x", "x="),
    *("a'b'c", 'a"b"c', "''a", "1,2", "a..b", "{1..3}", "{a,b}"),
)
_DANGER = (
    *("$(id)", "`id`", "${x:-$(id)}", "${x@P}", "$((1+1))", "$((a[$(id)]))", "$'\\x72\\x6d'", '$"id"', "<(id)"),
    *(">(id)", "& id", "&", "|& id", "; id", "\nid", "\r\nid", "\rid", "&& id", "|| id", "| id", "<<E\n$(id)\nE"),
    *("<<< x", "> f", ">> f", "< a.txt", "2>f", ">&3", "<>f", "{rm,x}", "$IFS", "a$IFS", "$x", "$1", "$@", "$*"),
    *("$?", "$$", "$!", "$#", "$-", "*(a)", "!(a)", "@(a)", "[[:alpha:]]*", "[^a]*", "[z-a]", "[a", "\\\n", "\\"),
    *("'", '"', "(id)", "{ id; }", "\x00", "\x1b", "\u00a0", "\u2028", "\u200b", "\v", "\f", "\x01", "\x7f", "~+"),
    *("~-", "a=~", "x+=1", "x[0]=1", "()", "(", ")", "{", "}", ";;", "!!", "!$", "^a^b", "-exec id", "-c id"),
    *("eval id", "exec id", "command id", "builtin id", ". ./x", "source ./x", "time id", "! id", "if id", "then id"),
    *("alias ls=id", "trap id EXIT", "X=1 id", "coproc id", "function f", "env id", "nice id", "`", "$("),
)
_REDIRECTIONS = (
    *("2>&1", "2>/dev/null", ">/dev/null", "> /dev/null", "</dev/null", ">&2", "1>&2", ">>/dev/null", "2> /dev/null"),
)
_SQUEEZE: tuple[str, ...] = (*"|&;<>(){}$`\\!*?[]#~='\" \t\n\r", "&&", "||", "2>", ">&", "$(", "a", "1", "id")

_OTHERS = (*sorted(BUILTINS), "cd", "eval", "/bin/ls", "./x", "unknown")
_ALPHABET = "ab1 \t|&;<>(){}$`\\!*?[]#~=:,./%^@+-_\"'üÁ\n"
_TAME = "aabbct1.,:=@%+^~!#]-_/"


def generate(count: int, seed: str) -> Iterator[str]:
    """Commands of everyday and of dangerous pieces, some mutated character by character."""
    chance = random.Random(seed)
    for _ in range(count):
        text = _line(chance)
        for _ in range(chance.choice((0, 0, 0, 1, 1, 2))):
            text = _mutate(text, chance)
        yield text


def _line(chance: random.Random) -> str:
    commands = [_command(chance) for _ in range(chance.choice((1, 1, 1, 2, 2, 3)))]
    line = commands[0]
    for command in commands[1:]:
        gap = chance.choice((" ", " ", ""))
        line += gap + chance.choice(("|", "&&", "||", ";")) + gap + command
    return line + chance.choice(("", "", "", ";", " # comment", " #c; id", "  "))


def _word(chance: random.Random) -> str:
    """A word of random pieces: as they are, after a backslash, in quotes of either kind, or as a wildcard."""
    pieces: list[str] = []
    for _ in range(chance.randrange(1, 5)):
        inner = "".join(chance.choices(_ALPHABET, k=chance.randrange(4)))
        match chance.randrange(6):
            case 0:
                pieces.append(f"'{inner}'")
            case 1:
                pieces.append(f'"{inner}"')
            case 2:
                pieces.append("\\" + chance.choice(_ALPHABET))
            case 3:
                pieces.append(
                    chance.choice(("*", "?", "[ab]", "[a-z]", "[!a]", "[0-9]", "sub/", "*/", "./", "{}", "{x}"))
                )
            case _:
                pieces.append("".join(chance.choices(_TAME, k=chance.randrange(1, 4))))
    return "".join(pieces)


def _command(chance: random.Random) -> str:
    words = [chance.choice(PROGRAMS if chance.random() < 0.9 else _OTHERS)]
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        roll = chance.random()
        if roll < 0.3:
            words.append(_word(chance))
        else:
            words.append(chance.choice(_DANGER if roll < 0.36 else _REDIRECTIONS if roll < 0.46 else _WORDS))
    if chance.random() < 0.05:
        words.insert(0, chance.choice((*_REDIRECTIONS, *_DANGER)))
    return chance.choice((" ", " ", " ", "  ", "\t")).join(words)


def _mutate(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text) + 1)
    match chance.randrange(4):
        case 0:
            return text[:at] + text[at + 1 :]
        case 1:
            return text[:at] + chance.choice(_SQUEEZE) + text[at:]
        case 2:
            return text[:at] + chance.choice(_DANGER) + text[at:]
        case _:
            end = min(len(text), at + chance.randrange(1, 4))
            return text[:at] + text[end:] + text[at:end]
