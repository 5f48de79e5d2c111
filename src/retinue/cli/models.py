"""`retinue models`: show, test, choose and download models."""

from __future__ import annotations

import json
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, pass_invocation, table
from retinue.cli.models_auth import auth
from retinue.cli.terminal import is_terminal
from retinue.providers.local import engine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.progress import Progress as Bar

    from retinue.cli.common import Invocation
    from retinue.core.events import Notice
    from retinue.core.model import ModelInfo, ModelRef
    from retinue.providers.detect import Detected
    from retinue.providers.local.pull import OnProgress, PullableModel, PulledModel, PullProgress
    from retinue.providers.model_choice import ChosenModel
    from retinue.runtime.home import Home
    from retinue.runtime.models import ModelAccess, Trial


ANSWER_SHOWN = 60

SMALLEST = "smollm2-135m"
"""The smallest downloadable model."""
STEP_PERCENT = 10


@click.group(cls=Group)
def models() -> None:
    pass


models.add_command(auth)


@models.command("list")
@click.option("--agent", metavar="ID", help="Agent (default: the default agent).")
@click.option("--all", "everything", is_flag=True, help="Include models of providers without a key.")
@pass_invocation
def list_models(invocation: Invocation, agent: str | None, everything: bool) -> None:
    """Show the selected model with the reason, and the models that can be chosen."""
    import anyio

    found = anyio.run(_survey, invocation.load_home(), agent, everything)
    invocation.show(found, lambda: _format_survey(found))


async def _survey(home: Home, agent: str | None, everything: bool) -> dict[str, Any]:
    from retinue.runtime.models import open_access

    chosen_agent = home.agent_id(agent)
    async with open_access(home, chosen_agent) as access:
        choice = await access.choose()
        refs = dict.fromkeys(([choice.ref] if choice else []) + list(access.known()))
        if everything:
            catalog = access.providers.catalog
            refs |= dict.fromkeys(ref for name in access.providers.known() for ref in catalog.listed(name))
        aliases = {name: str(access.resolve(name)) for name in access.aliases}
        return {
            "agent": chosen_agent,
            "chosen": _describe_choice(choice) if choice else None,
            "fallbacks": [str(ref) for ref in access.chain(choice)[1:]] if choice else [],
            "aliases": aliases,
            "models": [
                _describe(access.info(ref), aliases)
                | {"name": access.providers.catalog.display_name(ref), "ready": access.is_ready(ref.provider)}
                for ref in refs
            ],
        }


def _describe_choice(choice: ChosenModel) -> dict[str, Any]:
    return {"model": str(choice.ref), "because": choice.because, "howToChange": choice.how_to_change}


def _describe(info: ModelInfo, aliases: dict[str, str]) -> dict[str, Any]:
    price = info.price
    return {
        "model": str(info.ref),
        "aliases": [name for name, ref in aliases.items() if ref == str(info.ref)],
        "window": info.window,
        "maxOutput": info.max_output,
        "inputs": sorted(info.inputs, reverse=True),
        "tools": info.tools,
        "reasoning": info.reasoning,
        "price": {
            "input": price.input,
            "output": price.output,
            "cacheRead": price.cache_read,
            "cacheWrite": price.cache_write,
        }
        if price.input or price.output
        else None,
    }


def _format_survey(found: dict[str, Any]) -> str:
    from retinue.runtime.models import NO_MODEL

    chosen = found["chosen"]
    if chosen:
        head = f"{chosen['model']} is selected for agent '{found['agent']}': {chosen['because']}."
        if found["fallbacks"]:
            head += f"\nFallbacks: {', then '.join(found['fallbacks'])}."
        head += f"\nChange it: {chosen['howToChange']}"
    else:
        head = NO_MODEL
    if not found["models"]:
        return head
    rows = [
        (
            row["model"] if row["name"] == row["model"] else f"{row['model']} ({row['name']})",
            f"{row['window']:,}",
            f"{row['price']['input']:g} / {row['price']['output']:g}" if row["price"] else "-",
            "+".join(row["inputs"]),
            "tools" if row["tools"] else "no tools",
            "" if row["ready"] else "no key",
            ", ".join(row["aliases"]),
        )
        for row in found["models"]
    ]
    header = ("model", "window", "$ in/out per M", "reads", "calls", "", "aliases")
    return f"{head}\n\n{table(rows, header=header)}"


@models.command()
@click.argument("ref", required=False)
@click.option("--agent", metavar="ID", help="Agent (default: the default agent).")
@pass_invocation
def test(invocation: Invocation, ref: str | None, agent: str | None) -> int:
    """Send a short request to the model, or to REF, and report the result.

    Without REF the configured fallbacks are tried too. The exit code is 1 if no model answered.
    """
    import anyio

    trial = anyio.run(_try, invocation, ref, agent)
    invocation.show(_describe_trial(trial), lambda: _format_trial(trial))
    return 0 if trial.answer else 1


