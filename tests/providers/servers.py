"""Model servers of other projects, on loopback: LiteLLM's proxy and llama.cpp's server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

LITELLM_PYTHON = Path(sys.prefix) / "servers" / "bin" / "python"
"""LiteLLM needs older releases of packages that the tests need, so `make test-servers` installs it beside them."""
START_SECONDS = 180.0
SERVER_KEY = "sk-of-the-test-server"

TOOL_TEMPLATE = """
{%- if tools -%}
<|im_start|>system
{{ messages[0].content }}
You may call functions:
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
Call one like this: <tool_call>
{"name": "exec", "arguments": {"command": "ls"}}
</tool_call><|im_end|>
{%- endif %}
{%- for message in messages %}
{%- if message.role == "tool" %}
<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{%- elif message.tool_calls %}
<|im_start|>assistant
{{ message.content or "" }}
{%- for call in message.tool_calls %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{%- elif message.role != "system" or not tools %}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
"""
"""SmolLM2's own chat template has no tools."""


@contextmanager
def litellm_proxy(folder: Path, models: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Run LiteLLM's proxy for these models, each with the parameters of the server behind it; yield its address."""
    if not LITELLM_PYTHON.exists():
        pytest.skip("LiteLLM's proxy (300 MB) is not part of make test; run: make test-servers")
    config = {
        "model_list": [{"model_name": name, "litellm_params": dict(given)} for name, given in models.items()],
        "general_settings": {"master_key": SERVER_KEY},
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
    }
    path = folder / "litellm.yaml"  # JSON is also YAML
    path.write_text(json.dumps(config))
    port = _free_port()
    argv = [str(LITELLM_PYTHON), "-m", "uvicorn", "litellm.proxy.proxy_server:app", "--port", str(port)]
    with (folder / "litellm.log").open("w+") as log:
        server = subprocess.Popen(argv, cwd=folder, env=_offline_environment(path), stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_ready(server, f"{url}/health/liveliness", folder / "litellm.log")
            yield url
        finally:
            server.kill()
            server.wait()


@contextmanager
def llama_server(model: Path) -> Iterator[str]:
    """Run llama.cpp's server for a model file, with the most likely token always chosen; yield its address."""
    llama = pytest.importorskip("xllamacpp")
    parameters = llama.CommonParams()
    parameters.model.path = str(model)
    parameters.model_alias = {"smollm2"}
    parameters.api_keys = [SERVER_KEY]
    parameters.n_ctx, parameters.n_parallel, parameters.verbosity, parameters.port = 2048, 1, -1, 0
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1  # threads wait for each other by spinning
    parameters.warmup = parameters.ui = parameters.endpoint_slots = False
    parameters.use_jinja, parameters.chat_template, parameters.sampling.temp = True, TOOL_TEMPLATE, 0.0
    server = llama.Server(parameters)
    yield server.listening_address
    del server  # which stops it


def _offline_environment(config: Path) -> dict[str, str]:
    nowhere = "http://127.0.0.1:9"
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(config.parent),
        "CONFIG_FILE_PATH": str(config),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "HTTP_PROXY": nowhere,
        "HTTPS_PROXY": nowhere,
        "NO_PROXY": "127.0.0.1",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urlopen(url):
                return
        except URLError:
            time.sleep(0.2)
    pytest.fail(f"the server did not start: {log.read_text()[-2000:]}")
