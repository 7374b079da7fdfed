"""The dashboard's frame: who gets in, what every page promises, languages and themes."""

import asyncio
import hmac
import re
import time
from pathlib import Path

import httpx
import jwt
import pytest

from kemem.serve.dashboard import live
from kemem.serve.dashboard.display import number, seconds, short, size, when
from kemem.serve.dashboard.page import FORM_COOKIE, SWAGGER_FILES, VENDOR_FILES, own_address
from kemem.serve.http.auth import SESSION_COOKIE
from kemem.serve.telemetry.metrics import StaleWhileRevalidate
from tests.cases import each
from tests.pages import EVIL, browsing, faults_of, page_routes, send, text_of, token_of
from tests.routes import KEY, SECRET, token
from tests.server import running_server

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
LANGUAGES = pytest.mark.parametrize(
    ("language", "title", "sign_in"), [("zh", "总览", "登录"), ("en", "Overview", "Sign in")]
)


async def sign_in(browser: httpx.AsyncClient, key: str = KEY, **more: str) -> httpx.Response:
    """The answer to a key."""
    return await send(browser, "/dashboard/login", "/dashboard/login", key=key, **more)


# What every page promises


@LANGUAGES
async def test_every_page_is_safe_by_its_headers_and_its_markup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str, title: str, sign_in: str
) -> None:
    """Nothing runs that is not a file of ours, whatever is asked for; no page fails."""
    monkeypatch.setattr(live, "LOOKS", 1)  # a page of events ends with the last look
    async with browsing(tmp_path) as (browser, app):
        for address in ("/", "/dashboard/"):
            root = await browser.get(address)
            assert (root.status_code, root.headers["location"]) == (303, "/dashboard")
        for method, path in page_routes(app):
            if method != "GET":
                continue
            for params in ({"language": language}, {"user_id": EVIL, "query": EVIL, "name": EVIL}):
                answer = await browser.get(path, params=params)
                assert answer.status_code in (200, 303, 400, 404), (path, answer.text)
                assert answer.headers["content-security-policy"] == POLICY, path
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert answer.headers["cache-control"] == "no-store"
                assert answer.headers["referrer-policy"] == "same-origin"
                assert faults_of(answer.text) == [], path
                assert "<img src=x" not in answer.text, path
        page = text_of(await browser.get("/dashboard"))
        frame = {"zh": ("跳到正文", "系统"), "en": ("Skip to content", "System")}[language]
        assert title in page and all(words in page for words in frame)


def test_the_check_of_markup_can_fail() -> None:
    """Each kind of fault is found."""
    for bad in (
        "<script>alert(1)</script>",
        "<style>b{}</style>",
        '<p style="x">',
        "<p onclick=x>",
        '<a href="javascript:x">',
        '<script src="https://cdn.example/x.js"></script>',
    ):
        assert faults_of(bad), bad
    assert faults_of('<script src="/dashboard/static/app.js"></script><p>on style</p>') == []


@LANGUAGES
async def test_what_goes_wrong_is_a_page_too(
    tmp_path: Path, language: str, title: str, sign_in: str
) -> None:
    """In the reader's language; for htmx a part of one, and a wrong method is no fault of ours."""
    async with browsing(tmp_path) as (browser, _):
        missing = await browser.get("/dashboard/nowhere", params={"language": language})
        words = {"zh": "这里什么也没有", "en": "Nothing is here"}[language]
        assert words in text_of(missing, 404) and title in text_of(missing, 404)
        part = await browser.get("/dashboard/nowhere", headers={"HX-Request": "true"})
        assert words in text_of(part, 404) and "<html" not in part.text
        assert (await browser.put("/dashboard/jobs")).status_code == 405
        broken = await browser.post(
            "/dashboard/jobs/retry",
            content="--x\r\n坏".encode(),
            headers={"Content-Type": "multipart/form-data; boundary=x"},
        )
        assert broken.status_code in (400, 403)


@LANGUAGES
async def test_a_reader_s_language_and_theme_are_remembered(
    tmp_path: Path, language: str, title: str, sign_in: str
) -> None:
    """First the browser's, then the one chosen; the switches keep what the address asks for."""
    async with browsing(tmp_path) as (browser, _):
        wanted = {"Accept-Language": "zh-CN,zh;q=0.9" if language == "zh" else "fr, en;q=0.5"}
        assert title in text_of(await browser.get("/dashboard", headers=wanted))
        other = "en" if language == "zh" else "zh"
        await browser.get("/dashboard", params={"language": other, "theme": "dark"})
        page = await browser.get("/dashboard?span=24h", headers=wanted)
        assert title not in text_of(page) and 'data-theme="dark"' in page.text
        assert f"/dashboard?span=24h&amp;language={language}" in page.text
        odd = await browser.get("/dashboard", params={"language": EVIL, "theme": EVIL})
        assert odd.status_code == 200 and 'data-theme="dark"' in odd.text


