"""Rate limits: how many requests a minute a credential or an address may send to one process."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kemem.serve.http.auth import Caller
from kemem.serve.http.limits import Buckets, RateLimited, RateLimits
from kemem.settings import Settings
from tests.pages import browsing, send, text_of
from tests.server import local_server, refusal, running_server

KEY = "a key of the settings"
TOO_MANY = (429, "RESOURCE_EXHAUSTED")
LOGIN = "/dashboard/login"


@given(st.integers(1, 600), st.lists(st.floats(0, 30), max_size=60))
@example(1, [1.521703813937016, 1.9, 1.9, 0.0])  # the sum of these and of the waits is rounded
def test_no_window_lets_more_through_than_two_minutes_allow(size: int, pauses: list[float]) -> None:
    """A full bucket and what is refilled in a minute; and whoever waits as told is served."""
    now = 0.0
    buckets = Buckets(size, lambda: now)
    served: list[float] = []
    for pause in pauses:
        now += pause
        try:
            buckets.take("a")
            served.append(now)
        except RateLimited as refused:
            wait = refused.details["retry_after"]
            assert isinstance(wait, int) and wait >= 1
            now += wait
            buckets.take("a")
            served.append(now)
    for at in served:
        assert len([it for it in served if at <= it < at + 60]) <= 2 * size


def test_each_name_has_a_bucket_of_its_own_and_old_ones_are_forgotten() -> None:
    """One that sends too much takes nothing from others; memory stays bounded."""
    buckets = Buckets(1, lambda: 0.0)
    buckets.take("a")
    with pytest.raises(RateLimited):
        buckets.take("a")
    for number in range(20_000):
        buckets.take(str(number))
    assert len(buckets) <= 10_000


def test_without_a_limit_everything_passes() -> None:
    """0 means none, and a server without credentials has nobody to count."""
    limits = RateLimits(Settings(rate_limit=1, address_rate_limit=0, failure_rate_limit=0))
    for _ in range(1_000):
        limits.count("127.0.0.1")
        limits.count_failure("127.0.0.1")
        limits.check_failures("127.0.0.1")
        limits.count_caller(Caller())


def test_a_credential_that_sends_too_much_is_told_when_to_come_again(tmp_path: Path) -> None:
    """By a server process; another key goes on."""
    with running_server(tmp_path / "data", api_key=KEY, rate_limit="5") as server:
        with server.client(KEY) as client:
            key = client.post("/v1/keys", json={"name": "n", "role": "service"}).json()["key"]
            for _ in range(4):
                assert client.get("/v1/users").status_code == 200
            answer = client.get("/v1/users")
            assert refusal(answer) == TOO_MANY
            assert 1 <= int(answer.headers["retry-after"]) <= 12
            assert answer.json()["error"]["details"]["retry_after"] >= 1
            assert client.get("/healthz").status_code == 200
        with server.client(key) as client:
            assert client.get("/v1/memories?user_id=u").status_code == 200


def test_an_address_has_a_limit_of_its_own(tmp_path: Path) -> None:
    """With or without a credential; probes are not counted."""
    with local_server(tmp_path, address_rate_limit=3) as server, server.client() as client:
        for _ in range(10):
            assert client.get("/healthz").status_code == 200
        for _ in range(3):
            assert client.get("/v1/users").status_code == 200
        assert refusal(client.get("/v1/users")) == TOO_MANY


def test_guessing_keys_is_stopped_and_known_callers_go_on(tmp_path: Path) -> None:
    """Behind a proxy all have one address: who was let in before is let in."""
    given = {"api_key": KEY, "failure_rate_limit": 3}
    with local_server(tmp_path, **given) as server:
        with server.client(KEY) as client:
            other = client.post("/v1/keys", json={"name": "n", "role": "admin"}).json()["key"]
        with server.client("wrong") as guesser:
            for _ in range(3):
                assert guesser.get("/v1/users").status_code == 401
            refused = guesser.get("/v1/users")
            assert refusal(refused) == TOO_MANY
            said = refused.json()["error"]["message"]
            assert "more than 3 invalid keys a minute from this address: try again in" in said
        with server.client() as nobody:
            assert nobody.get("/v1/users").status_code == 401  # without any there is no guess
        with server.client(KEY) as known:
            assert known.get("/v1/users").status_code == 200
        with server.client(other) as unknown:  # right, but never seen: it might be a guess
            assert refusal(unknown.get("/v1/users")) == TOO_MANY


@pytest.mark.parametrize(("language", "words"), [("zh", "请在"), ("en", "try again in")])
async def test_guessing_at_the_sign_in_is_stopped(
    tmp_path: Path, language: str, words: str
) -> None:
    """Also with the right key, until a minute has passed."""
    async with browsing(tmp_path, api_key=KEY, failure_rate_limit=3) as (browser, _):
        browser.headers["Accept-Language"] = language
        for _ in range(3):
            assert (await send(browser, LOGIN, key="wrong", at=LOGIN)).status_code == 401
        answer = await send(browser, LOGIN, key=KEY, at=LOGIN)
        assert answer.headers["retry-after"]
        assert words in text_of(answer, 429)
