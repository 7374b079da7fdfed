"""Models by settings: embedders and rerankers on real servers, which answer and fail as they do."""

import json
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kemem import AsyncMemory, InvalidArgument, Unavailable
from kemem.runtime import open_embedder, open_reranker
from kemem.settings import load
from kemem.testing import running_openai_server
from kemem.testing.doubles import hashed
from kemem.testing.openai_server import EMPTY, GARBAGE, RESET, Fault, hang, status
from tests.cases import each

SAID = [
    {"role": "user", "content": "我不吃辣", "message_id": "zh"},
    {"role": "user", "content": "I love hotpot", "message_id": "en"},
]
HOUR = 3600


def embeddings(*rows: Sequence[float], **index: int) -> Fault:
    """An answer with these vectors."""
    data = [{"index": at, "embedding": row} for at, row in enumerate(rows)]
    return Fault(json.dumps({"data": data}).encode())


def embedder_at(url: str, model: str = "hashing-32", **settings: Any) -> Any:
    return open_embedder(load(embedder=f"openai:{model}@{url}", **settings))


@each(
    ("name", "value"),
    [
        ("embedder", "remote"),
        ("embedder", "openai:"),
        ("embedder", "openai:bge-m3@"),
        ("embedder", "openai:bge-m3@ftp://host/v1"),
        ("embedder", "openai:bge-m3@127.0.0.1:11434/v1"),
        ("embedder", "fastembed:"),
        ("embedder", "fastembed:bge@http://host"),
        ("embedder", "openai:two words"),
        ("reranker", "remote"),
        ("reranker", "host/rerank"),
        ("reranker", "@http://host/rerank"),
        ("reranker", ""),
    ],
)
def test_what_names_no_model_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name}.*must be") as raised:
        load(**{name: value})
    assert repr(value) in str(raised.value) and raised.value.details["field"] == name


def test_a_refusal_shows_no_secret() -> None:
    with pytest.raises(InvalidArgument) as raised:
        load(embedder="remote@http://sk-secret@host/v1?key=secret")
    assert "secret" not in str(raised.value)


@each(
    ("value", "name"),
    [
        ("local", "kemem-multilingual-1"),
        ("openai:text-embedding-3-small", "openai:text-embedding-3-small"),
        ("openai:bge-m3:latest@http://127.0.0.1:11434/v1", "openai:bge-m3:latest"),
        ("openai:a@b@https://host/v1", "openai:a@b"),
        ("fastembed:BAAI/bge-small-zh-v1.5", "fastembed:BAAI/bge-small-zh-v1.5"),
    ],
)
def test_a_model_is_known_by_its_name_wherever_it_runs(value: str, name: str) -> None:
    embedder = open_embedder(load(embedder=value))
    assert embedder is not None and embedder.name == name


@each(
    ("given", "key"),
    [
        ({"embedder_api_key": "own"}, "Bearer own"),
        ({"llm_api_key": "llm", "llm_base_url": "{url}"}, "Bearer llm"),
        ({"llm_api_key": "llm", "llm_base_url": "{url}/other"}, "Bearer llm"),
        ({"embedder_api_key": "own", "llm_api_key": "l", "llm_base_url": "{url}"}, "Bearer own"),
        ({"llm_api_key": "llm", "llm_base_url": "http://elsewhere/v1"}, "Bearer none"),
        ({"llm_api_key": "llm"}, "Bearer none"),
    ],
)
async def test_only_the_server_of_the_llm_gets_its_key(given: dict[str, str], key: str) -> None:
    with running_openai_server([]) as server:
        settings = {name: it.format(url=server.base_url) for name, it in given.items()}
        embedder = embedder_at(server.base_url, **settings)
        await embedder.embed(["茶"], purpose="query")
        await embedder.close()
        assert server.keys == [key]


async def test_openai_without_a_key_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "KEMEM_LLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    embedder = open_embedder(load(embedder="openai:text-embedding-3-small"))
    assert embedder is not None
    with pytest.raises(Unavailable, match="needs a key"):
        await embedder.embed(["tea"], purpose="query")


async def test_every_text_gets_its_own_vector() -> None:
    """In batches that every service takes, whatever the order of the answer."""
    texts = [f"第{number}句 line {number}" for number in range(95)]
    with running_openai_server([]) as server:
        embedder = embedder_at(server.base_url, "hashing-48")
        assert embedder.width == 0
        matrix = await embedder.embed(texts, purpose="passage")
        await embedder.close()
    assert np.allclose(matrix, hashed(texts, 48), atol=1e-6) and embedder.width == 48
    assert [len(it["input"]) for it in server.requests].count(10) == 9
    assert {it["model"] for it in server.requests} == {"hashing-48"}


