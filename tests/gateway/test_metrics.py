"""The metrics, parsed by the Prometheus client."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin

from retinue.core.events import TurnFinished, TurnStarted, TurnStatus
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.messages import Usage
from retinue.core.model import Failure
from retinue.gateway.metrics import Histogram, Metrics, counter, gauge, histogram, render_metrics
from retinue.testing.replies import refuses
from tests.gateway.conftest import Hall, raw_socket

pytestmark = pytest.mark.anyio

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf'({_NAME})(?:\{{((?:{_NAME}="(?:[^"\\\n]|\\["\\n])*",?)*)\}})? (\S+)')
_LABEL = re.compile(rf'({_NAME})="((?:[^"\\\n]|\\["\\n])*)"')
_ESCAPES = {'\\"': '"', "\\\\": "\\", "\\n": "\n"}


@dataclass
class Metric:
    kind: str
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)

    def value(self, name: str, /, **labels: str) -> float:
        return self.samples[name, tuple(sorted(labels.items()))]


def parse(text: str) -> dict[str, Metric]:
    """The exposition format 0.0.4, strictly: a sample belongs to the family declared before it, none comes twice."""
    assert text.endswith("\n")
    metrics: dict[str, Metric] = {}
    current, helped = "", ""
    for line in text.removesuffix("\n").split("\n"):
        if found := re.fullmatch(rf"# HELP ({_NAME}) (\S.*)", line):
            helped = found[1]
            continue
        if found := re.fullmatch(rf"# TYPE ({_NAME}) (counter|gauge|histogram)", line):
            current = found[1]
            assert current == helped
            assert current not in metrics
            metrics[current] = Metric(found[2])
            continue
        found = _SAMPLE.fullmatch(line)
        assert found, line
        suffix = r"(_bucket|_sum|_count)" if metrics[current].kind == "histogram" else ""
        assert re.fullmatch(current + suffix, found[1]), line
        labels = {
            name: re.sub(r"\\.", lambda m: _ESCAPES[m[0]], value) for name, value in _LABEL.findall(found[2] or "")
        }
        key = found[1], tuple(sorted(labels.items()))
        assert key not in metrics[current].samples, line
        metrics[current].samples[key] = float(found[3])
    return metrics


async def scrape(hall: Hall) -> dict[str, Metric]:
    async with hall.http() as client:
        answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return parse(answer.text)


async def test_a_gateway_counts_what_it_does(hall: Hall) -> None:
    before = await scrape(hall)
    assert before["retinue_turn_seconds"].value("retinue_turn_seconds_count") == 0
    async with raw_socket(hall) as raw:
        for number in range(2):
            sent = await raw.result("agent", message="hi", idempotencyKey=str(number))
            await raw.result("agent.wait", runId=sent["runId"])
        hall.model.push(refuses(400, "no such thing"))
        sent = await raw.result("agent", message="hi", idempotencyKey="fails")
        await raw.result("agent.wait", runId=sent["runId"])
        after = await scrape(hall)
    assert after["retinue_turns_started_total"].value("retinue_turns_started_total") == 3
    assert after["retinue_turns_finished_total"].value("retinue_turns_finished_total", status="ok") == 2
    assert after["retinue_turn_errors_total"].value("retinue_turn_errors_total", kind="format") == 1
    assert after["retinue_tokens_total"].value("retinue_tokens_total", kind="input") == 200
    assert after["retinue_connections"].value("retinue_connections") == 1
    assert after["retinue_messages_waiting"].value("retinue_messages_waiting") == 0
    assert after["retinue_cost_dollars_total"].kind == "counter"
    seconds = after["retinue_turn_seconds"]
    buckets = [value for (name, _), value in seconds.samples.items() if name.endswith("_bucket")]
    assert buckets == sorted(buckets)
    assert seconds.value("retinue_turn_seconds_bucket", le="+Inf") == 3
    assert seconds.value("retinue_turn_seconds_count") == 3
    assert seconds.value("retinue_turn_seconds_sum") > 0


async def test_requests_of_programs_are_counted_by_outcome(hall: Hall) -> None:
    async with hall.http() as client:
        await client.post(
            "/v1/chat/completions", json={"model": "retinue", "messages": [{"role": "user", "content": "hi"}]}
        )
        await client.post(
            "/v1/chat/completions", json={"model": "nobody", "messages": [{"role": "user", "content": "hi"}]}
        )
    calls = (await scrape(hall))["retinue_calls_total"]
    assert calls.value("retinue_calls_total", method="/v1/chat/completions", outcome="ok") == 1
    assert calls.value("retinue_calls_total", method="/v1/chat/completions", outcome="not_found") == 1


async def test_sockets_that_are_refused_at_the_door_are_counted_and_fill_no_log(
    hall: Hall, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidStatus):
        await connect(hall.socket_url, proxy=None, origin=Origin("http://elsewhere.example"))
    refused = (await scrape(hall))["retinue_refusals_total"]
    assert refused.value("retinue_refusals_total", code="forbidden") == 1
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_every_value_is_written_in_full() -> None:
    text = render_metrics(
        [
            counter("a", "Help.", {'a"b\\c\nd': 1_234_567_891, "small": 0.1 + 0.2}, "name"),
            gauge("b", "Help.", 2.5),
        ]
    )
    found = parse(text)
    assert found["a_total"].value("a_total", name='a"b\\c\nd') == 1_234_567_891
    assert found["a_total"].value("a_total", name="small") == 0.1 + 0.2
    assert found["b"].value("b") == 2.5


def test_a_histogram_counts_what_is_at_most_each_limit() -> None:
    values = Histogram((0.1, 1.0))
    for value in (0.1, 0.5, 7.0):
        values.observe(value)
    found = parse(render_metrics([histogram("h", "Help.", values)]))["h"]
    assert [found.value("h_bucket", le=limit) for limit in ("0.1", "1", "+Inf")] == [1, 2, 3]
    assert math.isclose(found.value("h_sum"), 7.6)


def test_turns_are_timed_from_start_to_finish_and_failures_have_a_kind() -> None:
    meters = Metrics()
    session = SessionKey.main(AgentId("main"))
    meters.count_turn(TurnStarted(RunId("a"), session, "m"), 10.0)
    meters.count_turn(TurnFinished(RunId("a"), TurnStatus.OK, "", Usage(), "m"), 12.5)
    assert (meters.turn_seconds.count, meters.turn_seconds.sum) == (1, 2.5)
    meters.count_turn(TurnFinished(RunId("b"), TurnStatus.FAILED, "", Usage(), "m", "why", Failure.RATE_LIMIT), 13.0)
    meters.count_turn(TurnFinished(RunId("c"), TurnStatus.FAILED, "", Usage(), "m", "why"), 13.0)
    assert meters.turn_seconds.count == 1
    assert meters.errors == {"rate_limit": 1, "other": 1}
