"""The suites of agentdojo, in the shape of our own; `scripts/setup.sh bench` installs it beside the environment."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.security.hijack.suites import Arguments, Goal, Suite, SuiteCall, SuiteTool, UserTask

VERSION = "v1.2.2"
NAMES = ("workspace", "banking", "slack", "travel")
_READING = ("get_", "search_", "list_", "read_", "check_")
_FETCHES = "get_webpage"
"""It requests any address, as web_fetch does, so web_fetch takes its place."""
_SENDER = {"workspace": "send_email", "travel": "send_email"}


def load_suites() -> tuple[Suite, ...]:
    """Return the suites; none if agentdojo is not installed."""
    beside = Path(sys.prefix).glob("bench/lib/python*/site-packages")
    sys.path += [str(folder) for folder in beside if str(folder) not in sys.path]
    try:
        loading = importlib.import_module("agentdojo.task_suite.load_suites")
    except ImportError:
        return ()
    return tuple(_read_suite(name, loading.get_suite(VERSION, name)) for name in NAMES)


def _read_suite(name: str, suite: Any) -> Suite:
    runtime = importlib.import_module("agentdojo.functions_runtime").FunctionsRuntime(suite.tools)

    def make_environment() -> Any:
        return suite.load_and_inject_default_environment({})

    def make_tool(tool: str) -> SuiteTool:
        def run(environment: Any, arguments: Arguments) -> str:
            result, error = runtime.run_function(environment, tool, dict(arguments))
            return str(error or result)

        return SuiteTool(tool, run, reads_only=tool.startswith(_READING))

    return Suite(
        name,
        tuple(make_tool(tool.name) for tool in suite.tools if tool.name != _FETCHES),
        tuple(_read_goals(name, suite, make_environment)),
        tuple(
            UserTask(task.PROMPT, _read_calls(task, task.init_environment(make_environment())))
            for task in suite.user_tasks.values()
        ),
        make_environment,
    )


def _read_goals(name: str, suite: Any, make_environment: Any) -> Iterator[Goal]:
    """Yield the goals. Some have no calls of their own; they are pursued by a mail with what they ask for."""
    for task in suite.injection_tasks.values():
        calls = _read_calls(task, make_environment())
        if not calls and name == "workspace":
            text = {"recipients": ["mark.black-2134@gmail.com"], "subject": "All", "body": task.GOAL}
            calls = (SuiteCall(_SENDER[name], text),)
        yield Goal(" ".join(task.GOAL.split()), calls)


def _read_calls(task: Any, environment: Any) -> tuple[SuiteCall, ...]:
    return tuple(_read_call(call.function, dict(call.args)) for call in task.ground_truth(environment))


def _read_call(tool: str, arguments: dict[str, Any]) -> SuiteCall:
    if tool != _FETCHES:
        return SuiteCall(tool, arguments)
    address = str(arguments["url"])
    return SuiteCall("web_fetch", {"url": address if "://" in address else f"https://{address}"})
