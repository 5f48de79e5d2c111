"""A home full of planted secrets, a conversation that touches every one of them, and all that was written and said.

Each secret has a proof that it was really in use; a secret that nobody loaded proves nothing.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
from anyio import to_thread

from retinue.agent.calls import BEFORE_TOOL, ToolCallPending
from retinue.cli.common import keep_logs
from retinue.cli.main import run
from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.envelope import Inbound
from retinue.core.events import TurnEvent
from retinue.core.extension import HookSpec, Lazy
from retinue.core.keys import SessionKey
from retinue.runtime.home import load_home
from retinue.runtime.open import Runtime, open_runtime
from retinue.security.logs import LOG
from retinue.storage.home_paths import HomePaths
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Reply, calls, refuses, says
from tests.webserver import Request, WebServer, web_server
from tests.workspaces import begin_workspace

SKILL = "---\nname: {name}\ndescription: Uses a key.\nmetadata: {{retinue: {{primaryEnv: {variable}}}}}\n---\nUse it.\n"
DUMP = """env > dump.txt; env
printf %s "$SKILL_PLAIN" | base64 -w0
printf %s "$SKILL_PLAIN" | od -An -tx1 -v | tr -d ' \\n\'"""

ECHOES: dict[str, Callable[[str], str]] = {
    "plain": str,
    "json": json.dumps,
    "url": lambda key: quote(key, safe=""),
    "basic": lambda key: base64.b64encode(f"user:{key}".encode()).decode(),
    "python": repr,
}
"""How an endpoint that complains about a key repeats it."""


@dataclass(frozen=True, slots=True)
class Canary:
    """A secret, and how to see that it was in use."""

    name: str
    value: str
    proof: Callable[[Evidence], bool]

    @property
    def spellings(self) -> tuple[str, ...]:
        """The ways in which it would still be readable."""
        codes = [base64.b64encode(bytes(lead) + self.value.encode()).decode()[4:-4] for lead in range(3)]
        ways = [self.value, json.dumps(self.value)[1:-1], quote(self.value, safe=""), self.value.encode().hex()]
        return tuple(dict.fromkeys([*ways, *codes, *(code.translate(str.maketrans("+/", "-_")) for code in codes)]))


@dataclass
class Evidence:
    """What came of it all: what was sent to models, printed and written."""

    home: Path
    canaries: dict[str, Canary] = field(default_factory=dict)
    requests: list[Received] = field(default_factory=list)
    pages: list[Request] = field(default_factory=list)
    printed: dict[str, str] = field(default_factory=dict)
    events: list[TurnEvent] = field(default_factory=list)
    known: Callable[[str], str] = str

    def was_header(self, value: str) -> bool:
        """Whether a value arrived at an endpoint as a header."""
        seen = [request.headers for request in self.requests] + [dict(page.headers) for page in self.pages]
        return any(value in header for headers in seen for header in headers.values())

    def was_in_commands(self, value: str) -> bool:
        """Whether a command had the value in its environment."""
        return value in (self.home / "workspace" / "dump.txt").read_text()

    def was_read(self, value: str) -> bool:
        """Whether a file with the value was read by a tool, by somebody who knows that it is a secret."""
        return value in (self.home / "workspace" / "leaks.txt").read_text() and self.known(value) != value

    @property
    def traces(self) -> Iterator[tuple[str, str]]:
        """Every text that must be free of secrets, with where it is."""
        for number, request in enumerate(self.requests):
            yield f"prompt {number} of {request.path}", request.body.decode("utf-8", "replace")
        yield from self.printed.items()
        yield "events", repr(self.events)
        for path in sorted(self.home.rglob("*")):
            if path.is_file() and not _may_hold_secrets(path.relative_to(self.home)):
                yield str(path.relative_to(self.home)), path.read_bytes().decode("utf-8", "replace")


def _may_hold_secrets(path: Path) -> bool:
    """Where secrets are kept on purpose, and the files and copies of the workspace in which this test put them."""
    kept = path.name in ("retinue.json", "retinue.json.last-good", "auth-profiles.json", "keyring.json")
    return kept or path.parts[0] in ("secrets", "workspace", "checkpoints")


class EchoServer(ModelServer):
    """Says what its script says; models named `echo-*` complain about the key and repeat it."""

    async def reply_to(self, request: Received) -> Reply:
        model = str(request.json.get("model", ""))
        if not model.startswith("echo-"):
            return await super().reply_to(request)
        key = request.headers["authorization"].removeprefix("Bearer ")
        return refuses(401, f"invalid key {ECHOES[model.removeprefix('echo-')](key)} given")


