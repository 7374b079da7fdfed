"""Whom "he", "her" and 他 mean: whoever is named in passing, and nobody where it is not clear."""

from tests.cases import each
from tests.test_rules import extract, texts


@each(
    ("said", "told"),
    [
        ("My sister's seeing a lad called Connor, he's a chef.", "Connor is a chef"),
        ("I met Anna yesterday, she works at Bosch.", "Anna works at Bosch"),
        ("They let my friend Priya go, she worked in HR.", "Priya worked in HR"),
        ("Marco and I are done. He moved back to Milan.", "Marco lives in Milan"),
        (
            "We got a greyhound puppy, her name is Waffle.",
            "User's greyhound puppy's name is Waffle",
        ),
        ("We adopted a kitten. It's called Waffle.", "User's kitten is called Waffle"),
        ("My dog is ill. His name is Rex.", "User's dog's name is Rex"),
        (
            "Tom, my neighbour, sold his van. He drives a Corsa.",
            "User's neighbour Tom drives a Corsa",
        ),
        ("我姐在跟一个叫大刘的小伙子谈，他是厨师。", "大刘是厨师"),
        ("我家猫生病了，它叫年糕。", "用户的猫叫年糕"),
    ],
)
def test_a_pronoun_means_whoever_was_named_last(said: str, told: str) -> None:
    assert told in texts(said)


@each(
    "said",
    [
        "My friend Maya just had a baby, his name is Theo.",
        "Nobody said that Robin met Kim, she is a chef.",
        "闺女升三年级了，换了班主任，姓郑。",
    ],
)
def test_a_pronoun_that_may_mean_two_means_nobody(said: str) -> None:
    """A wrong name is worse than none: the sentence is kept as it was said."""
    wrong = ("friend's name is Theo", "Robin is a chef", "Kim is a chef", "闺女姓郑")
    assert not [it for it in texts(said) if it.endswith(wrong)]


def test_a_name_that_a_pronoun_leads_to_is_an_edge() -> None:
    found = extract("We adopted a kitten. It's called Waffle.")
    assert ("user", "has_pet", "Waffle") in [tuple(it) for f in found.facts for it in f.relations]


@each(
    ("said", "told"),
    [
        ("Lily's swimming is on Fridays now.", "Lily's swimming is on Fridays now"),
        ("Lily's swimming in the lake now.", "Lily is swimming in the lake now"),
    ],
)
def test_what_somebody_has_is_not_what_they_are_doing(said: str, told: str) -> None:
    assert texts(said) == [told]