async def test_files_have_their_types_and_are_kept_by_browsers(tmp_path: Path) -> None:
    """For good where the address names the version; nothing else of the disk is served."""
    async with browsing(tmp_path) as (browser, _):
        for name, kind in (("app.css", "text/css"), ("app.js", "text/javascript")):
            file = await browser.get(f"/dashboard/static/{name}")
            assert file.status_code == 200 and file.headers["content-type"].startswith(kind)
            assert file.headers["cache-control"] == "no-cache"
            kept = {"If-None-Match": file.headers["etag"]}
            again = await browser.get(f"/dashboard/static/{name}", headers=kept)
            assert again.status_code == 304
            assert f'"/dashboard/static/{name}?v=' in (await browser.get("/dashboard")).text
            named = await browser.get(f"/dashboard/static/{name}?v=1")
            assert "immutable" in named.headers["cache-control"]
        for path in ("nowhere.js", "", "../page.py", "%2e%2e/page.py", "..%2fpage.py", "vendor"):
            assert (await browser.get(f"/dashboard/static/{path}")).status_code == 404, path


@LANGUAGES
async def test_without_the_files_of_npm_pages_work_and_say_so(
    tmp_path: Path, language: str, title: str, sign_in: str
) -> None:
    """With them, they are loaded."""
    missing = (
        "图表与实时刷新暂不可用" if language == "zh" else "Charts and live updates are missing"
    )
    vendor = tmp_path / "vendor"
    vendor.mkdir()
    async with browsing(tmp_path / "data") as (browser, app):
        app.state.vendor = vendor
        without = await browser.get("/dashboard", params={"language": language})
        assert missing in text_of(without) and "htmx.min.js" not in without.text
        assert "data-chart" not in without.text and title in text_of(without)
        for name in VENDOR_FILES:
            (vendor / name).write_text("")
        page = await browser.get("/dashboard")
        assert missing not in text_of(page)
        assert "htmx.min.js" in page.text and "data-chart" in page.text


async def test_without_the_files_of_npm_the_page_about_the_api_is_a_list(tmp_path: Path) -> None:
    """It names every operation and loads nothing; with the files it is Swagger UI, from here."""
    vendor = tmp_path / "vendor"
    vendor.mkdir()
    async with browsing(tmp_path / "data") as (browser, app):
        app.state.vendor = vendor
        plain = await browser.get("/docs")
        assert plain.headers["content-type"].startswith("text/html")
        assert "script-src" not in plain.headers["content-security-policy"]
        assert not re.search(r"<script|<link|<img|https?:|@import", plain.text)
        for path in (await browser.get("/openapi.json")).json()["paths"]:
            assert f"<code>{path}</code>" in plain.text
        for name in SWAGGER_FILES:
            (vendor / name).write_text("")
        page = await browser.get("/docs")
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
        assert "unsafe" not in policy and "http" not in policy
        assert faults_of(page.text) == [] and "vendor/swagger-ui-bundle.js" in page.text


# Who gets in


async def test_strangers_get_no_page(tmp_path: Path) -> None:
    """Whoever opens one is led to the sign-in, everything else is refused as by the API."""
    async with browsing(tmp_path, api_key=KEY, jwt_secret=SECRET) as (browser, app):
        for method, path in page_routes(app):
            if path == "/dashboard/login":
                continue
            asked = await browser.request(method, path, params={"q": "茶"})
            if method == "GET":
                assert asked.status_code == 303, path
                assert asked.headers["location"].startswith("/dashboard/login?to=/"), path
            else:
                assert asked.status_code == 401, path
            plain = await browser.request(method, path, headers={"Accept": "*/*"})
            assert plain.status_code == 401, path
            bound = {"Authorization": f"Bearer {token()}"}
            assert (await browser.request(method, path, headers=bound)).status_code == 403, path
            wrong = {"Authorization": "Bearer wrong", "Accept": "*/*"}
            assert (await browser.request(method, path, headers=wrong)).status_code == 401, path