@each(
    ("fault", "reason"),
    [
        (status(401), "refuses the key of this server (401)"),
        (status(404), "answered 404"),
        (RESET, "cannot be reached"),
        (GARBAGE, "not JSON"),
        (EMPTY, "not JSON"),
        (Fault(b"[1, 2]"), "not a list of embeddings"),
        (Fault(b'{"data": [{"index": 0}]}'), "not a list of embeddings"),
        (Fault(b'{"data": [{"index": 1, "embedding": [1.0]}]}'), "not a list of embeddings"),
        (Fault(b'{"data": [{"index": 0, "embedding": "AAAA"}]}'), "not a list of embeddings"),
        (Fault(b'{"data": []}'), "0 vectors for 1 texts"),
        (embeddings([1.0, 0.0], [0.0, 1.0]), "2 vectors for 1 texts"),
        (Fault(b'{"data": [{"index": 0, "embedding": [NaN, 1.0]}]}'), "zero or not finite"),
        (embeddings([0.0, 0.0]), "zero or not finite"),
        (embeddings([1.0] * 31), "vectors of 31 numbers, where it had 32 before"),
    ],
)
async def test_a_wrong_answer_is_named_with_its_address(fault: Fault, reason: str) -> None:
    with running_openai_server([], faults=[None, fault]) as server:
        embedder = embedder_at(server.base_url)
        await embedder.embed(["茶"], purpose="query")
        with pytest.raises(Unavailable) as raised:
            await embedder.embed(["tea"], purpose="query")
        await embedder.close()
    assert reason in raised.value.message
    assert f"{server.base_url}/embeddings" in raised.value.message


async def test_an_answer_is_not_waited_for_longer_than_set() -> None:
    with running_openai_server([], faults=[hang(30)] * 3) as server:
        embedder = embedder_at(server.base_url, embedder_timeout_seconds=0.3)
        with pytest.raises(Unavailable, match=r"did not answer within 0\.3 s"):
            await embedder.embed(["茶"], purpose="passage")
        await embedder.close()


async def test_a_server_that_is_down_is_named() -> None:
    embedder = embedder_at("http://127.0.0.1:9/v1")
    with pytest.raises(Unavailable, match=":9/v1/embeddings cannot be reached"):
        await embedder.embed(["茶"], purpose="query")
    await embedder.close()


@pytest.mark.parametrize(
    "fault", [status(429, retry_after="0.05"), status(503, retry_after="0.05"), RESET]
)
async def test_what_passes_is_tried_again_for_what_is_stored(fault: Fault) -> None:
    """Twice; a question does not wait."""
    with running_openai_server([], faults=[fault, fault, None, fault]) as server:
        embedder = embedder_at(server.base_url)
        assert (await embedder.embed(["茶"], purpose="passage")).shape == (1, 32)
        assert len(server.requests) == 3
        with pytest.raises(Unavailable):
            await embedder.embed(["茶"], purpose="query")
        assert len(server.requests) == 4
        await embedder.close()


async def test_a_pause_that_is_too_long_is_left_to_a_job() -> None:
    with running_openai_server([], faults=[status(429, retry_after="50")]) as server:
        embedder = embedder_at(server.base_url, embedder_timeout_seconds=0.5)
        with pytest.raises(Unavailable, match=r"within 0\.5 s"):
            await embedder.embed(["茶"], purpose="passage")
        await embedder.close()


async def test_what_is_too_much_is_sent_in_smaller_portions() -> None:
    """As servers refuse it that take fewer texts, or shorter ones."""
    texts = ["茶" * 2000, *(f"text {number}" for number in range(9))]

    with running_openai_server([], faults=[status(413)] * 5) as server:
        embedder = embedder_at(server.base_url)
        matrix = await embedder.embed(texts, purpose="passage")
        await embedder.close()
    sizes = [(len(it["input"]), len(it["input"][0])) for it in server.requests]
    assert sizes[:6] == [(10, 2000), (5, 2000), (2, 2000), (1, 2000), (1, 1000), (1, 500)]
    assert np.allclose(matrix[1:], hashed(texts[1:], 32), atol=1e-6)


async def test_what_is_always_refused_ends() -> None:
    with running_openai_server([], refuses={"input"}) as server:
        embedder = embedder_at(server.base_url)
        with pytest.raises(Unavailable, match="answered 422"):
            await embedder.embed(["茶" * 2000] * 10, purpose="passage")
        await embedder.close()
    assert len(server.requests) <= 9


TEXTS = ("我喜欢绿茶", "red wine", "green tea it is")


@pytest.mark.parametrize("refused", [(), ("documents",)])
async def test_texts_are_judged_in_their_order(refused: tuple[str, ...]) -> None:
    """Under either name of the texts; what was refused is not sent again."""
    with running_openai_server([], refuses=refused) as server:
        reranker = open_reranker(load(reranker=f"bge@{server.base_url}/rerank"))
        assert reranker is not None
        first = [await reranker.rank(query, TEXTS) for query in ("绿茶", "green tea")]
        await reranker.close()  # type: ignore[attr-defined]
    zh, en = first
    assert max(range(3), key=zh.__getitem__) == 0 and max(range(3), key=en.__getitem__) == 2
    assert len(server.requests) == 2 + len(refused)
    assert {it["model"] for it in server.requests} == {"bge"}


