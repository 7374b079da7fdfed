"""Relations reach the graph database after the truth is written, and only then."""

from collections.abc import Sequence

import pytest

from kemem.add.decide import Decision
from kemem.add.edit import Policy, erase, erase_all, rewrite
from kemem.add.embed import run_mirror
from kemem.add.extract import Work
from kemem.add.parse import Task
from kemem.add.reconcile import commit
from kemem.add.rules import Fact, Triple
from kemem.errors import Unavailable
from kemem.jobs import run_due
from kemem.ports import Deps, read_messages
from kemem.records import NOTES, Link, Note, Relation, Scope, Where
from kemem.records.batch import Batch, Job
from kemem.records.privacy import ContentPolicy
from kemem.testing import FakeClock
from kemem_conformance.ram import RamStore
from kemem_conformance.suite import ME, MY_NOTES, around, noted, said
from kemem_conformance.world import NOW

SAID = [
    ("小明在北京大学读书", Link("n", "小明", "就读于", "北京大学", "person", "place")),
    ("Ann lives in Berlin", Link("n", "Ann", "lives in", "Berlin", "person", "place")),
]
EACH = pytest.mark.parametrize(("text", "link"), SAID, ids=["zh", "en"])


class FakeGraph:
    """A mirror that remembers what each note supports, and fails when it is told to."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str, str], Sequence[Relation]] = {}
        self.calls: list[str] = []
        self.error: Exception | None = None

    async def put(self, note: Note, relations: Sequence[Relation]) -> None:
        self._call("put")
        self.held[note.agent_id, note.user_id, note.note_id] = relations

    async def remove(self, owner: Scope, note_ids: Sequence[str] | None = None) -> None:
        self._call("remove")
        for agent_id, user_id, note_id in list(self.held):
            own = owner.agent_id in (None, agent_id) and owner.user_id in (None, user_id)
            if own and (note_ids is None or note_id in note_ids):
                del self.held[agent_id, user_id, note_id]

    async def around(
        self, where: Where, names: Sequence[str], *, hops: int = 1, limit: int = 100
    ) -> list[Relation]:
        raise AssertionError("the truth is read from the store")

    async def close(self) -> None:
        self._call("close")

    def arrows(self) -> dict[str, list[str]]:
        """What is held, in short."""
        return {
            note_id: [f"{it.source} {it.relationship} {it.destination}" for it in relations]
            for (_, _, note_id), relations in self.held.items()
        }

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.error is not None:
            raise self.error


@pytest.fixture
def graph() -> FakeGraph:
    return FakeGraph()


@pytest.fixture
def deps(graph: FakeGraph) -> Deps:
    return Deps(RamStore(), None, FakeClock(NOW), graph=graph)


async def remember(deps: Deps, text: str, *links: Link, note_id: str = "n") -> Note:
    """A note with its links, committed as a stage of add would."""
    known = await read_messages(deps.store, Where(ME, ids=frozenset("m")))
    told = () if known else (said("m"),)
    await deps.store.apply(Batch(put=told, jobs=(Job("draw", "extract", ME, NOW),)))
    job = await deps.store.claim(NOW, 1)
    assert job is not None
    note = noted(note_id, text, sources=("m",))
    entities = {it.source: it.source_type for it in links}
    entities |= {it.destination: it.destination_type for it in links}
    triples = tuple(Triple(it.source, it.relationship, it.destination) for it in links)
    fact = Fact(text, sources=("m",), relations=triples)
    work = Work(ME, Task("user_info"), (), job)
    await commit([Decision(fact, note)], entities, work, deps)
    return note


async def no_imports(job: Job) -> None:
    raise AssertionError(job)


async def work(deps: Deps) -> int:
    return await run_due(deps, Policy(), no_imports)


async def waiting(deps: Deps) -> list[Job]:
    return [job for job in await deps.store.jobs() if job.kind == "mirror"]


def arrow(link: Link) -> str:
    return f"{link.source} {link.relationship} {link.destination}"


@EACH
async def test_what_is_committed_is_put(
    graph: FakeGraph, deps: Deps, text: str, link: Link
) -> None:
    """With the relations as the store has them, after the batch and not before."""
    note = await remember(deps, text, link)
    assert graph.calls == []
    (job,) = await waiting(deps)
    assert (job.scope, job.ids) == (ME, ("n",))
    await work(deps)
    assert graph.held == {("agent", "u_", "n"): await around(deps.store, MY_NOTES, ())}
    ((relation,),) = graph.held.values()
    assert (relation.source_type, relation.valid_from) == ("person", note.valid_from)
    assert await deps.store.jobs() == []


@EACH
async def test_what_is_deleted_is_removed(
    graph: FakeGraph, deps: Deps, text: str, link: Link
) -> None:
    """One note by its id; what the others support stays (K04)."""
    note = await remember(deps, text, link)
    await remember(deps, f"{text}, 真的 really", link, note_id="另 other")
    await work(deps)
    await erase(note, deps)
    assert graph.arrows() == {"n": [arrow(link)], "另 other": [arrow(link)]}
    await work(deps)
    assert graph.arrows() == {"另 other": [arrow(link)]}
    assert await waiting(deps) == []


@EACH
async def test_a_deleted_message_takes_its_relations_along(
    graph: FakeGraph, deps: Deps, text: str, link: Link
) -> None:
    """Those of the notes that were drawn from it alone."""
    message = said("m", text)
    await deps.store.apply(Batch(put=(message,)))
    await remember(deps, text, link)
    await work(deps)
    await erase(message, deps)
    await work(deps)
    assert graph.held == {}


@EACH
async def test_a_rewritten_note_supports_what_it_says_now(
    graph: FakeGraph, deps: Deps, text: str, link: Link
) -> None:
    """With other words it loses its links, here as in the store."""
    note = await remember(deps, text, link)
    await work(deps)
    await rewrite(note, "完全不同 something else", {}, ContentPolicy(1000), deps)
    await work(deps)
    assert graph.arrows() == {"n": []}


@EACH
async def test_an_erased_scope_is_carried_over_anew(
    graph: FakeGraph, deps: Deps, text: str, link: Link
) -> None:
    """All of it is removed, and what the erasure left is put back; others are not touched."""
    await remember(deps, text, link)
    elsewhere = noted("他", "别人的 of another", user_id="u_%")
    await deps.store.apply(Batch(notes=(elsewhere,), links=(Link("他", "他", "in", "Rome"),)))
    await run_mirror(Job("j", "mirror", Scope("agent", "u_%"), NOW, ("他",)), deps)
    kept = noted("k", "短 short", kind="knowledge")
    await deps.store.apply(Batch(notes=(kept,), links=(Link("k", "茶 tea", "is", "hot"),)))
    await work(deps)
    await erase_all(Where(ME, kinds=NOTES - {"knowledge"}), deps)
    await work(deps)
    assert graph.arrows() == {"他": ["他 in Rome"], "k": ["茶 tea is hot"]}
    await erase_all(Where(Scope("agent"), kinds=NOTES), deps)
    await work(deps)
    assert graph.held == {}


async def test_a_scope_of_many_notes_is_carried_over_page_by_page(
    graph: FakeGraph, deps: Deps
) -> None:
    """Each note once, also where many are of one time."""
    notes = tuple(noted(f"n{number}", f"第 {number} of many") for number in range(250))
    links = tuple(Link(note.note_id, note.note_id, "in", "茶 tea") for note in notes)
    await deps.store.apply(Batch(notes=notes, links=links))
    await run_mirror(Job("j", "mirror", ME, NOW), deps)
    assert graph.arrows() == {name: [f"{name} in 茶 tea"] for name in (it.note_id for it in notes)}
    assert graph.calls == ["remove", *["put"] * 250]


@EACH
@pytest.mark.parametrize("error", [Unavailable("down"), OSError("密码 secret"), KeyError("code")])
async def test_a_failing_graph_leaves_the_job(
    graph: FakeGraph, deps: Deps, text: str, link: Link, error: Exception
) -> None:
    """`mirror` raises Unavailable; the job waits, and what was written stays readable."""
    await remember(deps, text, link)
    graph.error = error
    (job,) = await waiting(deps)
    with pytest.raises(Unavailable, match=type(error).__name__) as caught:
        await run_mirror(job, deps)
    assert "密码" not in caught.value.message
    assert await waiting(deps) == [job]
    assert len(await around(deps.store, MY_NOTES, (link.source,))) == 1


@EACH
async def test_the_job_is_tried_again_until_the_graph_is_back(
    graph: FakeGraph, deps: Deps, text: str, link: Link
) -> None:
    """Later each time, with the error on it; then it is done."""
    await remember(deps, text, link)
    graph.error = OSError("refused")
    assert await work(deps) == 1
    (job,) = await waiting(deps)
    assert (job.state, job.attempts) == ("pending", 1)
    assert job.due > NOW and "OSError" in (job.error or "")
    assert await work(deps) == 0
    graph.error = None
    assert isinstance(deps.clock, FakeClock)
    deps.clock.advance(seconds=600)
    assert await work(deps) == 1
    assert graph.arrows() == {"n": [arrow(link)]}
    assert await deps.store.jobs() == []


@EACH
async def test_without_a_graph_database_nothing_is_asked_for(text: str, link: Link) -> None:
    """No job is written; one that is left from before is done with."""
    deps = Deps(RamStore(), None, FakeClock(NOW))
    await remember(deps, text, link)
    assert await deps.store.jobs() == []
    await deps.store.apply(Batch(jobs=(Job("旧 old", "mirror", ME, NOW, ("n",)),)))
    assert await work(deps) == 1
    assert await deps.store.jobs() == []