@dataclass
class Scene:
    """The home before anything ran."""

    evidence: Evidence
    server: EchoServer
    web: WebServer
    environment: dict[str, str] = field(default_factory=dict)
    providers: dict[str, Any] = field(default_factory=dict)
    profiles: dict[str, Any] = field(default_factory=dict)
    leaks: list[str] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.evidence.home

    def plant(self, name: str, proof: Callable[[Evidence, str], bool], *, odd: bool = False) -> str:
        """A new secret; an `odd` one has characters that every format escapes."""
        tail = 'Zq/7+x"k&=\\%41' if odd else "Zq7xk41m"
        value = f"cnry{len(self.evidence.canaries):02}{name.replace('-', '')[:6]}{tail}"
        self.evidence.canaries[name] = Canary(name, value, lambda evidence: proof(evidence, value))
        return value

    def header(self, name: str, *, odd: bool = False) -> str:
        return self.plant(name, Evidence.was_header, odd=odd)

    def leak(self, name: str, *, odd: bool = False) -> str:
        """A secret that a tool will read from a file."""
        value = self.plant(name, Evidence.was_read, odd=odd)
        self.leaks.append(f"{name} is {value} indeed")
        return value

    def provider(self, name: str, model: str = "m", **settings: object) -> None:
        listed = [{"id": model, "contextWindow": 100_000}]
        self.providers[name] = {
            "baseUrl": f"{self.server.url}/v1",
            "api": "openai-completions",
            "models": listed,
            **settings,
        }


def _plant_providers(scene: Scene) -> None:
    secrets = scene.home / "secrets"
    secrets.mkdir(parents=True)
    scene.provider("plain", apiKey=scene.header("config-key"))
    scene.environment["KEY_BY_REFERENCE"] = scene.header("env-reference")
    scene.provider("envref", apiKey={"source": "env", "id": "KEY_BY_REFERENCE"})
    (secrets / "one").write_text(scene.header("file-reference") + "\n")
    scene.provider("fileref", apiKey={"source": "file", "path": str(secrets / "one")})
    (secrets / "many.json").write_text(json.dumps({"a": {"b": scene.header("json-pointer")}}))
    scene.provider("pointer", apiKey={"source": "file", "path": str(secrets / "many.json"), "id": "/a/b"})
    (secrets / "printed").write_text(scene.header("program"))
    scene.provider("program", apiKey={"source": "exec", "command": ["/bin/cat", str(secrets / "printed")]})
    ring = {
        "retinue\nring-key": scene.header("keyring"),
        "retinue\nmain/ringed:default": scene.header("keyring-profile"),
    }
    (scene.home / "keyring.json").write_text(json.dumps(ring))
    scene.provider("ring", apiKey={"source": "keyring", "id": "ring-key"})
    scene.environment["FILLED_IN"] = scene.header("substituted")
    scene.provider("filled", apiKey="${FILLED_IN}")
    scene.environment["HEADER_REF"] = scene.header("header-reference")
    headers = {"X-Plain": scene.header("header"), "X-Ref": {"source": "env", "id": "HEADER_REF"}}
    scene.provider("headed", apiKey=scene.header("header-key"), headers=headers)
    scene.environment["OPENAI_API_KEY"] = scene.header("vendor-variable")
    scene.provider("openai")
    for echo in ECHOES:
        scene.provider(f"echo-{echo}", f"echo-{echo}", apiKey=scene.header(f"echoed-{echo}", odd=echo != "plain"))


def _plant_profiles(scene: Scene) -> None:
    scene.environment["PROFILE_VARIABLE"] = scene.header("profile-variable")
    kept: dict[str, dict[str, Any]] = {
        "stored": {"type": "api_key", "key": scene.header("profile-key")},
        "variable": {"type": "api_key", "keyRef": {"source": "env", "id": "PROFILE_VARIABLE"}},
        "token": {"type": "token", "token": scene.header("profile-token")},
        "ringed": {"type": "api_key", "keyRef": {"source": "keyring", "id": "main/ringed:default"}},
    }
    for name, profile in kept.items():
        scene.provider(name, auth="api-key")
        scene.profiles[f"{name}:default"] = {"provider": name, **profile}


