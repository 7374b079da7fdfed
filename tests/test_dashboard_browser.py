"""The dashboard as people meet it: in a real browser, by mouse and by keyboard."""

import asyncio
import json
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, FilePayload, Page, ViewportSize, expect

from kemem.runtime import system_clock
from kemem.serve.dashboard.page import SWAGGER_FILES
from kemem.serve.demo.world import fill, read_world
from kemem.settings import load
from tests.browser import (
    PHONE,
    SCREENSHOTS,
    SMALL,
    TABLET,
    WIDE,
    Theme,
    Visitor,
    next_visit,
    require_browser,
    running_chromium,
    visitor,
)
from tests.left_behind import EVIL, fill_up
from tests.server import Server, running_server

KEY = "the key of an operator"
AT = quote(EVIL)
VIEWS = {
    "overview": ("", "总览", "Overview"),
    "users": ("/users?query={query}", "用户", "Users"),
    "user": ("/user?user_id={user}", "{user}", "{user}"),
    "memories": ("/memories?user_id={user}", "记忆", "Memories"),
    "playground": ("/playground?user_id={user}&query={query}", "检索试验", "Search playground"),
    "conversations": ("/conversations?user_id={user}", "会话：{user}", "Sessions of {user}"),
    "graph": ("/graph?user_id={user}", "图谱：{user}", "Graph of {user}"),
    "traces": ("/traces", "回忆轨迹", "Recall traces"),
    "quality": ("/quality", "质量", "Quality"),
    "jobs": ("/jobs", "任务", "Jobs"),
    "imports": ("/imports", "导入", "Import"),
    "audit": ("/audit", "审计日志", "Audit log"),
    "webhooks": ("/webhooks", "Webhook", "Webhooks"),
    "system": ("/system", "系统", "System"),
}
PEOPLE = {"zh": ("lin_yue", "我的牙医叫什么"), "en": ("grace", "Does Grace still eat bacon?")}
BOTH = pytest.mark.parametrize("language", ["zh", "en"])
LOOKS: dict[str, list[tuple[Theme, ViewportSize]]] = {
    "zh": [("light", WIDE)],
    "en": [("light", PHONE), ("light", SMALL), ("light", TABLET), ("dark", WIDE)],
}


