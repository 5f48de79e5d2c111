"""What leaves with a fetch or a search of a request that contains untrusted text, and when a person must approve it.

An address can carry text to the owner of the host, also that of a picture in an answer. It is harmless if the user gave
it, if a search found it, or if a page of the same site contains it; otherwise the request asks once for each host and
session. A query asks if it repeats private text.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from retinue.core.envelope import Outbound
from retinue.core.keys import SessionKey
from retinue.core.labels import mix
from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolResult, UserMessage, label_of_all
from retinue.core.sinks import Sink
from retinue.tools.shell.explanation import show_compactly
from retinue.tools.sinks import SinkQuestion, require_approval
from retinue.tools.tool import ToolContext
from retinue.tools.toolset import unwrap_call

MAX_FREE_FETCHES = 20
"""How many addresses of one host a turn may fetch without a question."""
MAX_HOSTS = 10_000
REPEATED_WORDS = 8
_URL_CHARACTER = re.compile(r"[\w\-.~:/?#\[\]@!$&'()*+,;=%]")
_INSIDE_URL = re.compile(r"[\w\-.~/?#@&=%]")
_ENDS_SENTENCE = re.compile(r"[.,;:!?)\]'*]*(?:[\s\"<>`|]|$)")
_PICTURE = re.compile(r"!\[[^\]\n]{0,1000}\](?:\(\s*<?(?P<address>[^)\s>]*)|\[|(?!\())")
_PICTURE_TAG = re.compile(r"<(?=\s*(?:img|picture|source|svg|iframe|video|audio|link|object|embed)\b)", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_IDENTIFIER = re.compile(r"[\w.+@-]*\d[\w.+@-]*|[\w.+-]+@[\w.-]+")
_MIN_IDENTIFIER = 6
_WRITTEN_APART = re.compile(r"\d(?:[ .\-/]?\d){5,}|(?=(?:[a-z]*\d){3})[a-z\d]{6,}")
_ENCODED = re.compile(r"[\w+/-]{8,}")


class UrlSource(StrEnum):
    """Where the address of a request comes from."""

    OWNER = "a message of the conversation gave it"
    SEARCH = "a search found it"
    SAME_SITE = "a page of the same site contains it"
    NAMED = "only untrusted text, a file or a note names it"
    COMPOSED = "no text of the conversation contains it: the model composed it"


_FREE = frozenset({UrlSource.OWNER, UrlSource.SEARCH, UrlSource.SAME_SITE})


class HostApprovals:
    """The hosts that a person approved, for each session, in this process."""

    def __init__(self) -> None:
        self._approved: dict[tuple[SessionKey, str], None] = {}

    async def require(self, tool: str, url: str, context: ToolContext) -> None:
        """Ask before a tainted request fetches an address that may carry text away; raise `ToolFailed` if refused."""
        host = host_of(url)
        if not context.asks_at(Sink.FETCH) or (context.session, host) in self._approved:
            return
        source = find_source(url, context.request, for_person=context.person is not None)
        if source in _FREE and count_fetches(host, context.request) <= MAX_FREE_FETCHES:
            return
        because = source.value if source not in _FREE else f"this turn fetched {MAX_FREE_FETCHES} addresses of the host"
        reason = f"the address can carry text away: {because}"
        title = f"Send a request to {host}"
        await require_approval(SinkQuestion(Sink.FETCH, tool, title, url, reason, (url, host)), context)
        self._approved[context.session, host] = None
        while len(self._approved) > MAX_HOSTS:
            del self._approved[next(iter(self._approved))]


def is_address(text: str) -> bool:
    """Return whether a text is the address of something on the network, and not the path of a file."""
    return text.startswith(("http://", "https://"))


def show_answer(text: str, context: ToolContext) -> str:
    """Return an answer so that no client loads a picture whose address can carry text away: it becomes a link."""
    if not context.asks_at(Sink.FETCH):
        return text
    shown = _PICTURE.sub(lambda found: found[0] if _is_free(found["address"] or "", context) else found[0][1:], text)
    return _PICTURE_TAG.sub("‹", shown)


def restrict_answer(answer: Outbound, context: ToolContext, messages: Sequence[Message]) -> Outbound:
    """Return an answer whose pictures and files no chat loads from an address that can carry text away."""
    label = mix([context.label, label_of_all(messages)])
    seen = replace(context, request=messages, label=label)
    if not seen.asks_at(Sink.FETCH):
        return answer
    left_out = tuple(each for each in answer.media if is_address(each) and not _is_free(each, seen))
    text = "\n".join(filter(None, (show_answer(answer.text, seen), *(f"(Not attached: {url})" for url in left_out))))
    return replace(
        answer,
        text=text,
        media=tuple(each for each in answer.media if each not in left_out),
        preceding=tuple(show_answer(each, seen) for each in answer.preceding),
        loads_links=False,
    )


def restrict_recovered(answer: Outbound, messages: Sequence[Message]) -> Outbound:
    """Return an answer that was read back from its transcript, so that no chat loads anything for it.

    What its turn was allowed to do is not known any more.
    """
    if not label_of_all(messages).is_foreign:
        return answer
    text = _PICTURE_TAG.sub("‹", _PICTURE.sub(lambda found: found[0][1:], answer.text))
    media = tuple(each for each in answer.media if not is_address(each))
    return replace(answer, text=text, media=media, loads_links=False)


def _is_free(url: str, context: ToolContext) -> bool:
    return find_source(url, context.request, for_person=context.person is not None) in _FREE


def host_of(url: str) -> str:
    """Return the host of an address in lower case; empty if it has none."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def find_source(url: str, request: Sequence[Message], *, for_person: bool = False) -> UrlSource:
    """Return the most trusted source of an address among the messages of a request; it must be there byte for byte.

    In the session of a person other than the owner, which holds nothing of the owner's, the person may give addresses.
    """
    sources = set(_sources(url, request, for_person=for_person))
    return next((source for source in UrlSource if source in sources), UrlSource.COMPOSED)


