"""API keys: made, listed, revoked, and found again by those who serve requests."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from reprlib import repr as shown

from kemem.errors import InvalidArgument, NotFound, Unavailable
from kemem.ports import Deps
from kemem.ports.keys import KeyStore
from kemem.records import Micros
from kemem.records.keys import PREFIX, ROLES, ApiKey, Role, digest_of, new_key
from kemem.records.times import DAY
from kemem.scope import Id, Time, check_flag, to_time
from kemem.text.ids import check_id, encode, new_id

MAX_NAME = 255  # characters
MAX_DAYS = 36_500  # of a key that expires
_TRUSTED = 0.5  # seconds that a server may not know of a change: a revocation holds within one
_MOST_CACHED = 10_000  # keys
_USE_STEP: Micros = 60_000_000  # between two times that the use of a key is written


class AsyncKeys:
    """The API keys of a store, cached until one is added or removed.

    Under load a process reads one number from the store every half second, not a row a request.
    """

    def __init__(self, deps: Callable[[], Awaitable[Deps]], *, has_admin: bool = False) -> None:
        """`has_admin`: the settings have an admin key, so that the first key may be any."""
        self._deps = deps
        self._has_admin = has_admin
        self._cache: OrderedDict[str, ApiKey] = OrderedDict()  # by digest and by id
        self._generation: int | None = None  # None: never read
        self._known_until = 0.0  # by the monotonic clock
        self._lock = asyncio.Lock()
        self._used: dict[str, Micros] = {}
        self._written: dict[str, Micros] = {}

    async def create(
        self,
        name: str,
        role: Role,
        *,
        agent_id: Id = None,
        user_id: Id = None,
        read_only: bool = False,
        sensitive: bool = False,
        expires: Time | None = None,
        days: int | None = None,
        project: str | None = None,
    ) -> tuple[ApiKey, str]:
        """A new key and, this once, its text; the store keeps a digest.

        It expires at a time or after some days, if one of them is given.
        """
        store, now = await self._store(), (await self._deps()).clock()
        _check_reach(role, agent_id, user_id)
        if sensitive and role != "user":
            raise InvalidArgument(
                "sensitive is for keys of users; others see all", field="sensitive"
            )
        until = _expiry(expires, days, now)
        is_operator = role == "admin" and project is None
        if not is_operator and not self._has_admin and not await store.key_generation():
            reason = "the first key must be an admin key, of no project: without one nobody could "
            reason += "manage the server"
            raise InvalidArgument(reason, field="role")
        text = new_key()
        key = ApiKey(
            new_id("key", now),
            _check_name(name),
            role,
            digest_of(text),
            text[-4:],
            now,
            agent_id,
            user_id,
            check_flag(read_only, "read_only"),
            check_flag(sensitive, "sensitive"),
            until,
            project=project,
        )
        await store.change_keys(add=[key])
        self._known_until = 0.0
        return key, text

    async def list(self, project: str | None = None) -> list[ApiKey]:
        """All keys, or those of a project, oldest first."""
        return _of_project(await (await self._store()).keys(), project)

    async def revoke(self, key_id: str, project: str | None = None) -> ApiKey:
        """Remove a key, or one of a project: here at once, on other servers within a second."""
        store = await self._store()
        found = _of_project(await store.keys(key_id=check_id(key_id, "key_id")), project)
        if not found or not await store.change_keys(remove=[key_id]):
            raise NotFound(f"no key {key_id!r:.80}", key_id=key_id)
        self._known_until = 0.0
        return found[0]

    async def exist(self) -> bool:
        """Whether a key was ever made; from then on a server requires one."""
        await self._refresh()
        return bool(self._generation)

    async def find(self, text: str) -> ApiKey | None:
        """The key with this text, also one that has expired."""
        if not text.startswith(PREFIX):
            return None
        digest = digest_of(text)
        return await self._find(digest, digest=digest)

    async def get(self, key_id: str) -> ApiKey | None:
        """The key with this id, also one that has expired."""
        return await self._find(key_id, key_id=key_id)

    def note_use(self, key: ApiKey, now: Micros) -> None:
        """Remember that a key was used; `flush` writes it."""
        self._used[key.key_id] = now

    async def flush(self) -> None:
        """Write when keys were used, for each at most once a minute."""
        due = {
            key_id: at
            for key_id, at in self._used.items()
            if at - self._written.get(key_id, 0) >= _USE_STEP
        }
        if due:
            await (await self._store()).change_keys(used=due)
            self._written |= due
            self._used = {it: at for it, at in self._used.items() if due.get(it) != at}

    async def _find(self, name: str, **place: str) -> ApiKey | None:
        await self._refresh()
        if key := self._cache.get(name):
            self._cache.move_to_end(name)
            return key
        if not self._generation:
            return None
        generation = self._generation
        found = await (await self._store()).keys(**place)
        if not found:
            return None
        if generation == self._generation:  # else it may be gone again
            self._cache[name] = found[0]
            if len(self._cache) > _MOST_CACHED:
                self._cache.popitem(last=False)
        return found[0]

    async def _refresh(self) -> None:
        """Forget the cached keys if any key was added or removed since they were read."""
        if time.monotonic() < self._known_until:
            return
        async with self._lock:  # one asks, the others wait for the answer
            asked = time.monotonic()
            if asked < self._known_until:
                return
            try:
                generation = await self._read_generation()
            except Unavailable:
                if self._generation is None:
                    raise
                return  # a store that is away serves nobody, and its figures can be asked for
            if generation != self._generation:
                self._cache.clear()
            self._generation, self._known_until = generation, asked + _TRUSTED

    async def _read_generation(self) -> int:
        store = (await self._deps()).store
        return await store.key_generation() if isinstance(store, KeyStore) else 0

    async def _store(self) -> KeyStore:
        store = (await self._deps()).store
        if not isinstance(store, KeyStore):
            raise InvalidArgument("this store keeps no API keys")
        return store


def _of_project(keys: list[ApiKey], project: str | None) -> list[ApiKey]:
    return [key for key in keys if project in (None, key.project)]


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME:
        raise InvalidArgument(
            f"name must have 1-{MAX_NAME} characters, not {name!r:.80}", field="name"
        )
    encode(name, "name")
    return name.strip()


def _expiry(expires: Time | None, days: int | None, now: Micros) -> Micros | None:
    """When a key expires, by a time or by a number of days."""
    if days is None:
        until = to_time(expires, "expires_at")
        if until is not None and until <= now:
            reason = f"expires_at must be later than now, not {expires}"
            raise InvalidArgument(reason, field="expires_at")
        return until
    if expires is not None:
        raise InvalidArgument("pass expires_at or days, not both", field="days")
    if type(days) is not int or not 1 <= days <= MAX_DAYS:
        raise InvalidArgument(f"days must be 1-{MAX_DAYS}, not {shown(days)}", field="days")
    return now + days * DAY


def _check_reach(role: object, agent_id: Id, user_id: Id) -> None:
    """Refuse a role that does not exist, or that cannot have the ids."""
    if role not in ROLES:
        raise InvalidArgument(
            f"role must be one of {', '.join(ROLES)}, not {role!r:.80}", field="role"
        )
    for field, value in (("agent_id", agent_id), ("user_id", user_id)):
        if value is not None:
            check_id(value, field)
    if (role == "user") != (user_id is not None):
        needs = "needs a user_id" if role == "user" else "cannot have a user_id"
        raise InvalidArgument(f"a key with the role {role} {needs}", field="user_id")
    if agent_id is not None and role == "admin":
        raise InvalidArgument("a key with the role admin cannot have an agent_id", field="agent_id")
