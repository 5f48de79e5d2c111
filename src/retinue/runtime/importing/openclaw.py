"""Importing an OpenClaw home: the steps in their order, and what each takes over."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from retinue.config.edit import Change, change_values
from retinue.core.errors import UsageError
from retinue.core.keys import parse_agent_id
from retinue.runtime.agents.prompting import machine_timezone
from retinue.runtime.agents.workspace import open_import_target
from retinue.runtime.automation.jobs import open_job_store
from retinue.runtime.home import load_home
from retinue.runtime.importing.openclaw_config import (
    ConvertedConfig,
    convert_config,
    read_env_file,
    select_agent,
    write_config,
)
from retinue.runtime.importing.openclaw_context import ImportContext
from retinue.runtime.importing.openclaw_credentials import (
    NEEDS_CONSENT,
    FoundProfile,
    copy_profiles,
    describe_suggestions,
    find_profiles,
    read_exec_approvals,
    read_secret_store,
)
from retinue.runtime.importing.openclaw_folders import plan_hooks, plan_skills, plan_workspaces
from retinue.runtime.importing.openclaw_home import rows
from retinue.runtime.importing.openclaw_jobs import find_jobs, import_jobs, left_over_jobs, write_history
from retinue.runtime.importing.openclaw_sessions import SessionImport, count_sessions
from retinue.runtime.importing.plan import ImportStep, Note, Omission, StepResult, mapping
from retinue.sessions.openclaw.importer import ImportRoute, import_each
from retinue.storage.files import write_atomic


def plan_openclaw(context: ImportContext) -> list[ImportStep]:
    """Return all steps in order; nothing is written. What cannot be used at all comes last."""
    steps = [step for kind, make in _MAKERS if _wants(context, kind) for step in make(context)]
    faults = tuple(dict.fromkeys((*context.source.faults, *_unusable(context))))
    return [*steps, ImportStep("other", 0, faults)]


def _wants(context: ImportContext, kind: str) -> bool:
    if kind == "config":
        return bool(context.choices.kinds & {"config", "mcp", "channels"})
    return kind in context.choices.kinds


def _plan_config(context: ImportContext) -> Iterator[ImportStep]:
    converted = convert_config(
        context.source,
        context.home.paths,
        with_secrets=context.choices.with_credentials and _wants(context, "credentials"),
    )
    if context.choices.agent is not None:
        select_agent(converted, context.agents[0].id)
    values, kinds = converted.values, context.choices.kinds
    servers = mapping(mapping(values.get("mcp")).get("servers"))
    channels = mapping(values.get("channels"))
    for kind in ("mcp", "channels"):
        if kind not in kinds:
            values.pop(kind, None)
    if "config" not in kinds:
        converted.values = {name: value for name, value in values.items() if name in kinds}
    for kind, found in (("mcp", servers), ("channels", channels)):
        if kind in kinds and found:
            yield ImportStep(kind, len(found), names=tuple(found))
    count = len([name for name in converted.values if name not in ("mcp", "channels")])
    names = tuple(name for name in converted.values)
    yield ImportStep("config", count, tuple(converted.omissions), names, partial(_write_config, context, converted))


def _write_config(context: ImportContext, converted: ConvertedConfig, _note: Note) -> StepResult:
    set_paths, kept = write_config(converted.values, context.home.paths) if converted.values else ([], [])
    context.home = load_home(context.home.paths)
    return StepResult(imported=len(set_paths), omissions=kept, facts={"keys": set_paths})


def _plan_credentials(context: ImportContext) -> Iterator[ImportStep]:
    found = [each for agent in context.agents for each in find_profiles(context.source, agent)]
    usable = [each for each in found if each.profile is not None]
    is_for_all = context.choices.agent is None
    variables = read_env_file(context.source.path) if is_for_all else {}
    stored, limited = read_secret_store(context.source) if is_for_all else ({}, [])
    names = [*(f"{each.agent}/{each.name}" for each in usable), *(f".env: {name}" for name in variables)]
    names += [f"secret store: {name}" for name in stored]
    variables = {**stored, **variables}
    omissions = limited + [Omission(f"{each.agent}/{each.name}", each.why) for each in found if each.profile is None]
    omissions += [
        Omission(f"mcp {row['store_key']}", "sign in again with `retinue mcp login`")
        for row in rows(context.source.state(), "SELECT store_key FROM mcp_oauth_stores")
    ]
    if not context.choices.with_credentials:
        omissions = [*(Omission(name, NEEDS_CONSENT) for name in names), *omissions]
        if omissions:
            yield ImportStep("credentials", 0, tuple(omissions), tuple(names))
    elif names or omissions:
        copy = partial(_copy_credentials, context, usable, variables)
        yield ImportStep("credentials", len(names), tuple(omissions), tuple(names), copy)


def _copy_credentials(
    context: ImportContext, found: list[FoundProfile], variables: dict[str, str], _note: Note
) -> StepResult:
    folders = {agent.id: context.home.agent_dir(parse_agent_id(agent.id)) for agent in context.agents}
    done = copy_profiles(found, folders)
    known = context.home.config.env.vars
    changes = [
        Change(f"env.vars.{name}", json.dumps(value, ensure_ascii=False))
        for name, value in variables.items()
        if name not in known
    ]
    done.already += len(variables) - len(changes)
    if changes:
        change_values(context.home.paths, changes, os.environ, who="import")
        done.imported += len(changes)
        context.home = load_home(context.home.paths)
    return done


def _plan_jobs(context: ImportContext) -> Iterator[ImportStep]:
    zone = context.home.config.agents.defaults.user_timezone or machine_timezone(context.home) or "UTC"
    agents = [parse_agent_id(agent.id) for agent in context.agents]
    default = next((parse_agent_id(agent.id) for agent in context.source.agents if agent.is_default), agents[0])
    found, omissions = find_jobs(context.source, agents, default, zone, context.home.clock.now())
    if not found and not omissions:
        return

    def carry_out(note: Note) -> StepResult:
        history = context.folder / "job-runs.jsonl"
        by_name = {parse_agent_id(agent.id): agent for agent in context.agents}
        here, done = [], StepResult()
        for each in found:
            try:
                agent = context.agent_here(by_name[each.job.agent])
            except UsageError as error:
                done.omissions.append(Omission(each.job.name, str(error)))
            else:
                here.append(replace(each, job=replace(each.job, agent=agent)))
        write_history(here, history)
        with open_job_store(context.home) as store:
            import_jobs(here, store, context.ledger, history, done)
        return done

    names = tuple(each.job.name for each in found)
    file = left_over_jobs(context.source)
    remark = f"they are only in {file.name}, which a migration of OpenClaw left over" if file is not None else ""
    yield ImportStep("jobs", len(found), tuple(omissions), names, carry_out if found else None, remark)


def _plan_approvals(context: ImportContext) -> Iterator[ImportStep]:
    approvals = read_exec_approvals(context.source)
    if not approvals:
        return

    def carry_out(_note: Note) -> StepResult:
        file = context.folder / "suggested-rules.json"
        write_atomic(file, describe_suggestions(approvals))
        return StepResult(imported=sum(map(len, approvals.values())), facts={"file": str(file)})

    names = tuple(f"{agent}: {pattern}" for agent, patterns in approvals.items() for pattern in patterns)
    yield ImportStep("approvals", len(names), (), names, carry_out)


def _plan_sessions(context: ImportContext) -> Iterator[ImportStep]:
    count = count_sessions(context.source, context.agents)
    step = partial(_import_sessions, context, count.usable) if count.usable else None
    remark = f"{count.left_over} of them are only in what a migration of OpenClaw left over" if count.left_over else ""
    yield ImportStep("sessions", count.usable, tuple(count.omissions), (), step, remark)


def _import_sessions(context: ImportContext, total: int, note: Note) -> StepResult:
    done = StepResult(facts={"messages": 0, "unreadableLines": 0})
    for agent in context.agents:
        try:
            here = context.agent_here(agent)
        except UsageError as error:
            done.omissions.append(Omission(agent.id, str(error)))
            continue
        route = ImportRoute((here,), here, here)
        take = partial(import_each, route=route, open_store=partial(open_import_target, context.home))
        one = SessionImport(context.source, agent, context.scratch, take, total).carry_out(note)
        done.imported += one.imported
        done.already += one.already
        done.omissions += one.omissions
        for name, number in one.facts.items():
            done.facts[name] += number
    return done


def _unusable(context: ImportContext) -> Iterator[Omission]:
    """Yield what no import can take over, if the source has it."""
    path = context.source.path
    for name, why in _UNUSABLE:
        if any(path.glob(name)):
            yield Omission(name, why)
    for name in mapping(mapping(context.source.config.get("plugins")).get("entries")):
        yield Omission(f"plugin {name}", "plugins of OpenClaw are JavaScript and cannot run here")


_MAKERS = (
    ("config", _plan_config),
    ("credentials", _plan_credentials),
    ("workspaces", plan_workspaces),
    ("skills", plan_skills),
    ("hooks", plan_hooks),
    ("jobs", _plan_jobs),
    ("approvals", _plan_approvals),
    ("sessions", _plan_sessions),
)

_UNUSABLE = (
    ("devices/*.json", "pair the devices again: `retinue gateway pair`"),
    ("identity/*.json", "Retinue has its own identity"),
    ("nodes/*.json", "there are no nodes"),
    ("credentials/whatsapp", "a linked WhatsApp device works with one program only"),
    ("mcp-oauth/*.json", "sign in again with `retinue mcp login`"),
    ("memory/*.sqlite", "the memory index is built again from the notes"),
    ("extensions/*", "plugins of OpenClaw are JavaScript and cannot run here"),
)