@each(
    ("fault", "reason"),
    [
        (status(500), "answered 500"),
        (GARBAGE, "not JSON"),
        (Fault(b'{"results": {"index": 0}}'), "not a list of results"),
        (Fault(b'{"results": [{"index": 0, "score": "high"}]}'), "not a list of results"),
        (Fault(b'[{"index": 0, "score": 0.5}]'), "1 results for 3 texts"),
        (Fault(b'[{"index": 0, "score": 1}, {"index": 0, "score": 1}]'), "not a list"),
        (
            Fault(json.dumps([{"index": at, "score": float("nan")} for at in range(3)]).encode()),
            "not finite",
        ),
    ],
)
async def test_a_wrong_ranking_is_named_with_its_address(fault: Fault, reason: str) -> None:
    with running_openai_server([], faults=[fault] * 2) as server:
        url = f"{server.base_url}/rerank"
        reranker = open_reranker(load(reranker=url))
        assert reranker is not None
        with pytest.raises(Unavailable, match=reason) as raised:
            await reranker.rank("tea", TEXTS)
        assert url in raised.value.message
        await reranker.close()  # type: ignore[attr-defined]


async def test_a_reranker_of_the_settings_orders_hits_until_it_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Then the order stays as it was, and the log names the address."""
    results = [{"index": at, "relevance_score": score} for at, score in enumerate((0, 0, 1))]
    last_first = Fault(json.dumps({"results": results}).encode())
    with running_openai_server([], faults=[last_first, *[status(500)] * 2]) as server:
        url = f"{server.base_url}/rerank"
        settings = load(data_dir=tmp_path, embedder="none", reranker=f"bge@{url}")
        async with AsyncMemory(settings=settings) as memory:
            await memory.ingest([{"content": f"{it} tea 茶"} for it in TEXTS], "u")
            plain = [hit.id for hit in await memory.search("tea 茶", "u", rerank=False)]
            ranked = await memory.search("tea 茶", "u", explain=True)
            assert ranked[0].id == plain[-1] and "rerank 1.00" in ranked[0].why
            assert server.requests[0]["query"] == "tea 茶"
            failed = await memory.search("tea 茶", "u", explain=True)
    assert [hit.id for hit in failed] == plain and "rerank: unavailable" in failed[0].why
    assert f"{url} answered 500" in caplog.text


async def test_logarithms_of_odds_become_chances() -> None:
    scores = [{"index": at, "score": score} for at, score in enumerate((-800.0, 0.0, 9.0))]
    with running_openai_server([], faults=[Fault(json.dumps(scores).encode())]) as server:
        reranker = open_reranker(load(reranker=f"{server.base_url}/rerank"))
        assert reranker is not None
        judged = await reranker.rank("tea", TEXTS)
        await reranker.close()  # type: ignore[attr-defined]
    assert judged[:2] == [0.0, 0.5] and 0.99 < judged[2] < 1


# Fastembed cannot download its models here: a module of the same shape stands in for it.


class TextEmbedding:
    """What `fastembed` has under this name, as far as it is used."""

    loaded = 0

    def __init__(self, model_name: str) -> None:
        TextEmbedding.loaded += 1
        if model_name != "BAAI/bge-small-zh-v1.5":
            raise ValueError(f"Model {model_name} is not supported")

    def query_embed(self, texts: list[str]) -> Iterator[Any]:
        return iter(hashed(texts, 16))

    def passage_embed(self, texts: list[str]) -> Iterator[Any]:
        return iter(hashed(texts, 16))


async def test_fastembed_by_its_shape(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    double = types.ModuleType("fastembed")
    double.TextEmbedding = TextEmbedding  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fastembed", double)
    settings = load(data_dir=tmp_path, embedder="fastembed:BAAI/bge-small-zh-v1.5")
    async with AsyncMemory(settings=settings) as memory:
        assert not (await memory.ingest(SAID, "小明")).pending
        assert [it.id for it in await memory.semantic_search("不吃辣", "小明", top_k=1)] == ["zh"]
        assert [it.id for it in await memory.semantic_search("hotpot", "小明", top_k=1)] == ["en"]
    own = settings.model_copy(update={"data_dir": tmp_path / "projects" / "acme"})
    async with AsyncMemory(settings=own) as memory:  # in one process, both by one model
        assert not (await memory.ingest(SAID, "小明")).pending
    assert TextEmbedding.loaded == 1
    unknown = open_embedder(load(embedder="fastembed:nope"))
    assert unknown is not None
    with pytest.raises(Unavailable, match="cannot load 'nope': ValueError"):
        await unknown.embed(["茶"], purpose="query")


async def test_fastembed_that_is_missing_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "fastembed", None)
    embedder = open_embedder(load(embedder="fastembed:BAAI/bge-small-en-v1.5"))
    assert embedder is not None
    with pytest.raises(Unavailable, match=r"pip install '\.\[fastembed\]'"):
        await embedder.embed(["茶"], purpose="query")
