"""The guided first run, for the page. The terminal uses the same functions."""

from __future__ import annotations

from typing import get_args

from retinue.core.errors import UsageError
from retinue.core.model import ModelRef
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.providers.detect import recognise_key
from retinue.providers.local.pull import PullableModel, PulledModel, list_pullable
from retinue.runtime.commands import setup as flow
from retinue.wire import setup as wire
from retinue.wire.frames import Nothing
from retinue.workspace.profile import TEMPERS, ProfileAnswers

registry = MethodRegistry()


@registry.implements(wire.SETUP_GET)
async def get_state(call: Call, params: Nothing) -> wire.SetupState:
    home = call.runtime.home
    view = await flow.view_setup(home, home.agent_id(None))
    keys = [wire.ModelOption(model=key.model, about=f"{key.name}: {key.where}") for key in view.found.keys]
    served = [
        wire.ModelOption(
            model=f"{server.provider}/{model}",
            about=f"{server.name} at {server.base_url}",
            base_url=server.base_url,
        )
        for server in view.found.servers
        for model in server.models
    ]
    following = view.next_step
    return wire.SetupState(
        steps=tuple(
            wire.SetupStepState(id=step.id, title=step.title, done=step.done, skipped=step.skipped, detail=step.detail)
            for step in view.steps
        ),
        offered=flow.is_offered(home),
        next=following.id if following else None,
        model=view.model,
        is_demo=view.is_demo,
        models=(*keys, *served),
        downloads=tuple(_describe_download(*each) for each in list_pullable(home.paths.models)),
        download=_describe_progress(call),
        tempers=tuple(TEMPERS),
        first_tasks=tuple(wire.TaskOption(title=task.title, message=task.message) for task in view.first_tasks),
    )


def _describe_download(model: PullableModel, received: int) -> wire.DownloadOption:
    return wire.DownloadOption(
        name=model.name,
        about=model.about,
        bytes=model.bytes,
        received=received,
        memory=model.memory,
        tokens_per_second=model.speed,
        licence=model.licence,
        is_demo=model.is_demo,
    )


def _describe_progress(call: Call) -> wire.DownloadState:
    seen = call.gateway.background.download.progress
    return wire.DownloadState(
        state=seen.state, name=seen.name, stage=seen.stage, done=seen.done, total=seen.total, message=seen.message
    )


@registry.implements(wire.SETUP_DOWNLOAD)
async def download_model(call: Call, params: wire.Download) -> wire.DownloadState:
    home, who = call.runtime.home, call.principal.audited_as

    async def use(pulled: PulledModel) -> None:
        flow.use_pulled(call.runtime.home, pulled, who)
        await call.gateway.reloader.apply()

    # The variable that other programs also use for a mirror of the hub.
    hub = home.environment.get("HF_ENDPOINT")
    call.gateway.background.download.start(params.name, home.paths.models, hub, use)
    return _describe_progress(call)


@registry.implements(wire.SETUP_DOWNLOADING)
async def get_download(call: Call, params: Nothing) -> wire.DownloadState:
    return _describe_progress(call)


@registry.implements(wire.SETUP_STOP)
async def stop_download(call: Call, params: Nothing) -> wire.DownloadState:
    call.gateway.background.download.stop()
    return _describe_progress(call)


@registry.implements(wire.SETUP_KEY)
async def give_key(call: Call, params: wire.GiveKey) -> wire.KeyTried:
    home, key = call.runtime.home, params.key.strip()
    home.redactor.hide(key)
    guess = recognise_key(key)
    provider = params.provider or (guess.providers[0] if guess.sure else None)
    if provider is None:
        message = "It is not clear from its shape whose key this is. Choose the provider."
        return wire.KeyTried(ok=False, stored=False, message=message, providers=flow.key_providers(guess.providers))
    base_url = flow.check_server(params.base_url) if params.base_url else None
    answer = flow.KeyAnswer(provider, key, params.model, base_url)
    check = await flow.check_key(home, home.agent_id(None), answer)
    stores = check.ok or (check.usable and params.anyway)
    if stores:
        flow.use_key(home, home.agent_id(None), answer, call.principal.audited_as)
        await call.gateway.reloader.apply()
    return wire.KeyTried(ok=check.ok or stores, stored=stores, message=check.message, model=check.model)


@registry.implements(wire.SETUP_MODEL)
async def choose_model(call: Call, params: wire.ChooseModel) -> wire.SetupState:
    ref = ModelRef.parse(params.model)
    if ref is None:
        raise UsageError(f"'{params.model}' is not a model. Write provider/model.")
    base_url = flow.check_server(params.base_url) if params.base_url else None
    flow.use_model(call.runtime.home, ref, call.principal.audited_as, base_url=base_url)
    await call.gateway.reloader.apply()
    return await get_state(call, Nothing())


@registry.implements(wire.SETUP_PROFILE)
async def give_profile(call: Call, params: wire.GiveProfile) -> wire.SetupState:
    home = call.runtime.home
    answers = ProfileAnswers(params.user_name, params.agent_name, params.temper)
    flow.use_profile(home, home.agent_id(None), answers)
    return await get_state(call, Nothing())


@registry.implements(wire.SETUP_SKIP)
async def skip_step(call: Call, params: wire.SkipStep) -> wire.SetupState:
    step = next((each for each in get_args(flow.StepId) if each == params.step), None)
    if step is None:
        raise UsageError(f"There is no step '{params.step}'. Steps: {', '.join(get_args(flow.StepId))}.")
    flow.mark_step(call.runtime.home, step, skipped=not params.done)
    return await get_state(call, Nothing())
