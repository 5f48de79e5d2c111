"""The secrets of a home and its environment, which are removed from all output."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from msgspec.structs import replace

from retinue.config.keys import is_secret
from retinue.core.errors import ConfigError
from retinue.core.messages import (
    AssistantMessage,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
    memoize_per_message,
)
from retinue.core.model import ModelRequest
from retinue.providers.auth_profiles import ProfileFile
from retinue.security.redaction import Redact, Redactor, redact_data, texts_in_data
from retinue.security.secret_sources import read_secret_file
from retinue.security.secrets import EnvSecret, FileSecret

MIN_SECRET_CHARS = 8
MAX_WORD_CHARS = 16
_SECRET_VARIABLE = re.compile(
    r"(?:^|_)(?:KEY|TOKEN|PASSWD|PWD|SECRET|CREDENTIALS?|PAT|AUTH|COOKIE|PASSPHRASE)$|PASSWORD$|APIKEY$|_KEY_",
    re.IGNORECASE,
)
_SECRET_PARAMETER = re.compile(r"key|token|secret|password|sig(?:nature)?$|auth|code$", re.IGNORECASE)

P = TypeVar("P", Text | Image, Text | Thinking | ToolCall)


def known_secrets(
    config: Mapping[str, Any], environment: Mapping[str, str], agent_dirs: Iterable[Path]
) -> Iterator[str]:
    """Return all available secrets: stored, configured or in the environment.

    Secrets in a program or the keyring are not fetched for this, because that may prompt the user; they are known from
    their first use.
    """
    for name, value in environment.items():
        if _SECRET_VARIABLE.search(name) and _is_telling(value):
            yield value
        yield from _secrets_of_url(value)
    yield from _secrets_in(config, environment, ())
    for folder in agent_dirs:
        for profile in ProfileFile(folder).profiles():
            yield from _secrets_in(profile.secret, environment, ("apiKey",))


def _is_telling(value: str) -> bool:
    """Return whether a value can be a secret: hiding `production` or a path would remove ordinary text."""
    is_word = value.isalpha() and len(value) < MAX_WORD_CHARS
    return len(value) >= MIN_SECRET_CHARS and not is_word and not value.startswith(("/", "~/", "./"))


def _secrets_of_url(text: str) -> Iterator[str]:
    if "://" not in text:
        return
    try:
        parts = urlsplit(text)
        yield parts.password or ""
        yield from (value for name, value in parse_qsl(parts.query) if _SECRET_PARAMETER.search(name))
    except ValueError:
        return


def _secrets_in(data: object, environment: Mapping[str, str], path: tuple[str, ...]) -> Iterator[str]:
    """Return the secrets in a configuration: texts under a key with a secret's name, and resolved references."""
    match data:
        case str():
            named_so = is_secret(path[-1:])
            if named_so or (is_secret(path) and _is_telling(data)):
                yield data
            yield from _secrets_of_url(data)
        case EnvSecret(id=variable) | {"source": "env", "id": str(variable)}:
            yield environment.get(variable, "")
        case FileSecret(path=file) | {"source": "file", "path": str(file)}:
            yield from _secrets_of_file(file)
        case dict():
            below: dict[Any, Any] = data
            for key, value in below.items():
                yield from _secrets_in(value, environment, (*path, str(key)))
        case list() | tuple():
            for value in data:
                yield from _secrets_in(value, environment, path)


def _secrets_of_file(path: str) -> Iterator[str]:
    """Return the secrets in a file: its text, or each text of a JSON document."""
    try:
        text = read_secret_file(path)
    except ConfigError:
        return
    try:
        yield from _texts_in(json.loads(text))
    except ValueError:
        yield text


def _texts_in(data: object) -> Iterator[str]:
    match data:
        case str():
            yield data
        case dict():
            for value in data.values():
                yield from _texts_in(value)
        case list():
            for value in data:
                yield from _texts_in(value)


def without_secrets(request: ModelRequest, redactor: Redactor) -> ModelRequest:
    """Return a request without secrets; parts that contain none stay the same objects."""
    if not redactor.is_in("\0".join(_words_of(request))):  # The common case, in one pass over a long history.
        return request
    hide = redactor.hide_exact
    stable, session = hide(request.stable), hide(request.session)
    messages = tuple(_hide_message(message, hide) for message in request.messages)
    unchanged = all(map(operator.is_, messages, request.messages))
    if unchanged and (stable, session) == (request.stable, request.session):
        return request
    return replace(request, stable=stable, session=session, messages=messages)


def _words_of(request: ModelRequest) -> Iterator[str]:
    """Return all texts that `without_secrets` would search."""
    return chain((request.stable, request.session), chain.from_iterable(_words_in.of_all(request.messages)))


@memoize_per_message
def _words_in(message: Message) -> tuple[str, ...]:
    words = [message.preface] if isinstance(message, UserMessage) else []
    for part in message.content:
        if isinstance(part, Text):
            words.append(part.text)
        elif isinstance(part, ToolCall):
            words.extend(texts_in_data(part.arguments))
    return tuple(words)


def _hide_message(message: Message, hide: Redact) -> Message:
    match message:
        case UserMessage():
            content, preface = _hide_parts(message.content, hide), hide(message.preface)
            if content is message.content and preface == message.preface:
                return message
            return replace(message, content=content, preface=preface)
        case AssistantMessage():
            said = _hide_parts(message.content, hide)
            return message if said is message.content else replace(message, content=said)
        case ToolResult():
            given = _hide_parts(message.content, hide)
            return message if given is message.content else replace(message, content=given)


def _hide_parts(content: tuple[P, ...], hide: Redact) -> tuple[P, ...]:
    parts = tuple(_hide_part(part, hide) for part in content)
    return content if all(map(operator.is_, parts, content)) else parts


def _hide_part(part: P, hide: Redact) -> P:
    match part:
        case Text(text):
            hidden = hide(text)
            return part if hidden == text else replace(part, text=hidden)
        case ToolCall():
            arguments = redact_data(part.arguments, hide)
            return part if arguments == part.arguments else replace(part, arguments=arguments)
        case _:  # An image, or reasoning, which its provider accepts only unchanged.
            return part
