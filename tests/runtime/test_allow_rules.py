"""The rules for commands: configured, remembered, and how they were used."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from retinue.core.envelope import Source
from retinue.core.errors import ConfigError, UsageError
from retinue.core.keys import AgentId
from retinue.runtime.approvals import ConfiguredAllowRules, Permissions, open_permissions
from retinue.runtime.home import load_home
from retinue.storage.home_paths import HomePaths
from retinue.storage.postgres.team_storage import close_team_storages
from retinue.testing.clock import FrozenClock
from retinue.tools.approvals.broker import Approver, NotAnApprover
from retinue.tools.shell.allowlist import DEFAULT_SAFE_BINS, ArgvPattern, AskWhen, Security
from tests.databases import DATABASES
from tests.postgres import create_database

MAIN, OTHER = AgentId("main"), AgentId("other")
OWNER = Approver("anna", owner=True)

Open = Callable[..., Permissions]


@pytest.fixture(params=DATABASES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Open the permissions of one home, once or several times, with a configuration."""
    storage = {}
    with ExitStack() as stack:
        if request.param == "postgres":
            storage = {"storage": {"url": create_database()}}
            stack.callback(close_team_storages)

        def make(**config: Any) -> Permissions:
            paths = HomePaths(tmp_path / "home")
            paths.path.mkdir(exist_ok=True)
            paths.config_file.write_text(json.dumps(config | storage))
            foundation = load_home(paths, environment={}, clock=FrozenClock())
            assert not foundation.loaded.problems, foundation.loaded.problems
            return stack.enter_context(open_permissions(foundation))

        yield make


def patterns(book: ConfiguredAllowRules, agent: AgentId = MAIN) -> list[str]:
    return [str(pattern) for pattern in book.rules(agent).patterns]


def test_without_configuration_only_the_safe_filters_are_known(opened: Open) -> None:
    rules = opened().rule_store.rules(MAIN)
    assert (rules.security, rules.ask, rules.ask_fallback) == (Security.ALLOWLIST, AskWhen.ON_MISS, Security.DENY)
    assert (rules.patterns, rules.safe_bins, rules.skill_bins) == ((), DEFAULT_SAFE_BINS, frozenset())


TWO_AGENTS = {
    "tools": {
        "exec": {
            "security": "full",
            "ask": "always",
            "allowlist": ["git status"],
            "safeBins": ["wc"],
            "safeBinTrustedDirs": ["/opt/bin"],
            "safeBinProfiles": {"wc": {"allowedFlags": ["-l"]}, "cut": {"maxPositional": 1}},
            "strictInlineEval": False,
            "askFallback": "allowlist",
        }
    },
    "agents": {
        "list": [
            {"id": "main"},
            {
                "id": "other",
                "tools": {
                    "exec": {
                        "security": "allowlist",
                        "allowlist": ["npm test"],
                        "safeBins": [],
                        "safeBinTrustedDirs": ["/srv/bin"],
                        "safeBinProfiles": {"wc": {"allowedFlags": ["-c"]}},
                        "strictInlineEval": True,
                    }
                },
            },
        ]
    },
}


def test_what_is_configured_for_all_holds_for_an_agent_without_its_own(opened: Open) -> None:
    rules = opened(**TWO_AGENTS).rule_store.rules(MAIN)
    assert (rules.security, rules.ask, rules.ask_fallback) == (Security.FULL, AskWhen.ALWAYS, Security.ALLOWLIST)
    assert list(map(str, rules.patterns)) == ["git status"]
    assert (rules.safe_bins, rules.trusted_dirs) == (frozenset({"wc"}), ("/opt/bin",))
    assert rules.safe_bin_profiles["wc"].allowed_flags == frozenset({"-l"})
    assert rules.strict_inline_eval is False


def test_an_agent_s_own_section_replaces_values_and_adds_to_lists_of_permission(opened: Open) -> None:
    rules = opened(**TWO_AGENTS).rule_store.rules(OTHER)
    assert (rules.security, rules.ask) == (Security.ALLOWLIST, AskWhen.ALWAYS)
    assert list(map(str, rules.patterns)) == ["git status", "npm test"]
    assert (rules.safe_bins, rules.trusted_dirs) == (frozenset(), ("/opt/bin", "/srv/bin"))
    assert rules.safe_bin_profiles["wc"].allowed_flags == frozenset({"-c"})
    assert rules.safe_bin_profiles["cut"].max_positional == 1
    assert rules.strict_inline_eval is True


def test_a_pattern_that_cannot_be_read_allows_nothing_and_spoils_no_other(opened: Open) -> None:
    config = {"tools": {"exec": {"allowlist": ["git 'unclosed", "git status"]}}}
    assert patterns(opened(**config).rule_store) == ["git status"]


def test_what_is_remembered_holds_for_one_agent_and_survives(opened: Open) -> None:
    wanted = [ArgvPattern.exactly(("touch", "a b*")).bound_to(()), ArgvPattern.exactly(("ls",)).bound_to(())]
    opened(**TWO_AGENTS).rule_store.add_patterns(OTHER, wanted, "touch 'a b*' && ls", "anna")
    again = opened(**TWO_AGENTS)
    assert again.rule_store.rules(OTHER).patterns[-2:] == tuple(wanted)
    assert patterns(again.rule_store, MAIN) == ["git status"]
    remembered = [rule for rule in again.rule_store.listing(OTHER) if rule.id]
    assert {(rule.added_by, rule.command) for rule in remembered} == {("anna", "touch 'a b*' && ls")}
    assert [entry["kind"] for entry in again.home.audit.entries()] == ["rule_added", "rule_added"]


