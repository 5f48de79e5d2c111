"""MQTT messages, through a broker on this machine."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script

CONNECT, PUBLISH, SUBSCRIBE, PING, DISCONNECT = 1, 3, 8, 12, 14


@dataclass
class Broker:
    """As much of MQTT 3.1.1 as a client needs that reads retained messages or publishes."""

    retained: dict[str, bytes] = field(default_factory=dict)
    published: list[tuple[str, bytes, int]] = field(default_factory=list)
    connect_code: int = 0
    port: int = 0

    def serve(self, handler: socketserver.StreamRequestHandler) -> None:
        read, write = handler.rfile.read, handler.wfile.write
        while first := read(1):
            size, shift = 0, 0
            while True:
                (byte,) = read(1)
                size |= (byte & 0x7F) << shift
                shift += 7
                if not byte & 0x80:
                    break
            body = read(size)
            match first[0] >> 4:
                case kind if kind == CONNECT:
                    write(bytes([0x20, 2, 0, self.connect_code]))
                case kind if kind == SUBSCRIBE:
                    write(bytes([0x90, 3]) + body[:2] + b"\x01")
                    for topic, payload in self.retained.items():
                        data = len(topic).to_bytes(2, "big") + topic.encode() + payload
                        write(bytes([0x31, len(data)]) + data)
                case kind if kind == PUBLISH:
                    cut = 2 + int.from_bytes(body[:2], "big")
                    after = cut + (2 if first[0] & 0x06 else 0)
                    self.published.append((body[2:cut].decode(), body[after:], first[0] & 1))
                    if first[0] & 0x06:
                        write(bytes([0x40, 2]) + body[cut:after])
                case kind if kind == PING:
                    write(bytes([0xD0, 0]))
                case kind if kind == DISCONNECT:
                    return


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker()

    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            broker.serve(self)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        broker.port = server.server_address[1]
        yield broker
        server.shutdown()
        thread.join()


@pytest.fixture
def mqtt(workspace: Workspace, broker: Broker) -> Script:
    given = {"MQTT_URL": f"mqtt://127.0.0.1:{broker.port}"}
    return script("mqtt", "mqtt.py", Workspace(workspace.folder, given), libraries=True)


def test_messages_are_collected_until_there_are_enough(mqtt: Script, broker: Broker) -> None:
    broker.retained = {"home/kitchen/temperature": b"21.5", "home/cam": b"\xff\x00"}
    assert mqtt.json("read", "home/#", "--count", 2, "--seconds", 30) == [
        {"topic": "home/kitchen/temperature", "payload": "21.5", "retained": True, "qos": 0},
        {"topic": "home/cam", "payload": {"hex": "ff00"}, "retained": True, "qos": 0},
    ]
    broker.retained = {}
    assert mqtt.run("read", "home/#", "--seconds", 0) == "No messages.\n"


def test_a_message_is_published_and_confirmed(mqtt: Script, broker: Broker) -> None:
    mqtt.run("publish", "home/lamp/set", "on")
    mqtt.run("publish", "home/text", "-", "--retain", "--qos", 1, stdin="two\nlines")
    assert broker.published == [("home/lamp/set", b"on", 0), ("home/text", b"two\nlines", 1)]


def test_failures_say_what_to_do(mqtt: Script, broker: Broker, workspace: Workspace) -> None:
    assert "publish to one topic" in mqtt.fail("publish", "home/+", "on")
    broker.connect_code = 5
    assert "refused the connection" in mqtt.fail("read", "home", "--seconds", 1)
    assert "MQTT_URL is not set" in script("mqtt", "mqtt.py", workspace, libraries=True).fail("read", "home")
    lost = Workspace(workspace.folder, {"MQTT_URL": "mqtt://127.0.0.1:9"})
    assert "cannot use 127.0.0.1" in script("mqtt", "mqtt.py", lost, libraries=True).fail("read", "home")
    assert "start the script with `uv run" in script("mqtt", "mqtt.py", lost).fail("read", "home")
