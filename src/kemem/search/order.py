"""Part of the fourth stage of search: where a candidate stands beside the others.

What one row is to the others that are about the same: later, earlier, a change, before an event.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kemem.search.attention import similarities
from kemem.search.features import Candidate, Column, Features, flags, sittings, speaker_of, worth
from kemem.text.reading import Question, read

_BY_TIME = ("later", "earlier", "newest", "position")
_IN_ANY_TIME = ("later_alike", "earlier_alike", "earlier_shared")
_AROUND_EVENT = ("event", "before_event", "after_event", "just_before_event")


def order_features(
    question: Question, candidates: Sequence[Candidate], about: Features, relevance: Column
) -> Features:
    """What speaks for a row beside the others that are about the same: later, earlier, a change."""
    gap = relevance - relevance.max()
    weight = np.exp(gap) * about["person"] * (1 - about["asks"])
    around = _around_event(question, candidates, weight)
    then = bool(around) and bool(around["just_before_event"].any())
    if then:  # what held then is asked for, as if now
        question = replace(question, past=False, was=False, original=False)
        weight = weight * around["before_event"]
    beside = _beside_others(question, candidates, about, weight)
    change = np.maximum(about["changes"], about["ends"])
    # What takes the place of something earlier is about what is asked, or tells of a change: that
    # the course begins at ten does not replace what it costs.
    own = np.maximum(np.exp(gap / 2), change)
    beside |= {name: own * beside[name] for name in ("earlier_alike", "earlier_shared")}
    named = {name: beside[name] for name in (*_IN_ANY_TIME, "later_change", "oldest")}
    named |= {"change": change * weight, "ended": flags([it.context.ended for it in candidates])}
    columns = around | {
        "gap": gap,
        "relevance": relevance,
        "irrelevant": np.minimum(relevance, 0.0),
        **{"beside": beside["beside"], "beside_reply": beside["beside"] * about["replies"]},
    }
    if then:
        columns["too_late"] = 1 - around["before_event"]
    if question.past:
        named |= {name: beside[name] for name in _BY_TIME}
        columns |= {f"{name}_past": column for name, column in named.items()}
        columns |= {} if question.original else {"second_past": beside["second"]}
    else:
        columns |= named | _of_present(question, about, beside, change, weight)
    if question.original:
        names = ("oldest", "earlier", "later", "position")
        columns |= {f"{name}_original": beside[name] for name in names}
    if question.times:
        columns["later_timed"] = beside["later"]
    if question.present:
        columns |= {"later_now": beside["later"], "newest_now": beside["newest"]}
    if "ahead" in about:
        columns["change_ahead"] = change * about["ahead"]
    if "whether" in question.answers:
        follows = np.maximum(beside["earlier_alike"], beside["earlier_shared"])
        either = np.maximum(weight, follows)
        columns |= {"whether_changed": about["changes"] * either}
        columns |= {"whether_ended": about["ends"] * either}
    return columns


def _of_present(
    question: Question, about: Features, beside: Features, change: Column, weight: Column
) -> Features:
    """What counts only where the past is not asked for."""
    follows = np.maximum(beside["earlier_alike"], beside["earlier_shared"])
    columns = {
        "change_after": change * follows,
        "change_after_alike": change * beside["earlier_alike"],
        "change_after_shared": change * beside["earlier_shared"],
    }
    if not question.times:
        columns |= {name: beside[name] for name in _BY_TIME}
    if question.was:
        columns |= {f"{name}_was": beside[name] for name in ("later", "newest", "position")}
    return columns


def _beside_others(
    question: Question, candidates: Sequence[Candidate], about: Features, weight: Column
) -> Features:
    """Where rows stand among those that are about what is asked, by their `weight`s."""
    size, times, others = len(candidates), np.array([it.said for it in candidates]), weight[None, :]
    sitting = sittings(candidates)
    apart = sitting[None, :] != sitting[:, None]
    rivals = apart & _equal([speaker_of(it.row) for it in candidates])  # of one speaker
    later = (times[None, :] > times[:, None]) & rivals
    earlier = (times[None, :] < times[:, None]) & rivals
    alike = similarities(candidates) if about["similarity"].any() else np.zeros((size, size))
    shared = _shared_words(question, candidates)
    change = np.maximum(about["changes"], about["ends"])[None, :]

    def most(mask: Any, values: Any) -> Column:
        return np.asarray(np.max(np.where(mask, values, 0.0), axis=1, initial=0.0))

    order, position = np.argsort(times, kind="stable"), np.empty(size)
    position[order] = np.arange(size) / max(size - 1, 1)
    likely = [at for at in order if weight[at] > 0.3]
    return {
        "later": most(later, others),
        "earlier": most(earlier, others),
        "later_alike": most(later, others * alike),
        "earlier_alike": most(earlier, others * alike),
        "earlier_shared": most(earlier, others * shared),
        "later_change": most(later, others * change),
        "beside": most(~apart & ~np.eye(size, dtype=bool), others) - weight,
        "position": position,
        "newest": _only(size, likely[-1:]),
        "second": _only(size, likely[-2:-1]),
        "oldest": _only(size, likely[:1]),
    }


def _around_event(question: Question, candidates: Sequence[Candidate], weight: Column) -> Features:
    """Where rows stand in time beside an event that the question names: "before the move"."""
    if not (question.before and question.past):
        return {}
    times = np.array([it.said for it in candidates])
    words = [question.before & read(it.row.content).words for it in candidates]
    most = max(map(len, words))
    told = flags([most and len(it) == most for it in words])
    first = min((ts for ts, tells in zip(times.tolist(), told, strict=True) if tells), default=None)
    ahead = flags([first is not None and ts < first for ts in times])
    after = flags([first is not None and ts > first for ts in times])
    likely = [at for at in np.argsort(times, kind="stable") if ahead[at] and weight[at] > 0.05]
    before = _only(len(times), likely[-1:])
    columns = (told * (1 - ahead), ahead, after * (1 - told), before)
    return dict(zip(_AROUND_EVENT, columns, strict=True))


def _equal(values: Sequence[str]) -> NDArray[np.bool_]:
    """Which of some values are equal, each with each."""
    numbers = np.array([values.index(it) for it in values])
    return np.asarray(numbers[None, :] == numbers[:, None])


def _only(size: int, places: Sequence[Any]) -> Column:
    column = np.zeros(size)
    column[list(places)] = 1
    return column


def _shared_words(question: Question, candidates: Sequence[Candidate]) -> Column:
    """How many words rows share that the question does not have, each with each; rare ones count
    more: who takes up a name or a thing speaks on about it.
    """
    asked = {*question.words}
    texts = [read(it.row.content).words - asked for it in candidates]
    said = [*chain.from_iterable(texts)]
    numbers = {word: number for number, word in enumerate(dict.fromkeys(said))}
    words = np.fromiter(map(numbers.__getitem__, said), np.intp, len(said))
    rows = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    count = np.bincount(words, minlength=len(numbers))
    weights = np.array([*map(worth, numbers)]) * np.log1p(len(texts) / count)
    totals = np.bincount(rows, weights[words] ** 2, minlength=len(texts))
    rows, words = rows[count[words] > 1], words[count[words] > 1]
    matrix = np.zeros((len(texts), max(int((count > 1).sum()), 1)))
    matrix[rows, np.cumsum(count > 1)[words] - 1] = weights[words]
    length = np.sqrt(totals) + 1.0
    products = np.vecdot(matrix[:, None, :], matrix[None, :, :])
    return np.asarray(products / (length[:, None] * length[None, :]))