def _sources(url: str, request: Sequence[Message], *, for_person: bool) -> Iterator[UrlSource]:
    calls: dict[str, ToolCall] = {}  # some models use the same ids in every answer, so later calls must not count yet
    for message in request:
        match message:
            case AssistantMessage():
                calls |= {call.id: unwrap_call(call) for call in message.calls}
            case UserMessage():
                if contains_url(message.text, url):
                    is_given = for_person or not message.label.is_foreign
                    yield UrlSource.OWNER if is_given else UrlSource.NAMED
                if contains_url(message.preface, url):
                    yield UrlSource.NAMED
            case ToolResult() if contains_url(message.text, url):
                yield _source_of_result(calls.get(message.call_id), url)
            case _:
                pass


def _source_of_result(call: ToolCall | None, url: str) -> UrlSource:
    if call is not None and call.name == "web_search":
        return UrlSource.SEARCH
    if call is not None and call.name == "web_fetch" and host_of(str(call.arguments.get("url", ""))) == host_of(url):
        return UrlSource.SAME_SITE
    return UrlSource.NAMED


def contains_url(text: str, url: str) -> bool:
    """Return whether a text contains exactly this address, not only as the beginning of a longer one.

    The text may leave out the scheme, as people do.
    """
    scheme, _, bare = url.partition("://")
    if _contains(text, url):
        return True
    return scheme in ("http", "https") and _contains(text, bare.removesuffix("/") if bare.count("/") == 1 else bare)


def _contains(text: str, url: str) -> bool:
    at = text.find(url) if url else -1
    while at >= 0:
        after = text[at + len(url) : at + len(url) + 8]
        ends = not _URL_CHARACTER.match(after) or _ENDS_SENTENCE.match(after)
        if ends and not (at and _INSIDE_URL.match(text[at - 1])):
            return True
        at = text.find(url, at + 1)
    return False


def count_fetches(host: str, request: Sequence[Message]) -> int:
    """Return how many addresses of a host the current turn has requested, including the calls of the last answer."""
    count = 0
    for message in reversed(request):
        if isinstance(message, UserMessage):
            break
        if isinstance(message, AssistantMessage):
            calls = map(unwrap_call, message.calls)
            count += sum(c.name == "web_fetch" and host_of(str(c.arguments.get("url", ""))) == host for c in calls)
    return count


async def require_if_private(tool: str, query: str, context: ToolContext) -> None:
    """Ask before a search of a tainted request repeats private text; raise `ToolFailed` if it is refused."""
    repeated = find_private(query, context.request) if context.asks_at(Sink.SEARCH) else ""
    if not repeated:
        return
    because = f"the query repeats private text: {show_compactly(repeated)}"
    title = "Search the web for text from your files"
    await require_approval(SinkQuestion(Sink.SEARCH, tool, title, query, because), context)


def find_private(query: str, request: Sequence[Message]) -> str:
    """Return the first part of a query that repeats private text of a request; empty if none does.

    Private are results of tools that are not from outside or are labelled so, and recalled notes. What people wrote in
    the conversation, and what pages say, may be searched for.
    """
    private, known = _split_by_privacy(request)
    spelled = map(partial(unicodedata.normalize, "NFKC"), (query, query[::-1], unquote(query), *_decode_words(query)))
    return next(filter(None, (_find_repeated(each, private, known) for each in dict.fromkeys(spelled))), "")


def _find_repeated(query: str, private: str, known: str) -> str:
    words = _WORD.findall(query.lower())
    joined = f" {' '.join(_WORD.findall(private.lower()))} "
    known_words = f" {' '.join(_WORD.findall(known.lower()))} "
    for at in range(len(words) - REPEATED_WORDS + 1):
        run = f" {' '.join(words[at : at + REPEATED_WORDS])} "
        if run in joined and run not in known_words:
            return run.strip()
    for found in _IDENTIFIER.finditer(query):
        part = found[0].strip(".-+@")
        if len(part) >= _MIN_IDENTIFIER and part.lower() in private.lower() and part.lower() not in known.lower():
            return part
    # An identifier may be written apart, as `HGK 137-803`.
    together, known_together = "".join(words), "".join(known_words.split())
    for found in _WRITTEN_APART.finditer(private.lower()):
        part = "".join(_WORD.findall(found[0]))
        if part in together and part not in known_together:
            return found[0]
    return ""


def _decode_words(text: str) -> Iterator[str]:
    """Yield what the words of a text mean as hexadecimal or base64."""
    for word in _ENCODED.findall(text):
        for decode in (bytes.fromhex, partial(base64.b64decode, altchars=b"-_")):
            with suppress(ValueError):
                yield decode(word if decode is bytes.fromhex else word + "=" * (-len(word) % 4)).decode()


def _split_by_privacy(request: Sequence[Message]) -> tuple[str, str]:
    """Return the private text of a request, and the text that may be repeated."""
    private: list[str] = []
    known: list[str] = []
    for message in request:
        match message:
            case UserMessage():
                (private if message.label.private else known).append(message.text)
                private.append(message.preface)
            case ToolResult(label=label):
                (known if label.is_foreign and not label.private else private).append(message.text)
            case _:
                pass
    return "\n".join(private), "\n".join(known)
