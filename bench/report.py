"""Figures as markdown tables."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise

from bench.figures import Failure, Findings, Ingested, Plan, Searched
from bench.goals import Goal, goals

NOTES = """\
Every system had the same texts and the same precomputed vectors; no model ran. CPU is the time
of the system's own process over all its threads; the PostgreSQL server's part is not in it.
"First" is the first search of that kind after the store was opened. Recall is the part of the
exact ten nearest messages that was found. Peers offer one search each, named as they name it."""


def report(
    plan: Plan,
    facts: Mapping[str, str],
    found: Sequence[Findings],
    failures: Sequence[Failure],
    *,
    quick: bool,
) -> str:
    by_name = {findings.system: findings for findings in found}
    parts = [
        "# Speed",
        "A quick check: too small to judge the goals." if quick else "",
        machine_table(facts, found),
        NOTES,
        corpus_note(plan, found),
        "## Ingest, durable",
        ingest_table(found),
        "## Search",
        search_table(found),
        "## Goals",
        goal_table(goals(by_name, sorted(plan.users)[len(plan.users) // 2])),
        "## Growth with the user's messages",
        growth_table(found),
        *(f"Not measured: {failure.system} ({failure.reason})" for failure in failures),
    ]
    return "\n\n".join(part for part in parts if part)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def machine_table(facts: Mapping[str, str], found: Sequence[Findings]) -> str:
    systems = {
        findings.system: ", ".join(f"{name} {version}" for name, version in versions.items())
        for findings in found
        for versions in (findings.versions,)
    }
    return table(("what", "which"), (dict(facts) | systems).items())


def corpus_note(plan: Plan, found: Sequence[Findings]) -> str:
    """Says how much each system held, and whatever would make the comparison unfair."""
    lines = [
        f"- {findings.system}: {findings.corpus:,} of {plan.messages:,} messages, loaded in "
        f"{findings.load_seconds:.0f} s; a vector from the table costs "
        f"{findings.look_up_us:.1f} µs{computed(findings)}"
        for findings in found
    ]
    if plan.mem0_messages < plan.messages:
        lines.append(
            f"- mem0 is given at most {plan.mem0_messages:,} messages to stay within the time; "
            "nothing is extrapolated, and the others search the larger corpus"
        )
    return "\n".join(lines)


def computed(findings: Findings) -> str:
    if not findings.computed_vectors:
        return ""
    return f"; {findings.computed_vectors:,} texts were not in it and were computed"


def ingest_table(found: Sequence[Findings]) -> str:
    header = ("system", "batch", "messages", "messages/s", "ms/add", "p50", "p95", "CPU ms/message")
    return table(
        header,
        ((findings.system, *ingest_row(row)) for findings in found for row in findings.ingested),
    )


def ingest_row(row: Ingested) -> tuple[str, ...]:
    cut = "" if row.stored == row.wanted else f" of {row.wanted:,}, time was up"
    return (
        f"{row.batch:,}",
        f"{row.stored:,}{cut}",
        f"{row.per_second:,.0f}",
        f"{row.ms_per_add:.2f}",
        f"{row.add_p50_ms:.2f}",
        f"{row.add_p95_ms:.2f}",
        f"{row.cpu_ms_per_message:.3f}",
    )


def search_table(found: Sequence[Findings]) -> str:
    header = (
        *("system", "search", "user", "queries", "p50 ms", "p95 ms", "CPU p50", "CPU p95"),
        *("first ms", "answers", "recall@10"),
    )
    return table(
        header,
        ((findings.system, *search_row(row)) for findings in found for row in findings.searched),
    )


def search_row(row: Searched) -> tuple[str, ...]:
    return (
        row.kind,
        f"{row.user_messages:,}",
        f"{row.queries}",
        f"{row.wall_p50_ms:.2f}",
        f"{row.wall_p95_ms:.2f}",
        f"{row.cpu_p50_ms:.2f}",
        f"{row.cpu_p95_ms:.2f}",
        f"{row.first_ms:.1f}",
        f"{row.found:.1f}",
        "–" if row.recall is None else f"{row.recall:.3f}",
    )


def goal_table(rows: Sequence[Goal]) -> str:
    return table(
        ("goal", "figure", "wanted", "verdict"),
        (
            (
                goal.subject,
                "–" if goal.figure is None else number(goal.figure),
                f"{'≤' if goal.at_most else '≥'} {goal.wanted:,g}",
                goal.verdict,
            )
            for goal in rows
        ),
    )


def number(value: float) -> str:
    """Three digits where they matter: 0.0834, 21.7, 8,064."""
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def growth_table(found: Sequence[Findings]) -> str:
    return table(
        ("system", "search", "growth of messages", "growth of p50"),
        (row for findings in found for row in growth_rows(findings)),
    )


def growth_rows(findings: Findings) -> list[tuple[str, ...]]:
    """Each search's p50 from each user to the next larger one."""
    kinds = sorted(findings.searched, key=lambda row: row.kind)
    rows: list[tuple[str, ...]] = []
    for kind, group in groupby(kinds, key=lambda row: row.kind):
        users = sorted(group, key=lambda row: row.user_messages)
        for smaller, larger in pairwise(users):
            messages = f"{smaller.user_messages:,} → {larger.user_messages:,}"
            growth = larger.wall_p50_ms / smaller.wall_p50_ms
            rows.append((findings.system, kind, messages, f"× {growth:.1f}"))
    return rows