def once(language: str) -> pytest.MarkDecorator:
    """What the language does not change is done in one, and in both for their pictures; the words
    of pages are tested without a browser.
    """
    return pytest.mark.parametrize("language", ["zh", "en"] if SCREENSHOTS else [language])


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server over the demo, with a key and some traffic."""
    require_browser()
    home = tmp_path_factory.mktemp("dashboard") / "data"
    settings, now = load(data_dir=home, embedder="none", llm="none"), system_clock()
    asyncio.run(fill(read_world(now), settings, now, lambda _: None))
    asyncio.run(fill_up(settings))
    alive = "/healthz"  # with jobs that failed it is not ready
    with (
        running_server(home, ready_at=alive, api_key=KEY, projects='{"acme": {}}') as server,
        server.client(KEY) as client,
    ):
        for user_id, question in (*PEOPLE.values(), (EVIL, EVIL)):
            asked = {"user_id": user_id, "question": question}
            assert client.post("/v1/recall", json=asked).status_code == 200
        yield server


@pytest.fixture(scope="module")
def chromium(demo: Server) -> Iterator[Browser]:
    """A browser, started when nothing else needs an event loop."""
    with running_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def readers(chromium: Browser, demo: Server) -> Iterator[dict[str, Visitor]]:
    """Somebody for each language, at a desk: to open a window takes as long as to use it."""
    with (
        visitor(chromium, demo.url, "zh", KEY) as chinese,
        visitor(chromium, demo.url, "en", KEY) as english,
    ):
        yield {"zh": chinese, "en": english}


@pytest.fixture
def visit(readers: dict[str, Visitor], language: str) -> Iterator[Visitor]:
    """Who reads the language of the test; this is the first visit, for all that is kept."""
    with next_visit(readers[language]):
        yield readers[language]


def becomes(page: Page, script: str) -> bool:
    """Whether a script is true of a page, once its charts have followed the size of the window."""
    for _ in range(100):  # not wait_for_function(), which the pages' own policy forbids
        if page.evaluate(script):
            return True
        page.wait_for_timeout(50)
    return False


def fits(page: Page) -> bool:
    """Whether nothing of a page is out of sight to the right."""
    return becomes(page, "document.scrollingElement.scrollWidth <= innerWidth")


def tables_fit(page: Page) -> bool:
    """Whether every table is seen whole: at a desk as a table, on a phone as cards."""
    script = (
        "[...document.querySelectorAll('.scroll')].every(it => it.scrollWidth <= it.clientWidth)"
    )
    return becomes(page, script)


def charts_are_drawn(page: Page) -> bool:
    """Whether every chart of a page has become a picture."""
    script = (
        "[...document.querySelectorAll('[data-chart]')].every(it => it.querySelector('canvas'))"
    )
    return becomes(page, script)


@BOTH
def test_every_view_is_shown_and_fits(visit: Visitor, language: str) -> None:
    """With real data, in both languages and themes, at a desk and on a phone."""
    user, query = PEOPLE[language]
    for name, (path, chinese, english) in VIEWS.items():
        visit.look(*LOOKS[language][0])
        page = visit.open(path.format(user=user, query=quote(query)))
        title = (chinese if language == "zh" else english).format(user=user)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        for theme, size in LOOKS[language]:
            visit.look(theme, size)
            visit.keep_picture(f"{name}_{language}_{theme}_{size['width']}")
            assert fits(page) and charts_are_drawn(page), name
            assert size == TABLET or tables_fit(page), name
    visit.look("light", WIDE)


@once("en")
def test_the_playground_compares_two_settings_and_takes_votes(
    visit: Visitor, language: str
) -> None:
    """A vote is told at once, and counted among all."""
    user, query = PEOPLE[language]
    page = visit.open("/playground")
    page.locator("[name=query]").fill(query)
    page.locator("[name=user_id]").fill(user)
    page.locator("[name=compare]").check()
    page.locator("[name=b_mode]").select_option("lexical")
    page.locator("[name=b_limit]").fill("3")
    page.locator("form.panel button[type=submit]").first.click()
    expect(page.locator(".column")).to_have_count(2)
    first, second = page.locator(".column").all()
    assert first.locator(".hit").count() > second.locator(".hit").count() == 3
    expect(second.locator(".moved")).to_have_count(3)
    expect(first.locator(".signals meter").first).to_be_visible()
    visit.keep_picture(f"playground_compared_{language}")
    first.locator("button[value=up]").first.click()
    told = "已记为切题" if language == "zh" else "Noted as a good hit"
    expect(page.locator("#flash")).to_contain_text(told)
    page.locator("#flash a").click()
    expect(page.locator(".card strong").first).to_be_visible()
    assert charts_are_drawn(page)


@once("zh")
def test_an_operator_switches_to_a_project_and_back(visit: Visitor, language: str) -> None:
    """By choosing it: no page shows anybody of the other memory until they are back."""
    user, _ = PEOPLE[language]
    page = visit.open("/users")
    expect(page.get_by_role("link", name=user, exact=True)).to_be_visible()
    page.locator("select[name=project]").select_option("acme")
    page.wait_for_url("**project=acme")
    page = visit.open("/users")
    expect(page.locator("select[name=project]")).to_have_value("acme")
    expect(page.get_by_role("link", name=user, exact=True)).to_have_count(0)
    visit.keep_picture(f"project_{language}")
    page.locator("select[name=project]").select_option("")
    page.wait_for_url("**project=")
    expect(visit.open("/users").get_by_role("link", name=user, exact=True)).to_be_visible()


@once("zh")
def test_on_a_phone_results_come_before_settings(visit: Visitor, language: str) -> None:
    """Which a tap opens; at a desk they are open."""
    user, query = PEOPLE[language]
    visit.look("light", PHONE)
    page = visit.open(f"/playground?user_id={user}&query={quote(query)}")
    expect(page.locator(".hit").first).to_be_in_viewport()
    expect(page.locator("[name=mode]")).to_be_hidden()
    page.locator("form.panel summary").click()
    expect(page.locator("[name=mode]")).to_be_visible()
    visit.look("light", WIDE)
    expect(visit.open("/playground?user_id=x&query=x").locator("[name=mode]")).to_be_visible()


@once("zh")
def test_a_memory_is_changed_and_erased_by_hand(visit: Visitor, language: str) -> None:
    """Its history shows which words went and came; afterwards it is in no list."""
    user, _ = PEOPLE[language]
    page = visit.open(f"/memories?user_id={user}&kind=user_info")
    link = page.locator("td.memory a").last
    before = link.inner_text()
    link.click()
    page.locator("textarea[name=text]").fill(f"{before} 其实 indeed")
    page.locator("button[value=edit]").click()
    expect(page.locator("ins", has_text="其实 indeed")).to_be_visible()
    visit.keep_picture(f"memory_{language}")
    page.get_by_role("link", name="删除" if language == "zh" else "Delete").click()
    page.locator("button.danger").click()
    expect(page.locator("td.memory").first).to_be_visible()
    assert f"{before} 其实 indeed" not in page.locator("td.memory").all_inner_texts()


@once("en")
def test_a_conversation_leads_to_a_message_among_its_neighbours(
    visit: Visitor, language: str
) -> None:
    """And to what a prompt is given of it."""
    user, _ = PEOPLE[language]
    page = visit.open("/users")
    page.locator("tbody").get_by_role("link", name=user, exact=True).click()
    title = "身份" if language == "zh" else "Identity"
    expect(page.locator(".profile").get_by_role("heading", name=title)).to_be_visible()
    page.locator(".configure summary").click()
    page.locator(".configure [name=name]").fill("小美 May")
    page.get_by_role("button", name="保存" if language == "zh" else "Save").click()
    expect(page.locator(".head")).to_contain_text("小美 May")
    visit.keep_picture(f"profile_{language}")
    page.locator(".tabs").get_by_role("link", name="对话" if language == "zh" else "Conv").click()
    page.locator("tbody a").first.click()
    shown = page.locator(".said").nth(1)
    text = shown.locator(".text").inner_text()
    visit.keep_picture(f"session_{language}")
    shown.get_by_role("link", name="上下文" if language == "zh" else "Around it").click()
    chosen = page.locator(".said[aria-current=true]")
    expect(chosen.locator(".text")).to_have_text(text)
    expect(chosen).to_be_in_viewport()
    assert page.url.endswith("#chosen")
    assert page.locator(".said").count() > 1
    page.locator(".head a").click()
    page.locator(".tabs a").last.click()
    expect(page.locator(".prompt")).to_contain_text(text)
    visit.keep_picture(f"short_term_{language}")


@once("zh")
def test_the_graph_grows_by_a_click_on_an_entity(visit: Visitor, language: str) -> None:
    """On the picture as in the table; the address names what is seen."""
    page = visit.open(f"/graph?user_id={PEOPLE[language][0]}")
    canvas = page.locator(".canvas canvas").first
    expect(canvas).to_be_visible()
    x, y = page.wait_for_function(ENTITY).json_value()
    page.mouse.move(x, y)
    pointed_at = page.locator(".fact strong").inner_text().split(" · ")[0]
    page.mouse.click(x, y)
    page.wait_for_url("**around=**")
    expect(page.locator(".chosen .badge")).to_have_count(1)
    names = page.locator("tbody td:nth-child(1) a, tbody td:nth-child(3) a")
    names.filter(has_not_text=pointed_at).first.click()
    page.wait_for_url(re.compile("around=.*around="))
    expect(page.locator(".chosen .badge")).to_have_count(2)


ENTITY = r"""() => {
  // A place on the picture that is well within an entity, in pixels of the window.
  const canvas = document.querySelector(".canvas canvas");
  const {width, height} = canvas;
  const {data} = canvas.getContext("2d").getImageData(0, 0, width, height);
  const pixels = new Uint32Array(data.buffer);
  const box = canvas.getBoundingClientRect();
  const behind = getComputedStyle(canvas.closest(".canvas")).backgroundColor;
  const [r, g, b] = behind.match(/\d+/g);
  const around = (255 << 24 | b << 16 | g << 8 | r) >>> 0;  // names have a rim of this colour
  for (let y = 0; y < height - 6; y++) for (let x = 3; x < width - 3; x++) {
    const at = y * width + x, colour = pixels[at];
    if (!colour || colour === around || colour !== pixels[at + 6 * width]) continue;
    const beside = [-3, 0, 3].map(step => pixels[at + 3 * width + step]);
    if (beside.every(it => it === colour))
      return [box.x + x * box.width / width, box.y + (y + 3) * box.height / height];
  }
  return null;
}"""


@once("en")
def test_the_slider_shows_the_graph_of_an_earlier_day(visit: Visitor, language: str) -> None:
    """By keyboard too: on the first day less was known than now."""
    page = visit.open(f"/graph?user_id={PEOPLE[language][0]}")
    rows = page.locator("#relations tbody tr").count()
    page.locator("input[type=range]").focus()
    page.keyboard.press("Home")
    page.wait_for_url("**as_of=**")
    expect(page.locator("#relations tbody tr")).not_to_have_count(rows)
    assert page.locator("#relations tbody tr").count() < rows


@once("zh")
def test_a_recall_is_shown_step_by_step(visit: Visitor, language: str) -> None:
    """From the list of traces to the evidence, and on to a memory."""
    user, query = PEOPLE[language]
    page = visit.open(f"/traces?user_id={user}")
    page.get_by_role("link", name=query).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(query)
    assert page.locator("svg rect").count() > 1
    visit.keep_picture(f"trace_{language}")
    page.locator("tbody a[href*='/memories/']").first.click()
    expect(page.locator(".said").first).to_be_visible()


@once("en")
def test_a_job_that_failed_is_tried_again(visit: Visitor, language: str) -> None:
    """It is told, and the job does not fail again."""
    page = visit.open("/jobs")
    failed = page.locator("tbody .badge-failed").count()
    retry = "重试" if language == "zh" else "Retry"
    page.get_by_role("button", name=retry, exact=True).first.click()
    scheduled = "任务数：1" if language == "zh" else "Jobs scheduled to run again: 1"
    expect(page.locator("p.flash")).to_contain_text(scheduled)
    expect(page.locator("p.flash")).to_be_focused()  # so that readers announce it
    expect(page.locator("tbody .badge-failed")).to_have_count(failed - 1)


@once("zh")
def test_a_file_is_imported_and_its_row_ends_by_itself(visit: Visitor, language: str) -> None:
    """The page asks again until the import is done; the messages are the user's."""
    page = visit.open("/imports")
    talk = '{"role": "user", "content": "我不吃辣"}\n'.encode()
    file: FilePayload = {"name": "聊天.jsonl", "mimeType": "application/json", "buffer": talk}
    page.locator("[name=file]").set_input_files(file)
    page.locator("[name=user_id]").fill("importer")
    page.locator("main form button[type=submit]").click()
    row = page.locator("#imports tbody tr").first
    expect(row).to_contain_text("聊天.jsonl")
    expect(row).to_contain_text("完成", timeout=20_000)
    expect(row.locator("td").nth(3)).to_have_text("1")