def _plant_everywhere_else(scene: Scene) -> dict[str, Any]:
    """Secrets of skills, tools, the gateway and the environment; gives their configuration."""
    in_commands = Evidence.was_in_commands
    scene.environment |= {
        "DATABASE_URL": f"postgres://me:{scene.leak('database-password')}@db.example/x",
        "AWS_SECRET_ACCESS_KEY": scene.leak("cloud-key", odd=True),
        "PGPASSWORD": scene.leak("password-variable"),
        "GITHUB_TOKEN": scene.leak("token-variable"),
        "WEBHOOK_AUTH": scene.leak("typed-by-the-person"),
        "SLACK_SIGNING_SECRET": scene.leak("raised-by-a-plugin"),
        "SITE_PASSWORD": scene.leak("site-password"),
    }
    script = scene.home / "secrets" / "skill"
    script.write_text(scene.plant("skill-program", in_commands))
    return {
        "skills": {
            "entries": {
                "alpha": {
                    "apiKey": scene.plant("skill-key", in_commands),
                    "env": {"SKILL_PLAIN": scene.plant("skill-variable", in_commands)},
                },
                "beta": {"apiKey": {"source": "exec", "command": ["/bin/cat", str(script)]}},
            }
        },
        "tools": {
            "web": {"search": {"provider": "tavily", "apiKey": scene.header("search-key"), "baseUrl": scene.web.url}}
        },
        "gateway": {"auth": {"token": scene.leak("gateway-token"), "password": scene.leak("gateway-password")}},
        "hooks": {"token": scene.leak("hook-token")},
        "cron": {"webhookToken": {"source": "env", "id": "CRON_TOKEN_REF"}},
        "env": {"vars": {"SOME_KEY": scene.leak("configured-variable")}},
        "plugins": {
            "entries": {"demo": {"config": {"apiKey": scene.leak("plugin-setting"), "note": "${GITHUB_TOKEN}"}}}
        },
        "agents": {
            "defaults": {
                "model": "plain/m",
                "sandbox": {"mode": "off"},  # a sandboxed command gets no secrets of skills
                "memorySearch": {
                    "provider": "openai-compatible",
                    "model": "e",
                    "sources": ["memory", "sessions"],
                    "remote": {
                        "baseUrl": f"{scene.web.url}/v1",
                        "apiKey": scene.header("embedding-key"),
                        "headers": {"X-Embed": scene.header("embedding-header")},
                    },
                },
            }
        },
    }


def prepare(scene: Scene) -> None:
    """Write the home."""
    _plant_providers(scene)
    _plant_profiles(scene)
    config = _plant_everywhere_else(scene)
    scene.environment["CRON_TOKEN_REF"] = scene.leak("cron-token")
    workspace = begin_workspace(scene.home / "workspace")
    for name, variable in (("alpha", "ALPHA_KEY"), ("beta", "BETA_KEY")):
        folder = workspace / "skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(SKILL.format(name=name, variable=variable))
    prompted = scene.plant(
        "in-the-prompt", lambda evidence, value: "My token is [redacted]." in evidence.requests[0].body.decode()
    )
    scene.environment["PROMPTED_TOKEN"] = prompted
    (workspace / "TOOLS.md").write_text(f"My token is {prompted}.\n")
    (workspace / "leaks.txt").write_text("\n".join(scene.leaks))
    (workspace / "memory").mkdir()
    (workspace / "memory" / "2026-01-01.md").write_text("We planted tulips by the pond.\n")
    agent = scene.home / "agents" / "main" / "agent"
    agent.mkdir(parents=True)
    (agent / "auth-profiles.json").write_text(json.dumps({"version": 1, "profiles": scene.profiles}))
    config["models"] = {"providers": scene.providers}
    (scene.home / "retinue.json").write_text(json.dumps(config))


async def agree(request: ApprovalRequest) -> ApprovalDecision:
    return ApprovalDecision(Verdict.ALLOW_ONCE, "this is a test")


async def crash(event: ToolCallPending) -> ToolCallPending:
    """A plugin that fails with a secret in its hands, at a point where that is only logged."""
    if event.call.name == "session_status":
        raise RuntimeError(f"cannot sign with {os.environ['SLACK_SIGNING_SECRET']}")
    return event


