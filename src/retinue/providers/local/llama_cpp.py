"""Models in this process: a GGUF file, run by llama.cpp (the extra `local`).

One model is loaded at a time, on first use, and unloaded after it has been idle for a while.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from retinue.core.errors import ModelError
from retinue.core.model import Failure, ModelEvent, ModelRequest
from retinue.providers.apis.http_adapter import sampling
from retinue.providers.apis.openai_chat import chat_messages, chat_tools, read_chunk
from retinue.providers.base import Credential, Endpoint
from retinue.providers.failures import CallFailed, failure_from_response
from retinue.providers.local.demo import DEMO_WINDOW, demo_request, shorten_answer
from retinue.providers.local.gguf import find_model_file, is_demo_model, read_model_file
from retinue.providers.stream import Delta, Draft, deliver, to_json

if TYPE_CHECKING:
    from types import ModuleType


log = logging.getLogger(__name__)

IDLE_SECONDS = 600.0
STOP_SECONDS = 5.0
_END = object()


class LlamaCppProvider:
    """A provider whose models are files in a folder."""

    def __init__(self, endpoint: Endpoint, *, idle_seconds: float = IDLE_SECONDS) -> None:
        if endpoint.models_dir is None:
            raise ModelError("The local provider needs a folder of model files.")
        self._endpoint = endpoint
        self._folder = endpoint.models_dir
        self._idle_seconds = idle_seconds
        # Not a lock: an abandoned stream may be closed by another task than the one that read it.
        self._turn = anyio.Semaphore(1)
        self._engine: _Engine | None = None
        self._unload_timer: asyncio.TimerHandle | None = None

    @property
    def id(self) -> str:
        return self._endpoint.provider

    @property
    def loaded(self) -> str | None:
        """Return the loaded model."""
        return self._engine.path.stem if self._engine else None

    def stream(self, request: ModelRequest, credential: Credential | None = None) -> AsyncGenerator[ModelEvent, None]:
        def source(draft: Draft) -> AsyncGenerator[Delta, None]:
            return self._converse(request, draft)

        return deliver(source, request, self._endpoint.timeouts)

    async def aclose(self) -> None:
        async with self._turn:
            await self._unload()

    async def _converse(self, request: ModelRequest, draft: Draft) -> AsyncGenerator[Delta, None]:
        demo = is_demo_model(request.model.model)
        async with self._turn:
            engine = await self._load(request)
            wanted = demo_request(request) if demo else request
            try:
                async with aclosing(_generate(engine, local_body(wanted, tools=engine.calls_tools))) as chunks:
                    async for chunk in shorten_answer(chunks) if demo else chunks:
                        for piece in read_chunk(chunk, draft):
                            yield piece
            finally:
                self._unload_timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._unload_if_idle)

    async def _load(self, request: ModelRequest) -> _Engine:
        if self._unload_timer is not None:
            self._unload_timer.cancel()
        path = find_model_file(self._folder, request.model.model)
        if path is None:
            raise CallFailed(
                Failure.NOT_FOUND,
                f"there is no model '{request.model.model}' in {self._folder}. Get one: retinue models pull",
            )
        if self._engine is None or self._engine.path != path:
            await self._unload()
            demo = is_demo_model(request.model.model)
            window = DEMO_WINDOW if demo else self._endpoint.describe(request.model).window
            self._engine = await anyio.to_thread.run_sync(_Engine, path, window)
        return self._engine

    async def _unload(self) -> None:
        if self._unload_timer is not None:
            self._unload_timer.cancel()
        engine, self._engine = self._engine, None
        if engine is not None:
            await anyio.to_thread.run_sync(engine.close)

    def _unload_if_idle(self) -> None:
        """Unload the model after an idle period, unless a call is waiting."""
        if self._turn.value and self._engine is not None:
            log.info("local model %s unloaded after %g idle seconds", self.loaded, self._idle_seconds)
            engine, self._engine = self._engine, None
            asyncio.get_running_loop().run_in_executor(None, engine.close)


def local_body(request: ModelRequest, *, tools: bool) -> dict[str, Any]:
    """Return the request in the format of llama.cpp's server."""
    body: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}, "cache_prompt": True}
    if request.max_output:
        body["max_tokens"] = request.max_output
    body |= sampling(request)
    if request.tools and tools:
        body["tools"] = chat_tools(request.tools)
    return body | {"messages": chat_messages(request)}


class _Engine:
    """A loaded model. Creating one reads the whole file, so it runs in a thread."""

    def __init__(self, path: Path, window: int) -> None:
        try:
            llama, facts = load_llama(), read_model_file(path)
            parameters = quiet_parameters(llama, path)
            parameters.n_ctx = min(window, facts.window or window)
            self._server: Any = start_engine(llama, parameters, path)
        except ModelError as error:
            raise CallFailed(Failure.NOT_FOUND, str(error)) from error
        self.path = path
        self.calls_tools = facts.calls_tools

    def chat(self, body: dict[str, Any], take: Callable[[Any], bool]) -> None:
        """Run one request to its end, passing each chunk to `take`, which returns True to stop."""
        result = self._server.handle_chat_completions(body, take)
        if isinstance(result, dict) and result.get("error"):
            raise failure_from_response(result["error"].get("code"), to_json(result))

    def close(self) -> None:
        self._server = None


async def _generate(engine: _Engine, body: dict[str, Any]) -> AsyncGenerator[Any, None]:
    """Yield the chunks of one answer. The engine works in a thread; closing the iterator stops it at its next token.

    There is no task group here: its scope would stay open between two chunks, across the caller's time-outs.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[Any] = asyncio.Queue()
    stopped = False

    def take(chunk: Any) -> bool:
        if not stopped:
            loop.call_soon_threadsafe(chunks.put_nowait, chunk)
        return stopped

    work = loop.run_in_executor(None, engine.chat, body, take)
    work.add_done_callback(lambda _: chunks.put_nowait(_END))
    try:
        while (chunk := await chunks.get()) is not _END:
            yield chunk
        await work
    finally:
        stopped = True
        with anyio.CancelScope(shield=True), anyio.move_on_after(STOP_SECONDS):
            await asyncio.wait([work])


def make_provider(endpoint: Endpoint) -> LlamaCppProvider:
    return LlamaCppProvider(endpoint)


def load_llama() -> ModuleType:
    """Import the library; raise `ModelError` if its extra is not installed."""
    try:
        import xllamacpp
    except ImportError:
        raise ModelError("Local models need the extra 'local'. Install it: pip install 'retinue[local]'") from None
    module: ModuleType = xllamacpp
    return module


def quiet_parameters(llama: ModuleType, path: Path) -> Any:
    """Return the parameters of an engine with one caller and no output."""
    parameters = llama.CommonParams()
    parameters.model.path = str(path)
    parameters.n_parallel = 1
    parameters.verbosity = -1
    parameters.warmup = False
    parameters.ui = False
    parameters.endpoint_slots = False
    # The engine always listens on a loopback port. A random key prevents other processes from using it;
    # we call it in process.
    parameters.api_keys = [secrets.token_urlsafe(32)]
    # Threads that wait for each other sleep: busy waiting took up to half of the time on a machine with other work.
    parameters.cpuparams.poll = parameters.cpuparams_batch.poll = 0
    return parameters


def start_engine(llama: ModuleType, parameters: Any, path: Path) -> Any:
    """Return an engine with its model loaded; raise `ModelError` if that fails."""
    try:
        return llama.Server(parameters)
    except RuntimeError as error:
        raise ModelError(f"'{path.name}' cannot be loaded: {error}") from error
