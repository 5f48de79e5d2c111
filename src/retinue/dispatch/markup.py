"""Markup that a model writes for the program: reasoning tags, reply tags, media lines."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

_TAG_NAMES = ("think", "thinking", "thought", "final")
_TAG = re.compile(rf"<\s{{0,3}}(?P<close>/?)\s{{0,3}}(?P<name>{'|'.join(_TAG_NAMES)})\s{{0,3}}>", re.IGNORECASE)
_TAG_START = re.compile(r"<\s{0,3}/?\s{0,3}(?P<name>[a-z]*)(?P<space>\s{0,3})\Z", re.IGNORECASE)

_DIRECTIVE = re.compile(
    r"\[\[[ \t]{0,8}(?:(?P<current>reply_to_current)|(?P<voice>audio_as_voice)"
    r"|reply_to[ \t]{0,8}:[ \t]{0,8}(?P<id>[^\s\[\]](?:[^\[\]\n]{0,198}[^\s\[\]])?))[ \t]{0,8}\]\]",
    re.IGNORECASE,
)
_DIRECTIVE_MAX = 260

_MEDIA = "MEDIA:"
_MEDIA_MAX = 2000
_INDENT = re.compile(r"[ \t]*")
_FENCE = re.compile(r"`{3,}|~{3,}")
_FENCE_LINE = re.compile(r"[ \t]*([`~]*)[ \t]*")
_SPECIAL = re.compile(r"[\n<\[]")


class MarkupResult(Struct):
    """The directives that were found so far."""

    reply_to: str | None = None
    to_current: bool = False
    voice: bool = False
    media: tuple[str, ...] = ()
    reasoned: bool = False


class Scanner:
    """Separates visible text from directives, independent of how the text is split into deltas.

    Visible text is passed to `show` as soon as it is certain. Text inside a fenced code block or right after a backtick
    is never markup. With `final_only`, text outside `<final>` is shown only if there is no `<final>`.
    """

    def __init__(self, show: Callable[[str], None], *, final_only: bool = False) -> None:
        self.directives = MarkupResult()
        self._show = show
        self._final_only = final_only
        self._in_final = False
        self._saw_final = False
        self._outside: list[str] = []
        self._rest = ""
        self._at_end = False
        self._hidden = False
        self._fence = ""
        self._line_start = True
        self._blank_line = True
        self._swallowing = False
        self._last = "\n"

    def feed(self, text: str) -> None:
        """Add more text."""
        self._rest += text
        self._scan()

    def finish(self) -> None:
        """Process the text that was held back, as it is."""
        self._at_end = True
        self._scan()
        if not self._saw_final:
            self._show("".join(self._outside))

    def _scan(self) -> None:
        text, at = self._rest, 0
        while at < len(text):
            after = self._step(text, at)
            if after is None:
                break
            at = after
        self._rest = text[at:]

    def _step(self, text: str, at: int) -> int | None:
        """Continue at one position of the text; None means that more text is needed first."""
        if self._hidden:
            return self._skip_reasoning(text, at)
        if self._swallowing:
            return self._swallow(text, at)
        if self._line_start:
            return self._begin_fenced_line(text, at) if self._fence else self._begin_line(text, at)
        if self._fence:
            end = text.find("\n", at) + 1
            self._line_start = end > 0
            return self._emit(text, at, end or len(text))
        return self._go_inline(text, at)

    def _emit(self, text: str, start: int, end: int) -> int:
        piece = text[start:end]
        if piece:
            self._last = piece[-1]
            _, newline, line = piece.rpartition("\n")
            self._blank_line = (bool(newline) or self._blank_line) and not line.strip()
            if self._final_only and not self._in_final:
                self._outside.append(piece)
            else:
                self._show(piece)
        return end

    def _skip_reasoning(self, text: str, at: int) -> int | None:
        for tag in _TAG.finditer(text, at):
            if bool(tag["close"]) != (tag["name"].lower() == "final"):
                self._hidden = False
                return self._take_tag(tag) if not tag["close"] else tag.end()
        partial = text.rfind("<", at)
        if self._at_end or partial < 0 or not _may_become_tag(text[partial:]):
            return len(text)
        return partial if partial > at else None

    def _swallow(self, text: str, at: int) -> int:
        """Skip the white space that only surrounds a directive."""
        indent = _INDENT.match(text, at)
        assert indent is not None
        end = indent.end()
        if end < len(text):
            self._swallowing = False
            if text[end] == "\n" and self._blank_line:
                end += 1
        return end

    def _begin_line(self, text: str, at: int) -> int | None:
        indent = _INDENT.match(text, at)
        assert indent is not None
        start = indent.end()
        known = text[start : start + len(_MEDIA)]
        is_all = start + len(known) == len(text) and not self._at_end
        if known == _MEDIA:
            return self._take_media(text, at, start)
        if is_all and (_MEDIA.startswith(known) or known in ("`", "``", "~", "~~")):
            return None
        fence = _FENCE.match(text, start)
        if fence is not None:
            if fence.end() == len(text) and not self._at_end:
                return None
            self._fence = fence[0]
            self._line_start = False
            return self._emit(text, at, fence.end())
        self._line_start = False
        return at

    def _begin_fenced_line(self, text: str, at: int) -> int | None:
        marks = _FENCE_LINE.match(text, at)
        assert marks is not None
        end = marks.end()
        if end == len(text) and not self._at_end:
            return None
        whole_line = end == len(text) or text[end] == "\n"
        if whole_line and marks[1] == self._fence[0] * max(len(marks[1]), len(self._fence)):
            self._fence = ""
        self._line_start = False
        return self._emit(text, at, end)

    def _take_media(self, text: str, at: int, start: int) -> int | None:
        newline = text.find("\n", start)
        line_end = newline if newline >= 0 else len(text)
        tag = _TAG.search(text, start, line_end)
        if newline < 0 and tag is None and not self._at_end:
            return None
        end = tag.start() if tag is not None else line_end
        value = _parse_media(text[start + len(_MEDIA) : end])
        if value is None:
            self._line_start = False
            return at
        self.directives.media += (value,)
        return end if tag is not None else min(end + 1, len(text))

    def _go_inline(self, text: str, at: int) -> int | None:
        found = _SPECIAL.search(text, at)
        start = found.start() if found else len(text)
        if start > at:
            return self._emit(text, at, start)
        if text[at] == "\n":
            self._line_start = True
            return self._emit(text, at, at + 1)
        if self._last == "`":
            return self._emit(text, at, at + 1)
        if text[at] == "<":
            markup, may_become = _TAG.match(text, at), _may_become_tag
        else:
            markup, may_become = _DIRECTIVE.match(text, at), _may_become_directive
        if markup is not None:
            return self._take_tag(markup) if text[at] == "<" else self._take_directive(markup)
        if not self._at_end and may_become(text[at : at + _DIRECTIVE_MAX + 1]):
            return None
        return self._emit(text, at, at + 1)

    def _take_tag(self, tag: re.Match[str]) -> int:
        if tag["name"].lower() == "final":
            self._in_final = not tag["close"]
            self._saw_final = True
        elif not tag["close"]:
            self._hidden = True
            self.directives.reasoned = True
        self._line_start = self._blank_line
        return tag.end()

    def _take_directive(self, directive: re.Match[str]) -> int:
        if directive["voice"]:
            self.directives.voice = True
        else:
            self.directives.reply_to = directive["id"]
            self.directives.to_current = directive["id"] is None
        self._swallowing = self._last.isspace()
        self._line_start = self._blank_line
        return directive.end()


def _may_become_tag(text: str) -> bool:
    found = _TAG_START.match(text)
    if found is None:
        return False
    name = found["name"].lower()
    return name in _TAG_NAMES if found["space"] and name else any(known.startswith(name) for known in _TAG_NAMES)


def _may_become_directive(text: str) -> bool:
    """Return whether `text` could be the beginning of a directive; it is at least one bracket."""
    if len(text) > _DIRECTIVE_MAX or "\n" in text or not "[[".startswith(text[:2]):
        return False
    inner = text[2:].lower().lstrip(" \t").removesuffix("]")
    if "]" in inner or "[" in inner:
        return False
    name = inner.rstrip(" \t")
    return any(known.startswith(name) for known in ("reply_to_current", "audio_as_voice")) or bool(
        re.match(r"reply_to[ \t]*:", inner)
    )


def _parse_media(text: str) -> str | None:
    """Return the path or address on a media line, without quotes; None if the line is ordinary text."""
    value = text.strip()
    for opening, closing in ("``", '""', "''", "<>"):
        if len(value) >= 2 and value[0] == opening and value[-1] == closing:
            value = value[1:-1].strip()
    is_address = "://" in value
    if not value or len(value) > _MEDIA_MAX or not value.isprintable() or (is_address and " " in value):
        return None
    return value
