"""Taking questions apart."""

from __future__ import annotations

from contextlib import closing
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.memory.search.query import find_dates, format_date, is_identifier, parse_query
from retinue.memory.search.words import Stemmer


def test_stop_words_are_left_out() -> None:
    assert parse_query("What is the name of the cat?").words == ("name", "cat")


def test_stop_words_are_kept_where_nothing_else_is_left() -> None:
    assert parse_query("who am I").words == ("who", "am", "i")


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("Wie heißt der Kater von Oma?", ("heißt", "kater", "oma")),
        ("Quel est le code du portail ?", ("code", "portail")),
        ("¿Dónde está la llave?", ("llave",)),
    ],
)
def test_stop_words_of_other_languages_too(question: str, words: tuple[str, ...]) -> None:
    assert parse_query(question).words == words


def test_quoted_phrases_must_stand_exactly() -> None:
    assert parse_query('who said "measure twice"').exact == ("measure twice",)
    assert parse_query("wer sagte „gute Nacht“ und “good night”").exact == ("gute Nacht", "good night")


@pytest.mark.parametrize(
    "token", ["ERR_TLS_42", "10.0.0.7", "main.py", "parseConfig", "E119-FF", "48213", "a@b.org", "v1.2.3", "src/x"]
)
def test_what_only_a_machine_would_write_is_an_identifier(token: str) -> None:
    assert is_identifier(token)
    assert token in parse_query(f"where is {token}?").exact


@pytest.mark.parametrize(
    "token", ["Caroline", "don't", "well-known", "NASA", "1990s", "7th", "12", "it's", "state-of-the-art"]
)
def test_ordinary_words_are_not(token: str) -> None:
    assert not is_identifier(token)


@pytest.mark.parametrize(
    "text", ["on 8 May 2023", "May 8, 2023", "2023-05-08", "the 8th of May 2023", "am 8. Mai 2023", "8 mayo 2023"]
)
def test_a_day_is_found_however_it_is_spelled(text: str) -> None:
    assert list(find_dates(text)) == [date(2023, 5, 8)]
    assert {"2023", "05", "08", "8", "may"} <= set(parse_query(text).words)


def test_a_day_that_is_not_in_the_calendar_is_none() -> None:
    assert list(find_dates("2024-02-30 or 31 April 2024")) == []


def test_a_day_is_spelled_in_the_words_people_ask_with() -> None:
    assert {"2023-05-08", "8", "may", "2023"} <= set(format_date(date(2023, 5, 8)).split())


def test_scripts_without_spaces_become_pairs_beside_the_words() -> None:
    query = parse_query("東京の天気 weather")
    assert query.words == ("weather",)
    assert query.pairs == ("東京", "京の", "の天", "天気")


@given(st.text(max_size=300))
def test_any_text_is_a_question(text: str) -> None:
    query = parse_query(text)
    assert len(query.words) <= 48
    assert "\0" not in query.text


def test_stems_are_those_of_the_index() -> None:
    stemmer = Stemmer()
    assert {stemmer.stem(word) for word in ("painting", "painted", "paints")} == {"paint"}
    assert stemmer.stem("École") == stemmer.stem("ecole")
    assert stemmer.learn(["a b", "?"])["?"] == "?"
    stemmer.close()


def test_stems_stay_known_when_there_is_no_room_for_more() -> None:
    with closing(Stemmer(most_kept=3)) as stemmer:
        for words in (["running", "boats"], ["running", "skies", "hoping"], ["boats"], ["a", "b", "c", "d", "running"]):
            assert all(stemmer.learn(words)[word] == stemmer.stem(word) for word in words)
        before = stemmer.learn(["running", "boats"])
        stemmer.learn(["one", "two", "three", "four"])
        assert (before["running"], before["boats"]) == ("run", "boat")