async def _try(invocation: Invocation, text: str | None, agent: str | None) -> Trial:
    from retinue.core.errors import ModelError
    from retinue.runtime.models import NO_MODEL, open_access, try_models

    async def show_notice(notice: Notice) -> None:
        invocation.note(notice.text)

    home = invocation.load_home()
    async with open_access(home, home.agent_id(agent)) as access:
        if text is not None:
            return await try_models(access, (_resolve(access, text),), show_notice)
        choice = await access.choose()
        if choice is None:
            raise ModelError(NO_MODEL)
        invocation.note(f"Asking {choice.ref}: {choice.because}.")
        return await try_models(access, access.chain(choice), show_notice)


def _describe_trial(trial: Trial) -> dict[str, Any]:
    answer = trial.answer
    return {
        "ok": answer is not None,
        "model": answer.model if answer else None,
        "seconds": round(trial.seconds, 3),
        "text": answer.text if answer else None,
        "usage": {
            "input": answer.usage.input,
            "output": answer.usage.output,
            "cacheRead": answer.usage.cache_read,
            "cacheWrite": answer.usage.cache_write,
            "cost": answer.usage.cost,
        }
        if answer
        else None,
        "failures": [
            {"attempt": name, "reason": str(failed.reason), "detail": failed.detail, "retryAfter": failed.retry_after}
            for name, failed in trial.failures
        ],
    }


def _format_trial(trial: Trial) -> str:
    from retinue.security.untrusted_text import literal

    lines = [f"{name}: {failed.reason}: {literal(failed.detail)}" for name, failed in trial.failures]
    answer = trial.answer
    if answer is None:
        return "\n".join([*lines, f"No model answered ({trial.seconds:.1f} s)."])
    usage = answer.usage
    cost = f", ${usage.cost:.6f}" if usage.cost else ""
    lines.append(
        f"{answer.model} answers: {literal(answer.text, ANSWER_SHOWN)}\n"
        f"{trial.seconds:.2f} s, {usage.prompt:,} tokens read, {usage.output:,} written{cost}"
    )
    return "\n".join(lines)


@models.command("set")
@click.argument("ref")
@pass_invocation
def set_model(invocation: Invocation, ref: str) -> None:
    """Select REF, a provider/model or an alias, as the default model."""
    import anyio

    from retinue.config.edit import set_value
    from retinue.config.keypath import look_up

    home = invocation.load_home()
    chosen, remark = anyio.run(_check_choice, home, ref)
    # A model that the file gives as a plain text stays one.
    _, written = look_up(("agents", "defaults", "model"), home.loaded.tree.plain)
    key = "agents.defaults.model" if isinstance(written, str) else "agents.defaults.model.primary"
    edited = set_value(invocation.home, key, json.dumps(str(chosen)), os.environ)
    for problem in edited.problems:
        invocation.note(f"{problem.severity}: {problem}")
    if remark:
        invocation.note(remark)
    for entry in home.config.agents.entries:
        if entry.model and entry.model.primary:
            invocation.note(f"Agent '{entry.id}' has its own model, {entry.model.primary}, which is not changed.")
    invocation.show(
        {"model": str(chosen), "key": edited.path, "file": str(edited.file), "changed": edited.changed},
        f"{chosen} is now the default model ({edited.path} in {edited.file})."
        if edited.changed
        else f"{chosen} is already the default model.",
    )


async def _check_choice(home: Home, text: str) -> tuple[ModelRef, str]:
    """Resolve a model and report what is missing before it can be used."""
    from retinue.providers.local.gguf import find_model_file
    from retinue.runtime.models import open_access

    async with open_access(home, home.config.agents.default_id) as access:
        ref = _resolve(access, text)
        if ref.provider == "local" and find_model_file(home.paths.models, ref.model) is None:
            return ref, f"There is no model '{ref.model}' in {home.paths.models} yet: retinue models pull"
        if not access.is_ready(ref.provider):
            how = access.credentials.describe_how_to_add(ref.provider)
            return ref, f"There is no credential for '{ref.provider}' yet. {how}"
        return ref, ""


def _resolve(access: ModelAccess, text: str) -> ModelRef:
    """Resolve a model; raises `UsageError` if its provider is unknown.

    The usual short names work without a key; the missing key is then reported.
    """
    from retinue.core.errors import UsageError
    from retinue.providers.model_choice import resolve_ref
    from retinue.providers.vendors import BUILT_IN_ALIASES

    ref = resolve_ref(text, {**BUILT_IN_ALIASES, **access.aliases})
    known = access.providers.known()
    if ref.provider not in known:
        raise UsageError(
            f"There is no provider '{ref.provider}'. Known: {', '.join(known)}. "
            "Others can be added under `models.providers`."
        )
    return ref


@models.command()
@click.argument("name", default=SMALLEST)
@click.option("--list", "only_list", is_flag=True, help="List the models that can be downloaded.")
@pass_invocation
def pull(invocation: Invocation, name: str, only_list: bool) -> None:
    """Download a model that runs inside Retinue (default: the smallest)."""
    import anyio

    if only_list:
        _list_pullable(invocation)
        return
    pulled = anyio.run(pull_showing, invocation, name)
    ref = f"local/{pulled.path.stem}"
    runs = engine.has_engine()
    missing = "" if runs else f"\nTo run it, install the extra 'local': {shlex.join(engine.installer_command())}"
    invocation.show(
        {"model": ref, "path": str(pulled.path), "sha256": pulled.sha256, "canRun": runs},
        f"{pulled.path}\nUse it: retinue models set {ref}{missing}",
    )


