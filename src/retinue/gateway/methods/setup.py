"""The guided first run, for the page. The terminal uses the same functions."""

from __future__ import annotations

from typing import get_args

from retinue.core.errors import UsageError
from retinue.core.model import ModelRef
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.providers.detect import recognise_key
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
        tempers=tuple(TEMPERS),
        first_tasks=tuple(wire.TaskOption(title=task.title, message=task.message) for task in view.first_tasks),
    )


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
