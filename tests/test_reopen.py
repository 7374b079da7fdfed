"""What a deleted note had ended holds again, and what had repeated it is withdrawn with it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kemem import AsyncMemory, Memory, Policy
from kemem.settings import Settings, load
from kemem.testing import HashingEmbedder
from tests.server import said


@dataclass(frozen=True, slots=True)
class Talk:
    """Where somebody lives, told three times, and how it is asked for."""

    told: tuple[str, str, str]
    places: tuple[str, str, str]
    question: str


TALKS = {
    "zh": Talk(
        ("我住在成都", "我搬到厦门了", "我搬到昆明了"), ("成都", "厦门", "昆明"), "我住在哪里？"
    ),
    "en": Talk(
        ("I live in Berlin.", "I moved to Munich.", "I moved to Rome."),
        ("Berlin", "Munich", "Rome"),
        "Where do I live?",
    ),
}
EACH = pytest.mark.parametrize("talk", TALKS.values(), ids=TALKS)
MONTHS = ("2026-01-05T09:00:00Z", "2026-03-05T09:00:00Z", "2026-05-05T09:00:00Z")


@pytest.fixture
def memory(either_settings: Settings) -> Iterator[Memory]:
    """On both databases."""
    with Memory(settings=either_settings, embedder=HashingEmbedder()) as memory:
        yield memory


def tell(memory: Memory, talk: Talk, count: int) -> list[str]:
    """Tell the first places, a session each; returns the ids of their notes."""
    for at in range(count):
        memory.add(talk.told[at], "u", session_id=f"s{at}", timestamp=MONTHS[at])
    notes = memory.search(talk.question, "u", kinds=["user_info"], past=True)
    by_place = {place: it.id for it in notes for place in talk.places if place in it.memory}
    return [by_place[place] for place in talk.places[:count]]


def holds(memory: Memory, talk: Talk) -> list[str]:
    """The places that hold by every way to ask."""
    (note,) = memory.get_all("u")
    (edge,) = [it for it in memory.graph("u") if it.relationship == "lives_in"]
    prompt = str(memory.search(talk.question, "u"))
    places = [place for place in talk.places if place in prompt]
    assert [edge.destination] == [it for it in talk.places if it in note.memory] == places
    return places


@EACH
def test_what_a_deleted_note_had_ended_holds_again(memory: Memory, talk: Talk) -> None:
    """By search, list, prompt and graph; its history tells why."""
    old, new = tell(memory, talk, 2)
    assert holds(memory, talk) == [talk.places[1]]
    memory.delete(new)
    assert holds(memory, talk) == [talk.places[0]]
    assert all(hit.ended is None for hit in memory.search(talk.question, "u", past=True))
    assert memory.get_all("u", as_of=MONTHS[2])[0].id == old
    latest = memory.history(old)[0]
    assert latest.event == "update" and new in (latest.reason or "")


@EACH
@pytest.mark.parametrize("sources", [True, False])
def test_so_it_does_when_its_message_is_erased(memory: Memory, talk: Talk, sources: bool) -> None:
    """By itself, with its note, or with its session."""
    _, new = tell(memory, talk, 2)
    if sources:
        memory.delete(new, sources=True)
    else:
        memory.delete(memory.sources(new)[0].message_id, user_id="u")
    assert holds(memory, talk) == [talk.places[0]]
    memory.add(talk.told[1], "u", session_id="s1", timestamp=MONTHS[1])
    assert holds(memory, talk) == [talk.places[1]]
    memory.delete_all("u", session_id="s1")
    assert holds(memory, talk) == [talk.places[0]]


@EACH
def test_between_two_others_it_leaves_no_gap(memory: Memory, talk: Talk) -> None:
    """What it had ended lasted until what followed, which has now replaced that."""
    first, second, third = tell(memory, talk, 3)
    memory.delete(second)
    assert holds(memory, talk) == [talk.places[2]]
    notes = memory.search(talk.question, "u", kinds=["user_info"], past=True)
    assert {it.id: it.superseded_by for it in notes} == {first: third, third: None}
    assert memory.get_all("u", as_of=MONTHS[1])[0].id == first
    memory.delete(third)
    assert holds(memory, talk) == [talk.places[0]]


@EACH
def test_what_is_forgotten_reopens_nothing(memory: Memory, talk: Talk) -> None:
    """To forget what is true now does not make true what was."""
    _, new = tell(memory, talk, 2)
    assert [*memory.forget("u", policy=Policy(below=0.9, half_life_days=1e-9))] == [new]
    assert len(memory.get_all("u")) == 0


async def test_all_that_one_note_had_ended_holds_again(tmp_path: Path) -> None:
    """What tells that an animal is gone ends all that is told of it."""
    told = ("I have a dog called Rex.", "My dog Rex sleeps in the kitchen.")
    async with AsyncMemory(settings=load(data_dir=tmp_path, embedder="none")) as memory:
        for number, text in enumerate((*told, "My dog Rex died.")):
            await memory.add(text, "u", session_id=f"s{number}", timestamp=MONTHS[number])
        (note,) = await memory.get_all("u")
        await memory.delete(note.id)
        assert len(await memory.get_all("u")) == 2


ECHOES = {
    "en": ("I'm allergic to peanuts", "Got it, you're allergic to peanuts.", "Noted!", "peanuts"),
    "zh": ("我对花生过敏", "好的，记住了，你对花生过敏。", "明白了！", "花生"),
    "en brief": (
        "I'm allergic to peanuts",
        "Noted. No peanuts, then!",
        "Anything else?",
        "peanuts",
    ),
    "zh brief": ("我对花生过敏", "好的。那就不放花生了！", "还有别的吗？", "花生"),
}


@pytest.mark.parametrize(("told", "echo", "other", "word"), ECHOES.values(), ids=ECHOES)
def test_a_reply_that_repeats_a_deleted_note_is_withdrawn_with_it(
    memory: Memory, told: str, echo: str, other: str, word: str
) -> None:
    """Only the transcript keeps it, marked; a reply that does not stays."""
    talk = [said(told, "m"), {**said(echo, "echo"), "role": "assistant"}]
    memory.add([*talk, {**said(other, "other"), "role": "assistant"}], "u", session_id="s")
    (note,) = memory.get_all("u")
    assert set(memory.delete(note.id).withdrawn) == {"m", "echo"}
    assert (
        word
        not in f"{memory.search(word, 'u')}{memory.recall(word, 'u')}{memory.context('s', 'u')}"
    )
    page = memory.messages("u").items
    assert {it.message_id: it.withdrawn for it in page} == {"m": True, "echo": True, "other": False}


@pytest.mark.parametrize(("told", "echo", "other", "word"), ECHOES.values(), ids=ECHOES)
def test_a_reply_about_something_else_stays(
    memory: Memory, told: str, echo: str, other: str, word: str
) -> None:
    memory.add(
        [said(told, "m"), {**said(other, "other"), "role": "assistant"}], "u", session_id="s"
    )
    (note,) = memory.get_all("u")
    assert memory.delete(note.id).withdrawn == ("m",)


@pytest.mark.parametrize(("told", "echo", "other", "word"), ECHOES.values(), ids=ECHOES)
def test_a_reply_that_repeats_an_erased_message_is_withdrawn(
    memory: Memory, told: str, echo: str, other: str, word: str
) -> None:
    talk = [said(told, "m"), {**said(echo, "echo"), "role": "assistant"}]
    memory.add([*talk, {**said(other, "other"), "role": "assistant"}], "u", session_id="s")
    deletion = memory.delete("m", user_id="u")
    assert (deletion.erased, deletion.withdrawn) == (("m",), ("echo",))
    assert word not in f"{memory.search(word, 'u')}{memory.recall(word, 'u')}"


@EACH
def test_what_was_told_afterwards_holds_again_too(memory: Memory, talk: Talk) -> None:
    """It was true only until what was known already began; when that is deleted, it holds."""
    for at in (1, 0):
        memory.add(talk.told[at], "u", session_id=f"s{at}", timestamp=MONTHS[at])
    (newest,) = memory.get_all("u")
    memory.delete(newest.id, user_id="u")
    assert holds(memory, talk) == [talk.places[0]]
