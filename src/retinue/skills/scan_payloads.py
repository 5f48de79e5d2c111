"""Encoded commands in the files of a skill, and downloaded files that a later line runs."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,20000}={0,2}")
_HEX = re.compile(
    r"(?:(?:\\x|0x)[0-9A-Fa-f]{2}[\s,]{0,2}){8,4000}|(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{2}){20,8000}(?![0-9A-Fa-f])"
)
_CODES = re.compile(r"(?:\d{2,3}\s{0,2},\s{0,2}){9,2000}\d{2,3}")
_CHR = re.compile(r"(?:chr\(\d{2,3}\)\s{0,3}[+.]\s{0,3}){5,500}chr\(\d{2,3}\)", re.IGNORECASE)
_OCTAL = re.compile(r"(?:\\[0-7]{3}){8,4000}")
_COMMANDS = re.compile(
    r"\b(?:curl|wget|bash -[ci]|sh -c|/bin/(?:ba)?sh|powershell|iex\b|invoke-|nc -|osascript|chmod \+x|eval\b|exec\(|"
    r"os\.system|subprocess|child_process|socket\.|__import__|urlopen|requests\.(?:get|post)|xmlhttprequest|fetch\()|"
    r"https?://|/dev/tcp/|\brm -rf|\.ssh/|\.aws/|crontab",
    re.IGNORECASE,
)
_DOWNLOADED = re.compile(
    r"\b(?:curl|wget|invoke-webrequest|iwr)\b[^\n]{0,300}?"
    r"(?:(?:-o|--output|-O|--output-document|-outfile|>)[ =]{0,3}[\"']?(?P<name>[\w./~${}-]{2,120})"
    r"|(?:-O|--remote-name)\b[^\n]{0,20}https?://[^\s\"']{3,200}/(?P<remote>[\w.-]{2,80})"
    r"|(?<=wget )[^\n|>]{0,40}https?://[^\s\"']{3,200}/(?P<plain>[\w.-]{2,80})(?=\s*(?:\n|$|&&|;)))",
    re.IGNORECASE,
)
_FETCHED_IN_CODE = re.compile(
    r"\burlretrieve\([^\n]{1,300}?[\"'](?P<name>[\w./~-]{2,120})[\"']\s{0,3}\)|"
    r"open\([\"'](?P<remote>[\w./~-]{2,120})[\"'],\s{0,3}[\"']wb[\"']\)[^\n]{0,80}(?:urlopen|requests|content)",
    re.IGNORECASE,
)
_RUNS = (
    r"(?:(?:^|[\s;&|(`\"'\[])(?:sudo |source |\. |bash |sh |zsh |python[0-9.]* |node |perl |ruby |open "
    r"|chmod [+0-7ugoax]{{1,9}} |"
    r"os\.system\([\"']|subprocess\.\w+\(\[?[\"']|start |exec |nohup |installer -pkg |hdiutil attach |dpkg -i "
    r"|rpm -i |"
    r"unzip [^\n]{{0,40}}|7z x [^\n]{{0,40}}|\./))[\"',\s]{{0,6}}(?:\./|/tmp/)?{name}(?![\w-])"
)
_LINES_BETWEEN = 40


def find_payloads(text: str) -> Iterator[tuple[int, str]]:
    """Yield where an encoded text contains commands, or a downloaded file is run, and the name of the rule."""
    for pattern, decode in _ENCODINGS:
        for match in pattern.finditer(text):
            if _has_commands(match[0], decode):
                yield match.start(), "encoded-command"
    for downloads in (_DOWNLOADED, _FETCHED_IN_CODE):
        for match in downloads.finditer(text):
            if _is_run_later(text[match.end() :], next(name for name in match.groups() if name)):
                yield match.start(), "download-then-run"


def _is_run_later(rest: str, name: str) -> bool:
    near = "\n".join(rest.split("\n")[:_LINES_BETWEEN])
    base = name.rsplit("/", 1)[-1]
    names = "|".join(re.escape(each) for each in {name, base} if len(each) > 1)
    return bool(re.search(_RUNS.format(name=f"(?:{names})"), near, re.IGNORECASE | re.MULTILINE))


def _has_commands(found: str, decode: Callable[[str], bytes]) -> bool:
    for candidate in (found, found[::-1]):
        try:
            plain = decode(candidate).decode()
        except (ValueError, binascii.Error, OverflowError):
            continue
        readable = all(letter.isprintable() or letter in "\r\n\t" for letter in plain)
        # An address alone is encoded for good reasons as well, such as in a query.
        if readable and _COMMANDS.search(plain) and not re.fullmatch(r"https?://[^\s;|&]+", plain.strip()):
            return True
    return False


def _from_base64(found: str) -> bytes:
    plain = found.rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
    return base64.b64decode(plain[: len(plain) - (len(plain) % 4 == 1)] + "=" * (-len(plain) % 4))


def _from_hex(found: str) -> bytes:
    return bytes.fromhex(re.sub(r"\\x|0x|[\s,]", "", found, flags=re.IGNORECASE))


def _from_codes(found: str) -> bytes:
    return bytes(int(code) for code in re.findall(r"\d{2,3}", found))


def _from_octal(found: str) -> bytes:
    return bytes(int(code, 8) & 255 for code in re.findall(r"[0-7]{3}", found))


_ENCODINGS: tuple[tuple[re.Pattern[str], Callable[[str], bytes]], ...] = (
    (_BASE64, _from_base64),
    (_HEX, _from_hex),
    (_CODES, _from_codes),
    (_CHR, _from_codes),
    (_OCTAL, _from_octal),
)