@LANGUAGES
async def test_the_key_opens_the_dashboard_and_nothing_else(
    tmp_path: Path, language: str, title: str, sign_in: str
) -> None:
    """A wrong one does not; who is signed in can sign out; the API never takes the cookie."""
    async with browsing(tmp_path, api_key=KEY) as (browser, _):
        asked = await browser.get("/dashboard/login", params={"language": language})
        assert sign_in in text_of(asked)
        for wrong in ("", KEY[:-1], KEY + "x", "错的"):
            refused = await send(browser, "/dashboard/login", "/dashboard/login", key=wrong)
            assert sign_in in text_of(refused, 401) and SESSION_COOKIE not in browser.cookies
        opened = await send(
            browser, "/dashboard/login", "/dashboard/login", key=KEY, to="/dashboard/jobs?a=b"
        )
        assert (opened.status_code, opened.headers["location"]) == (303, "/dashboard/jobs?a=b")
        cookie = opened.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Secure" not in cookie
        assert KEY not in cookie and "Path=/dashboard" in cookie and "Max-Age=43200" in cookie
        page = text_of(await browser.get("/dashboard"))
        assert title in page and {"zh": "退出登录", "en": "Sign out"}[language] in page
        assert (await browser.get("/dashboard/login")).status_code == 303
        session = {"Cookie": f"{SESSION_COOKIE}={browser.cookies[SESSION_COOKIE]}"}
        for path in ("/v1/users", "/metrics", "/dashboardx"):
            assert (await browser.get(path, headers=session)).status_code == 401, path
        assert (await send(browser, "/dashboard/logout")).status_code == 303
        assert (await browser.get("/dashboard")).status_code == 303


async def test_a_session_ends_with_time_and_with_the_key(tmp_path: Path) -> None:
    """And cannot be made without it."""
    of_session = hmac.digest(KEY.encode(), b"kemem dashboard session", "sha256")

    def session(key: bytes, seconds: float | None, algorithm: str = "HS256") -> str:
        claims = {} if seconds is None else {"exp": int(time.time() + seconds)}
        return jwt.encode(claims, key, algorithm=algorithm)

    async with browsing(tmp_path, api_key=KEY, jwt_secret=SECRET) as (browser, _):
        right = session(of_session, 60)
        others = [session(of_session, -1), session(of_session, None), session(b"x" * 32, 60)]
        others += [session(SECRET.encode(), 60), session(KEY.encode() * 2, 60), token()]
        others += ["", "..", "x", right[:-2], right + "x", "W1tb" * 10_000 + ".e30.e30"]
        for value, status in [(right, 200), *((other, 303) for other in others)]:
            headers = {"Cookie": f"{SESSION_COOKIE}={value}"}
            answer = await browser.get("/dashboard", headers=headers)
            assert answer.status_code == status, f"{value:.80}"


async def test_over_https_cookies_go_nowhere_else(tmp_path: Path) -> None:
    """Directly, or where a proxy says so."""
    async with browsing(tmp_path, api_key=KEY, base_url="https://memory.example") as (browser, _):
        assert "Secure" in (await browser.get("/dashboard/login")).headers["set-cookie"]
    async with browsing(tmp_path, api_key=KEY, base_url="http://memory.example") as (browser, _):
        proxied = {"X-Forwarded-Proto": "https"}
        answer = await browser.get("/dashboard/login", headers=proxied)
        assert "Secure" in answer.headers["set-cookie"]


@LANGUAGES
async def test_a_server_with_tokens_only_lets_nobody_sign_in(
    tmp_path: Path, language: str, title: str, sign_in: str
) -> None:
    """And says why; an empty key is none."""
    async with browsing(tmp_path, jwt_secret=SECRET) as (browser, _):
        page = await browser.get("/dashboard/login", params={"language": language})
        assert "KEMEM_API_KEY" in text_of(page) and 'name="key"' not in page.text
        refused = await send(browser, "/dashboard/login", "/dashboard/login", key="")
        assert refused.status_code == 401