@once("zh")
def test_a_backup_is_written_by_a_click(visit: Visitor, language: str) -> None:
    """It is told and listed, and its name must be typed before it replaces anything."""
    page = visit.open("/system")
    page.get_by_role("button", name="立即备份" if language == "zh" else "Back up now").click()
    told = "已完成" if language == "zh" else "is written"
    expect(page.locator("#flash")).to_contain_text(told)
    page.locator("a[href*='/restore?']").first.click()
    page.locator("[name=typed]").fill("another 其他")
    expect(page.locator("button.danger")).to_be_visible()


@BOTH
def test_language_and_theme_are_switched_and_kept(visit: Visitor, language: str) -> None:
    """The theme at once, without another page; both on every page that follows."""
    page = visit.open("/jobs")
    other = {"zh": ("English", "en", "Jobs"), "en": ("中文", "zh-Hans", "任务")}[language]
    page.get_by_role("link", name=other[0]).click()
    expect(page.locator("html")).to_have_attribute("lang", other[1])
    light = page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
    with page.expect_response("**theme=dark**"):
        page.locator("[data-theme-choice=dark]").click()
    dark = page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
    assert light != dark
    visit.open("/jobs")
    expect(page.get_by_role("heading", level=1)).to_have_text(other[2])
    kept = page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
    assert kept == dark