@models.command()
@click.option("--agent", metavar="ID", help="Agent (default: the default agent).")
@pass_invocation
def detect(invocation: Invocation, agent: str | None) -> None:
    """Look for keys in the environment and for Ollama, llama.cpp, LM Studio and vLLM on this machine."""
    import anyio
    from msgspec import to_builtins

    found = anyio.run(_detect, invocation.load_home(), agent)

    def text() -> str:
        rows = [(key.model, f"key: {key.where}") for key in found.keys]
        rows += [
            (f"{server.provider}/{model}", f"{server.name} at {server.base_url}")
            for server in found.servers
            for model in server.models or ("(no model loaded)",)
        ]
        rows += [(f"local/{name}", "model file") for name in found.files]
        return table(rows, header=("model", "found as")) if rows else NOTHING_DETECTED

    invocation.show(to_builtins(found), text)


NOTHING_DETECTED = "There is no key in the environment and no model server on this machine. Add a model: retinue setup"


async def _detect(home: Home, agent: str | None) -> Detected:
    from retinue.providers.detect import detect_models
    from retinue.runtime.models import open_access

    async with open_access(home, home.agent_id(agent)) as access:
        return await detect_models(access.credentials.listed(), home.config.models, home.paths.models)


def ensure_engine(invocation: Invocation, *, ask: bool) -> bool:
    """Install what runs local models if it is missing, after asking if `ask`; returns whether it is there now."""
    import importlib
    import subprocess

    if engine.has_engine():
        return True
    command = engine.installer_command()
    shown = shlex.join(command)
    if ask and not click.confirm(f"Local models need the extra 'local'. Install it now? ({shown})", True, err=True):
        invocation.note(f"Nothing was downloaded. To install it later: {shown}")
        return False
    invocation.note(f"Installing the extra 'local': {shown}")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    importlib.invalidate_caches()
    if done.returncode or not engine.has_engine():
        invocation.note(
            f"The extra 'local' could not be installed. Check the network connection, then run: {shown}\n"
            "Any other kind of model works without it: retinue setup"
        )
        return False
    return True


def download_rows(entries: Iterable[PullableModel]) -> list[tuple[str, ...]]:
    """Return a line per model: name, download, memory, expected speed, licence and what it is good for."""
    return [
        (
            entry.name,
            f"{entry.bytes / 10**6:,.0f} MB",
            f"{entry.memory / 10**9:.1f} GB of memory",
            f"about {entry.speed} tokens/s",
            entry.licence,
            entry.about,
        )
        for entry in entries
    ]


def _list_pullable(invocation: Invocation) -> None:
    from retinue.providers.local.gguf import find_model_file
    from retinue.providers.local.pull import PULLABLE

    folder = invocation.home.models
    rows = [
        {
            "name": entry.name,
            "bytes": entry.bytes,
            "about": entry.about,
            "licence": entry.licence,
            "memory": entry.memory,
            "tokensPerSecond": entry.speed,
            "demo": entry.is_demo,
            "here": find_model_file(folder, entry.name) is not None,
        }
        for entry in PULLABLE
    ]
    invocation.show(
        rows,
        lambda: table(
            [
                (*line[:5], "here" if row["here"] else "", line[5])
                for row, line in zip(rows, download_rows(PULLABLE), strict=True)
            ],
            header=("model", "download", "memory", "speed on a laptop", "licence", "", ""),
        ),
    )


async def pull_showing(invocation: Invocation, name: str) -> PulledModel:
    """Download a model into the home and show progress."""
    from functools import partial

    from retinue.providers.local.pull import HUB, pull_model

    # The variable that other programs also use for a mirror of the hub.
    pull_it = partial(pull_model, hub=os.environ.get("HF_ENDPOINT") or HUB)
    if invocation.quiet or not is_terminal(sys.stderr):
        return await pull_it(name, invocation.home.models, _PlainProgress(invocation))

    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        return await pull_it(name, invocation.home.models, _show_on(bar))


def _show_on(bar: Bar) -> OnProgress:
    task = bar.add_task("", total=None)

    def show(progress: PullProgress) -> None:
        bar.update(task, description=progress.stage, completed=progress.done, total=progress.total or None)

    return show


class _PlainProgress:
    """Print a line per stage and per ten percent."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._told: tuple[str, int] | None = None

    def __call__(self, progress: PullProgress) -> None:
        percent = progress.done * 100 // progress.total if progress.total else 0
        now = (progress.stage, percent // STEP_PERCENT)
        if now == self._told:
            return
        self._told = now
        of = f": {percent} % of {progress.total / 10**6:,.0f} MB" if progress.total else ""
        self._invocation.note(f"{progress.stage}{of}")
