"""Three servers and two workers on one PostgreSQL, each killed and started again under load."""

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any

import httpx
import psycopg

from kemem.testing.openai_server import Answer, running_openai_server
from tests.balancer import balanced
from tests.server import PATIENCE, free_port, start_process, wait_for
from tests.warm import Warm

SERVERS, WORKERS = 3, 2
BOX = re.compile(r"box (\w+) is in the cellar")
MOVES = (  # what users of two languages say of their homes, over and over
    ("I moved to {}.", ("Rome", "Oslo", "Lima", "Cairo", "Paris")),
    ("我搬到了{}。", ("罗马", "杭州", "成都", "北京", "西安")),
)


def answer(request: dict[str, Any]) -> Answer:
    """A model that takes its time, and seldom says the same in the same words."""
    time.sleep(0.05)
    said = request["messages"][-1]["content"].partition("<conversation>")[2]
    verb = ("keeps", "stores", "holds", "has")[time.monotonic_ns() % 4]
    facts = [f"User {verb} box {name} in the cellar" for name in BOX.findall(said)]
    return {"facts": [{"text": it, "type": "possession", "date": ""} for it in facts]}


def texts(found: Any) -> list[str]:
    return [item["memory"] for item in found["results"]]


class Fleet:
    """Servers and workers over one database, by their numbers."""

    def __init__(self, home: Path, **settings: str) -> None:
        self.ports = [free_port() for _ in range(SERVERS)]
        self._home, self._settings = home, settings
        self._running: dict[int, Warm] = {}
        self._cities = cycle(MOVES[0][1])

    def start(self, number: int) -> None:
        command = ["work", "--interval", "0.2"]
        if number < SERVERS:
            command = ["serve", "--port", str(self.ports[number])]
        self._running[number] = start_process(self._home / str(number), command, **self._settings)

    def wait(self) -> None:
        """Until all servers answer."""
        for number in self._servers:
            wait_for(partial(self._answers, number))

    def kill(self, number: int) -> None:
        process = self._running.pop(number)
        process.kill()
        process.wait()

    def close(self) -> None:
        for number in [*self._running]:
            self.kill(number)

    def check_coherence(self) -> None:
        """What one server writes, and what that replaces, each other one knows at once."""
        for writing in self._servers:
            user, city = {"user_id": "everywhere"}, next(self._cities)
            self._send(writing, "", messages=f"I moved to {city}.", **user)
            asked = {"query": "Where do I live?", "kinds": ["user_info"], **user}
            for reading in self._servers:
                assert texts(self._send(reading, "/search", **asked)) == [f"User lives in {city}"]

    @property
    def _servers(self) -> list[int]:
        return [number for number in self._running if number < SERVERS]

    def _send(self, number: int, path: str, **body: Any) -> Any:
        url = f"http://127.0.0.1:{self.ports[number]}/v1/memories{path}"
        sent = httpx.post(url, json=body, trust_env=False, timeout=PATIENCE)
        assert sent.status_code == 200, sent.text
        return sent.json()

    def _answers(self, number: int) -> bool:
        with suppress(httpx.TransportError):
            url = f"http://127.0.0.1:{self.ports[number]}/readyz"
            return httpx.get(url, trust_env=False).status_code == 200
        return False


class Writer(threading.Thread):
    """A user who says something new until stopped, each time until it is acknowledged."""

    def __init__(self, name: str, port: int, move: str, cities: tuple[str, ...]) -> None:
        super().__init__()
        self.user, self._move, self._cities = name, move, cities
        url = f"http://127.0.0.1:{port}"
        self.client = httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE)
        self.stored, self.boxes, self.city = list[str](), list[str](), ""
        self.stopped = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        turn = count()
        try:
            while not self.stopped.is_set():
                self._say(next(turn))
        except Exception as error:  # for the thread of the test
            self.error = error

    def _say(self, turn: int) -> None:
        new = f"{self.user}b{turn}"
        said, given = f"My box {new} is in the cellar.", {"wait": False, "prompt": "Boxes only."}
        if turn % 4:
            self.boxes.append(new)
        else:
            new = self.city = self._cities[turn // 4 % len(self._cities)]
            said, given = self._move.format(new), {}
        message = {"role": "user", "content": said, "message_id": f"{self.user}m{turn}"}
        self._post("", messages=[message], **given)
        self.stored.append(message["message_id"])
        assert new in str(texts(self._post("/search", query=said)))  # also where a note says it

    def _post(self, path: str, **body: Any) -> Any:
        while True:
            with suppress(httpx.TransportError):
                sent = self.client.post(f"/v1/memories{path}", json={"user_id": self.user, **body})
                if sent.status_code == 200:
                    return sent.json()
                assert sent.status_code == 503, sent.text
            time.sleep(0.02)


@contextmanager
def writing(port: int) -> Iterator[list[Writer]]:
    """Users of both languages; at the end all they said is acknowledged."""
    writers = [Writer(f"u{at}", port, *move) for at, move in enumerate(MOVES)]
    for each in writers:
        each.start()
    try:
        yield writers
    finally:
        for each in writers:
            each.stopped.set()
        for each in writers:
            each.join()
            each.client.close()


def test_any_process_may_die_at_any_time(store_database: str, tmp_path: Path) -> None:
    with (
        psycopg.connect(store_database, autocommit=True) as operator,
        running_openai_server(answer) as model,
    ):
        settings = {"llm_base_url": model.base_url, "llm_api_key": "any"}
        fleet = Fleet(tmp_path, database_url=store_database, **settings)

        def end_leases() -> None:
            """As if the minutes had passed: of the dead, and of those who work still, too."""
            operator.execute("UPDATE job SET due_time = 0 WHERE state = 'pending'")

        try:
            for number in range(SERVERS + WORKERS):
                fleet.start(number)
            fleet.wait()
            addresses = [("127.0.0.1", port) for port in fleet.ports]
            with balanced(addresses) as balancer, writing(balancer.port) as writers:
                for number in range(SERVERS + WORKERS):
                    time.sleep(0.3)
                    fleet.kill(number)
                    end_leases()
                    fleet.check_coherence()
                    fleet.start(number)
                    fleet.wait()
            end_leases()
            wait_for(lambda: not operator.execute("SELECT * FROM job").fetchall())
            for writer in writers:
                assert writer.error is None
                check(operator, writer)
        finally:
            fleet.close()


def check(operator: psycopg.Connection[Any], writer: Writer) -> None:
    """All that was acknowledged is there once, and of what was made of it one thing is true."""
    own = "WHERE user_id = %s"
    ids = operator.execute(f"SELECT message_id FROM message {own}", [writer.user])
    assert Counter(it for (it,) in ids) == Counter(writer.stored)
    now = f"{own} AND valid_until IS NULL"
    rows = operator.execute(f"SELECT content FROM note {now}", [writer.user])
    notes = [it for (it,) in rows]
    boxes = Counter(box for text in notes for box in re.findall(r"box (\w+)", text))
    assert boxes == Counter(writer.boxes)
    homes = [text for text in notes if "box" not in text]
    assert len(homes) == 1 and writer.city in homes[0], homes
