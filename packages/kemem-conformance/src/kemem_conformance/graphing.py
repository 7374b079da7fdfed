"""What `around` promises: the relations that visible notes support, hop by hop."""

from dataclasses import replace

import pytest

from kemem.errors import InvalidArgument
from kemem.ports import Store
from kemem.records import NOTES, Link, Note, Relation, Scope, Where
from kemem.records.batch import Batch
from kemem.records.filters import Filter
from kemem_conformance.suite import ME, MY_NOTES, Suite, around, noted, remember, rule
from kemem_conformance.world import NOW

CHAIN = ("小明", "Beijing University", "北京", "China", "亚洲", "World", "宇宙")
CHATTER = ("n0", "n1", "n2", "n3", "n4", "n5")


def linked(note: Note, source: str, destination: str, relationship: str = "in") -> Batch:
    """A note that says how two things are related."""
    return Batch(notes=(note,), links=(Link(note.note_id, source, relationship, destination),))


def said_by(note_id: str, **changed: int | str | None) -> Note:
    """A note that says nothing but its name."""
    return noted(note_id, f"{note_id} 说 says", **changed)


def arrows(relations: list[Relation]) -> list[str]:
    """Relations in short."""
    return [f"{one.source} {one.relationship} {one.destination}" for one in relations]


async def chain(store: Store, **changed: int | str | None) -> None:
    """Six relations in a row, the nearer ones older."""
    for number, note_id in enumerate(CHATTER):
        note = said_by(note_id, **{"valid_from": NOW + number, **changed})
        await store.apply(linked(note, CHAIN[number], CHAIN[number + 1]))


