"""Credentials of an OpenClaw home, by name; their values are copied only if the owner agreed, and never of OAuth."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.errors import ConfigError, UsageError
from retinue.providers.auth_profiles import Profile, ProfileFile, read_profile
from retinue.runtime.importing.openclaw_home import OpenClawAgent, OpenClawHome, parse_json, read_json, rows
from retinue.runtime.importing.plan import Omission, StepResult, mapping

OAUTH = "OAuth tokens work for one program only: sign in with `retinue models auth login`"
NEEDS_CONSENT = "--with-credentials copies credentials"
_STORED_SECRETS = """
SELECT scope_kind, name, value, allowed_hosts FROM secret_store_entries WHERE deleted_at_ms IS NULL ORDER BY name
"""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class FoundProfile(Struct, frozen=True):
    """A model credential of an agent; `profile` is None if it cannot be used here, for the reason `why`."""

    agent: str
    name: str
    profile: Profile | None = None
    why: str = ""


def find_profiles(home: OpenClawHome, agent: OpenClawAgent) -> Iterator[FoundProfile]:
    """Yield the model credentials of an agent: from the databases, else from files of any age."""
    seen: set[str] = set()
    for content in _stores(home, agent):
        for name, entry in _entries(content):
            if name in seen:
                continue
            seen.add(name)
            yield _read(agent, name, entry)


def _stores(home: OpenClawHome, agent: OpenClawAgent) -> Iterator[Mapping[str, Any]]:
    bases = (home.agent_database(agent), *((home.state(),) if agent.is_default else ()))
    for base in bases:
        for row in rows(base, "SELECT store_json FROM auth_profile_store"):
            yield mapping(parse_json(row["store_json"]))
    folder = agent.folder / "agent"
    for name in ("auth-profiles.json", "auth-profiles.json.migrated", "auth.json"):
        yield mapping(read_json(folder / name))
    if agent.is_default:
        yield mapping(read_json(home.path / "credentials" / "oauth.json"))


def _entries(content: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    profiles = content.get("profiles")
    if isinstance(profiles, dict):
        yield from ((name, mapping(entry)) for name, entry in profiles.items())
        return
    for provider, value in content.items():
        entry = mapping(value)
        if entry.get("apiKey"):
            yield f"{provider}:default", {"type": "api_key", "provider": provider, "key": entry["apiKey"]}
        elif entry.get("type") in ("api_key", "token", "oauth") or entry.get("refresh"):
            yield f"{provider}:default", {"type": "oauth", "provider": provider, **entry}


def _read(agent: OpenClawAgent, name: str, entry: Mapping[str, Any]) -> FoundProfile:
    if entry.get("type") == "oauth":
        return FoundProfile(agent.id, name, why=OAUTH)
    try:
        return FoundProfile(agent.id, name, read_profile(name, entry, "agent"))
    except ConfigError as error:
        return FoundProfile(agent.id, name, why=str(error))


def read_secret_store(home: OpenClawHome) -> tuple[dict[str, str], list[Omission]]:
    """Return the shared secrets of the secret store, and those that are limited to hosts or to one person."""
    usable, omissions = {}, []
    for row in rows(home.state(), _STORED_SECRETS):
        name = str(row["name"])
        if row["scope_kind"] != "team" or row["allowed_hosts"]:
            limit = "some hosts" if row["scope_kind"] == "team" else "one person"
            omissions.append(Omission(f"secret store: {name}", f"it is limited to {limit}: store it yourself"))
        elif not _VARIABLE.fullmatch(name):
            omissions.append(Omission(f"secret store: {name}", "it is not a name of a variable"))
        else:
            usable[name] = str(row["value"])
    return usable, omissions


def copy_profiles(found: list[FoundProfile], folder_of: Mapping[str, Path]) -> StepResult:
    """Add the credentials to the profiles of their agents; a name that is taken here stays."""
    done = StepResult()
    for each in found:
        if each.profile is None:
            continue
        file = ProfileFile(folder_of[each.agent])
        if any(known.id == each.name for known in file.profiles()):
            done.already += 1
            continue
        try:
            file.add(replace(each.profile, id=each.name.lower()))
            done.imported += 1
        except UsageError as error:
            done.omissions.append(Omission(each.name, str(error)))
    return done


def read_exec_approvals(home: OpenClawHome) -> dict[str, list[str]]:
    """Return the programs that each agent may run without approval in OpenClaw."""
    contents = [mapping(read_json(home.path / "exec-approvals.json"))]
    for row in rows(home.state(), "SELECT raw_json FROM exec_approvals_config"):
        contents.insert(0, mapping(parse_json(row["raw_json"])))
    for content in contents:
        found = {}
        for agent, rules in mapping(content.get("agents")).items():
            listed = mapping(rules).get("allowlist")
            patterns = [
                str(pattern)
                for item in (listed if isinstance(listed, list) else ())
                if (pattern := item if isinstance(item, str) else mapping(item).get("pattern"))
            ]
            if patterns:
                found[agent] = list(dict.fromkeys(patterns))
        if found:
            return found
    return {}


def describe_suggestions(approvals: Mapping[str, list[str]]) -> bytes:
    """Return the file with suggested rules: OpenClaw's patterns allow any arguments, so none becomes a rule here."""
    rules = [
        {
            "agent": agent,
            "openclawPattern": pattern,
            "suggestion": f"retinue approvals rules --agent {agent} --add {json.dumps(f'{Path(pattern).name} *')}",
        }
        for agent, patterns in approvals.items()
        for pattern in patterns
    ]
    return json.dumps({"note": "Add only those that you need.", "rules": rules}, indent=2).encode() + b"\n"
