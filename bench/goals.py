"""What KeMem promises about speed, checked against the figures of a run."""

from collections.abc import Mapping
from dataclasses import dataclass

from bench.figures import Findings, Ingested, Searched
from bench.systems import KEMEM

CPU_GOALS_MS = {"lexical": 5.0, "semantic": 3.0}


@dataclass(frozen=True, slots=True)
class Goal:
    subject: str
    figure: float | None  # None where one side was not measured
    wanted: float
    at_most: bool = True

    @property
    def verdict(self) -> str:
        if self.figure is None:
            return "not measured"
        met = self.figure <= self.wanted if self.at_most else self.figure >= self.wanted
        return "met" if met else "not met"


def goals(findings: Mapping[str, Findings], user: int) -> list[Goal]:
    """All goals, for users with `user` messages where a goal depends on that."""
    return [
        goal
        for name in KEMEM
        if name in findings
        for goal in (
            *ingest_goals(findings[name], findings),
            *search_goals(findings[name], findings, user),
        )
    ]


def ingest_goals(ours: Findings, findings: Mapping[str, Findings]) -> list[Goal]:
    single, large = batch_of(ours, 1), batch_of(ours, 1_000)
    theirs = batch_of(findings.get("chroma"), 1)
    return [
        Goal(
            f"{ours.system}: time of a durable single add / Chroma's",
            single.ms_per_add / theirs.ms_per_add if single and theirs else None,
            wanted=0.3,
        ),
        Goal(
            f"{ours.system}: messages/s in batches of 1,000",
            large.per_second if large else None,
            wanted=5_000,
            at_most=False,
        ),
    ]


def search_goals(ours: Findings, findings: Mapping[str, Findings], user: int) -> list[Goal]:
    compared = [
        hybrid_goal(ours, findings, ("chroma", "semantic"), user, wanted=0.1),
        hybrid_goal(ours, findings, ("mem0", "search"), user, wanted=0.2),
    ]
    if ours.system != "kemem-sqlite":  # a server's work is not in our process's time
        return compared
    return compared + [cpu_goal(ours, kind, user, wanted) for kind, wanted in CPU_GOALS_MS.items()]


def hybrid_goal(
    ours: Findings,
    findings: Mapping[str, Findings],
    rival: tuple[str, str],
    user: int,
    *,
    wanted: float,
) -> Goal:
    peer, kind = rival
    own, theirs = search_of(ours, "hybrid", user), search_of(findings.get(peer), kind, user)
    return Goal(
        f"{ours.system}: hybrid p50 at {user:,} / {peer}'s {kind}",
        own.wall_p50_ms / theirs.wall_p50_ms if own and theirs else None,
        wanted,
    )


def cpu_goal(ours: Findings, kind: str, user: int, wanted: float) -> Goal:
    found = search_of(ours, kind, user)
    figure = found.cpu_p50_ms if found else None
    return Goal(f"{ours.system}: {kind} CPU p50 at {user:,}, ms", figure, wanted)


def batch_of(findings: Findings | None, batch: int) -> Ingested | None:
    rows = findings.ingested if findings else ()
    return next((row for row in rows if row.batch == batch), None)


def search_of(findings: Findings | None, kind: str, user: int) -> Searched | None:
    rows = findings.searched if findings else ()
    return next((row for row in rows if (row.kind, row.user_messages) == (kind, user)), None)
