"""Known secrets and what looks like one are taken out of every text, however they are written."""

from __future__ import annotations

import base64
import gc
import html
import io
import json
import logging
import shlex
from urllib.parse import quote, quote_plus, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.errors import ConfigError
from retinue.security.redaction import (
    HIDDEN,
    MAX_PATTERN_CHARS,
    RedactingFormatter,
    Redactor,
    redact_data,
    redact_everything,
)
from tests.stopwatch import at_most

SECRET = 'pa/ss+w0rd "käse" & <b>=%41'


@pytest.mark.parametrize(
    "spelled",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(json.dumps({"inner": SECRET})),
        json.dumps(SECRET).replace("/", "\\/"),
        repr(SECRET),
        quote(SECRET),
        quote(SECRET, safe=""),
        quote(SECRET, safe="").lower(),
        quote_plus(SECRET),
        unquote(SECRET),
        html.escape(SECRET),
        shlex.quote(SECRET),
        SECRET.encode().hex(),
        SECRET.encode().hex().upper(),
    ],
)
def test_a_secret_is_found_as_other_formats_write_it(spelled: str) -> None:
    found = Redactor([SECRET]).hide_exact(f"before {spelled} after")
    assert HIDDEN in found
    assert "w0rd" not in found
    assert SECRET.encode().hex()[8:20] not in found.lower()
    assert (found[:7], found[-6:]) == ("before ", " after")


@given(st.binary(max_size=9), st.text(st.characters(codec="utf-8"), min_size=9), st.binary(max_size=9))
def test_a_secret_inside_base64_is_found_wherever_it_begins(before: bytes, secret: str, after: bytes) -> None:
    secret = secret.strip()
    redactor = Redactor([secret])
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = encode(before + secret.encode() + after).decode()
        found = redactor.hide_exact(encoded)
        assert HIDDEN in found or len(secret.encode()) < 9
        # What is left of the secret at the edges is less than one byte on each side.
        assert (
            len(found.replace(HIDDEN, "")) <= len(encoded) - (len(secret.encode()) * 8 // 6 - 3) or HIDDEN not in found
        )


@given(st.text(max_size=80), st.text(min_size=6, max_size=30), st.text(max_size=80))
def test_no_exact_secret_survives(before: str, secret: str, after: str) -> None:
    known = secret.strip()
    found = Redactor([secret]).hide_exact(before + secret + after)
    if len(known) >= 6 and known not in HIDDEN:
        assert known not in found.replace(HIDDEN, "\0")


def test_each_long_line_of_a_key_file_is_hidden_by_itself() -> None:
    key = "-----BEGIN THING-----\n" + "\n".join(f"{letter * 40}" for letter in "abc") + "\nxyz\n-----END THING-----"
    assert Redactor([key]).hide_exact(f"grep: {'b' * 40}, xyz") == f"grep: {HIDDEN}, xyz"


def test_exact_hiding_leaves_what_only_looks_like_a_key() -> None:
    text = "sk-proj-abcdefghijklmnop1234 and my-own-secret"
    redactor = Redactor(["my-own-secret"])
    assert redactor.hide_exact(text) == f"sk-proj-abcdefghijklmnop1234 and {HIDDEN}"
    assert redactor.redact(text) == f"{HIDDEN} and {HIDDEN}"


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Basic dXNlcjpwYXNzd29yZA==",
        "https://x.test/a?sig=abcdefgh12&b=1",
        "https://x.test/cb?access_token=abcdefgh12",
        "postgres://me:hunter22@db/x",
        "redis://:hunter22@cache/0",
        "OPENAI_API_KEY=abcdefgh12",
        "GITHUB_TOKEN=abcdefgh12",
        "PGPASSWORD=abcdef12",
        'config {"apiKey": "abcdefgh12", "x": 1}',
        '{"password": "abcdef12"}',
    ],
)
def test_assignments_addresses_and_headers_lose_their_secret(text: str) -> None:
    found = Redactor().redact(text)
    assert HIDDEN in found
    assert not {"abcdef12", "abcdefgh12", "hunter22", "dXNlcjpwYXNzd29yZA"} & set(found.replace('"', " ").split("="))
    assert "abcdef" not in found
    assert "hunter22" not in found


def test_shapes_can_be_switched_off_and_patterns_added() -> None:
    redactor = Redactor(["exact-secret"], patterns=[r"room \d+", r"/pin=(\d+)/i"], shapes=False)
    text = "exact-secret AKIAABCDEFGHIJKLMNOP room 12 PIN=4711!"
    assert redactor(text) == f"{HIDDEN} AKIAABCDEFGHIJKLMNOP {HIDDEN} PIN={HIDDEN}!"
    assert redact_everything(text) == redactor(text)


def test_a_group_that_found_nothing_hides_the_whole_match() -> None:
    assert Redactor(patterns=["(a)|bcd"])("x bcd a") == f"x {HIDDEN} {HIDDEN}"


@pytest.mark.parametrize("pattern", ["(", "x" * (MAX_PATTERN_CHARS + 1)])
def test_a_pattern_that_cannot_be_used_is_a_config_error(pattern: str) -> None:
    with pytest.raises(ConfigError):
        Redactor(patterns=[pattern])


def test_what_any_part_of_the_process_knows_no_part_shows() -> None:
    first, second = Redactor(["first-part-secret"]), Redactor()
    second.hide("second-part-secret")
    assert redact_everything("first-part-secret second-part-secret") == f"{HIDDEN} {HIDDEN}"
    del first, second
    gc.collect()
    assert redact_everything("first-part-secret") == "first-part-secret"


def test_data_is_redacted_at_every_depth() -> None:
    hide = Redactor(["deep-secret"])
    data = {"a": ["deep-secret", {"deep-secret": ("x", 1, None, True, "is deep-secret")}]}
    assert redact_data(data, hide) == {"a": [HIDDEN, {HIDDEN: ["x", 1, None, True, f"is {HIDDEN}"]}]}


def test_a_log_line_loses_secrets_in_its_message_arguments_and_traceback() -> None:
    redactor = Redactor(["log-me-never-42"])
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(RedactingFormatter("%(message)s"))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    try:
        raise ValueError("the server said log-me-never-42")
    except ValueError:
        logger.exception("call with %r failed", {"key": "log-me-never-42"})
    assert "log-me-never" not in stream.getvalue()
    assert stream.getvalue().count(HIDDEN) == 3  # the source line of the traceback holds it too
    assert "Traceback" in stream.getvalue()
    assert redactor("") == ""


@pytest.mark.parametrize("before", ["", "token=", "x-", "--", "«"])
def test_a_signed_token_is_hidden_wherever_it_begins(before: str) -> None:
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9"
    assert token not in Redactor().redact(f"{before}{token}")


@pytest.mark.slow
def test_a_text_made_of_beginnings_of_tokens_is_read_in_time() -> None:
    crafted = "-eyJaaaaaaaaaa" * 150_000
    with at_most(60):
        assert Redactor().redact(crafted) == crafted
