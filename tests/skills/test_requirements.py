"""Each gate, with the reason a person reads."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.skills.library import make_context
from retinue.skills.requirements import EligibilityContext, check_skill
from retinue.skills.settings import SkillEntry, SkillsSettings
from retinue.skills.skill import Requirements, Skill, SkillTier
from retinue.structs.decode import decode
from tests.skills.builders import make_skill


def context(**changes: Any) -> EligibilityContext:
    base: dict[str, Any] = {"os": "linux", "has_program": frozenset(("git", "jq")).__contains__, "env": {"HOME"}}
    return EligibilityContext(**(base | changes))


def needing(**needs: tuple[str, ...]) -> Skill:
    return make_skill(requirements=Requirements(**needs), primary_env="API_KEY")


CONFIGURED = {"demo": SkillEntry(env={"TOKEN": "x"}, api_key="k")}


@pytest.mark.parametrize(
    ("skill", "where", "reasons"),
    [
        (make_skill(), context(), ()),
        (needing(os=("linux", "darwin")), context(), ()),
        (needing(os=("darwin",)), context(), ("needs macOS, this is Linux",)),
        (needing(os=("darwin", "win32")), context(os="plan9"), ("needs macOS or Windows, this is plan9",)),
        (needing(bins=("git", "jq")), context(), ()),
        (
            needing(bins=("git", "gh", "hub")),
            context(),
            ("needs the program `gh`, not on PATH", "needs the program `hub`, not on PATH"),
        ),
        (needing(any_bins=("yq", "jq")), context(), ()),
        (
            needing(any_bins=("yq", "gojq")),
            context(),
            ("needs one of the programs `yq`, `gojq`, none is on PATH",),
        ),
        (needing(env=("HOME",)), context(), ()),
        (needing(env=("TOKEN",)), context(), ("needs the environment variable `TOKEN`, not set",)),
        (needing(env=("TOKEN",)), context(entries=CONFIGURED), ()),
        (needing(env=("API_KEY",)), context(entries=CONFIGURED), ()),
        (needing(env=("OTHER",)), context(entries=CONFIGURED), ("needs the environment variable `OTHER`, not set",)),
        (
            needing(env=("API_KEY",)),
            context(entries={"demo": SkillEntry(api_key="")}),
            ("needs the environment variable `API_KEY`, not set",),
        ),
        (needing(config=("browser.enabled",)), context(config_is_set={"browser.enabled"}.__contains__), ()),
        (
            needing(config=("browser.enabled",)),
            context(),
            ("needs the setting `browser.enabled`, not set or switched off",),
        ),
        (
            make_skill(),
            context(entries={"demo": SkillEntry(enabled=False)}),
            ("switched off by `skills.entries.demo.enabled`",),
        ),
        (
            make_skill(skill_key="key"),
            context(entries={"key": SkillEntry(enabled=False)}),
            ("switched off by `skills.entries.key.enabled`",),
        ),
        (make_skill(tier=SkillTier.BUNDLED), context(allow_bundled=None), ()),
        (make_skill(tier=SkillTier.BUNDLED), context(allow_bundled={"demo"}), ()),
        (
            make_skill(tier=SkillTier.BUNDLED),
            context(allow_bundled=set()),
            ("bundled, and not listed in `skills.allowBundled`",),
        ),
        (make_skill(tier=SkillTier.MANAGED), context(allow_bundled=set()), ()),
        (make_skill(), context(agent_allowlist={"demo", "other"}), ()),
        (make_skill(), context(agent_allowlist={"other"}), ("not in the list of skills this agent may use",)),
        (make_skill(), context(agent_allowlist=set()), ("not in the list of skills this agent may use",)),
        (make_skill(tier=SkillTier.EXPLICIT), context(agent_allowlist=set()), ()),
    ],
)
def test_gates(skill: Skill, where: EligibilityContext, reasons: tuple[str, ...]) -> None:
    gate = check_skill(skill, where)
    assert gate.reasons == reasons
    assert gate.eligible is not bool(reasons)


def test_always_waives_what_is_missing() -> None:
    missing = Requirements(bins=("gh",), any_bins=("hub",), env=("TOKEN",), config=("a.b",))
    assert check_skill(make_skill(requirements=missing, always=True), context()).eligible


def test_always_waives_neither_the_system_nor_what_a_person_decided() -> None:
    skill = make_skill(requirements=Requirements(os=("darwin",)), always=True)
    gate = check_skill(skill, context(agent_allowlist=(), entries={"demo": SkillEntry(enabled=False)}))
    assert len(gate.reasons) == 3


def test_all_reasons_come_at_once() -> None:
    skill = needing(os=("darwin",), bins=("gh",), env=("TOKEN",))
    assert len(check_skill(skill, context()).reasons) == 3


def test_the_context_of_a_configuration() -> None:
    settings = decode(SkillsSettings, {"allowBundled": ["a"], "entries": {"x": {"enabled": False}}})
    made = make_context(
        settings,
        system="linux",
        environment={"SET": "1", "EMPTY": ""},
        has_program=lambda name: name == "git",
        config={"browser": {"enabled": True, "off": False}, "list": [1]},
        allowlist=[],
    )
    assert (made.os, made.env, made.allow_bundled, made.agent_allowlist) == ("linux", {"SET"}, {"a"}, frozenset())
    paths = ("browser.enabled", "browser", "browser.off", "browser.none", "browser.enabled.x", "list.0", "")
    assert [made.config_is_set(path) for path in paths] == [True, True, False, False, False, False, False]
    assert not check_skill(make_skill("x"), made).eligible