@each(
    ("given", "led_to"),
    [
        ("/dashboard/memories?user_id=王&q=%20", "/dashboard/memories?user_id=王&q=%20"),
        ("/dashboard", "/dashboard"),
        *(
            (given, "/dashboard")
            for given in (
                *("", None, "/", "//evil.example", "https://evil.example", "/dashboardx"),
                *("/dashboard\\@evil", "/dashboard /x", "javascript:alert(1)", "/v1/users"),
                *("/dashboard/\r\nSet-Cookie: a=b", "dashboard", " /dashboard"),
            )
        ),
    ],
)
def test_a_sign_in_leads_to_pages_of_ours_only(given: str | None, led_to: str) -> None:
    """No link to the sign-in page can lead elsewhere."""
    assert own_address(given) == led_to


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:8420"}, 200),
    ],
)
async def test_without_a_key_only_this_machine_gets_in(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    """As it is with the API."""
    async with browsing(tmp_path) as (browser, _):
        assert (await browser.get("/dashboard", headers=headers)).status_code == status


# Changes


async def test_a_change_needs_the_token_of_a_page(tmp_path: Path) -> None:
    """On every route, signed in or not; another browser's token is no good."""
    async with browsing(tmp_path) as (browser, app), browsing(tmp_path) as (other, _):
        changes = [path for method, path in page_routes(app) if method not in ("GET", "HEAD")]
        assert {"/dashboard/logout", "/dashboard/jobs/retry"} < set(changes)
        right = token_of(await browser.get("/dashboard"))
        of_other = token_of(await other.get("/dashboard"))
        for path in changes:
            assert (await browser.post(path)).status_code == 403, path
            for wrong in (of_other, "", right[:-1], "假的"):
                sent = {"form_token": wrong}
                assert (await browser.post(path, data=sent)).status_code == 403, path
        elsewhere = {"Origin": "http://evil.example", "X-Form-Token": right}
        assert (await browser.post("/dashboard/jobs/retry", headers=elsewhere)).status_code == 403
        in_header = await browser.post("/dashboard/jobs/retry", headers={"X-Form-Token": right})
        assert in_header.status_code == 303
        browser.cookies.delete(FORM_COOKIE)
        sent = {"form_token": right}
        assert (await browser.post("/dashboard/jobs/retry", data=sent)).status_code == 403


async def test_a_sign_in_changes_the_token(tmp_path: Path) -> None:
    """One that was seen before is no good after it."""
    async with browsing(tmp_path, api_key=KEY) as (browser, _):
        before = token_of(await browser.get("/dashboard/login"))
        assert (await sign_in(browser)).status_code == 303
        after = token_of(await browser.get("/dashboard"))
        assert after != before
        for value, status in ((before, 403), (after, 303)):
            answer = await browser.post("/dashboard/jobs/retry", data={"form_token": value})
            assert answer.status_code == status


def test_a_real_server_leads_a_browser_to_its_dashboard(tmp_path: Path) -> None:
    """Over the network, from the sign-in on."""
    with running_server(tmp_path / "data", api_key="a key") as server, server.client() as browser:
        browser.headers["Accept"] = "text/html"
        asked = browser.get("/", follow_redirects=True)
        assert asked.url.path == "/dashboard/login"
        sent = {"form_token": token_of(asked), "key": "a key", "to": "/dashboard"}
        opened = browser.post("/dashboard/login", data=sent, follow_redirects=True)
        assert opened.url.path == "/dashboard" and "Overview" in text_of(opened)


# What pages show


def test_values_are_shown_for_people() -> None:
    """Times, texts, numbers, durations and sizes."""
    assert 'datetime="20' in when(1_700_000_000_000_000) and when(None) == "–"
    assert short("茶\n tea", 5) == "茶 tea" and short("一二三四五六", 4) == "一二三…"
    assert [number(it) for it in (1234567, 12.345, 0.5, None)] == ["1,234,567", "12.3", "0.5", "–"]
    assert [seconds(it) for it in (0.01234, 2.5, None)] == ["12.3 ms", "2.5 s", "–"]
    assert [size(it) for it in (0, 1023, 2048, 3 << 30)] == ["0 B", "1,023 B", "2.0 KiB", "3.0 GiB"]


async def test_figures_that_take_long_are_made_seldom() -> None:
    """The last ones are shown meanwhile, and what fails keeps them."""
    now, made = [0.0], 0

    async def make() -> int:
        nonlocal made
        made += 1
        now[0] += 2.0  # seconds that it takes
        if made == 2:
            raise OSError("坏 broken")
        return made

    recent = StaleWhileRevalidate(make, clock=lambda: now[0])
    assert [await recent.get() for _ in range(3)] == [1, 1, 1]
    now[0] = 43.0
    assert await recent.get() == 1 and made == 2
    now[0] = 90.0
    assert await recent.get() == 3


async def test_a_page_does_not_wait_for_slow_figures() -> None:
    """None until the first are there."""
    ready = asyncio.Event()

    async def make() -> str:
        await ready.wait()
        return "好 done"

    recent = StaleWhileRevalidate(make, patience=0)
    assert await recent.get() is None
    ready.set()
    while (found := await recent.get()) is None:
        await asyncio.sleep(0)
    assert found == "好 done"
