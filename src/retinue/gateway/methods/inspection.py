"""Logs, problems, risks, rights, plugins, MCP servers and channels."""

from __future__ import annotations

import anyio
import anyio.to_thread
from msgspec import convert
from msgspec.structs import replace

from retinue.core.errors import RetinueError
from retinue.core.keys import SessionKey
from retinue.dispatch.contacts import ContactState
from retinue.gateway.errors import RequestRefused
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.runtime.agents.chats import find_account, list_accounts
from retinue.runtime.agents.contacts import decide_pairing, open_contacts
from retinue.wire import inspection as wire
from retinue.wire.agents import OfAgent
from retinue.wire.frames import Done, Nothing
from retinue.wire.protocol import ErrorCode

CHECK_SECONDS = 20.0
MAX_PRINTED_CHARS = 4_000
DISABLED = "Off: its messages are neither received nor sent."

registry = MethodRegistry()


@registry.implements(wire.LOGS_TAIL)
async def tail_log(call: Call, params: wire.TailLog) -> wire.LogLines:
    from retinue.audit.log_reader import make_filter, read_last

    home = call.runtime.home
    wanted = make_filter(params.level, params.session)
    found = await anyio.to_thread.run_sync(read_last, home.log_file, params.limit, wanted)
    hide = call.runtime.shared.tools.hide
    records = [
        wire.LogLine(each.time, each.level.lower(), each.logger, hide(each.message), each.session, each.run)
        for each in found
    ]
    return wire.LogLines(str(home.log_file), records)


@registry.implements(wire.DOCTOR)
async def run_doctor(call: Call, params: wire.RunDoctor) -> wire.DoctorReport:
    from retinue.audit.checks import examine
    from retinue.audit.facts import Finding, FixSessions, GatewayFacts
    from retinue.runtime.inspect.doctor import carry_out, collect_home_facts
    from retinue.storage.process_locks import find_instance, read_local_token

    home, reloader = call.runtime.home, call.gateway.reloader

    async def look() -> tuple[Finding, ...]:
        # This gateway answers, so that it need not be asked.
        facts = GatewayFacts(
            instance=find_instance(home.paths),
            answers=True,
            problems=tuple(reloader.problems),
            port=home.config.gateway.port,
            local_token=read_local_token(home.paths) is not None,
        )
        found = examine(await collect_home_facts(home, facts))
        return tuple(replace(each, remedies=tuple(filter(may_apply, each.remedies))) for each in found)

    def may_apply(remedy: object) -> bool:
        # A turn of this process may be writing the transcript; `retinue doctor --fix` respects the lease of a session.
        return not isinstance(remedy, FixSessions)

    fixed: tuple[str, ...] = ()
    findings = await look()
    if params.fix and any(finding.remedies for finding in findings):
        fixed = await anyio.to_thread.run_sync(carry_out, home, findings)
        findings = await look()
    rows = [
        wire.DoctorFinding(
            area=each.area,
            severity=str(each.severity),
            what=each.what,
            why=each.why,
            todo=each.todo,
            fixable=bool(each.remedies),
        )
        for each in findings
    ]
    return wire.DoctorReport(rows, list(fixed))


@registry.implements(wire.SECURITY_AUDIT)
async def audit_risks(call: Call, params: wire.AuditRisks) -> wire.RiskReport:
    from retinue.audit.risks import find_risks
    from retinue.runtime.inspect.audit import apply_fixes, collect_risk_facts

    home = call.runtime.home

    def look() -> wire.RiskReport:
        risks = find_risks(collect_risk_facts(home))
        fixed = apply_fixes(risks) if params.fix else ()
        if fixed:
            risks = find_risks(collect_risk_facts(home))
        return wire.RiskReport(convert([risk.to_json() for risk in risks], list[wire.RiskFinding]), list(fixed))

    return await anyio.to_thread.run_sync(look)


@registry.implements(wire.SECURITY_MATRIX)
async def show_matrix(call: Call, params: OfAgent) -> wire.Matrix:
    from retinue.runtime.inspect.matrix import capability_matrix

    home = call.runtime.home
    wanted = home.agent_id(params.agent) if params.agent else None
    rows = [
        wire.MatrixRow(row.principal, row.agent, row.capability, row.decision.value, row.by)
        for row in capability_matrix(home.config)
        if wanted in (None, row.agent)
    ]
    return wire.Matrix(rows)


