"""Labels: the origin of a mixture, and which stored origins are valid."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.labels import Label, mix
from retinue.core.messages import AssistantMessage, Text, ToolResult, label_of_all, said
from retinue.core.people import Person, Role

ADA, EVE = Label("contact:http:ada"), Label("guest:http:eve")
ORDER = (Label.OWNER, Label.AGENT, ADA, EVE, Label.UNTRUSTED)
LABELS = st.builds(Label, st.sampled_from([label.origin for label in ORDER]), st.booleans())


def test_a_mixture_has_the_least_trusted_origin() -> None:
    assert mix([]) == Label.OWNER
    for at, least in enumerate(ORDER):
        for parts in permutations(ORDER[: at + 1]):
            assert mix(parts) == least


def test_a_mixture_is_private_if_any_part_is() -> None:
    assert mix([Label.UNTRUSTED, Label.OWNER.as_private]) == Label("untrusted", private=True)
    assert not mix([Label.UNTRUSTED, Label.OWNER]).private


def test_texts_of_two_people_belong_to_neither() -> None:
    assert mix([ADA, Label("contact:http:bob")]) == Label.UNTRUSTED
    assert mix([EVE, Label("guest:http:mallory")]) == Label.UNTRUSTED


@given(st.lists(LABELS, max_size=5), st.lists(LABELS, max_size=5))
def test_the_order_of_mixing_does_not_matter(some: list[Label], others: list[Label]) -> None:
    assert mix([*some, *others]) == mix([mix(some), mix(others)]) == mix([*others, *some])


@pytest.mark.parametrize("text", ["", "root", "contact", "contact:", "owner:x", "untrusted:x", None, 3, "Owner"])
def test_an_invalid_origin_is_untrusted(text: object) -> None:
    assert Label.parse(text) == Label.UNTRUSTED


def test_a_stored_origin_is_read_as_it_was_written() -> None:
    assert [Label.parse(label.origin, private=label.private) for label in ORDER] == list(ORDER)


def test_members_of_a_group_count_as_guests() -> None:
    assert Label.of_person(Person(Role.MEMBER, "http:room-1")) == Label("guest:http:room-1")
    assert Label.of_person(Person(Role.CONTACT, "http:ada")) == ADA


def test_a_request_has_the_label_of_all_its_messages() -> None:
    page = ToolResult("c1", "web_fetch", (Text("…"),), label=Label.UNTRUSTED)
    notes = ToolResult("c2", "memory_search", (Text("…"),), label=Label.AGENT.as_private)
    assert label_of_all([said("Hi"), AssistantMessage((Text("Hello"),))]) == Label.AGENT
    assert label_of_all([said("Hi"), page, notes]) == Label("untrusted", private=True)
