"""An index over real notes: kept up to date, searched, and still there when something fails."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from retinue.core.labels import Distance, Label
from retinue.memory.embedding import BuiltInEmbedder
from retinue.memory.index import MemoryIndex
from retinue.memory.search.rules import SearchRules, SearchWeights, with_limits
from retinue.memory.settings import ChunkingSettings
from retinue.memory.store.protocol import IndexDamaged, Vector
from tests.memory.conftest import OpenIndex, WriteNote
from tests.memory.test_embedding import Fixed

pytestmark = pytest.mark.anyio


class Counting(BuiltInEmbedder):
    """The built-in embedder, which also counts what it was given."""

    takes_lines = False

    def __init__(self, model: str = "counting") -> None:
        super().__init__()
        self.model = model
        self.texts: list[str] = []

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vector:
        if not query:
            self.texts += texts
        return await super().embed(texts, query=query)


class Hanging(Counting):
    """An embedder that never answers, or never answers questions."""

    def __init__(self, model: str = "hanging", *, seconds: float = 120.0, notes: bool = False) -> None:
        super().__init__(model)
        self.seconds = seconds
        self._answers_notes = notes

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vector:
        if query or not self._answers_notes:
            await anyio.sleep_forever()
        return await super().embed(texts, query=query)


def age(*files: Path) -> None:
    """Make files look as if they were written long before anybody looked at them."""
    for file in files:
        os.utime(file, ns=(1_600_000_000_000_000_000, 1_600_000_000_000_000_000))


async def found(index: MemoryIndex, question: str) -> list[str]:
    return [hit.citation for hit in (await index.search(question)).hits]


async def test_a_note_is_found_by_words_and_by_meaning(open_index: OpenIndex, write: WriteNote) -> None:
    write("MEMORY.md", "# Facts\n\nThe cat had to have two teeth pulled.\n")
    write("memory/work.md", "# Work\n\nThe budget meeting moved to Friday.\n")
    index = open_index()
    result = await index.search("teeth")
    assert result.mode == "hybrid"
    assert result.hits[0].path == "MEMORY.md"
    (pet, *_) = (await index.search("which dental surgery did our pet need?")).hits
    assert pet.path == "MEMORY.md"
    assert "teeth" in pet.snippet


async def test_only_changed_files_are_read_and_only_changed_chunks_embedded(
    open_index: OpenIndex, write: WriteNote
) -> None:
    paragraphs = [f"Paragraph {n}: " + "words " * 150 for n in range(12)]
    files = [write("memory/a.md", "\n".join(paragraphs)), write("memory/b.md", "Something else.")]
    embedder = Counting()
    index = open_index(embedders=[embedder], chunking=ChunkingSettings(tokens=400, overlap=0))
    first = await index.sync()
    assert (first.changed, first.embedded) == (2, len(embedder.texts))
    age(*files)
    assert (await index.sync()).changed == 0
    embedder.texts.clear()
    paragraphs[-1] = "Paragraph 11 is short now."
    write("memory/a.md", "\n".join(paragraphs))
    report = await index.sync()
    assert report.changed == 1
    assert len(embedder.texts) == report.embedded == 1


async def test_touching_a_file_changes_nothing(open_index: OpenIndex, write: WriteNote) -> None:
    file = write("memory/a.md", "The same words.")
    index = open_index()
    await index.sync()
    before = index.store.revision
    age(file)
    assert (await index.sync()).changed == 0
    assert index.store.revision == before


async def test_an_edit_in_the_same_tick_and_of_the_same_size_is_seen(open_index: OpenIndex, write: WriteNote) -> None:
    file = write("memory/a.md", "The code is 1111.")
    stamp = file.stat().st_mtime_ns
    index = open_index()
    await index.sync()
    file.write_text("The code is 2222.")
    os.utime(file, ns=(stamp, stamp))
    index.mark_dirty()
    (hit,) = (await index.search("code")).hits
    assert "2222" in hit.snippet


async def test_a_removed_note_is_forgotten(open_index: OpenIndex, write: WriteNote) -> None:
    file = write("memory/a.md", "The harbour is closed.")
    index = open_index()
    assert await found(index, "harbour") == ["memory/a.md#L1"]
    file.unlink()
    index.mark_dirty()
    assert await found(index, "harbour") == []


@pytest.mark.slow
async def test_making_the_index_again_gives_the_same_ranking(open_index: OpenIndex, write: WriteNote) -> None:
    for n in range(40):
        write(
            f"memory/{n:02}.md",
            f"Note {n} about the {('garden', 'harbour', 'market')[n % 3]} and {n * 7} apples.\n" * 3,
        )
    index = open_index()
    await index.sync()
    for n in (5, 17, 30):
        write(f"memory/{n:02}.md", f"Note {n} rewritten about the harbour wall.\n")
    index.mark_dirty()
    questions = ["harbour", "apples in the garden", "77", "market"]
    before = [(await index.search(question)).hits for question in questions]
    index.store.reset()
    index.mark_dirty()
    assert [(await index.search(question)).hits for question in questions] == before


@pytest.mark.slow
async def test_another_model_or_chunking_rebuilds_the_index(open_index: OpenIndex, write: WriteNote) -> None:
    write("memory/a.md", "The harbour is closed.\n" * 40)
    assert (await open_index().sync()).embedded
    other = Counting("another")
    index = open_index(embedders=[other])
    assert (await index.sync()).embedded == len(other.texts) > 0
    smaller = Counting("another")
    index = open_index(embedders=[smaller], chunking=ChunkingSettings(tokens=50, overlap=0))
    before = (await index.status()).totals.chunks
    await index.sync()
    assert (await index.status()).totals.chunks > before


async def test_an_exact_code_in_an_old_note_comes_first_even_with_decay(
    open_index: OpenIndex, write: WriteNote
) -> None:
    write("memory/2021-02-09.md", "Alarm: reset it with service code 91-KLO-7.\n")
    for n in range(1, 29):
        write(f"memory/2026-10-{n:02}.md", f"The alarm was tested, service code 91-KLO-{n + 10}, all quiet.\n")
    index = open_index(rules=replace(SearchRules(), half_life_days=30.0))
    assert (await found(index, "91-KLO-7"))[0] == "memory/2021-02-09.md#L1"
    assert (await found(index, "what is service code 91-KLO-7 for?"))[0] == "memory/2021-02-09.md#L1"


async def test_questions_in_other_scripts_find_their_notes(open_index: OpenIndex, write: WriteNote) -> None:
    write("memory/ja.md", "東京の友達の佐藤さんは来年結婚する予定です。\n")
    write("memory/mixed.md", "Ordered 抹茶ラテ at the café for Zoë.\n")
    write("memory/ru.md", "Ключ от дачи лежит под горшком.\n")
    index = open_index(embedders=[])
    assert (await found(index, "佐藤さんはいつ結婚しますか"))[0].startswith("memory/ja.md")
    assert await found(index, "抹茶 cafe") == ["memory/mixed.md#L1"]
    assert await found(index, "где ключи от дачи") == ["memory/ru.md#L1"]


async def test_a_day_is_found_by_the_name_of_its_note(open_index: OpenIndex, write: WriteNote) -> None:
    for n in range(10, 20):
        write(f"memory/2024-03-{n}.md", "# Log\n\nA quiet day in town.\n")
    index = open_index()
    for question in ("what happened on 14 March 2024?", "2024-03-14", "March 14, 2024"):
        assert (await found(index, question))[0].startswith("memory/2024-03-14.md")


async def test_without_an_embedder_words_alone_decide(open_index: OpenIndex, write: WriteNote) -> None:
    write("memory/a.md", "The harbour is closed.")
    index = open_index(embedders=[])
    result = await index.search("harbour")
    assert (result.mode, result.provider, result.reason, len(result.hits)) == ("text", "none", None, 1)


@pytest.mark.parametrize("answer", [[[float("nan")] * 4], None, [[1.0], [2.0], [3.0]]])
async def test_an_embedder_that_talks_nonsense_leaves_words(
    open_index: OpenIndex, write: WriteNote, answer: object
) -> None:
    write("memory/a.md", "The harbour is closed.")
    index = open_index(embedders=[Fixed(answer)])
    report = await index.sync()
    assert report.reason is not None
    result = await index.search("harbour")
    assert (result.mode, len(result.hits)) == ("text", 1)
    assert result.reason is not None


async def test_an_embedder_that_changes_its_dimensions_leaves_words(open_index: OpenIndex, write: WriteNote) -> None:
    write("memory/a.md", "The harbour is closed.")
    await open_index(embedders=[Fixed([[1.0, 0.0]])]).sync()
    wider = open_index(embedders=[Fixed([[1.0, 0.0, 0.0]])])
    result = await wider.search("harbour")
    assert [hit.path for hit in result.hits] == ["memory/a.md"]


@pytest.mark.slow
async def test_an_embedder_that_hangs_does_not_hold_a_search_up(open_index: OpenIndex, write: WriteNote) -> None:
    for n in range(120):
        write(f"memory/{n}.md", "\n".join(f"Line {k} about the harbour and {n} boats." for k in range(200)))
    index = open_index(embedders=[Hanging(notes=True)])
    await index.sync()
    result = await index.search("harbour boats lines", seconds=4.0, refresh=False)
    assert (result.mode, len(result.hits) > 1) == ("text", True), "words have their own share of the time"
    assert "in time" in (result.reason or "")


async def test_indexing_goes_on_with_the_fallback(open_index: OpenIndex, write: WriteNote) -> None:
    write("memory/a.md", "The harbour is closed.")
    index = open_index(embedders=[Hanging(seconds=0.01), Counting("spare")])
    report = await index.sync()
    assert (report.reason, report.embedded) == (None, 1)
    assert (await index.search("harbour")).model == "spare"


async def test_texts_are_embedded_later_where_that_failed_at_first(open_index: OpenIndex, write: WriteNote) -> None:
    write("memory/a.md", "The harbour is closed.")
    broken = Fixed(None)
    index = open_index(embedders=[broken])
    assert (await index.sync()).embedded == 0
    broken.answer = [[1.0, 0.0]]
    assert (await index.sync()).embedded == 1


async def test_every_hit_can_say_why(open_index: OpenIndex, write: WriteNote) -> None:
    write("memory/a.md", "The harbour closed because of ERR-42.")
    (hit,) = (await open_index().search("harbour ERR-42")).hits
    assert hit.parts.text == hit.parts.exact == 1.0
    assert 0 < hit.parts.vector <= 1
    assert {"harbour", "42"} <= set(hit.matched)


async def test_what_came_from_outside_is_labelled_and_can_be_left_out(open_index: OpenIndex, write: WriteNote) -> None:
    write("memory/web.md", "A page says the harbour is closed.")
    write("memory/own.md", "I saw that the harbour is open.")

    def provenance(path: str, lines: Sequence[str]) -> Label:
        return Label.UNTRUSTED if "web" in path else Label.OWNER

    index = open_index(provenance=provenance)
    assert {hit.path: hit.origin for hit in (await index.search("harbour")).hits} == {
        "memory/web.md": Label.UNTRUSTED,
        "memory/own.md": Label.OWNER,
    }
    own = replace(index.rules, farthest=Distance.AGENT)
    assert [hit.path for hit in (await index.search("harbour", rules=own)).hits] == ["memory/own.md"]
    assert (await index.read("memory/web.md")).origin.is_foreign


async def test_limits_of_one_search(open_index: OpenIndex, write: WriteNote) -> None:
    for n in range(10):
        write(f"memory/{n}.md", f"harbour {n}")
    index = open_index()
    assert len((await index.search("harbour", rules=with_limits(index.rules, max_results=2))).hits) == 2
    assert len((await index.search("harbour", rules=with_limits(index.rules, min_score=1.0))).hits) < 10


@pytest.mark.parametrize(
    "rules", [SearchRules(fusion="rrf"), SearchRules(diversity=0.7), SearchRules(weights=SearchWeights.of(1, 0))]
)
async def test_other_ways_to_rank_find_it_too(open_index: OpenIndex, write: WriteNote, rules: SearchRules) -> None:
    write("memory/a.md", "The harbour is closed.")
    write("memory/b.md", "The garden is open.")
    assert (await open_index(rules=rules).search("harbour closed")).hits[0].path == "memory/a.md"


async def test_an_empty_memory_and_an_empty_question_find_nothing(open_index: OpenIndex, write: WriteNote) -> None:
    index = open_index()
    assert await found(index, "anything") == []
    write("memory/a.md", "words")
    index.mark_dirty()
    for question in ("", "   ", "???", "\0", '"'):
        assert (await index.search(question, rules=with_limits(index.rules, min_score=0.99))).hits == ()


async def test_reading_goes_on_where_it_stopped(open_index: OpenIndex, write: WriteNote) -> None:
    write("memory/a.md", "\n".join(f"line {n}" for n in range(1, 301)) + "\n")
    index = open_index()
    first = await index.read("memory/a.md")
    assert (first.lines, first.next_line) == (120, 121)
    rest = await index.read("memory/a.md", 121, 500)
    assert (rest.text.split("\n")[0], rest.lines, rest.next_line) == ("line 121", 180, None)
    assert (await index.read("memory/a.md", 9_999)).text == ""


@pytest.mark.slow
@pytest.mark.parametrize("keep", [0.3, 0.9])
async def test_a_damaged_database_is_made_again(
    open_index: OpenIndex, write: WriteNote, tmp_path: Path, keep: float
) -> None:
    for n in range(60):
        write(f"memory/{n}.md", f"harbour {n} " + "words and more words " * 30)
    index = open_index()
    await index.sync()
    index.store.close()
    path = tmp_path / "index.sqlite"
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    base.close()
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    index = open_index()
    assert len((await index.search("harbour", rules=with_limits(index.rules, max_results=50))).hits) > 5
    assert (await index.status()).totals.files == 60


@pytest.mark.slow
async def test_an_index_of_another_version_is_filled_again_from_the_notes(
    open_index: OpenIndex, write: WriteNote, tmp_path: Path
) -> None:
    write("memory/a.md", "pelicans")
    first = open_index()
    assert len((await first.search("pelicans")).hits) == 1
    first.store.close()
    for version in (99, 0):
        with closing(sqlite3.connect(tmp_path / "index.sqlite")) as base, base:
            base.execute(f"PRAGMA user_version = {version}")
        for index in (open_index(), first):
            assert [hit.path for hit in (await index.search("pelicans")).hits] == ["memory/a.md"]
            index.store.close()


DAMAGES = [
    "DROP TABLE chunk_vectors",
    "DROP TABLE chunks_fts",
    "UPDATE chunks SET origin = 'martian'",
    "UPDATE files SET day = 'soon'",
    "UPDATE meta SET value = 'x' WHERE key = 'identity'",
    "UPDATE meta SET value = 'x' WHERE key = 'revision'",
    "UPDATE meta SET value = '{}' WHERE key = 'vectors'",
    "UPDATE embedding_cache SET vector = x'00'",
]


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
async def test_damage_that_only_a_search_comes_upon_is_put_right(
    open_index: OpenIndex, write: WriteNote, tmp_path: Path, damage: str
) -> None:
    write("memory/a.md", "pelicans")
    first = open_index()
    assert len((await first.search("pelicans")).hits) == 1
    with closing(sqlite3.connect(tmp_path / "index.sqlite")) as base, base:
        base.execute(damage)
    for index in (first, open_index()):
        index.rely_on_watcher()
        for _ in range(2):
            result = await index.search("pelicans")
            assert ([hit.path for hit in result.hits], result.mode, result.reason) == (["memory/a.md"], "hybrid", None)


class Pausing(BuiltInEmbedder):
    """The built-in embedder, which takes a pause before it embeds notes when told to."""

    pause = 0.0

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vector:
        if not query:
            pause, self.pause = self.pause, 0.0
            await anyio.sleep(pause)
        return await super().embed(texts, query=query)


@pytest.mark.slow
async def test_a_search_has_its_time_after_the_index_was_made_again(
    open_index: OpenIndex, write: WriteNote, tmp_path: Path
) -> None:
    for n in range(150):
        write(f"memory/{n}.md", f"harbour {n} " + "words and more words " * 30)
    embedder = Pausing()
    index = open_index(embedders=[embedder])
    await index.sync()
    index.rely_on_watcher()
    with closing(sqlite3.connect(tmp_path / "index.sqlite")) as base, base:
        base.execute("DROP TABLE chunks_fts")
    question = " ".join(["harbour", "words", "more", *(str(n) for n in range(40))])
    embedder.pause = 0.6
    assert (await index.search(question, seconds=0.5)).hits


async def test_a_message_does_not_wait_for_a_damaged_index(
    open_index: OpenIndex, write: WriteNote, tmp_path: Path
) -> None:
    write("memory/a.md", "pelicans")
    index = open_index()
    await index.sync()
    with closing(sqlite3.connect(tmp_path / "index.sqlite")) as base, base:
        base.execute("DROP TABLE chunks_fts")
    with pytest.raises(IndexDamaged):
        await index.recall("pelicans", rules=SearchRules(), seconds=1.0)
    await index.sync()
    assert len((await index.recall("pelicans", rules=SearchRules(), seconds=1.0)).hits) == 1


class Asked(BuiltInEmbedder):
    """The built-in embedder, which also counts how often it was asked."""

    times = 0

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vector:
        self.times += query
        return await super().embed(texts, query=query)


@pytest.mark.slow
async def test_a_message_is_not_embedded_while_there_is_nothing_to_find(
    open_index: OpenIndex, write: WriteNote
) -> None:
    embedder = Asked()
    index, elsewhere = open_index(embedders=[embedder]), open_index(embedders=[BuiltInEmbedder()])
    await index.sync()
    for _ in range(3):
        assert (await index.recall("pelicans", rules=SearchRules(), seconds=1.0)).hits == ()
    assert embedder.times == 1, "after the first it is known"
    write("memory/a.md", "pelicans")
    await elsewhere.sync()
    assert len((await index.recall("pelicans", rules=SearchRules(), seconds=1.0)).hits) == 1, (
        "another process indexed it"
    )
    assert embedder.times == 2


async def test_a_note_whose_name_is_no_text_is_named_and_the_others_are_indexed(
    open_index: OpenIndex, write: WriteNote, workspace: Path
) -> None:
    write("memory/good.md", "pelicans")
    (workspace / "memory" / "caf\udce9.md").write_text("herons")
    (workspace / "memory" / "d\udce9bris").mkdir()
    (workspace / "memory" / "d\udce9bris" / "a.md").write_text("storks")
    index = open_index()
    report = await index.sync()
    assert sorted(problem.path for problem in report.problems) == [
        "memory/caf\\udce9.md",
        "memory/d\\udce9bris/a.md",
    ]
    assert all("Rename it" in problem.message for problem in report.problems)
    assert [hit.path for hit in (await index.search("pelicans")).hits] == ["memory/good.md"]


ODD_QUESTIONS = (
    *("", " ", "the of and", "!!!", '"', '""', "AND", "OR NOT", "NEAR(a b)", "a*", "text:pelicans", "^pelicans", "((("),
    *('"unclosed', "{text context}: a", "-", "\\", "`", "\0", "\ud800", "pelicans \udfff", "\u202epelicans", "e\u0301"),
    *("x" * 10_000, "word " * 2_000, "漢" * 10_000, "🦆" * 10_000, "'; DROP TABLE chunks; --"),
)


@pytest.mark.parametrize("question", ODD_QUESTIONS, ids=lambda question: ascii(question[:20]))
async def test_any_question_is_answered_and_harms_nothing(
    open_index: OpenIndex, write: WriteNote, question: str
) -> None:
    write("memory/a.md", "pelicans")
    index = open_index()
    assert (await index.search(question)).reason is None
    assert len((await index.search("pelicans")).hits) == 1


async def test_a_bad_file_is_named_and_the_others_are_indexed(
    open_index: OpenIndex, write: WriteNote, workspace: Path
) -> None:
    (workspace / "memory" / "binary.md").write_bytes(b"\0\1\2")
    write("memory/good.md", "The harbour is closed.")
    index = open_index()
    report = await index.sync()
    assert [problem.path for problem in report.problems] == ["memory/binary.md"]
    assert await found(index, "harbour") == ["memory/good.md#L1"]


@pytest.mark.slow
async def test_one_enormous_line_is_found_in_small_pieces(open_index: OpenIndex, write: WriteNote) -> None:
    write("memory/line.md", "filler words here " * 20_000 + "needle in the haystack " + "more filler text " * 20_000)
    hits = (await open_index().search("needle haystack")).hits
    assert "needle in the haystack" in hits[0].snippet
    assert len(hits[0].snippet) <= 700
    assert (hits[0].start_line, hits[0].end_line) == (1, 1)


async def test_notes_are_looked_at_again_only_when_something_may_have_changed(
    open_index: OpenIndex, write: WriteNote
) -> None:
    write("memory/a.md", "The harbour is closed.")
    index = open_index()
    before = index.is_dirty
    await index.sync()
    index.rely_on_watcher()
    assert (before, index.is_dirty) == (True, False)
    write("memory/b.md", "The harbour is open.")
    assert await found(index, "harbour") == ["memory/a.md#L1"]
    index.mark_dirty()
    assert len(await found(index, "harbour")) == 2


@pytest.mark.parametrize("at", [3, 157, 420, 800, 1196])
@pytest.mark.parametrize("edit", ["longer", "shorter", "inserted", "removed"])
async def test_a_changed_line_embeds_only_the_chunks_near_it(
    open_index: OpenIndex, write: WriteNote, at: int, edit: str
) -> None:
    lines = [f"Entry {number}: we spoke about topic {number * 7919 % 1009} and agreed." for number in range(1200)]
    write("memory/log.md", "\n".join(lines))
    embedder = Counting()
    index = open_index(embedders=[embedder], chunking=ChunkingSettings())
    await index.sync()
    whole = len(embedder.texts)
    assert whole > 40
    embedder.texts.clear()
    match edit:
        case "longer":
            lines[at] += " Later it was changed, at some length, and nobody remembers why that was."
        case "shorter":
            lines[at] = "Nothing."
        case "inserted":
            lines.insert(at, "A line between the others.")
        case "removed":
            del lines[at]
    write("memory/log.md", "\n".join(lines))
    await index.sync()
    assert 1 <= len(embedder.texts) <= 6, f"{len(embedder.texts)} of {whole} chunks"


async def test_identical_texts_do_not_fill_the_result(open_index: OpenIndex, write: WriteNote) -> None:
    for number in range(8):
        write(f"memory/copy{number}.md", "The boiler code is 4711.\n")
    write("memory/heating.md", "The boiler was repaired by Ann; she knows its code.\n")
    write("memory/plumber.md", "Ask the plumber about the boiler and the code of the meter.\n")
    found = await open_index().search("boiler code", seconds=60)
    texts = [hit.snippet.strip() for hit in found.hits]
    assert len(texts) == len(set(texts)) == 3


async def test_the_same_text_on_several_days_comes_after_other_texts(open_index: OpenIndex, write: WriteNote) -> None:
    for day in range(1, 9):
        write(f"memory/2026-03-0{day}.md", "Paid the rent of the flat.\n")
    write("memory/flat.md", "The rent of the flat is 900 euros.\n")
    found = await open_index().search("rent flat", seconds=60)
    assert "memory/flat.md" in [hit.path for hit in found.hits][:2]
    assert len(found.hits) == 6, "each day is a fact of its own, if there is room"


async def test_an_index_with_chunks_of_an_older_version_is_chunked_again(
    open_index: OpenIndex, write: WriteNote
) -> None:
    write("memory/a.md", "User: Always answer in metric units.\nAssistant: I will.\nUser: Thanks.")
    index = open_index()
    await index.sync()
    index.store.set_meta("chunker", "1")
    assert (await index.sync()).changed == 1
    assert (await index.sync()).changed == 0
