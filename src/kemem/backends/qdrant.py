"""Qdrant: the vectors of a store carried over into a vector database beside it.

Each embedding model has a collection of its own, in which an owner is a tenant.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Self
from uuid import NAMESPACE_OID, uuid5

from kemem.errors import InvalidArgument, Unavailable
from kemem.records import Embedded, Match, Model, Scope, Vector, Where

if TYPE_CHECKING:
    from qdrant_client import AsyncQdrantClient

SECONDS = 30.0
_PREFIX = "kemem_"
_PAGE = 256  # points that are sent together
_CREATED = 409  # status: somebody else was faster


class QdrantVectors:
    """A mirror of the vectors in Qdrant, over an async client that it takes over.

    vectors = QdrantVectors.connect("http://localhost:6333", api_key=key)
    """

    def __init__(self, client: "AsyncQdrantClient") -> None:
        try:
            from qdrant_client import models
        except ImportError:
            raise InvalidArgument("for Qdrant install KeMem with the extra 'qdrant'") from None
        self._client, self._models = client, models
        self._known: set[str] = set()  # collections that are there

    @classmethod
    def connect(cls, url: str, api_key: str | None = None) -> Self:
        """A mirror by its address; nothing is opened before the first call."""
        try:
            from qdrant_client import AsyncQdrantClient
        except ImportError:
            raise InvalidArgument("for Qdrant install KeMem with the extra 'qdrant'") from None
        if not url.startswith(("http://", "https://")):
            raise InvalidArgument("the URL of Qdrant must be like http://host:6333", field="url")
        seconds = round(SECONDS)
        return cls(AsyncQdrantClient(url=url, api_key=api_key, timeout=seconds))

    async def put(self, embedded: Embedded) -> None:
        """Upsert the vectors of one owner's rows."""
        name, owner = _collection(embedded.model), embedded.scope
        points = [
            self._models.PointStruct(
                id=_number(owner, row_id),
                vector=embedded.matrix[at].tolist(),
                payload={"agent_id": owner.agent_id, "user_id": owner.user_id, "id": row_id},
            )
            for at, row_id in enumerate(embedded.ids)
        ]
        async with _guarded():
            await self._ensure(name, embedded.model.width)
            for start in range(0, len(points), _PAGE):
                await self._client.upsert(name, points[start : start + _PAGE], wait=True)

    async def remove(self, owner: Scope, ids: Sequence[str] | None = None) -> None:
        """Delete the vectors of some rows, or all that an owner has, of every model."""
        if ids is not None and not ids:
            return
        conditions = self._of(owner)
        if ids is not None:
            conditions.append(self._in("id", ids))
        selector = self._models.FilterSelector(filter=self._models.Filter(must=conditions))
        async with _guarded():
            listed = (await self._client.get_collections()).collections
            for name in [it.name for it in listed if it.name.startswith(_PREFIX)]:
                await self._client.delete(name, selector, wait=True)

    async def nearest(self, where: Where, vector: Vector, model: Model, limit: int) -> list[Match]:
        """The rows of the where's scope that are most similar, best first."""
        name = _collection(model)
        owners: list[Any] = [self._models.Filter(must=self._of(where.scope))]
        if where.shared is not None:
            owners.append(self._models.Filter(must=self._of(Scope(where.shared, ""))))
        async with _guarded():
            if name not in self._known and not await self._client.collection_exists(name):
                return []
            answer = await self._client.query_points(
                name,
                query=vector.tolist(),
                query_filter=self._models.Filter(should=owners),
                limit=limit,
            )
        return [_match(it) for it in answer.points]

    async def close(self) -> None:
        """Let go of connections."""
        async with _guarded():
            await self._client.close()

    async def _ensure(self, name: str, width: int) -> None:
        """The collection of a model: an index of vectors for each tenant, none over all."""
        if name in self._known:
            return
        models = self._models
        if not await self._client.collection_exists(name):
            size = models.VectorParams(size=width, distance=models.Distance.COSINE)
            graph = models.HnswConfigDiff(m=0, payload_m=16)
            try:
                await self._client.create_collection(name, size, hnsw_config=graph)
            except Exception as error:
                if getattr(error, "status_code", None) != _CREATED:
                    raise
        for field in ("user_id", "agent_id", "id"):
            keyword = models.KeywordIndexParams(type="keyword", is_tenant=field == "user_id")
            await self._client.create_payload_index(name, field, keyword, wait=True)
        self._known.add(name)

    def _of(self, owner: Scope) -> list[Any]:
        ids = {"agent_id": owner.agent_id, "user_id": owner.user_id}
        return [self._in(name, [value]) for name, value in ids.items() if value is not None]

    def _in(self, field: str, values: Sequence[str]) -> Any:
        return self._models.FieldCondition(key=field, match=self._models.MatchAny(any=list(values)))


def _collection(model: Model) -> str:
    """The name of a model's collection: vectors of two models are never compared."""
    return f"{_PREFIX}{blake2b(model.name.encode(), digest_size=8).hexdigest()}_{model.width}"


def _number(owner: Scope, row_id: str) -> str:
    return str(uuid5(NAMESPACE_OID, "\x1f".join((str(owner.agent_id), str(owner.user_id), row_id))))


def _match(point: Any) -> Match:
    agent_id, user_id, row_id = (point.payload[name] for name in ("agent_id", "user_id", "id"))
    return Match(agent_id, user_id, row_id, 0, min(max(float(point.score), 0.0), 1.0))


@asynccontextmanager
async def _guarded() -> AsyncIterator[None]:
    """Whatever goes wrong in the client, or takes too long, is Unavailable."""
    try:
        async with asyncio.timeout(SECONDS):
            yield
    except Exception as error:  # the client's code or network, which may raise anything
        raise Unavailable(f"Qdrant failed: {type(error).__name__}") from None