@registry.implements(wire.PLUGINS_LIST)
async def list_plugins(call: Call, params: Nothing) -> wire.PluginList:
    return wire.PluginList(
        [
            wire.PluginRow(
                id=known.name,
                version=known.manifest.version if known.manifest else "",
                description=known.manifest.description if known.manifest else "",
                state=str(known.state),
                reason=known.because,
                origin=known.origin,
                registers=list(known.brings),
            )
            for known in call.runtime.home.registry.plugins
        ]
    )


@registry.implements(wire.MCP_LIST)
async def list_mcp_servers(call: Call, params: Nothing) -> wire.McpServerList:
    servers = call.runtime.home.config.mcp.servers
    rows = [
        wire.McpServerRow(
            name=name,
            transport=server.transport_name,
            target=(server.url or server.command or "").split("?", 1)[0],
            enabled=server.enabled,
        )
        for name, server in servers.items()
    ]
    return wire.McpServerList(rows)


@registry.implements(wire.MCP_TEST)
async def test_mcp_server(call: Call, params: wire.OfServer) -> wire.McpTrial:
    from retinue.runtime.inspect.mcp import try_server

    home = call.runtime.home
    if params.server not in home.config.mcp.servers:
        raise RequestRefused(ErrorCode.NOT_FOUND, f"There is no MCP server '{params.server}'. See mcp.servers.")
    trial = await try_server(home, params.server)
    hide = call.runtime.shared.tools.hide
    tools = [wire.McpTool(tool.name, tool.description) for tool in trial.catalog.tools]
    return wire.McpTrial(tools, hide(trial.problem), hide(trial.printed)[-MAX_PRINTED_CHARS:])


@registry.implements(wire.TOOLS_LIST)
async def list_tools(call: Call, params: OfAgent) -> wire.ToolList:
    from retinue.runtime.inspect.explain import choose_model, every_tool, inspect_session

    home = call.runtime.home
    key = SessionKey.main(home.agent_id(params.agent))
    model = await choose_model(home, key, None)

    def look() -> wire.ToolList:
        standing = inspect_session(home, key, model=model.ref if model else None)
        rows = []
        for tool in every_tool(home).values():
            decision = standing.judge_listed(tool.name, owner_only=tool.owner_only)
            rows.append(
                wire.ToolRow(
                    name=tool.name,
                    summary=tool.summary,
                    decision=decision.effect.value,
                    layer=decision.layer.value,
                    because=decision.because,
                    deferred=tool.deferred,
                    owner_only=tool.owner_only,
                )
            )
        return wire.ToolList(rows)

    return await anyio.to_thread.run_sync(look)


@registry.implements(wire.CHANNELS_LIST)
async def list_channels(call: Call, params: Nothing) -> wire.ChannelList:
    from retinue.runtime.inspect.channels import describe_accounts

    home, rows = call.runtime.home, []
    known = {(each.channel, each.account): each for each in describe_accounts(home, call.runtime.services.database)}
    for name in list_accounts(home, disabled=True):
        account, facts = find_account(home, *name), known.get(name)
        rows.append(
            wire.ChannelRow(
                channel=name[0],
                account=name[1],
                enabled=account is not None,
                listening=call.gateway.background.listeners.is_listening(name),
                reason=DISABLED if facts is None else facts.error or "",
                state="" if facts is None else facts.state,
                waiting=0 if facts is None else facts.waiting,
                heard_at=None if facts is None else facts.heard_at,
            )
        )
    contacts = [
        wire.ContactRow(
            code=each.code,
            channel=each.channel,
            address=each.address,
            name=each.name,
            state=each.state.value,
            asked_at=each.asked_at,
            decided_by=each.decided_by,
        )
        for each in open_contacts(home, call.runtime.services).list()
    ]
    return wire.ChannelList(rows, contacts)


@registry.implements(wire.CHANNELS_CHECK)
async def check_account(call: Call, params: wire.OfAccount) -> wire.AccountChecked:
    from retinue.runtime.inspect.channels import identify_account, pick_account

    home = call.runtime.home
    account = pick_account(home, params.channel, params.account)
    try:
        with anyio.fail_after(CHECK_SECONDS):
            found = await identify_account(home, account)
    except TimeoutError:
        return wire.AccountChecked(problem=f"The service did not answer within {CHECK_SECONDS:g} seconds.")
    except RetinueError as error:
        return wire.AccountChecked(problem=call.runtime.shared.tools.hide(str(error)))
    return wire.AccountChecked(found.name, found.address)


@registry.implements(wire.CHANNELS_DECIDE)
async def decide_person(call: Call, params: wire.DecideContact) -> Done:
    state = ContactState.APPROVED if params.approve else ContactState.REJECTED
    decide_pairing(call.runtime.home, call.runtime.services, params.code, state, call.principal.audited_as)
    return Done()
