"""Forged markers, and what keeping secrets and strangers' words apart costs on a turn."""

from __future__ import annotations

import os
import random
import string
import tempfile
from pathlib import Path

from tests.security.forgeries import forge

from bench.measure import Sheet, median_ms
from retinue.core.clock import SystemClock, random_id
from retinue.core.messages import Text, ToolResult, said
from retinue.core.model import ModelRef, ModelRequest
from retinue.runtime.known_secrets import known_secrets, without_secrets
from retinue.security.redaction import Redactor
from retinue.security.untrusted_text import END_MARKER_SANITISED, MARKER_SANITISED, TextSource, sanitise, wrap_untrusted
from retinue.storage.auditlog import AuditLog

FORGERIES, SHORT_FORGERIES = 1_000_000, 100_000
SECRETS = 10
MOST_MILLISECONDS = 1.0


def run(*, full: bool) -> None:
    sheet = Sheet("security")
    _forge(FORGERIES if full else SHORT_FORGERIES, sheet)
    _cost(sheet)
    sheet.save()


def _forge(times: int, sheet: Sheet) -> None:
    chance = random.Random("bench")
    survived = 0
    for _ in range(times):
        forged = forge(chance)
        sign = END_MARKER_SANITISED if forged.is_end else MARKER_SANITISED
        survived += sanitise(forged.text) != forged.before + sign + forged.after
    if survived:
        raise AssertionError(f"{survived} forged markers survived, or cost other text")
    sheet.row("forged markers that survived", survived, "", f"of {times:,}")


def _cost(sheet: Sheet) -> None:
    chance = random.Random("cost")
    secrets = ["".join(chance.choices(string.ascii_letters + string.digits, k=48)) for _ in range(SECRETS)]
    redactor = Redactor(secrets)
    prompt = _words(chance, 12_000)
    messages = (said(_words(chance, 300)), ToolResult("c", "ls", (Text(_words(chance, 8_000)),)))
    request = ModelRequest(ModelRef("p", "m"), prompt, _words(chance, 500), messages)
    hiding = median_ms(lambda: without_secrets(request, redactor))
    sheet.row("a request of 20,000 characters, 10 secrets", hiding, "ms", "taken out of what the model reads")
    result = _words(chance, 8_000)
    sheet.row("a tool result of 8,000 characters", median_ms(lambda: redactor.hide_exact(result)), "ms")
    line = "2026-02-03 12:00:00 INFO retinue.runtime answered agent:main:main in 1.2 s"
    sheet.row("a line of the log", median_ms(lambda: redactor.redact(line)), "ms")
    sheet.row("collecting the secrets at hand", median_ms(lambda: Redactor(known_secrets({}, os.environ, ()))), "ms")
    page = _words(chance, 20_000)
    wrapping = median_ms(lambda: wrap_untrusted(page, TextSource.WEB_FETCH, new_id=random_id))
    sheet.row("marking a page of 20,000 characters", wrapping, "ms")
    with tempfile.TemporaryDirectory() as place:
        log = AuditLog(Path(place) / "audit.jsonl", SystemClock(), redactor.redact)
        sheet.row("a line of the audit log", median_ms(lambda: log.record("x", "me", {"command": "ls"})), "ms")
    if hiding > MOST_MILLISECONDS:
        raise AssertionError(f"keeping secrets out of a request takes {hiding:.2f} ms; it may take {MOST_MILLISECONDS}")


def _words(chance: random.Random, size: int) -> str:
    words = ("".join(chance.choices(string.ascii_lowercase, k=chance.randrange(2, 10))) for _ in range(size))
    return " ".join(words)[:size]
