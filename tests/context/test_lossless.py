"""The lossless context engine: every message stays reachable from the summaries, and the transcript is not changed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from retinue.context.compaction import CompactionRefused, RefusalReason
from retinue.context.engine import Compaction, CompactRequest, EngineParts
from retinue.context.lossless import FANOUT, SummaryNode, find_leaf, find_nodes, make_engine, messages_of
from retinue.context.settings import CompactionSettings, ContextPruningSettings
from retinue.context.summary_check import HEADINGS
from retinue.core.errors import ModelError
from retinue.core.keys import SessionKey
from retinue.core.labels import Label
from retinue.core.messages import Message, said
from retinue.sessions.entries import Compacted, EntryId, MessageAdded, TranscriptEntry
from tests.context.builders import START, answers, words

pytestmark = pytest.mark.anyio

KEY = SessionKey.parse("main")
ENGINE = make_engine(EngineParts(CompactionSettings(), ContextPruningSettings(), lambda text: text))
PARENT = "Several parts, in short."


async def minutes(system: str, user: str) -> str:
    if system.startswith("You get"):
        return PARENT
    latest = re.search("latest request was: «(.*?)»", user, re.DOTALL)
    names = re.search("spelt exactly so: (.*)", user)
    facts = " ".join(found[1] for found in (latest, names) if found)
    return "\n\n".join(f"## {heading}\n\n- none" for heading in HEADINGS) + f"\n- {facts} " + words(40)


async def fails_to_merge(system: str, user: str) -> str:
    if system.startswith("You get"):
        raise ModelError("The model is away.")
    return await minutes(system, user)


def part(text: str) -> tuple[Message, ...]:
    return said(text), answers(words(1_500)), said("go on"), answers("ok")


class Talk:
    """A transcript that grows, and what the model reads of it."""

    def __init__(self) -> None:
        self.entries: list[TranscriptEntry] = []
        self.summary: Compacted | None = None

    def add(self, body: MessageAdded | Compacted) -> None:
        number = len(self.entries)
        parent = self.entries[-1].id if self.entries else None
        self.entries.append(TranscriptEntry(EntryId(f"e{number}"), parent, START + timedelta(seconds=number), body))

    def say(self, *messages: Message) -> None:
        for message in messages:
            self.add(MessageAdded(message))

    @property
    def kept(self) -> tuple[TranscriptEntry, ...]:
        ids = [entry.id for entry in self.entries]
        first = self.summary.first_kept if self.summary else None
        spoken = self.entries[ids.index(first) if first else 0 :]
        return tuple(entry for entry in spoken if isinstance(entry.body, MessageAdded))

    async def compact(self, ask: object = minutes) -> Compaction | CompactionRefused:
        request = CompactRequest(KEY, self.kept, 20_000, ask, previous=self.summary, force=True)  # type: ignore[arg-type]
        found = await ENGINE.compact(request)
        if isinstance(found, Compaction):
            assert found.tokens_after < request.tokens
            self.summary = found.entry
            self.add(found.entry)
        return found


def leaves_below(nodes: dict[str, SummaryNode], roots: Sequence[str]) -> list[str]:
    found: list[str] = []
    for root in roots:
        node = nodes[root]
        found += leaves_below(nodes, node.children) if node.children else [root]
    return found


def shown_roots(talk: Talk) -> list[str]:
    assert talk.summary is not None
    ids = find_nodes(talk.entries)
    return [name for name in ids if f"## {name} (" in talk.summary.summary]


@pytest.mark.slow
async def test_every_message_is_reachable_from_the_summaries_that_the_model_reads() -> None:
    talk = Talk()
    for number in range(FANOUT**2 + 2):
        talk.say(
            said(f"the secret of part {number} is lamp-{number}"), answers(words(1_500)), said("go on"), answers("ok")
        )
        assert isinstance(await talk.compact(), Compaction)
    nodes, roots = find_nodes(talk.entries), shown_roots(talk)
    assert len(roots) < 2 * FANOUT
    assert max(node.level for node in nodes.values()) == 2
    leaves = leaves_below(nodes, roots)
    assert len(leaves) == len(set(leaves)) == FANOUT**2 + 2
    opened = [message for leaf in leaves for message in messages_of(talk.entries, nodes[leaf])]
    kept = [entry.body.message for entry in talk.kept if isinstance(entry.body, MessageAdded)]
    everything = [entry.body.message for entry in talk.entries if isinstance(entry.body, MessageAdded)]
    assert sorted(map(str, [*opened, *kept])) == sorted(map(str, everything))
    entry = next(each for each in talk.entries if isinstance(each.body, MessageAdded) and "lamp-7" in str(each.body))
    leaf = find_leaf(talk.entries, nodes, entry.id)
    assert leaf is not None
    assert "lamp-7" in str(messages_of(talk.entries, nodes[leaf]))
    assert find_leaf(talk.entries, nodes, talk.kept[-1].id) is None


async def test_a_merge_that_fails_leaves_the_summaries_side_by_side() -> None:
    talk = Talk()
    for number in range(FANOUT + 1):
        talk.say(*part(f"part {number}"))
        assert isinstance(await talk.compact(fails_to_merge), Compaction)
    assert len(shown_roots(talk)) == FANOUT + 1
    talk.say(*part("more"))
    await talk.compact()
    assert PARENT in str(talk.summary)


async def test_labels_follow_what_a_summary_was_made_from() -> None:
    talk = Talk()
    talk.say(
        replace(said("a page from outside " + words(900)), label=Label.UNTRUSTED),
        answers("ok"),
        said("a"),
        answers("b"),
    )
    assert isinstance(await talk.compact(), Compaction)
    for number in range(FANOUT):
        talk.say(*part(f"part {number}"))
        await talk.compact()
    nodes = find_nodes(talk.entries)
    parent = next(node for node in nodes.values() if node.children)
    assert parent.label.is_foreign
    assert talk.summary is not None
    assert talk.summary.label.is_foreign


async def test_a_summary_of_another_engine_and_one_without_a_model_are_kept() -> None:
    talk = Talk()
    assert isinstance(await talk.compact(), CompactionRefused)
    talk.say(said("first"), answers("ok"))
    talk.summary = Compacted("What the default engine wrote.", talk.entries[0].id, 100)
    talk.say(*part("then"))

    async def away(system: str, user: str) -> str:
        raise ModelError("The model is away.")

    refused = await talk.compact(away)
    assert isinstance(refused, CompactionRefused)
    assert refused.because is RefusalReason.MODEL
    assert isinstance(await talk.compact(), Compaction)
    assert "What the default engine wrote." in str(talk.summary)
