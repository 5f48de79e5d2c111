#!/usr/bin/env python3
# /// script
# requires-python = ">=3.11"
# dependencies = ["paho-mqtt>=2.1"]
# ///
"""Read and publish messages of an MQTT broker."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from paho.mqtt.client import Client

CONNECT_SECONDS = 15
MAX_MESSAGES = 10_000
MAX_SHOWN = 2_000


class BrokerError(Exception):
    """The request cannot be carried out; the message says why."""


@contextmanager
def connected(prepare: Any = None) -> Iterator[Client]:
    """Yield a connected client; `prepare` may set its callbacks before."""
    try:
        import paho.mqtt.client as mqtt
    except ImportError:
        raise BrokerError(f"paho-mqtt is not installed; start the script with `uv run {__file__}`") from None
    parts = urlsplit(os.environ.get("MQTT_URL", ""))
    if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname:
        raise BrokerError("MQTT_URL is not set, or does not look like mqtts://broker.example.org:8883")
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    if parts.scheme == "mqtts":
        client.tls_set()
    user = os.environ.get("MQTT_USER", "")
    if user:
        client.username_pw_set(user, os.environ.get("MQTT_PASSWORD") or None)
    answers: list[Any] = []
    client.on_connect = lambda _client, _data, _flags, reason, _properties: answers.append(reason)
    if prepare is not None:
        prepare(client)
    try:
        client.connect(parts.hostname, parts.port or (8883 if parts.scheme == "mqtts" else 1883))
        client.loop_start()
        wait_until(lambda: bool(answers), CONNECT_SECONDS, f"{parts.hostname} did not answer")
        if answers[0].is_failure:
            raise BrokerError(f"{parts.hostname} refused the connection: {answers[0]}")
        yield client
    except (OSError, ValueError) as failure:
        raise BrokerError(f"cannot use {parts.hostname}: {failure}") from failure
    finally:
        client.disconnect()
        client.loop_stop()


def wait_until(condition: Any, seconds: float, message: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise BrokerError(message)
        time.sleep(0.01)


def read(options: argparse.Namespace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def keep(_client: Client, _data: Any, message: Any) -> None:
        if len(found) < options.count:
            payload = bytes(message.payload)
            try:
                text: Any = payload.decode()
            except UnicodeDecodeError:
                text = {"hex": payload[:MAX_SHOWN].hex()}
            found.append(
                {"topic": message.topic, "payload": text, "retained": bool(message.retain), "qos": message.qos}
            )

    def prepare(client: Client) -> None:
        client.on_message = keep

    with connected(prepare) as client:
        subscribed: list[Any] = []
        client.on_subscribe = lambda _client, _data, _number, reasons, _properties: subscribed.extend(reasons)
        client.subscribe([(topic, 1) for topic in options.topics])
        wait_until(lambda: bool(subscribed), CONNECT_SECONDS, "the broker did not confirm the subscription")
        refused = [str(reason) for reason in subscribed if reason.is_failure]
        if refused:
            raise BrokerError(f"the broker refused the subscription: {refused[0]}")
        end = time.monotonic() + options.seconds
        while time.monotonic() < end and len(found) < options.count:
            time.sleep(0.01)
    return found


def publish(options: argparse.Namespace) -> list[dict[str, Any]]:
    text = sys.stdin.read() if options.payload == "-" else options.payload
    if set("+#") & set(options.topic):
        raise BrokerError(f"{options.topic!r} is a pattern; publish to one topic")
    with connected() as client:
        sent = client.publish(options.topic, text, qos=options.qos, retain=options.retain)
        wait_until(sent.is_published, CONNECT_SECONDS, "the broker did not confirm the message")
    return [{"topic": options.topic, "payload": text, "qos": options.qos, "retained": options.retain}]


def show(messages: list[dict[str, Any]]) -> str:
    lines = []
    for each in messages:
        text = each["payload"] if isinstance(each["payload"], str) else f"(binary) {each['payload']['hex']}"
        plain = "".join(char if char.isprintable() else " " for char in text[:MAX_SHOWN])
        lines.append(f"{each['topic']}  {plain}{'  (retained)' if each['retained'] else ''}")
    return "\n".join(lines) or "No messages."


def topic(text: str) -> str:
    if not text or "\0" in text or len(text) > 1000:
        raise argparse.ArgumentTypeError("a topic looks like home/kitchen/temperature")
    return text


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    reading = commands.add_parser("read", parents=[shared], help="collect messages")
    reading.add_argument("topics", nargs="+", type=topic)
    reading.add_argument("--seconds", type=float, default=10)
    reading.add_argument("--count", type=int, default=MAX_MESSAGES)
    reading.set_defaults(run=read)
    sending = commands.add_parser("publish", parents=[shared], help="send a message")
    sending.add_argument("topic", type=topic)
    sending.add_argument("payload", help="the message; - reads standard input")
    sending.add_argument("--qos", type=int, choices=(0, 1, 2), default=1)
    sending.add_argument("--retain", action="store_true")
    sending.set_defaults(run=publish)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        messages: list[dict[str, Any]] = options.run(options)
    except BrokerError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(messages, ensure_ascii=False, indent=2) if options.json else show(messages))
    return 0


if __name__ == "__main__":
    sys.exit(main())
