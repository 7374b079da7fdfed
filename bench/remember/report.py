"""Figures as markdown tables, and the promises with their verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.figures import Failure
from bench.goals import Goal
from bench.remember.figures import FULL, INFER, VERBATIM, WARM_UP, Adds, Asked, Findings, Plan
from bench.report import goal_table, table

NOTES = """\
Both systems had the same messages and the same precomputed vectors, and asked the same local
server, which answered at once. "LLM calls", characters and tokens are for each add, the first ones
included; tokens are estimated alike for both (`kemem.text.language.count_tokens`), and the schema
that KeMem sends with its prompt counts as prompt. "Bare call" is the p50 of the same requests sent
by a bare HTTP client; "own" is the p50 of an add without it. KeMem keeps each message and its
memories, mem0 the memories; mem0 works without its optional spaCy, so it links no entities."""
TITLES = {VERBATIM: "infer=False", INFER: "infer=True", FULL: "infer=True, {memories:,} stored"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one system and the model that it asked have to say."""

    findings: Findings
    asked: Mapping[str, Asked]  # by part

    def adds(self, part: str) -> Adds:
        return next(row for row in self.findings.adds if row.part == part)

    def calls(self, part: str) -> float:
        """Questions to the model for one add."""
        return self.asked[part].calls / (self.adds(part).adds + WARM_UP)

    def tokens(self, part: str) -> float:
        """Tokens that the model reads for one add."""
        return self.asked[part].tokens / (self.adds(part).adds + WARM_UP)

    def own_ms(self, part: str) -> float:
        """The time of one add without the model's."""
        return self.adds(part).wall_p50_ms - self.calls(part) * self.asked[part].bare_p50_ms

    def search_ms(self, kind: str) -> float:
        return next(row.wall_p50_ms for row in self.findings.searches if row.kind == kind)


def report(
    plan: Plan,
    facts: Mapping[str, str],
    outcomes: Mapping[str, Outcome],
    failures: Sequence[Failure],
    *,
    quick: bool,
) -> str:
    made_of = {
        name: ", ".join(f"{part} {version}" for part, version in it.findings.versions.items())
        for name, it in outcomes.items()
    }
    parts = [
        "# Remembering",
        "A quick check: too small to judge the goals." if quick else "",
        table(("what", "which"), (dict(facts) | made_of).items()),
        NOTES,
        load_note(plan, outcomes),
        "## Add",
        add_table(outcomes),
        "## What the model is asked",
        model_table(outcomes),
        "## Search",
        search_table(outcomes),
        "## Goals",
        goal_table(goals(outcomes.get("kemem"), outcomes.get("mem0"), plan)),
        *(f"Not measured: {failure.system} ({failure.reason})" for failure in failures),
    ]
    return "\n\n".join(part for part in parts if part)


def load_note(plan: Plan, outcomes: Mapping[str, Outcome]) -> str:
    lines = []
    for name, outcome in outcomes.items():
        found = outcome.findings
        cut = "" if found.memories == plan.memories else f" of {plan.memories:,}, time was up"
        computed = found.computed_vectors
        missing = f"; {computed} vectors were computed, not read from the table" if computed else ""
        lines.append(
            f"- {name}: {found.memories:,} memories{cut}, loaded in {found.load_seconds:.0f} s by "
            f"add(infer=False) in batches of 100, not durably{missing}"
        )
    return "\n".join(lines)


def title(row: Adds, findings: Findings) -> str:
    return TITLES[row.part].format(memories=findings.memories)


def add_table(outcomes: Mapping[str, Outcome]) -> str:
    header = (
        *("system", "add", "adds", "memories/add", "p50 ms", "mean ms", "CPU mean ms"),
        *("bare call ms", "own ms"),
    )
    return table(
        header,
        (
            (
                name,
                title(row, it.findings),
                f"{row.adds}",
                f"{row.made:.2f}",
                f"{row.wall_p50_ms:.2f}",
                f"{row.wall_mean_ms:.2f}",
                f"{row.cpu_mean_ms:.2f}",
                f"{it.asked[row.part].bare_p50_ms:.2f}",
                f"{it.own_ms(row.part):.2f}",
            )
            for name, it in outcomes.items()
            for row in it.findings.adds
        ),
    )


def model_table(outcomes: Mapping[str, Outcome]) -> str:
    header = ("system", "add", "LLM calls/add", "summaries", "characters/add", "tokens/add")
    return table(
        header,
        (
            (
                name,
                title(row, it.findings),
                f"{it.calls(row.part):.3f}",
                f"{it.asked[row.part].summaries}",
                f"{it.asked[row.part].characters / (row.adds + WARM_UP):,.0f}",
                f"{it.tokens(row.part):,.0f}",
            )
            for name, it in outcomes.items()
            for row in it.findings.adds
        ),
    )


def search_table(outcomes: Mapping[str, Outcome]) -> str:
    header = ("system", "search", "queries", "p50 ms", "p95 ms", "CPU p50", "first ms", "answers")
    return table(
        header,
        (
            (
                name,
                row.kind,
                f"{row.queries}",
                f"{row.wall_p50_ms:.2f}",
                f"{row.wall_p95_ms:.2f}",
                f"{row.cpu_p50_ms:.2f}",
                f"{row.first_ms:.1f}",
                f"{row.found:.1f}",
            )
            for name, it in outcomes.items()
            for row in it.findings.searches
        ),
    )


def goals(ours: Outcome | None, theirs: Outcome | None, plan: Plan) -> list[Goal]:
    """What KeMem promises; figures beside mem0's are parts of mem0's."""
    stored = f"{plan.memories:,} memories"
    alike = bool(ours and theirs and ours.findings.memories == theirs.findings.memories)
    both = (ours, theirs) if ours and theirs else None
    calls = ours.calls(INFER) if ours else None
    tokens = both and both[0].tokens(INFER) / both[1].tokens(INFER)
    own = both and both[0].own_ms(INFER) / both[1].own_ms(INFER)
    full = both and alike and both[0].own_ms(FULL) / both[1].own_ms(FULL)
    found = {
        kind: both[0].search_ms(kind) / both[1].search_ms("search") if both and alike else None
        for kind in ("notes and messages", "notes")
    }
    return [
        Goal("LLM calls per add", calls, wanted=1),
        Goal("prompt tokens per add / mem0's", tokens, wanted=0.2),
        Goal("own time per add / mem0's", own, wanted=0.333),
        Goal(f"own time per add at {stored} / mem0's", full or None, wanted=0.333),
        *(
            Goal(f"search of {kind} p50 at {stored} / mem0's", figure, wanted=0.2)
            for kind, figure in found.items()
        ),
    ]