def test_a_remembered_rule_has_the_content_of_the_last_answer(opened: Open) -> None:
    book = opened().rule_store
    for digest in ("one", "two", "two"):
        book.add_patterns(MAIN, [ArgvPattern.exactly(("make",)).bound_to((("Makefile", digest),))], "make", "anna")
    permissions = opened()
    [kept] = permissions.rule_store.rules(MAIN).patterns
    assert kept.content == (("Makefile", "two"),)
    [rule] = permissions.rule_store.listing(MAIN)
    assert [entry["details"]["id"] for entry in permissions.home.audit.entries()] == [rule.id] * 2


def test_a_rule_of_an_answer_without_content_is_bound_to_no_script(opened: Open) -> None:
    book = opened().rule_store
    book.add_patterns(MAIN, [ArgvPattern.exactly(("python3", "x.py"))], "python3 x.py", "anna")
    assert [pattern.content for pattern in book.rules(MAIN).patterns] == [()]


def test_remembering_twice_keeps_one(opened: Open) -> None:
    permissions = opened()
    for _ in range(2):
        permissions.rule_store.add_patterns(MAIN, [ArgvPattern.exactly(("ls",))], "ls", "anna")
    assert len(permissions.rule_store.listing(MAIN)) == 1
    assert len(list(permissions.home.audit.entries())) == 1


def test_each_use_is_recorded_for_configured_and_remembered_patterns(opened: Open) -> None:
    permissions = opened(tools={"exec": {"allowlist": ["git diff *"]}})
    book = permissions.rule_store
    book.add_patterns(MAIN, [ArgvPattern.exactly(("ls", "-l"))], "ls -l", "anna")
    configured, remembered = book.rules(MAIN).patterns
    book.record_use(MAIN, configured, "git diff a")
    book.record_use(MAIN, configured, "git diff b")
    book.record_use(MAIN, remembered, "ls -l")
    told = {rule.pattern: (rule.uses, rule.used_command) for rule in book.listing()}
    assert told == {"git diff *": (2, "git diff b"), "ls -l": (1, "ls -l")}
    assert all(rule.used_at == "2026-03-14T15:09:26.000000+00:00" for rule in book.listing())
    assert [rule.source for rule in book.listing()] == ["tools.exec.allowlist", "remembered"]


def test_a_rule_is_added_and_removed_by_its_id_or_its_text(opened: Open) -> None:
    book = opened().rule_store
    first = book.add(MAIN, "git  diff *", OWNER)
    assert first.pattern == "git diff *"
    assert book.remove(first.id.upper(), OWNER).pattern == "git diff *"
    book.add(MAIN, "git diff *", OWNER)
    assert book.remove("git diff *", OWNER, MAIN).added_by == "anna"
    assert book.listing() == ()


def test_removing_what_is_not_there_says_what_is(opened: Open) -> None:
    book = opened(tools={"exec": {"allowlist": ["git status"]}}).rule_store
    kept = book.add(MAIN, "ls", OWNER)
    with pytest.raises(UsageError, match=rf"no stored rule 'nope'. Stored: {kept.id} \(ls\)"):
        book.remove("nope", OWNER)
    with pytest.raises(UsageError, match=r"is in the configuration: remove it from tools\.exec\.allowlist"):
        book.remove("git status", OWNER)
    with pytest.raises(ConfigError, match="does not name a program"):
        book.add(MAIN, " ", OWNER)


@pytest.mark.parametrize(
    "approver",
    [Approver("eve", owner=False), Approver("x", owner=True, source=Source.CRON), Approver("x", True, in_command=True)],
)
def test_only_the_owner_changes_rules(opened: Open, approver: Approver) -> None:
    permissions = opened()
    kept = permissions.rule_store.add(MAIN, "ls", OWNER)
    with pytest.raises(NotAnApprover):
        permissions.rule_store.add(MAIN, "rm *", approver)
    with pytest.raises(NotAnApprover):
        permissions.rule_store.remove(kept.id, approver)
    assert patterns(permissions.rule_store) == ["ls"]
    assert [entry["kind"] for entry in permissions.home.audit.entries()][1:] == ["rule_refused"] * 2


def test_programs_of_skills_count_where_they_are_allowed(opened: Open) -> None:
    off, on = opened().rule_store, opened(tools={"exec": {"autoAllowSkills": True}}).rule_store
    for book in (off, on):
        book.attach_skills(lambda agent: frozenset({"gh"}))
    assert off.rules(MAIN).skill_bins == frozenset()
    assert on.rules(MAIN).skill_bins == frozenset({"gh"})


def test_another_configuration_keeps_what_was_remembered(opened: Open) -> None:
    before = opened()
    before.rule_store.add(MAIN, "ls", OWNER)
    before.rule_store.attach_skills(lambda agent: frozenset({"gh"}))
    config = opened(tools={"exec": {"allowlist": ["git status"], "autoAllowSkills": True}}).home
    after = before.renewed(config).rule_store
    assert patterns(after) == ["git status", "ls"]
    assert after.rules(MAIN).skill_bins == frozenset({"gh"})


def test_what_cannot_be_kept_does_not_stop_the_command(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    permissions = opened()
    permissions.home.audit.path.mkdir()
    permissions.rule_store.add_patterns(MAIN, [ArgvPattern.exactly(("ls",))], "ls", "anna")
    assert permissions.rule_store.listing() == ()
    assert "were not stored" in caplog.text