def _serve_pages(scene: Scene) -> None:
    async def search(request: Request, writer: Any) -> None:
        echoed = request.headers.get("authorization", "")
        body = json.dumps({"results": [{"title": echoed, "url": "https://x.example", "content": f"you sent {echoed}"}]})
        writer.write(f"HTTP/1.1 200 X\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode())

    async def embed(request: Request, writer: Any) -> None:
        rows = [
            {"index": n, "embedding": [0.1, 0.2, float(n)]} for n, _ in enumerate(json.loads(request.body)["input"])
        ]
        body = json.dumps({"data": rows})
        writer.write(f"HTTP/1.1 200 X\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode())

    scene.web.answers |= {"/": search, "/v1/embeddings": embed}


async def talk(scene: Scene, runtime: Runtime) -> None:
    """Use every secret at least once."""
    evidence = scene.evidence

    async def emit(event: TurnEvent) -> None:
        evidence.events.append(event)

    async def say(text: str, *replies: Reply, model: str | None = None, session: str = "main") -> None:
        scene.server.push(*replies)
        inbound = Inbound(text, SessionKey.parse(f"agent:main:{session}"), model=model)
        outbound = await runtime.say(inbound, emit, agree)
        assert not replies or outbound.error is None, outbound.error
        evidence.printed[f"answer {len(evidence.printed)}"] = repr(outbound)

    await say("hello", says("hi"))
    for name, provider in scene.providers.items():
        model = provider["models"][0]["id"]
        answers = () if name.startswith("echo-") else (says(f"{name} answers"),)
        await say(f"ask {name}", *answers, model=f"{name}/{model}", session=f"with-{name}")
    await say("read it", calls("read", path="leaks.txt"), says("I read it."))
    await say("find it", calls("grep", pattern="cnry"), says("I found it."))
    use = calls("read", path="skills/alpha/SKILL.md")  # a run gets the variables of the skills that it uses
    more = calls("read", path="skills/beta/SKILL.md")
    await say("run it", use, more, calls("exec", command=DUMP), says("I ran it."))
    slow = 'while [ ! -e go ]; do sleep 0.05; done; echo "$SKILL_PLAIN"'
    await say("later", use, more, calls("exec", command=slow, background=True), says("Started."))
    (scene.home / "workspace" / "go").write_text("")
    with anyio.fail_after(60):
        wake = await runtime.dispatcher.wakes.receive()
    scene.server.push(says("It ended."))
    evidence.printed["wake"] = repr(await runtime.dispatcher.answer(wake, emit, agree))
    await say("search", calls("web_search", query="tulips"), says("Nothing."))
    await say("remember", calls("memory_search", query="tulips"), says("By the pond."))
    await say(f"my key is {evidence.canaries['typed-by-the-person'].value}, use it", says("No."))
    await say("status", calls("session_status"), says("Fine."))
    await say("/status")
    await say("/context")
    evidence.requests += scene.server.requests
    evidence.pages += scene.web.requests
    evidence.known = runtime.home.redactor.hide_exact


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("config", "get"),
    ("config", "get", "--json"),
    ("config", "get", "plugins.entries.demo.config"),
    ("config", "explain", "models.providers.plain.apiKey", "--json"),
    ("config", "validate", "--json"),
    ("config", "set", "gateway.auth.mode", "nonsense"),
    ("models", "list", "--json"),
    ("models", "auth", "list", "--json"),
    ("models", "test", "echo-plain/echo-plain", "--json"),
    ("models", "test", "echo-json/echo-json"),
    ("sessions", "list", "--json"),
    ("sessions", "show", "main"),
    ("sessions", "show", "main", "--json"),
    ("sessions", "export", "main"),
    ("sessions", "export", "main", "--format", "json"),
    ("prompt", "show"),
    ("prompt", "sizes", "--json"),
    ("memory", "search", "tulips", "--json"),
    ("skills", "info", "alpha", "--json"),
    ("workspace", "status", "--json"),
    ("security", "log", "--json"),
    ("security", "log", "--verify"),
)


def command(evidence: Evidence, *arguments: str) -> None:
    """Run a command line and keep everything it prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        run(list(arguments))
    evidence.printed[" ".join(arguments)[:60]] = out.getvalue() + err.getvalue()


async def tell_the_story(evidence: Evidence, set_variable: Callable[[str, str], None]) -> None:
    """Plant, talk, and print; the secrets of the environment are set in this process."""
    async with EchoServer() as server, web_server() as web:
        scene = Scene(evidence, server, web)
        prepare(scene)
        _serve_pages(scene)
        for name, value in scene.environment.items():
            set_variable(name, value)
        keep_logs(HomePaths(evidence.home))
        foundation = load_home(HomePaths(evidence.home))
        assert not foundation.loaded.errors, foundation.loaded.errors
        hook = HookSpec(BEFORE_TOOL.name, "demo", Lazy("tests.security.canaries:crash"))
        foundation.registry.hooks.append(hook)
        async with open_runtime(foundation) as runtime:
            await talk(scene, runtime)
        logging.getLogger("retinue.test").error("and %s", list(scene.environment.values()))
        typed = scene.plant(
            "typed-on-the-command-line", lambda evidence, value: value in (evidence.home / "retinue.json").read_text()
        )
        await to_thread.run_sync(lambda: command(evidence, "config", "set", "gateway.auth.token", typed))
        for arguments in COMMANDS:
            await to_thread.run_sync(lambda arguments=arguments: command(evidence, *arguments))  # type: ignore[misc]
        evidence.requests += [request for request in server.requests if request not in evidence.requests]


def stop_logging() -> None:
    """Let go of the log file of the home."""
    everything = logging.getLogger()
    for handler in [handler for handler in everything.handlers if handler.name == LOG]:
        everything.removeHandler(handler)
        handler.close()
    logging.captureWarnings(False)
