"""What `search` promises: the query language, and a ranking by the scope's own statistics."""

from typing import Any

from kemem.ports import Store
from kemem.ports.request import Ranking
from kemem.records import Match, Rank, Scope, Where
from kemem.records.batch import Batch
from kemem.text.query import MAX_PHRASE, parse
from kemem_conformance.suite import EVERYTHING, ME, MINE, Suite, put, ranking, rule, said
from kemem_conformance.world import HOSTILE, NOW

TABLE_TALK = {
    "chili": "I can't eat spicy food",
    "辣": "我不吃辣",
    "hotpot": "Hotpots are great, hotpot again!",
    "火锅": "明天去吃火锅吗",
    "kopi": "我喜欢喝kopi咖啡",
    "mail": "Write to user@x.com about C++",
}
ASKED = {  # what is typed, and the ids that match
    "辣": {"辣"},
    "SPICY": {"chili"},
    "hotpot": {"hotpot"},
    "ｈｏｔｐｏｔ": {"hotpot"},
    "火锅 hotpot": {"火锅", "hotpot"},
    '"吃辣"': {"辣"},
    '"吃锅"': set(),
    '"spicy food"': {"chili"},
    '"food spicy"': set(),
    "吃 AND 火": {"火锅"},
    "eat AND write": set(),
    "吃 NOT 火": {"辣"},
    "spic*": {"chili"},
    "hot*": {"hotpot"},
    "user@x.co*": {"mail"},
    "ot*": set(),
    "NOT 吃": {"chili", "hotpot", "kopi", "mail"},
    "user@x.com": {"mail"},
    "C++": {"mail"},
    "kopi咖啡": {"kopi"},
    "咖 OR write": {"kopi", "mail"},
    "！！！": set(),
}


async def find(store: Store, text: str, where: Where = MINE, **options: Any) -> Ranking:
    """Search by what a user types."""
    return await ranking(store, where, parse(text), **{"limit": EVERYTHING, **options})


def ranks(found: Ranking) -> list[tuple[str, float]]:
    """Ids and scores, best first."""
    return [(hit.id, hit.score) for hit in found.matches]


def beyond(found: Ranking) -> Rank:
    """The cursor behind the last hit."""
    last = found.matches[-1]
    return Rank(last.score, last.ts, last.id, found.mark)


