"""Search tokens: one grammar for both languages, and the laws that let every engine rely on it."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from kemem.text.segment import is_cjk, normalise, search_text, tokens
from tests.cases import each

# Folding changes the length of many of these, or joins two of them to one.
PIECES = (
    *("火", "锅", "體", "𠮷", "火火火", "かき", "か\u3099", "ｶﾞ", "ﾊﾟ", "ｶ"),
    *("한", "\u1112\u1161\u11ab", "ㄱㅏ", "हि", "\u0cc6\u0cc2\u0cd5", "שׁ"),
    *("run", "Running", "RUNS", "C++", "f#", "a+b", "user@x.com", "100%", "snake_case", "don't"),
    "x" * 70,
    *("é", "e\u0301", "a\u0316\u0301", "\u0301", "ﬁ", "ß", "ẞ", "İ", "ı", "ς", "\u0345", "ᾳ"),
    *("Ａ", "ｚ", "１", "＋", "＃", "＂", "（", "：", "＊", "，", "…", "½", "㍿", "①", "Ⅻ", "𝐁"),
    *(" ", "\u3000", "\n", "\0", "\ud800", "\u200d", "👩", "+", "#", '"', "(", ":", "*", "-", "_"),
)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=30)


def written(text: str) -> list[tuple[str, str]]:
    """Each token with the characters it was written with."""
    return [(token.text, text[token.start : token.end]) for token in tokens(text)]


@given(text=TEXTS)
def test_search_text_is_its_tokens_joined_by_blanks(text: str) -> None:
    """What is indexed and what is looked for can never drift apart."""
    assert search_text(text) == " ".join(token.text for token in tokens(text))


@given(text=TEXTS)
def test_a_token_stands_where_it_says(text: str) -> None:
    """Places run in order inside the text, and what is written there folds to the token."""
    last = (0, 0)
    for token in tokens(text):
        assert 0 <= token.start < token.end <= len(text)
        assert last <= (token.start, token.end)
        assert token.end >= last[1]
        assert token.text in search_text(text[token.start : token.end]).split(" ")
        last = (token.start, token.end)


@given(text=TEXTS)
def test_a_search_text_has_nothing_that_an_engine_could_read_as_syntax(text: str) -> None:
    """Letters, digits, + and #, one blank between tokens: no quotes, parentheses, colons, stars."""
    found = search_text(text)
    assert all(letter.isalnum() or is_cjk(letter) or letter in "+# " for letter in found)
    words = found.split(" ") if found else []
    assert all(1 <= len(word) <= 64 and word[0] not in "+#" for word in words)
    assert all(len(word) == 1 for word in words if is_cjk(word))


@given(text=TEXTS)
def test_folding_again_changes_nothing(text: str) -> None:
    """Nor does it matter in which composition a text arrives."""
    assert normalise(normalise(text)) == normalise(text)
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert search_text(unicodedata.normalize(form, text)) == search_text(text)
    assert search_text(normalise(text)) == search_text(text)


@each(
    "same",
    [
        ("火锅ABC，１２３", "火锅ａｂｃ,123", "火锅ＡＢＣ，１２３"),
        ("Hotpot 100%", "ｈｏｔｐｏｔ　１００％", "HOTPOT 100%"),
        ("café", "cafe\u0301", "ＣＡＦÉ"),
        ("カラオケガ", "ｶﾗｵｹｶﾞ", "カラオケカ\u3099"),
        ("한글", "\u1112\u1161\u11ab\u1100\u1173\u11af"),
        ("straße", "STRASSE", "STRAẞE"),
        ("ﬁne oﬃce", "FINE OFFICE"),
        ("Ⅻ", "xii"),
        ("第①章", "第1章"),
    ],
)
def test_what_people_do_not_mean_to_distinguish_is_the_same(same: tuple[str, ...]) -> None:
    """Width, case and composition."""
    assert len({search_text(text) for text in same}) == 1


