"""What `search` promises of a query that is put to a talk: words are borrowed, never leaked."""

from dataclasses import replace

from hypothesis import strategies as st

from kemem.ports import Store
from kemem.records import Message, Where
from kemem.records.batch import Batch
from kemem.text.query import ConversationQuery, Phrase, Query, plain, spoken_by
from kemem_conformance import world
from kemem_conformance.comparing import same_search
from kemem_conformance.note_laws import both
from kemem_conformance.searching import ranks
from kemem_conformance.suite import EVERYTHING, ME, MINE, Suite, law, put, ranking, rule, said
from kemem_conformance.world import NOW


def talked(text: str, length: float = 0.0) -> Query:
    """A question as hybrid search puts it."""
    query = plain(text)
    voices = tuple(Phrase(tuple(map(spoken_by, unit.tokens))) for unit in query.units)
    return replace(query, conversation=ConversationQuery(length, voices))


async def found(store: Store, text: str, where: Where = MINE, length: float = 0.0) -> list[str]:
    """The ids that a question put to the talk finds, best first."""
    hits = await ranking(store, where, talked(text, length), limit=EVERYTHING)
    assert hits.total == len(hits.matches)
    return [name for name, _ in ranks(hits)]


def exchange(*texts: str, session_id: str = "s", since: int = NOW) -> list[Message]:
    """User and assistant in turn, a second apart; the ids say who speaks."""
    return [
        said(
            f"{session_id}{at}",
            text,
            session_id=session_id,
            role=("user", "assistant")[at % 2],
            ts=since + at * 1_000_000,
        )
        for at, text in enumerate(texts)
    ]


class TalkingRules(Suite):
    """Borrowed words, by example."""

    @rule
    async def test_an_answer_borrows_the_words_of_its_question(self, store: Store) -> None:
        """It is found by them, and before the question itself."""
        await put(store, *exchange("你去过罗马吗？", "去年五月", "好", "嗯", session_id="中"))
        await put(store, *exchange("Have you seen Paris?", "Yes, in May", "Ah", session_id="en"))
        assert (await found(store, "罗马"))[:2] == ["中1", "中0"]
        assert (await found(store, "paris"))[:2] == ["en1", "en0"]

    @rule
    async def test_the_nearer_a_word_is_said_the_more_it_counts(self, store: Store) -> None:
        """Up to the other messages of the session, which count alike; the first a little more."""
        await put(store, *exchange("hi", *"abcdefg", "火锅 hotpot", *"nopqrst"))
        for text in ("火锅", "hotpot"):
            hits = await ranking(store, MINE, talked(text), limit=EVERYTHING)
            scores = dict(ranks(hits))
            near = [scores[f"s{8 + away}"] for away in range(6)]
            assert near == sorted(near, reverse=True) and len({*near}) == 6
            assert scores["s14"] == scores["s15"] == scores["s2"] < scores["s0"] < scores["s10"]
            assert scores["s7"] == scores["s9"]

    @rule
    async def test_a_plain_query_borrows_nothing(self, store: Store) -> None:
        """What a user searches word by word holds these words."""
        await put(store, *exchange("火锅 hotpot", "yes 好"))
        for text in ("火锅", "hotpot"):
            hits = await ranking(store, MINE, plain(text), limit=EVERYTHING)
            assert [name for name, _ in ranks(hits)] == ["s0"]

    @rule
    async def test_sessions_and_monologues_keep_their_words(self, store: Store) -> None:
        """Nothing is borrowed across sessions, or where only one side speaks, or of tools."""
        await put(store, *exchange("火锅 hotpot", "yes 好", session_id="a"))
        await put(store, *exchange("tea 茶", "no 不", session_id="b"))
        alone = [
            said(f"c{at}", text, session_id="c", ts=at) for at, text in enumerate(("火 hot", "嗯"))
        ]
        tool = said("d1", "火 hot", session_id="d", role="tool", ts=1)
        await put(store, *alone, said("d0", "嗯", session_id="d", ts=0), tool)
        assert {*await found(store, "火锅")} == {"a0", "a1", "c0", "d1"}
        assert {*await found(store, "hotpot")} == {"a0", "a1"}
        assert {*await found(store, "hot")} == {"c0", "d1"}

    @rule
    async def test_what_is_hidden_lends_nothing(self, store: Store) -> None:
        """Sensitive words, later ones, and those of another session than the one asked for."""
        one, two, three = exchange("火锅 hotpot", "yes 好", "嗯 ok")
        await put(store, replace(one, sensitive=True), two, three)
        await put(store, *exchange("茶", "tea", "late 晚", session_id="t"))
        for text in ("火锅", "hotpot"):
            assert await found(store, text, replace(MINE, sensitive=False)) == []
            assert {*await found(store, text)} == {"s0", "s1", "s2"}
        for text in ("late", "晚"):
            for before in (Where(ME, until=NOW + 2_000_000), Where(ME, known_by=NOW + 1_999_999)):
                assert await found(store, text, before) == []
            assert {*await found(store, text)} == {"t0", "t1", "t2"}
            other = replace(MINE, scope=replace(ME, session_id="s"))
            assert await found(store, text, other) == []

    @rule
    async def test_what_narrows_an_answer_leaves_the_talk_as_it_is(self, store: Store) -> None:
        """A row has the score that it has without a role, ids or a beginning."""
        await put(store, *exchange("火锅 hotpot?", "yes 好", "嗯 ok"))
        for text in ("火锅", "hotpot"):
            whole = dict(ranks(await ranking(store, MINE, talked(text), limit=EVERYTHING)))
            for where in (
                Where(ME, role="assistant"),
                Where(ME, ids=frozenset({"s1"})),
                Where(ME, since=NOW + 1, until=NOW + 1_000_001 + 1_000_000),
            ):
                hits = ranks(await ranking(store, where, talked(text), limit=EVERYTHING))
                assert ("s1", whole["s1"]) in hits
                assert "s0" not in dict(hits)

    @rule
    async def test_who_is_named_is_heard_first(self, store: Store) -> None:
        """Of two that say the same, the one whom the question names, not one who names them."""
        for name, speaker in (("a", "Ann Lee"), ("b", "小明"), ("c", "Bob")):
            await put(store, said(name, "火锅 hotpot", metadata={"speaker": speaker}))
        for text, first in (("Ann: hotpot", "a"), ("小明 火锅", "b"), ("what bob says", "c")):
            assert (await found(store, text))[0] == first
        assert await found(store, "明小") == ["b"]  # by its characters, not as a name
        for name, speaker, other in (("d", "Eve", "大伟"), ("e", "大伟", "Eve")):
            await put(store, said(name, f"{other} tea", metadata={"speaker": speaker}))
        for text, first in (("Eve tea", "d"), ("大伟 tea", "e")):
            assert (await found(store, text))[0] == first

    @rule
    async def test_a_long_question_prefers_what_opens_a_talk_and_what_is_new(
        self, store: Store
    ) -> None:
        """A short one hardly does."""
        old = exchange("plan 计划", "ok 好", "x", "y", "z", "garden 花园", session_id="old")
        await put(store, *old)
        new = [replace(it, message_id=f"n{it.message_id}", session_id="new") for it in old]
        month = 30 * 86_400_000_000
        await put(store, *(replace(it, ts=it.ts + month) for it in new))
        for text in ("garden", "花园"):
            short, long = [await found(store, text, length=it) for it in (0.0, 1.0)]
            assert {*short[:2]} == {"old5", "nold5"}
            assert long.index("nold5") < long.index("old5")
            assert long.index("nold0") < long.index("nold3") < short.index("nold0")


