"""Where a history is cut."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.context.compaction import MIN_WORTH, plan_cut, safe_cuts
from retinue.context.measure import estimate
from retinue.core.envelope import Source
from retinue.core.labels import Label
from retinue.core.messages import AssistantMessage, Message, UserMessage, said
from retinue.sessions.entries import Compacted
from retinue.sessions.repair import repair
from tests.context.builders import answers, calls, entries_of, gives, histories, words
from tests.examples import examples

few = settings(max_examples=examples(60), deadline=None)


@few
@given(histories(), st.integers(0, 20_000))
def test_a_cut_never_separates_a_call_from_its_results(messages: tuple[Message, ...], keep: int) -> None:
    entries = entries_of(messages)
    plan = plan_cut(entries, keep)
    if plan is None:
        return
    assert (*plan.head, *plan.kept) == messages
    at = len(plan.head)
    assert 0 < at < len(messages)
    assert entries[at].id == plan.first_kept
    assert (*repair(plan.head)[0], *repair(plan.kept)[0]) == repair(messages)[0]
    assert not [note for note in repair(plan.kept)[1] if "has no call" in note]
    assert estimate(plan.head) >= MIN_WORTH
    assert estimate(plan.kept) <= keep or at == safe_cuts(messages)[-1]


def test_the_cut_falls_between_turns() -> None:
    messages: list[Message] = [
        message for at in range(6) for message in (said(f"ask {at} {words(300)}"), answers(words(300)))
    ]
    plan = plan_cut(entries_of(messages), 1_500)
    assert plan is not None
    assert isinstance(plan.kept[0], UserMessage)
    assert len(plan.kept) == 4
    assert not plan.inside_turn


def test_a_turn_larger_than_the_allowance_is_cut_inside_before_an_answer() -> None:
    messages: list[Message] = [said("do all of it")]
    for at in range(10):
        messages += [calls(f"c{at}"), gives(f"c{at}", words(400))]
    plan = plan_cut(entries_of(messages), 1_500)
    assert plan is not None
    assert plan.inside_turn
    assert isinstance(plan.kept[0], AssistantMessage)
    assert len(plan.kept) == 6
    assert plan.asks == ("do all of it",)


def test_a_short_last_turn_does_not_throw_away_the_long_one_before_it() -> None:
    messages: list[Message] = [said("do all of it")]
    for at in range(10):
        messages += [calls(f"c{at}"), gives(f"c{at}", words(400))]
    messages += [answers("done"), said("thanks"), answers("you are welcome")]
    plan = plan_cut(entries_of(messages), 1_500)
    assert plan is not None
    assert plan.inside_turn
    assert estimate(plan.kept) > 1_000


def test_the_last_answer_stays_with_its_results_however_large_they_are() -> None:
    messages: list[Message] = [
        said(words(900)),
        answers("ok"),
        said("read it"),
        calls("a", "b"),
        gives("b", "x"),
        gives("a", words(9_000)),
    ]
    plan = plan_cut(entries_of(messages), 100)
    assert plan is not None
    assert plan.kept == tuple(messages[3:])


def test_a_call_that_still_runs_stays() -> None:
    messages: list[Message] = [said(words(900)), calls("a", "b"), gives("b", words(900)), said("hurry")]
    assert safe_cuts(messages) == (1,)


def test_there_is_nothing_to_cut_in_a_short_history() -> None:
    short: list[Message] = [said("hi"), answers("hello"), said("how are you"), answers("well")]
    assert plan_cut(entries_of(short), 0) is None
    assert plan_cut(entries_of([said(words(5_000))]), 10) is None
    assert plan_cut((), 10) is None
    fitting: list[Message] = [said(words(600)), answers("a"), said("b"), answers("c")]
    assert plan_cut(entries_of(fitting), 20_000) is None
    assert plan_cut(entries_of(fitting), 100) is not None


def test_asks_are_what_people_said_and_not_what_a_clock_set_off() -> None:
    messages: list[Message] = [
        said("book the train"),
        answers("ok"),
        said("heartbeat"),
        answers(words(900)),
        said("and now?"),
        answers("x"),
    ]
    sources = [Source.CHAT, Source.CHAT, Source.HEARTBEAT, Source.HEARTBEAT, Source.CHAT, Source.CHAT]
    plan = plan_cut(entries_of(messages, sources), 20)
    assert plan is not None
    assert plan.asks == ("book the train",)


def test_a_plan_is_as_trusted_as_the_least_trusted_thing_in_it() -> None:
    def label(*, result: Label = Label.AGENT, previous: Label = Label.AGENT) -> Label:
        head: list[Message] = [said(words(900)), calls("a"), gives("a", "page", label=result)]
        old = Compacted("before", None, 0, label=previous)
        plan = plan_cut(entries_of([*head, said("next"), answers("yes")]), 15, previous=old)
        assert plan is not None
        return plan.label

    assert label() == Label.AGENT
    assert label(result=Label.UNTRUSTED).is_foreign
    assert label(previous=Label.UNTRUSTED).is_foreign
