"""The sizes of a prompt and what moved between two of them."""

from __future__ import annotations

import json

from msgspec.structs import replace

from retinue.context.prompt.build import build_system_prompt, build_turn_block
from retinue.context.prompt.inputs import ContextFile, RecalledPassage, StableInputs, TurnInputs
from retinue.context.prompt.report import CacheMove, PromptReport, diff_reports, report_prompt
from retinue.core.codec import from_plain, to_plain
from retinue.core.model import ToolSpec
from tests.prompt.scenarios import SCENARIOS, SESSION, STABLE

READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
TURN = TurnInputs(recollections=(RecalledPassage("MEMORY.md#L1-L1", "The boat."),))


def report(stable: StableInputs = STABLE, turn: TurnInputs | None = None, *tools: ToolSpec) -> PromptReport:
    return report_prompt(
        build_system_prompt(stable, SESSION), turn=build_turn_block(turn) if turn else None, tools=tools or (READ,)
    )


def test_a_report_adds_up_to_what_is_sent() -> None:
    scenario = SCENARIOS["heartbeat-turn"]
    prompt, turn = scenario.prompt, scenario.turn_block
    found = report_prompt(prompt, turn=turn)
    assert found.total.chars == len(prompt.text) + len(turn.text)
    assert found.total.tokens == sum(section.tokens for section in found.sections)
    assert [section.name for section in found.sections] == [record.name for record in (*prompt.records, *turn.records)]


def test_files_tell_how_much_of_them_was_injected() -> None:
    cut = ContextFile("MEMORY.md", "short text\n", "MEMORY.md", raw_chars=24_310, truncated=True)
    empty = ContextFile("notes/TOOLS.md", "", "TOOLS.md")
    rows = to_plain(report(replace(STABLE, files=(cut, empty))))["files"]
    assert list(rows) == [
        {"name": "MEMORY.md", "path": "MEMORY.md", "raw": 24_310, "injected": 10, "truncated": True},
        {"name": "TOOLS.md", "path": "notes/TOOLS.md", "raw": 0, "injected": 0, "truncated": False},
    ]


def test_bundled_skills_are_measured_one_by_one() -> None:
    group = (
        '<bundled location="~/b/NAME/SKILL.md" version="sha256:1">\ntodo: Keep tasks.\na &amp; b: Two.\n</bundled>\n'
    )
    listed = STABLE.skills.replace("</available_skills>", f"{group}</available_skills>")
    found = to_plain(report(replace(STABLE, skills=listed)))
    assert [(skill["name"], skill["chars"]) for skill in found["skills"][2:]] == [("todo", 17), ("a & b", 15)]


def test_skills_and_tools_are_measured_one_by_one() -> None:
    found = to_plain(report(replace(STABLE, skills=STABLE.skills.replace("weather<", "a &amp; b<"))))
    assert [skill["name"] for skill in found["skills"]] == ["a & b", "meeting-notes"]
    assert sum(skill["chars"] for skill in found["skills"]) < len(STABLE.skills)
    parameters = '{"type":"object","properties":{"path":{"type":"string"}}}'
    schema = f'{{"name":"read","description":"Read a file.","parameters":{parameters}}}'
    assert [(tool["name"], tool["chars"]) for tool in found["tools"]] == [("read", len(schema))]


def test_a_report_survives_json() -> None:
    found = report(STABLE, TURN)
    assert set(to_plain(found)) == {"total", "sections", "files", "skills", "tools"}
    assert from_plain(json.loads(json.dumps(to_plain(found))), PromptReport) == found


def test_equal_prompts_do_not_differ() -> None:
    diff = diff_reports(report(), report())
    assert (diff.added, diff.removed, diff.changed, diff.moved) == ((), (), (), None)


def test_a_turn_section_changes_but_moves_nothing() -> None:
    diff = diff_reports(report(STABLE, TURN), report())
    assert diff.removed == ("preamble", "memories")
    assert diff.moved is None


def test_the_first_changed_section_is_blamed() -> None:
    changed = replace(STABLE, timezone="Asia/Tokyo", files=(replace(STABLE.files[0], text="New."), *STABLE.files[1:]))
    diff = diff_reports(report(), report(changed))
    assert diff.changed == ("time_zone", "file:AGENTS.md")
    assert diff.moved == CacheMove("time_zone", "its text changed (52 to 49 characters)")


def test_an_added_or_removed_section_is_blamed() -> None:
    quiet = replace(STABLE, docs=None)
    assert diff_reports(report(quiet), report()).moved == CacheMove("documentation", "it was added")
    assert diff_reports(report(), report(quiet)).moved == CacheMove("documentation", "it was removed")
    assert diff_reports(report(), report(quiet)).removed == ("documentation",)


def test_a_prompt_that_only_grew_at_its_end_names_what_was_added() -> None:
    short = report_prompt(build_system_prompt(STABLE, SESSION), tools=(READ,))
    cut = replace(short, sections=short.sections[:-1])
    assert diff_reports(cut, short).moved == CacheMove("runtime", "it was added")
    assert diff_reports(short, cut).moved == CacheMove("runtime", "it was removed")


def test_files_that_change_places_are_blamed() -> None:
    turned = replace(STABLE, files=(STABLE.files[1], STABLE.files[0], *STABLE.files[2:]))
    diff = diff_reports(report(), report(turned))
    assert (diff.added, diff.removed, diff.changed) == ((), (), ())
    assert diff.moved == CacheMove("file:SOUL.md", "it changed places")


def test_a_tool_schema_stands_before_everything() -> None:
    other = replace(READ, description="Read a file, slowly.")
    changed = replace(STABLE, timezone="Asia/Tokyo")
    moved = diff_reports(report(), report(changed, None, other)).moved
    assert moved is not None
    assert moved.name == "tool:read"


def test_two_files_of_one_name_stay_apart() -> None:
    files = (ContextFile("AGENTS.md", "one", "AGENTS.md"), ContextFile("sub/AGENTS.md", "two", "AGENTS.md"))
    edited = (files[0], replace(files[1], text="three"))
    diff = diff_reports(report(replace(STABLE, files=files)), report(replace(STABLE, files=edited)))
    assert diff.changed == ("file:AGENTS.md (sub/AGENTS.md)",)