# Few words that many messages have, questions among them: what is borrowed and marked must show.
TALK = (
    *("明天去吃火锅吗", "Hotpot tomorrow?", "我不吃辣"),
    *("The spicy one of Ann", "小明: 好", "火锅"),
)
talks = st.builds(
    lambda told, texts: tuple(
        replace(it, content=text, role=("user", "assistant")[at % 2])
        for at, (it, text) in enumerate(zip(told, texts, strict=False))
    ),
    world.transcripts(min_size=6, max_size=12, users=world.USERS[:2], agents=world.AGENTS[:1]),
    st.lists(st.sampled_from((*TALK * 5, *world.CONTENTS)), min_size=12, max_size=12),
)
talk_wheres = world.wheres(
    tuple(
        scope for scope in world.SCOPES if {scope.agent_id, scope.user_id} <= {None, "agent", "u_"}
    )
)
talk_texts = st.builds(
    "{} {}".format,
    st.sampled_from(("", "Ann", "小明")),
    st.sampled_from((*("火锅", "hotpot", "辣", "spicy") * 6, *world.WORDS, *world.CONTENTS)),
)


class TalkLaws(Suite):
    """Borrowed words, for any talk."""

    @law(
        told=talks,
        asked=st.lists(
            st.tuples(talk_wheres, talk_texts, st.sampled_from((0.0, 0.5, 1.0))),
            min_size=6,
            max_size=8,
        ),
    )
    async def test_a_talk_ranks_as_in_the_reference(
        self, store: Store, *, told: tuple[Message, ...], asked: list[tuple[Where, str, float]]
    ) -> None:
        """Whatever is seen of it."""
        reference = await both(store, Batch(put=told))
        for where, text, length in asked:
            await same_search(store, reference, where, talked(text, length))