@once("en")
def test_a_keyboard_is_enough(visit: Visitor, language: str) -> None:
    """The first key leads past the navigation; each further one to a link that is seen."""
    page = visit.open("")
    focused = page.locator(":focus")
    page.keyboard.press("Tab")
    expect(focused).to_have_text("跳到正文" if language == "zh" else "Skip to content")
    expect(focused).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(focused).to_have_attribute("id", "main")
    page.keyboard.press("Tab")
    assert focused.evaluate("it => it.closest('main') !== null")
    visit.open("")
    wanted = page.get_by_role("link", name="系统" if language == "zh" else "System", exact=True)
    for _ in range(page.locator(".side nav a").count() + 3):
        page.keyboard.press("Tab")
        assert focused.evaluate("it => getComputedStyle(it).outlineStyle") == "solid"
    expect(wanted).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/system")
    visit.open("/audit")
    for _ in range(60):  # also through the parts of a time, to the last link
        page.keyboard.press("Tab")
        if focused.count() == 0:
            break
        assert focused.evaluate("it => getComputedStyle(it).outlineStyle") == "solid"


@once("zh")
def test_only_the_key_opens_the_dashboard(chromium: Browser, demo: Server, language: str) -> None:
    """A wrong one is told; the right one leads to the page that was wanted, until one leaves."""
    with visitor(chromium, demo.url, language) as someone:
        page = someone.open("/jobs")
        page.wait_for_url("**/login?**")
        page.locator("[name=key]").fill("密钥 key")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_be_visible()
        someone.keep_picture(f"login_{language}")
        assert "401" in someone.problems.pop()
        page.locator("[name=key]").fill(KEY)
        page.keyboard.press("Enter")
        page.wait_for_url("**/jobs")
        page.get_by_role("button", name="退出登录" if language == "zh" else "Sign out").click()
        # With the page that was left, where that one noticed first that nobody is signed in.
        page.wait_for_url(re.compile(r"/login(\?|$)"))


