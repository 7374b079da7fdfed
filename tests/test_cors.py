"""Pages of other sites: those that the settings name may call the API from a browser, no others."""

from collections.abc import Iterator

import httpx
import pytest

from kemem.errors import InvalidArgument
from kemem.settings import load
from tests.cases import each
from tests.server import Server, refusal, running_server

PAGE, OTHER = "https://app.example", "https://evil.example"
KEY = "a key of the settings"
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-kemem-user",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server process with a key, which two sites may call."""
    data = tmp_path_factory.mktemp("cors") / "data"
    with running_server(data, api_key=KEY, cors_origins=f"{PAGE}, http://localhost:3000") as it:
        yield it


def shared(answer: httpx.Response) -> dict[str, str]:
    """The headers by which a browser decides."""
    return {k: v for k, v in answer.headers.items() if k.startswith("access-control")}


@pytest.mark.parametrize("origin", [PAGE, "http://localhost:3000"])
def test_a_preflight_is_answered_before_authentication(client: httpx.Client, origin: str) -> None:
    """Browsers send no credential with it."""
    answer = client.options("/v1/memories/search", headers={"Origin": origin, **PREFLIGHT})
    assert answer.status_code == 200
    headers = shared(answer)
    assert headers["access-control-allow-origin"] == origin
    assert "POST" in headers["access-control-allow-methods"]
    assert "authorization" in headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in headers
    assert "Origin" in answer.headers["vary"]


def test_a_page_reads_answers_and_refusals(server: Server, client: httpx.Client) -> None:
    """Also why it was refused, and when to come again."""
    body = {"query": "辣 spicy", "user_id": "u"}
    with server.client(KEY) as keyed:
        answer = keyed.post("/v1/memories/search", json=body, headers={"Origin": PAGE})
    assert answer.status_code == 200
    assert shared(answer)["access-control-allow-origin"] == PAGE
    assert "Retry-After" in shared(answer)["access-control-expose-headers"]
    refused = client.post("/v1/memories/search", json=body, headers={"Origin": PAGE})
    assert refusal(refused)[0] == 401
    assert shared(refused)["access-control-allow-origin"] == PAGE


def test_other_sites_and_the_dashboard_are_left_out(server: Server, client: httpx.Client) -> None:
    """A site that is not named learns nothing; no site may use the dashboard."""
    for origin in (OTHER, "null", PAGE.upper(), f"{PAGE}.evil.example", f"{PAGE}:8443"):
        answer = client.options("/v1/memories", headers={"Origin": origin, **PREFLIGHT})
        assert answer.status_code == 400
        assert "access-control-allow-origin" not in shared(answer)
        answer = client.get("/healthz", headers={"Origin": origin})
        assert "access-control-allow-origin" not in shared(answer)
    for path in ("/dashboard", "/dashboard/login", "/"):
        assert shared(client.get(path, headers={"Origin": PAGE})) == {}
        assert shared(client.options(path, headers={"Origin": PAGE, **PREFLIGHT})) == {}


def test_without_the_setting_no_site_is_let_in(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A preflight is a request like any other, and answers say nothing of origins."""
    data = tmp_path_factory.mktemp("off") / "data"
    with running_server(data, api_key=KEY) as server, server.client() as client:
        answer = client.options("/v1/memories", headers={"Origin": PAGE, **PREFLIGHT})
        assert refusal(answer)[0] == 401 and shared(answer) == {}


def test_a_server_without_a_key_lets_in_the_sites_that_are_named(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """All others are refused as before."""
    data = tmp_path_factory.mktemp("local") / "data"
    with running_server(data, cors_origins=PAGE) as server, server.client() as client:
        answer = client.get("/v1/memories?user_id=u", headers={"Origin": PAGE})
        assert answer.status_code == 200
        assert shared(answer)["access-control-allow-origin"] == PAGE
        for origin in (OTHER, "null"):
            answer = client.get("/v1/memories?user_id=u", headers={"Origin": origin})
            assert refusal(answer) == (403, "PERMISSION_DENIED")
        headers = {"Origin": PAGE, "Host": "evil.example"}
        answer = client.get("/v1/memories?user_id=u", headers=headers)
        assert refusal(answer) == (403, "PERMISSION_DENIED")


@each(
    "value",
    [
        *("*", "https://*.example", "app.example", "https://app.example/", "null", "网站"),
        *("HTTPS://APP.EXAMPLE", "https://app.example,*", "https://a.example:port", "ftp://a"),
    ],
)
def test_an_origin_that_is_not_exact_is_refused(value: str) -> None:
    """No wildcard, path or upper case; the error shows the value."""
    with pytest.raises(InvalidArgument, match="exact origins") as refused:
        load(cors_origins=value)
    assert refused.value.details == {"field": "cors_origins"}