class SearchingRules(Suite):
    """Words, by example."""

    @rule
    async def test_the_query_language_finds_what_it_says(self, store: Store) -> None:
        """Words, phrases, prefixes and operators, in both languages."""
        stored = await put(store, *(said(name, text) for name, text in TABLE_TALK.items()))
        by_id = {one.message_id: one for one in stored}
        for text, wanted in ASKED.items():
            found = await find(store, text)
            assert {hit.id for hit in found.matches} == wanted, text
            assert found.total == len(wanted), text
            for hit in found.matches:
                assert hit == Match.of(by_id[hit.id], hit.score)

    @rule
    async def test_a_speaker_can_be_searched_for(self, store: Store) -> None:
        """The name counts as said."""
        await put(store, said("a", "你好", metadata={"speaker": "Caroline"}))
        await put(store, said("b", "hello", metadata={"speaker": "小明"}), said("c", "hello"))
        assert [name for name, _ in ranks(await find(store, "caroline"))] == ["a"]
        assert [name for name, _ in ranks(await find(store, "小明"))] == ["b"]

    @rule
    async def test_nothing_typed_finds_everything(self, store: Store) -> None:
        """Newest first, without a score."""
        await put(
            store, said("a", ts=NOW), said("火", ts=NOW + 2), said("！", "！！！", ts=NOW + 1)
        )
        assert ranks(await find(store, " ")) == [("火", 0), ("！", 0), ("a", 0)]

    @rule
    async def test_hostile_text_is_only_text(self, store: Store) -> None:
        """No syntax of an engine shows through."""
        await put(store, said("a", "near the hotpot"), said("b", "火锅 table"))
        for text in HOSTILE:
            assert (await find(store, text)).total <= 2
        assert {name for name, _ in ranks(await find(store, '" OR * NEAR('))} == {"a"}
        assert {name for name, _ in ranks(await find(store, "'; DROP TABLE x --"))} == {"b"}

    @rule
    async def test_an_empty_scope_answers_nothing(self, store: Store) -> None:
        """Without a message, or without one of this user."""
        for text in ("火锅", "hotpot", "NOT hotpot", ""):
            found = await find(store, text)
            assert (found.matches, found.total) == ((), 0)
        await put(store, said("a", "火锅 hotpot", user_id="小明"))
        for text in ("火锅", "hotpot", "NOT coffee", ""):
            found = await find(store, text)
            assert (found.matches, found.total) == ((), 0)

    @rule
    async def test_the_best_come_first_then_the_newest_then_by_id(self, store: Store) -> None:
        """More of what was asked is better; equal scores go by time, equal times by id."""
        both = said("both", "火锅 hotpot", ts=0)
        tied = [said(name, "火锅 tea", ts=NOW, session_id=name) for name in ("b", "B", "火")]
        later = said("later", "火锅 tea", ts=NOW + 1)
        await put(store, both, *tied, later, said("none", "咖啡 coffee"))
        found = await find(store, "火锅 hotpot")
        assert [hit.id for hit in found.matches] == ["both", "later", "B", "b", "火"]
        scores = [hit.score for hit in found.matches]
        assert 1 >= scores[0] > scores[1] == scores[2] == scores[3] == scores[4] > 0
        assert found.total == 5

    @rule
    async def test_a_limit_leaves_the_total_alone(self, store: Store) -> None:
        """The total is what matches, not what is shown."""
        await put(store, *(said(f"火{n}", "火锅 hotpot", ts=n) for n in range(7)))
        whole = await find(store, "火锅")
        part = await find(store, "火锅", limit=3)
        assert (part.matches, part.total) == (whole.matches[:3], 7)

    @rule
    async def test_other_users_do_not_move_a_score(self, store: Store) -> None:
        """Statistics are those of one's own messages; a stranger's words are not even counted."""
        await put(store, said("a", "火锅 hotpot tea"), said("b", "火锅 only"))
        before = {text: ranks(await find(store, text)) for text in ("火锅 hotpot", "tea")}
        crowd = [said(f"m{n}", "火锅 hotpot tea " * n, user_id="u_%") for n in range(5)]
        await put(store, *crowd, said("c", "tea", user_id="u_", agent_id="助手"))
        now = {text: ranks(await find(store, text)) for text in ("火锅 hotpot", "tea")}
        assert now == before
        assert (await find(store, "tea", Where(Scope(user_id="u_")))).total == 2

    @rule
    async def test_filters_do_not_move_a_score(self, store: Store) -> None:
        """They hide rows; the statistics stay those of the whole scope."""
        await put(store, said("a", "火锅 hotpot", ts=NOW), said("b", "hotpot", role="tool", ts=0))
        await put(store, said("c", "火锅 and more of it", session_id="会话", ts=NOW + 5))
        scores = dict(ranks(await find(store, "火锅 hotpot")))
        for where in (
            Where(Scope("agent", "u_", "s"), role="user"),
            Where(ME, since=NOW, until=NOW + 1),
            Where(ME, ids=frozenset({"a"})),
        ):
            found = await find(store, "火锅 hotpot", where)
            assert (ranks(found), found.total) == ([("a", scores["a"])], 1)

    @rule
    async def test_dropped_words_are_gone(self, store: Store) -> None:
        """They are not found, and they no longer count in the statistics."""
        kept = (said("a", "火锅 hotpot"), said("b", "tea 茶"))
        await put(store, *kept)
        before = {text: ranks(await find(store, text)) for text in ("火锅 tea", "hotpot", "茶")}
        await put(store, said("c", "火锅 hotpot long tea"), said("d", "hotpot 茶"))
        await store.apply(Batch(drop=(Where(ME, ids=frozenset({"c", "d"})),)))
        now = {text: ranks(await find(store, text)) for text in ("火锅 tea", "hotpot", "茶")}
        assert now == before
        await store.apply(Batch(put=(said("c", "quite another 咖啡"),)))
        assert ranks(await find(store, "long")) == []
        assert len(ranks(await find(store, "咖啡"))) == 1

    @rule
    async def test_a_long_message_is_found_by_any_of_its_phrases(self, store: Store) -> None:
        """Wherever an engine may have cut it."""
        english = [f"w{n}" for n in range(20_000)]
        chinese = "".join(chr(0x4E00 + n) for n in range(20_000)) + "啊" * 1_000 + "火锅"
        await put(store, said("en", " ".join(english)), said("zh", chinese), said("c", "火 锅"))
        for start in (0, 250, 4_090, 16_380, 19_999 - MAX_PHRASE):
            words = " ".join(english[start : start + MAX_PHRASE])
            assert [name for name, _ in ranks(await find(store, f'"{words}"'))] == ["en"]
            assert (await find(store, f'"{words} no"')).total == 0
            part = chinese[start : start + MAX_PHRASE]
            assert [name for name, _ in ranks(await find(store, f'"{part}"'))] == ["zh"]
        assert {name for name, _ in ranks(await find(store, '"火锅"'))} == {"zh", "c"}

    @rule
    async def test_later_pages_rank_what_the_first_one_saw(self, store: Store) -> None:
        """New messages neither appear nor move a score."""
        await put(store, *(said(f"火{n}", f"火锅 {'tea ' * n}", ts=n) for n in range(6)))
        whole = await find(store, "火锅 tea")
        first = await find(store, "火锅 tea", limit=2)
        await put(store, said("new", "火锅 tea"), said("新", "hotpot tea 火锅", ts=0))
        rest = await find(store, "火锅 tea", after=beyond(first))
        assert ranks(first) + ranks(rest) == ranks(whole)
        assert (rest.total, rest.mark) == (6, first.mark)
        assert (await find(store, "火锅 tea")).total == 8

    @rule
    async def test_a_new_message_is_new_in_the_place_of_a_dropped_one(self, store: Store) -> None:
        """Whatever number the dropped one had, a page begun before does not show the new one."""
        await put(store, *(said(f"火{n}", "火锅 tea", ts=n) for n in range(4)))
        first = await find(store, "火锅 tea", limit=1)
        assert [hit.id for hit in first.matches] == ["火3"]
        await store.apply(Batch(drop=(Where(ME, ids=frozenset({"火3"})),)))
        await put(store, said("new", "火锅 tea", ts=-9))
        rest = await find(store, "火锅 tea", after=beyond(first))
        assert [hit.id for hit in rest.matches] == ["火2", "火1", "火0"]
        assert rest.total == 3

    @rule
    async def test_a_page_goes_on_where_its_cursor_was_dropped(self, store: Store) -> None:
        """By the score, time and id of the row that is gone."""
        await put(store, *(said(f"火{n}", "火锅", ts=NOW, session_id=f"s{n}") for n in range(5)))
        first = await find(store, "火锅", limit=2)
        await store.apply(Batch(drop=(Where(ME, ids=frozenset({"火1"})),)))
        rest = await find(store, "火锅", after=beyond(first))
        assert [hit.id for hit in (*first.matches, *rest.matches)] == [f"火{n}" for n in range(5)]
        assert rest.total == 4

    @rule
    async def test_rebuilt_words_answer_the_same(self, store: Store) -> None:
        """The index is derived: it can be made again from the messages."""
        await put(store, *(said(name, text) for name, text in TABLE_TALK.items()))
        await put(store, said("gone", "火锅 hotpot"), said("other", "火锅", user_id="小明"))
        await store.apply(Batch(drop=(Where(ME, ids=frozenset({"gone"})),)))
        before = [ranks(await find(store, text)) for text in ASKED]
        await store.apply(Batch(rebuild_words=True))
        assert [ranks(await find(store, text)) for text in ASKED] == before
