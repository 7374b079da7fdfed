"""One ranking of several: of searches, and of what rules and a model take for evidence."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

K = 5  # of reciprocal rank: with more, the ends of lists of ten could not be told apart
# Of what a model names. By simulation on annotated conversations: a model that names at random
# costs 2 % of the first places, one that is right every second time gains 1 to 5 %.
NAMED = 4.0  # by which its odds grow
ADDED = 0.15  # the chance of what rules have not found
LEAST = 0.05  # the chance below which what rules have found is left out if a model does not name it

Ranking = tuple[float, Sequence[str]]  # the weight of a list, and its keys


def scores(rankings: Iterable[Ranking]) -> dict[str, float]:
    """The score of each memory by reciprocal rank in weighted rankings, best first."""
    total: defaultdict[str, float] = defaultdict(float)
    for weight, keys in rankings:
        for rank, key in enumerate(keys, 1):
            total[key] += weight / (K + rank)
    return dict(sorted(total.items(), key=lambda each: -each[1]))


def with_named(by_rules: Mapping[str, float], named: Sequence[str]) -> list[str]:
    """What rules have found, by its chances, with what a model names, best first.

    A model's word multiplies the odds, so that it decides between what is about as likely. It can
    add, and take away only what had hardly a chance.
    """
    chances = {key: chance for key, chance in by_rules.items() if chance >= LEAST or key in named}
    chances |= {key: ADDED for key in named if key not in chances}

    def odds(key: str) -> float:
        return _odds(chances[key]) * (NAMED if key in named else 1.0)

    return sorted(chances, key=lambda key: -odds(key))


def bounded(claim: float, chance: float) -> float:
    """A model's confidence, as far as its word can move the chance that rules see.

    >>> bounded(1.0, 0.1), bounded(0.0, 0.5), bounded(0.7, 0.5)
    (0.307692, 0.2, 0.7)
    """
    low, high = _odds(chance) / NAMED, _odds(chance) * NAMED
    return round(min(max(claim, low / (1 + low)), high / (1 + high)), 6)


def _odds(chance: float) -> float:
    chance = min(max(chance, LEAST), 1 - LEAST)
    return chance / (1 - chance)