@each(
    ("one", "other"),
    [("国", "國"), ("体育", "體育"), ("か", "が"), ("resume", "résumé"), ("C", "C++"), ("ı", "i")],
)
def test_what_people_do_mean_to_distinguish_is_not(one: str, other: str) -> None:
    """Traditional characters stay as they are, and accents, voice marks and signs count."""
    assert search_text(one) != search_text(other)


@each(
    ("text", "found"),
    [
        ("我不吃辣", "我 不 吃 辣"),
        ("I can't eat spicy food", "i can t eat spici food"),
        ("running runs run", "run run run"),
        ("hotpots Hotpot", "hotpot hotpot"),
        ("臺灣的火鍋", "臺 灣 的 火 鍋"),
        ("我喜欢喝Kopi咖啡", "我 喜 欢 喝 kopi 咖 啡"),
        ("𠮷野家", "𠮷 野 家"),
        ("ひらがなカナ", "ひ ら が な カ ナ"),
        ("用C++写的，不是C#", "用 c++ 写 的 不 是 c#"),
        ("C++, C# and F#.", "c++ c# and f#"),
        ("a+b a#b c++11", "a b a b c 11"),
        ("+1 #tag ++", "1 tag"),
        ("user@x.com", "user x com"),
        ("发到user@x.com吧", "发 到 user x com 吧"),
        ("100% 3.14 2026-01-26", "100 3 14 2026 01 26"),
        ("价格￥１００，打９折", "价 格 100 打 9 折"),
        ("snake_case", "snake case"),
        ("第½页", "第 1 2 页"),
        ("İstanbul", "i stanbul"),
        ("家人 👩\u200d👩\u200d👧 family", "家 人 famili"),
        ("hot\0pot 火\0锅", "hot pot 火 锅"),
        ("！！！…… ?!", ""),
        ("", ""),
    ],
)
def test_a_text_has_these_tokens(text: str, found: str) -> None:
    """Words of scripts with blanks by their English stem, other scripts character by character."""
    assert search_text(text) == found


@each(
    ("text", "places"),
    [
        ("喝Kopi们", [("喝", "喝"), ("kopi", "Kopi"), ("们", "们")]),
        ("ＨＯＴ火锅", [("hot", "ＨＯＴ"), ("火", "火"), ("锅", "锅")]),
        ("等……火锅", [("等", "等"), ("火", "火"), ("锅", "锅")]),
        ("wait… hotpots", [("wait", "wait"), ("hotpot", "hotpots")]),
        ("cafe\u0301吃Straße", [("café", "cafe\u0301"), ("吃", "吃"), ("strass", "Straße")]),
        ("ｶﾞと火", [("ガ", "ｶﾞ"), ("と", "と"), ("火", "火")]),
        ("\u1112\u1161\u11ab 火", [("한", "\u1112\u1161\u11ab"), ("火", "火")]),
        ("e\u0301ß火", [("éss", "e\u0301ß"), ("火", "火")]),
        ("ß火e\u0301锅", [("ss", "ß"), ("火", "火"), ("é", "e\u0301"), ("锅", "锅")]),
        ("हिन 火", [("ह", "ह"), ("न", "न"), ("火", "火")]),
        ("㍿", [("株", "㍿"), ("式", "㍿"), ("会", "㍿"), ("社", "㍿")]),
    ],
)
def test_places_name_the_text_as_it_was_written(text: str, places: list[tuple[str, str]]) -> None:
    """Also where folding makes it longer, shorter, or both at once."""
    assert written(text) == places


@each("unit", ["火锅", "hotpot ", "e\u0301", "…", "\u0301", "ㄱㅏ", "+", "ß "])
def test_a_long_text_is_read_in_one_pass(unit: str) -> None:
    """Something quadratic would not finish on 100 KB."""
    text = unit * (102_400 // len(unit.encode()))
    assert search_text(text) == " ".join(token.text for token in tokens(text))
