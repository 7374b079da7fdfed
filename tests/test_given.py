"""How English gives a name: a bearer, a link and a name, each in many forms."""

from itertools import product
from pathlib import Path

import pytest

from kemem import Memory
from kemem.testing import FakeClock
from kemem.text.given import given_in
from kemem.text.naming import namings

BEARERS = ("My boss", "My old flatmate from Uppsala", "Our new vet", "My nephew")
LINKS = ("is called", "goes by", "will only answer to", "signs as", "is known to all as")
NAMES = ("Squeak", "the Lighthouse", "T.J.", "Cornelius Vane")


@pytest.mark.parametrize(("bearer", "link", "name"), [*product(BEARERS, LINKS, NAMES)])
def test_every_bearer_goes_with_every_link_and_name(bearer: str, link: str, name: str) -> None:
    (it,) = given_in(f"{bearer} {link} {name}")
    assert it.name == name.removeprefix("the ")
    assert it.thing
    assert bearer.lower().startswith(it.thing.text)


@pytest.mark.parametrize(
    ("text", "name", "whose"),
    [
        ("I have nicknamed my manager the Lighthouse", "Lighthouse", ("my manager", "")),
        ("My boss's nickname is the Lighthouse", "Lighthouse", ("my boss", "")),
        ("The name of my tailor is Ivo", "Ivo", ("my tailor", "")),
        ("Long letter from Bex (short for Ann, my niece)", "Bex", ("my niece", "Ann")),
        ("Bex is short for Rebecca, she is my niece", "Bex", ("my niece", "Rebecca")),
        ("Everyone calls Dorothea Dot", "Dot", ("", "Dorothea")),
        ("Saw Ann, nobody has called her anything but Dot", "Dot", ("", "Ann")),
        ("Ann Shaw got married and signs as Ann Poe now", "Ann Poe", ("", "Ann Shaw")),
        ("Ann Shaw is now Ann Poe", "Ann Poe", ("", "Ann Shaw")),
        ("The cat called Duke is really called Humphrey", "Humphrey", ("the cat", "Duke")),
        ("The Tax Collector's real name is Humphrey", "Humphrey", ("", "Tax Collector")),
        ("In the choir we say Professor to Ida", "Professor", ("", "Ida")),
        ("The new vet turns out to be a Mr Okonjo", "Okonjo", ("the new vet", "")),
        ("Met my new tutor, one Cornelius Vane", "Cornelius Vane", ("my new tutor", "")),
        ("My neighbour upstairs - Osvaldo - drums", "Osvaldo", ("my neighbour", "")),
        ("My son insists that we call him Rocket", "Rocket", ("my son", "")),
    ],
)
def test_whose_a_name_is(text: str, name: str, whose: tuple[str, str]) -> None:
    thing, other = next((it.thing, it.bearer) for it in namings(text) if it.name == name)
    assert (thing.text if thing else "", other) == whose


@pytest.mark.parametrize(
    "text",
    [
        "I call my manager on Monday",
        "My manager called Dana about the budget",
        "I called Dana Shaw",
        "My sister was called to London",
        "Call me Monday",
        "They named Friday as the day",
        "We say Merry Christmas to my aunt",
        "We are short for time, my boss says",
        "My aunt went by Lyon on the way",
        "I call my sister Easter Monday",
        "My manager is Swedish",
        "My tutor is a Catholic",
    ],
)
def test_a_day_a_place_or_a_call_gives_no_name(text: str) -> None:
    assert namings(text) == ()


@pytest.mark.parametrize(
    ("naming", "question", "leads"),
    [
        ("My cousin is called Pip", "Where does my cousin work?", True),
        ("Ann's cousin is called Pip", "Where does my cousin work?", False),
        ("Ann's cousin is called Pip", "Where does Ann's cousin work?", True),
        ("His boss is nicknamed Pip", "Where does my manager work?", False),
    ],
)
def test_who_is_of_somebody_else_is_not_mine(
    tmp_path: Path, naming: str, question: str, leads: bool
) -> None:
    with Memory(data_dir=tmp_path, clock=FakeClock(1_770_000_000_000_000)) as memory:
        for at, text in enumerate((naming, "My uncle paints", "Pip got a job at the lighthouse")):
            memory.ingest([{"message_id": text, "content": text}], "u", session_id=f"s{at}")
        hits = memory.search(question, "u", explain=True)
    assert any(line.startswith("hop: Pip") for hit in hits for line in hit.why) == leads