class GraphingRules(Suite):
    """The graph, by example."""

    @rule
    async def test_a_relation_names_its_ends_and_its_notes(self, store: Store) -> None:
        """With the types of both, and the time since when it is true."""
        link = Link("n", "小明", "就读于 studies at", "Beijing University", "person", "place")
        await remember(store, said_by("n", valid_from=NOW + 3), links=(link,))
        named = ("小明", "就读于 studies at", "Beijing University", "person", "place")
        wanted = Relation("agent", "u_", *named, ("n",), NOW + 3)
        for names in ((), ("小明",), ("没有", "beijing university")):
            assert await around(store, MY_NOTES, names) == [wanted]
        assert await around(store, MY_NOTES, ("没有",)) == []
        assert await around(store, MY_NOTES, ("Beijing",)) == []

    @rule
    async def test_names_that_differ_in_form_are_one_entity(self, store: Store) -> None:
        """By width, case and blanks; shown as first written, typed as first known."""
        long = "长" * 255
        forms = (("Ann", "北京 大学"), ("ＡＮＮ", " 北京　大学 "), ("ann", "北京  大学"))
        types = ("thing", "person", "place")
        for number, ((one, other), kind) in enumerate(zip(forms, types, strict=True)):
            link = Link(f"n{number}", one, "at", other, kind, "thing")
            await remember(store, said_by(f"n{number}"), links=(link,))
        (relation,) = await around(store, MY_NOTES, ("aNN",))
        assert (relation.source, relation.source_type) == ("Ann", "person")
        assert (relation.destination, relation.destination_type) == ("北京 大学", "thing")
        assert relation.note_ids == ("n0", "n1", "n2")
        await store.apply(linked(said_by("l"), f"{long}一", "Ann"))
        await store.apply(linked(said_by("长"), f"{long}二", "Ann"))
        (relation,) = await around(store, MY_NOTES, (long,))
        assert (relation.source, relation.note_ids) == (f"{long}一", ("l", "长"))

    @rule
    async def test_each_pair_has_entities_of_its_own(self, store: Store) -> None:
        """One user's relations never lead to another's."""
        await store.apply(linked(said_by("n", user_id="小明"), "ANN", "茶"))
        await store.apply(linked(said_by("m"), "Ann", "tea"))
        await store.apply(linked(said_by("k"), "茶", "cup"))
        assert arrows(await around(store, MY_NOTES, ("ann",), hops=5)) == ["Ann in tea"]
        both = Where(Scope("agent"), kinds=NOTES)
        assert arrows(await around(store, both, ("ann",), hops=5)) == ["ANN in 茶", "Ann in tea"]

    @rule
    async def test_hops_go_both_ways_and_each_relation_comes_once(self, store: Store) -> None:
        """Nearest first; within a hop the newest, then by name."""
        await chain(store)
        steps = [f"{CHAIN[n]} in {CHAIN[n + 1]}" for n in range(6)]
        for hops in range(1, 6):
            assert arrows(await around(store, MY_NOTES, ("小明",), hops=hops)) == steps[:hops]
        middle = await around(store, MY_NOTES, ("china", "北京"), hops=2)
        assert arrows(middle) == [steps[n] for n in (3, 2, 1, 4, 0)]
        assert arrows(await around(store, MY_NOTES, ("宇宙", "小明"))) == [steps[5], steps[0]]
        await store.apply(linked(said_by("loop", valid_from=NOW + 9), "亚洲", "亚洲"))
        assert arrows(await around(store, MY_NOTES, ("亚洲",))) == [
            "亚洲 in 亚洲",
            steps[4],
            steps[3],
        ]
        cut = await around(store, MY_NOTES, ("小明",), hops=5, limit=3)
        assert arrows(cut) == steps[:3]

    @rule
    async def test_only_relations_of_chosen_types_are_seen_and_walked(self, store: Store) -> None:
        """The limit counts these; a type that nothing has finds nothing."""
        ends = [("a", "b", "治疗"), ("b", "c", "in"), ("c", "d", "治疗"), ("b", "e", "治疗")]
        for number, (source, destination, relationship) in enumerate(ends):
            note = said_by(f"n{number}", valid_from=NOW + number)
            await store.apply(linked(note, source, destination, relationship))
        treated = ["b 治疗 e", "c 治疗 d", "a 治疗 b"]
        assert arrows(await around(store, MY_NOTES, (), types=("治疗",))) == treated
        assert arrows(await around(store, MY_NOTES, (), types=("治疗",), limit=2)) == treated[:2]
        assert arrows(await around(store, MY_NOTES, ("a",), types=("治疗",), hops=5)) == [
            "a 治疗 b",
            "b 治疗 e",
        ]
        both = await around(store, MY_NOTES, ("a",), types=("治疗", "in"), hops=5)
        assert len(both) == len(ends)
        assert await around(store, MY_NOTES, (), types=("nothing",)) == []

    @rule
    async def test_without_names_the_newest_relations_come_first(self, store: Store) -> None:
        """Then by source, relationship and destination, by code point."""
        ties = [("b", "x", "in"), ("b", "x", "at"), ("B", "x", "in"), ("火", "x", "in")]
        for number, (source, destination, relationship) in enumerate(ties):
            note = said_by(f"n{number}")
            await store.apply(linked(note, f"{source} 一", destination, relationship))
        await store.apply(linked(said_by("new", valid_from=NOW + 1), "新", "z"))
        tied = ["b 一 at x", "b 一 in x", "火 一 in x"]
        assert arrows(await around(store, MY_NOTES, ())) == ["新 in z", *tied]
        assert arrows(await around(store, MY_NOTES, (), limit=2)) == ["新 in z", "b 一 at x"]

    @rule
    async def test_a_relation_is_true_while_one_of_its_notes_is(self, store: Store) -> None:
        """What is not visible supports nothing and leads nowhere."""
        spans = {"a": (NOW + 2, NOW + 4), "b": (NOW, NOW + 3), "丙": (NOW + 5, None)}
        for note_id, (start, end) in spans.items():
            note = said_by(note_id, valid_from=start, valid_until=end)
            await store.apply(linked(note, "小明", "Berlin"))
        await store.apply(linked(said_by("z", valid_from=NOW), "Berlin", "德国"))
        for where, note_ids, start, end in (
            (MY_NOTES, ("a", "b", "丙"), NOW, None),
            (replace(MY_NOTES, known_by=NOW + 4), ("a", "b"), NOW, NOW + 4),
            (replace(MY_NOTES, known_by=NOW + 1), ("b",), NOW, NOW + 3),
            (replace(MY_NOTES, valid_at=NOW + 3), ("a", "丙"), NOW + 2, None),
        ):
            hop, *beyond = await around(store, where, ("小明",), hops=2)
            assert (hop.note_ids, hop.valid_from, hop.valid_until) == (note_ids, start, end)
            assert arrows(beyond) == ["Berlin in 德国"]
        nothing = replace(MY_NOTES, ids=frozenset({"z"}))
        assert await around(store, nothing, ("小明",), hops=5) == []
        assert await around(store, Where(ME), ()) == []

    @rule
    async def test_sensitive_notes_support_only_where_that_is_granted(self, store: Store) -> None:
        """What they alone say is not seen otherwise, and leads nowhere."""
        for note_id, sensitive in (("n", False), ("密", True)):
            note = replace(said_by(note_id), sensitive=sensitive)
            await store.apply(linked(note, "小明", "Berlin"))
        await store.apply(linked(replace(said_by("s"), sensitive=True), "Berlin", "医院 hospital"))
        await store.apply(linked(said_by("z"), "医院 hospital", "德国"))
        hidden = replace(MY_NOTES, sensitive=False)
        both, secret, far = await around(store, MY_NOTES, ("小明",), hops=3)
        assert (both.note_ids, secret.note_ids, far.note_ids) == (("n", "密"), ("s",), ("z",))
        (seen,) = await around(store, hidden, ("小明",), hops=3)
        assert (seen.destination, seen.note_ids) == ("Berlin", ("n",))
        assert arrows(await around(store, hidden, ("医院 hospital",))) == ["医院 hospital in 德国"]
        assert len(await around(store, hidden, ())) == 2

    @rule
    async def test_shared_relations_are_seen_beside_ones_own(self, store: Store) -> None:
        """Those of the agent that is named, and of no other."""
        await store.apply(linked(said_by("n"), "小明", "Ann"))
        await store.apply(linked(said_by("公", user_id=""), "Ann", "公司 company"))
        await store.apply(linked(said_by("x", user_id="", agent_id="助手"), "Ann", "secret"))
        assert arrows(await around(store, MY_NOTES, ("ann",))) == ["小明 in Ann"]
        shared = replace(MY_NOTES, shared="agent")
        both = ["Ann in 公司 company", "小明 in Ann"]
        assert arrows(await around(store, shared, ("ann",))) == both

    @rule
    async def test_what_nothing_supports_is_gone(self, store: Store) -> None:
        """A relation with its last note, an entity with its last relation."""
        await store.apply(linked(said_by("a"), "Ann", "北京"))
        await store.apply(linked(said_by("b"), "ANN", "北京"))
        await store.apply(linked(said_by("c"), "ann", "Berlin"))
        drop = [Where(ME, kinds=NOTES, ids=frozenset({name})) for name in "abc"]
        await store.apply(Batch(drop=(drop[0],)))
        (left,) = await around(store, MY_NOTES, ("北京",))
        assert (left.source, left.note_ids) == ("Ann", ("b",))
        await store.apply(Batch(drop=(drop[1],)))
        assert arrows(await around(store, MY_NOTES, ())) == ["Ann in Berlin"]
        await store.apply(Batch(drop=(drop[2],)))
        assert await around(store, MY_NOTES, ()) == []
        await store.apply(linked(said_by("d"), "aNN", "上海"))
        assert arrows(await around(store, MY_NOTES, ())) == ["aNN in 上海"]

    @rule
    async def test_questions_without_bounds_are_refused(self, store: Store) -> None:
        """Too many hops, too much at once, and filters, which the graph does not know."""
        await chain(store)
        for hops, limit in ((0, 1), (6, 1), (-1, 1), (1, 0), (1, 1_001)):
            with pytest.raises(InvalidArgument):
                await around(store, MY_NOTES, ("小明",), hops=hops, limit=limit)
        filtered = replace(MY_NOTES, filters=Filter("eq", "tag", "工作"))
        with pytest.raises(InvalidArgument):
            await around(store, filtered, ("小明",))
        assert len(await around(store, MY_NOTES, ("小明",), hops=5, limit=1_000)) == 5
