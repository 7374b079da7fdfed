"""Tables of what was answered: each system on each set, and KeMem beside the others."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.answers.judge import Score, holds, judge
from bench.answers.prompt import Line
from bench.answers.questions import History, Question
from bench.answers.systems import SYSTEMS
from bench.report import table
from bench.scoring import interval, mean
from kemem.text.language import count_tokens

OWN = ("search", "recall", "chat")
OTHERS = ("bm25", "mem0", "mem0-llm")
HEADER = ("set", "system", "n", "right %", "token F1", "said unknown", "answer in evidence")
COSTS = ("n without answer", "said unknown", "prompt tokens", "seconds, median")


@dataclass(frozen=True, slots=True)
class Row:
    """An answer as it is kept in the file of a run."""

    model: str
    system: str
    dataset: str
    question: str  # its key
    text: str
    answer: str
    evidence: tuple[Line, ...]
    prompt_tokens: int
    completion_tokens: int
    seconds: float

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What is asked only once."""
        return self.model, self.system, self.dataset, self.question


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer with its question and its score."""

    row: Row
    question: Question
    score: Score

    @property
    def is_in_evidence(self) -> bool:
        """Whether the right answer can be read in what the model was shown."""
        return holds(self.question, " ".join(it.text for it in self.row.evidence))


def report(rows: Sequence[Row], histories: Sequence[History]) -> Iterator[str]:
    """All tables; the questions of the histories are those that count."""
    judged = _judged(rows, histories)
    datasets = [*dict.fromkeys(it.dataset for it in histories)]
    pairs = [(dataset, system) for dataset in datasets for system in SYSTEMS]
    lines = [_cells(*pair, judged[pair]) for pair in pairs if pair in judged]
    yield table((*HEADER, *COSTS), lines)
    yield ""
    yield "Estimated tokens of a whole history: " + ", ".join(
        f"{name} {_length([it for it in histories if it.dataset == name]):,}" for name in datasets
    )
    yield ""
    yield table(
        ("set", "system", "against", "n", "right, difference", "F1, difference"),
        [line for name in datasets for line in _differences(name, judged)],
    )


def _judged(
    rows: Sequence[Row], histories: Sequence[History]
) -> dict[tuple[str, str], list[Judged]]:
    """Answers by set and system."""
    questions = {(it.dataset, it.key): it for history in histories for it in history.questions}
    judged: dict[tuple[str, str], list[Judged]] = {}
    for row in rows:
        if question := questions.get((row.dataset, row.question)):
            one = Judged(row, question, judge(question, row.answer))
            judged.setdefault((row.dataset, row.system), []).append(one)
    return judged


def evidence_report(rows: Sequence[Row], histories: Sequence[History]) -> Iterator[str]:
    """How often the right answer can be read in what a system finds, whatever a model makes of it.

    Only questions that have an answer count.
    """
    lines, differences = list[Sequence[str]](), list[Sequence[str]]()
    by_set = _judged(rows, histories)
    for dataset in dict.fromkeys(it.dataset for it in histories):
        shares: dict[str, dict[str, float]] = {}
        for system in (it for it in SYSTEMS if (dataset, it) in by_set):
            known = [it for it in by_set[dataset, system] if it.question.gold]
            shares[system] = {it.question.key: 100.0 * it.is_in_evidence for it in known}
            sizes = [sum(count_tokens(str(line)) for line in it.row.evidence) for it in known]
            figure = with_interval([*shares[system].values()])
            lines.append((dataset, system, str(len(known)), figure, f"{mean(sizes):.0f}"))
        for own, other in ((it, one) for it in OWN for one in OTHERS if it in shares):
            keys = shares[own].keys() & shares.get(other, {}).keys()
            if keys:
                changes = [shares[own][key] - shares[other][key] for key in sorted(keys)]
                differences.append((dataset, own, other, str(len(keys)), _change(changes)))
    yield table(("set", "system", "n", "answer in evidence %", "tokens of evidence"), lines)
    yield ""
    yield table(("set", "system", "against", "n", "difference"), differences)


def _cells(dataset: str, system: str, judged: Sequence[Judged]) -> Sequence[str]:
    known = [it for it in judged if it.question.gold]
    unknown = [it for it in judged if not it.question.gold]
    scores = [it.score for it in known]
    return (
        dataset,
        system,
        str(len(known)),
        with_interval([100 * it.right for it in scores]),
        with_interval([100 * it.f1 for it in scores]),
        _percent([it.abstained for it in scores]),
        _percent([it.is_in_evidence for it in known]),
        str(len(unknown)),
        _percent([it.score.abstained for it in unknown]),
        f"{mean([it.row.prompt_tokens for it in judged]):.0f}",
        f"{median(it.row.seconds for it in judged):.1f}",
    )


def _differences(
    dataset: str, judged: Mapping[tuple[str, str], Sequence[Judged]]
) -> Iterator[Sequence[str]]:
    """KeMem beside the others, question by question."""
    for own in OWN:
        for other in OTHERS:
            theirs = {it.question.key: it.score for it in judged.get((dataset, other), ())}
            pairs = [
                (it.score, theirs[it.question.key])
                for it in judged.get((dataset, own), ())
                if it.question.gold and it.question.key in theirs
            ]
            if pairs:
                cells = [_gain(pairs, lambda it: it.right), _gain(pairs, lambda it: it.f1)]
                yield dataset, own, other, str(len(pairs)), *cells


def _gain(pairs: Sequence[tuple[Score, Score]], figure: Callable[[Score], float]) -> str:
    return _change([100 * (figure(own) - figure(other)) for own, other in pairs])


def _change(changes: Sequence[float]) -> str:
    low, high = interval(changes)
    return f"{mean(changes):+.1f} [{low:+.1f} … {high:+.1f}]"


def with_interval(values: Sequence[float]) -> str:
    """A mean with its 95 % interval by bootstrap."""
    if not values:
        return "–"
    low, high = interval(values)
    return f"{mean(values):.1f} [{low:.1f}-{high:.1f}]"


def _percent(values: Sequence[bool]) -> str:
    return f"{100 * mean(values):.0f} %" if values else "–"


def _length(histories: Sequence[History]) -> int:
    lines = [[Line(it.ts, it.name, it.content) for it in one.messages] for one in histories]
    return round(mean([sum(count_tokens(str(it)) for it in some) for some in lines]))