@once("en")
def test_the_page_about_the_api_tries_requests_out(
    chromium: Browser, demo: Server, language: str
) -> None:
    """It shows every operation and sends what is filled in, with the key; nothing leaves here."""
    require_browser(*SWAGGER_FILES)
    user, query = PEOPLE[language]
    sent: list[str] = []
    with visitor(chromium, demo.url, language) as someone, demo.client() as client:
        page = someone.page
        page.on("request", lambda request: sent.append(request.url))
        page.goto(f"{demo.url}/docs")
        described = client.get("/openapi.json").json()["paths"]
        expect(page.locator(".opblock")).to_have_count(sum(map(len, described.values())))
        page.get_by_role("button", name="Authorize").click()
        page.get_by_label("auth-bearer-value").fill(KEY)
        page.get_by_role("button", name="Apply credentials").first.click()
        page.get_by_role("button", name="Close", exact=True).first.click()
        search = page.locator("[id$=-search_memories]")
        search.locator(".opblock-summary-control").click()
        search.get_by_role("button", name="Try it out").click()
        search.locator("textarea").fill(json.dumps({"user_id": user, "query": query}))
        search.get_by_role("button", name="Execute").click()
        answer = search.locator(".live-responses-table")
        expect(answer).to_contain_text("200")
        expect(answer).to_contain_text('"results"')
        someone.keep_picture(f"api_{language}")
    assert sent and all(url.startswith((demo.url, "data:")) for url in sent)


@BOTH
def test_what_people_said_is_never_markup(visit: Visitor, language: str) -> None:
    """Ids, texts, names, keywords, tags, metadata, errors and questions are shown as they are."""
    whose = f"user_id={AT}&agent_id={AT}"
    pages = [
        *(f"{view}?{whose}" for view in ("/memories", "/conversations", "/graph")),
        *(f"/memories?{whose}&kind=message", f"/memories?agent_id={AT}&kind=knowledge"),
        *(f"/memories/n_evil?{whose}", f"/memories/{AT}?{whose}"),
        f"/playground?{whose}&query={AT}&compare=yes",
        f"/conversations/session?{whose}&session_id={AT}",
        f"/conversations/message?{whose}&message_id={AT}",
        f"/conversations/memory?{whose}&session_id={AT}",
        *("/memories", "/conversations", "/graph", "/traces", "/quality", "/jobs", ""),
    ]
    page = visit.page
    for path in pages[language == "en" :: 2]:  # half of them in each language
        visit.open(path)
        expect(page.get_by_text(EVIL).first, path).to_be_attached()
        assert page.locator("img[src=x], [onerror]").count() == 0, path
