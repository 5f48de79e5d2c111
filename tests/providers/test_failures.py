"""One table decides what a failure means."""

from __future__ import annotations

import json

import pytest

from retinue.core.model import Failure
from retinue.providers.failures import MAX_DETAIL_CHARS, classify, failure_from_response, retry_after


@pytest.mark.parametrize(
    ("status", "text", "reason"),
    [
        (400, "This model's maximum context length is 128000 tokens", Failure.OVERFLOW),
        (400, '{"error":{"code":"context_length_exceeded"}}', Failure.OVERFLOW),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", Failure.OVERFLOW),
        (400, "The input token count (1200000) exceeds the maximum number of tokens allowed", Failure.OVERFLOW),
        (400, "request (9031 tokens) exceeds the available context size (8192 tokens)", Failure.OVERFLOW),
        (413, "request_too_large", Failure.OVERFLOW),
        (None, "Your input exceeds the context window of this model.", Failure.OVERFLOW),
        (429, "Request too large: limit 30000 tokens per min, context_length 5", Failure.RATE_LIMIT),
        (429, "insufficient_quota", Failure.BILLING),
        (400, "Your credit balance is too low to access the API", Failure.BILLING),
        (400, "API key not valid. Please pass a valid API key.", Failure.AUTH),
        (403, "forbidden", Failure.AUTH),
        (500, "litellm.AuthenticationError: the key is wrong", Failure.AUTH),
        (None, '{"type":"overloaded_error","message":"Overloaded"}', Failure.OVERLOADED),
        (503, "unavailable", Failure.OVERLOADED),
        (None, "RESOURCE_EXHAUSTED", Failure.RATE_LIMIT),
        (404, "page not found", Failure.NOT_FOUND),
        (400, "The model `gpt-9` does not exist", Failure.NOT_FOUND),
        (400, "Invalid model name passed in model=nosuch", Failure.NOT_FOUND),
        (524, "", Failure.TIMEOUT),
        (502, "bad gateway", Failure.SERVER),
        (422, "unknown field", Failure.FORMAT),
        (None, "something else", Failure.UNKNOWN),
    ],
)
def test_status_and_words_decide(status: int | None, text: str, reason: Failure) -> None:
    assert classify(status, text) is reason


def test_the_sentence_for_people_is_found_in_the_body() -> None:
    assert failure_from_response(500, '{"error": {"message": "try later", "type": "x"}}').detail == "500: try later"
    assert failure_from_response(500, '{"message": "plain"}').detail == "500: plain"
    assert failure_from_response(500, '[{"error": {"message": "listed"}}]').detail == "500: listed"
    assert failure_from_response(500, "").detail == "500: no details were given"


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ("<html>\n bad </html>", "bad"),
        ("<!DOCTYPE html>\n<html><head><title>Bad&nbsp;Gateway\n</title></head><body>nginx</body>", "Bad Gateway"),
        ("<html><style>p { color: red }</style><p>Down &amp; out</p></html>", "Down & out"),
        ("<html></html>", "no details were given"),
        ('{"error": {"message": "<html><title>Bad Gateway</title></html>"}}', "Bad Gateway"),
        ("a < b &amp; c", "a < b &amp; c"),
    ],
)
def test_of_a_web_page_only_the_words_are_told(page: str, told: str) -> None:
    assert failure_from_response(502, page).detail == f"502: {told}"


@pytest.mark.parametrize("piece", ["<", "<title ", "<style ", "input token count ", "model "])
def test_no_complaint_is_too_long_to_be_understood(piece: str) -> None:
    page = "<html>" + piece * 300_000
    for body in (page, json.dumps({"error": {"message": page}})):
        failure = failure_from_response(503, body)
        assert failure.reason is Failure.OVERLOADED
        assert len(failure.detail) <= MAX_DETAIL_CHARS


def test_details_are_short_and_hold_no_key() -> None:
    failure = failure_from_response(401, "x" * 5000 + "sk-ant-REDACTME1234567890", secret="hunter2hunter2")
    assert len(failure.detail) <= MAX_DETAIL_CHARS
    assert "REDACTME" not in failure_from_response(401, "key sk-ant-REDACTME1234567890 is bad").detail
    assert "hunter2" not in failure_from_response(401, "hunter2hunter2 is bad", secret="hunter2hunter2").detail


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"Retry-After": "12"}, "", 12.0),
        ({"retry-after-ms": "1500"}, "", 1.5),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:30 GMT", "date": "Sun, 01 Mar 2026 12:00:00 GMT"}, "", 30.0),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:30 GMT"}, "", None),
        ({"retry-after": "soon"}, "", None),
        ({"retry-after": "nan"}, "", None),
        ({"retry-after": "inf"}, "", 3600.0),
        ({"retry-after": "Sun, 01 Mar 99999999999 12:00:30 GMT", "date": "Sun, 01 Mar 2026 12:00:00 GMT"}, "", None),
        (
            {"retry-after": "Sun, 01 Mar 2026 12:00:30 +99999999999999", "date": "Sun, 01 Mar 2026 12:00:00 GMT"},
            "",
            None,
        ),
        ({"retry-after": "-5"}, "", 0.0),
        ({"retry-after": "999999"}, "", 3600.0),
        ({}, '{"details": [{"retryDelay": "34s"}]}', 34.0),
        ({}, "", None),
    ],
)
def test_the_wish_to_wait_is_read_in_every_spelling(headers: dict[str, str], body: str, seconds: float | None) -> None:
    assert retry_after(headers, body) == seconds
