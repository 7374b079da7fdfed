"""Personal data and secrets in texts: what is found, what is not, and what masking leaves."""

import re
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kemem.errors import InvalidArgument
from kemem.records.privacy import DATA_KINDS, ContentPolicy, DataKind
from kemem.text.personal import (
    PLACEHOLDERS,
    apply_policy,
    apply_policy_to_value,
    find_personal_data,
    is_card_number,
    is_chinese_id,
    luhn,
    masked,
)
from tests.cases import each

MASK = ContentPolicy(1_000, dict.fromkeys(DATA_KINDS, "mask"))
WIDE = str.maketrans("0123456789X ", "０１２３４５６７８９Ｘ　")
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0T"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nxyz==\n-----END RSA PRIVATE KEY-----"


@each(
    ("text", "value", "kind"),
    [
        ("my card is 4111 1111 1111 1111 thanks", "4111 1111 1111 1111", "card_number"),
        ("card 4111-1111-1111-1111, code 123", "4111-1111-1111-1111", "card_number"),
        ("card 4111 1111 1111 1111 123", "4111 1111 1111 1111", "card_number"),
        ("Amex 3782 822463 10005.", "3782 822463 10005", "card_number"),
        ("银行卡号是6222021234567890128。", "6222021234567890128", "card_number"),
        (
            "卡号６２２２０２１２３４５６７８９０１２８",
            "６２２２０２１２３４５６７８９０１２８",
            "card_number",
        ),
        ("身份证11010519491231002X", "11010519491231002X", "id_number"),
        (
            "身份证号：１１０１０５１９４９１２３１００２Ｘ，",
            "１１０１０５１９４９１２３１００２Ｘ",
            "id_number",
        ),
        ("ID 110105 19491231 002x", "110105 19491231 002x", "id_number"),
        ("my SSN: 123-45-6789", "123-45-6789", "id_number"),
        ("social security number 123456789", "123456789", "id_number"),
        ("手机13812345678", "13812345678", "phone_number"),
        ("打我电话 138 1234 5678 吧", "138 1234 5678", "phone_number"),
        ("+86 138-1234-5678", "+86 138-1234-5678", "phone_number"),
        ("座机010-62345678", "010-62345678", "phone_number"),
        ("传真（0755）26012345", "（0755）26012345", "phone_number"),
        ("call (212) 555-1234 today", "(212) 555-1234", "phone_number"),
        ("call 212.555.1234.", "212.555.1234", "phone_number"),
        ("ring +44 20 7946 0958 please", "+44 20 7946 0958", "phone_number"),
        ("ring 020 7946 0958 please", "020 7946 0958", "phone_number"),
        ("my phone is 555-1234", "555-1234", "phone_number"),
        ("write to ann.lee+x@mail.example.org.", "ann.lee+x@mail.example.org", "email"),
        ("邮箱是wang_si@shxf.com。", "wang_si@shxf.com", "email"),
        ("My password is hunter2.", "hunter2", "password"),
        ("my password is swordfish", "swordfish", "password"),
        ("The password for the wifi is 'blue sky'", "blue sky", "password"),
        ("the password is now Qw!9, ok?", "Qw!9", "password"),
        ("I changed my email password to Tr0ub4dor&3!", "Tr0ub4dor&3!", "password"),
        ('{"user": "x", "password": "abc"}', "abc", "password"),
        ("DB_PASSWORD=s3cr3t", "s3cr3t", "password"),
        ("postgresql://bob:pa55@host/db", "pa55", "password"),
        ("PIN is 4321", "4321", "password"),
        ("PIN for the garage is 2580.", "2580", "password"),
        ("The alarm code is 9981", "9981", "password"),
        ("门禁码是 7731", "7731", "password"),
        ("Changed the wifi password: it's now kestrel-9920.", "kestrel-9920", "password"),
        ("I reset my password, the new one is Moss41x", "Moss41x", "password"),
        ("保险柜密码改了，现在是 671905。", "671905", "password"),
        ("密码改了，新的是 hahaha77", "hahaha77", "password"),
        ("我的密码写错了，是 hahaha77", "hahaha77", "password"),
        ("pw: hahaha77", "hahaha77", "password"),
        ("pass = hahaha77", "hahaha77", "password"),
        ("My PIN's 9911", "9911", "password"),
        ("我的银行卡密码 123456", "123456", "password"),
        ("CVV: 123", "123", "password"),
        ("密码是123456，别告诉别人", "123456", "password"),
        ("wifi密码：abcd1234", "abcd1234", "password"),
        ("我把支付密码改成了qwerty99", "qwerty99", "password"),
        ("口令是“芝麻开门”", "芝麻开门", "password"),
        ("密码为ａｂｃ１２３", "ａｂｃ１２３", "password"),
        ("use sk-proj-abcdefghijklmnop1234 now", "sk-proj-abcdefghijklmnop1234", "api_key"),
        ("ghp_" + "a1B2" * 9, "ghp_" + "a1B2" * 9, "api_key"),
        ("id AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE", "api_key"),
        ("OPENAI_API_KEY=abcd1234efgh5678", "abcd1234efgh5678", "api_key"),
        ("CI_TOKEN: abcd1234efgh5678", "abcd1234efgh5678", "api_key"),
        ("my api key is 1234abcd5678efgh.", "1234abcd5678efgh", "api_key"),
        ("API密钥是 abcd1234efgh5678", "abcd1234efgh5678", "api_key"),
        ("Authorization: Bearer abcdefghij0123456789", "abcdefghij0123456789", "api_key"),
        (f"token {JWT} end", JWT, "api_key"),
        (f"key:\n{PEM}\nbye", PEM, "api_key"),
    ],
)
def test_personal_data_is_found_in_both_languages(text: str, value: str, kind: DataKind) -> None:
    assert [(text[it.start : it.end], it.kind) for it in find_personal_data(text)] == [
        (value, kind)
    ]


@each(
    "text",
    [
        *("4111 1111 1111 1112", "order 1234567890123456", "0.4111111111111111"),
        *("a4111111111111111b", "110105194912310021", "110105194913310021", "000-12-3456"),
        *("2023-10-12 12:30:45", "12345678901", "圆周率3.1415926535", "ISBN 978-7-302-12345-6"),
        *("1731854000123456", "version 1.2.3.4", "邮编 100871", "房间 1203", "in 1999 and 2024"),
        *("my password is safe", "The password is wrong, try again", "Is the password required?"),
        *("I forgot my password again", "a password of 12 characters", "password is 8-16 digits"),
        *("def login(user: str, password: str)", "password=os.environ['X']", "PASSWORD=$SECRET"),
        *("密码是错的", "密码是什么？", "密码是8位以上", "密码为 8-16 位", "我忘了密码"),
        *("max_tokens: 4096", "the key is under the mat", "api key: your-key-here-12345"),
        *("next_page_token: abcd1234efgh5678", "task-oriented", "ann@home", "他说pin码忘了"),
        *("my password, it's 3 weeks old", "密码2024年改过", "we pin on Tuesday 2024 notes"),
        *("the code of conduct is 2020", "error code 4040", "邮政编码是 100871", "密码现在是空的"),
        *("my password is [password]", "密码是[密码]", "卡号是[卡号]", "pin the note to 3 boards"),
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert find_personal_data(text) == []


@given(st.text("0123456789", min_size=1, max_size=18))
def test_exactly_one_check_digit_fulfils_luhn(digits: str) -> None:
    assert sum(luhn(digits + check) == 0 for check in "0123456789") == 1


@given(st.sampled_from(["4", "51", "37", "62", "9558"]), st.integers(0, 10**18))
def test_a_card_number_needs_the_length_of_its_issuer(prefix: str, rest: int) -> None:
    """Any digits of the right length with their check digit; none with another one."""
    length = {"37": 15, "62": 19, "9558": 19}.get(prefix, 16)
    digits = (prefix + str(rest).zfill(19))[: length - 1]
    right = [digits + check for check in "0123456789" if is_card_number(digits + check)]
    assert len(right) == 1 and not is_card_number(right[0] + "0")


IDS = st.builds(
    lambda place, born, order: f"{place}{born:%Y%m%d}{order:03}",
    st.sampled_from(["110105", "440305", "310101", "650102"]),
    st.dates(date(1900, 1, 1), date(2099, 12, 31)),
    st.integers(0, 999),
)


@given(IDS)
def test_exactly_one_check_character_makes_an_id_number(body: str) -> None:
    assert sum(is_chinese_id(body + check) for check in "0123456789X") == 1


def with_check(body: str) -> str:
    return next(body + it for it in "0123456789X" if is_chinese_id(body + it))


def card(rest: int) -> str:
    digits = f"4{rest:014}"
    return next(digits + it for it in "0123456789" if luhn(digits + it) == 0)


PARTS = st.one_of(
    IDS.map(with_check).map(lambda it: (it, "id_number")),
    st.integers(0, 10**14 - 1).map(card).map(lambda it: (it, "card_number")),
    st.integers(0, 10**14 - 1)
    .map(card)
    .map(lambda it: (re.sub(r"(\d{4})(?=\d)", r"\1 ", it), "card_number")),
    st.integers(0, 10**8 - 1).map(lambda it: (f"138{it:08}", "phone_number")),
    st.from_regex(r"[a-z]{1,8}@[a-z]{2,8}\.com", fullmatch=True).map(lambda it: (it, "email")),
    st.from_regex(r"sk-[a-z0-9]{20}", fullmatch=True).map(lambda it: (it, "api_key")),
)
WORDS = st.lists(
    st.sampled_from(
        ["你好，", "我们周三见。", " see you ", " at 10:30, ", "3 个苹果", "\n", " (ok) "]
    ),
    max_size=4,
).map(lambda it: f"。{''.join(it)}。")


@given(st.lists(st.tuples(WORDS, PARTS, st.booleans()), max_size=4), WORDS)
def test_masking_removes_the_values_and_nothing_else(
    pieces: list[tuple[str, tuple[str, DataKind], bool]], end: str
) -> None:
    """Each value gives way to its placeholder, full-width ones as well; masking again is idle."""
    text, expected = "", [re.escape("")]
    for words, (value, kind), is_wide in pieces:
        text += words + (value.translate(WIDE) if is_wide else value)
        either = "|".join(map(re.escape, PLACEHOLDERS[kind]))
        expected += [re.escape(words), f"(?:{either})"]
    text, expected = text + end, [*expected, re.escape(end)]
    shown, is_marked = apply_policy(text, MASK, "content")
    assert re.fullmatch("".join(expected), shown) and not is_marked
    assert apply_policy(shown, MASK, "content") == (shown, False)
    assert masked({"words": [text]}, MASK) == {"words": [shown]}


@given(st.text(max_size=200))
def test_any_text_can_be_masked(text: str) -> None:
    """Findings are in order, within the text and apart."""
    found = find_personal_data(text)
    ends = [0, *(it.end for it in found), len(text)]
    starts = [*(it.start for it in found), len(text)]
    assert all(end <= start for end, start in zip(ends, starts, strict=False))


@pytest.mark.parametrize(
    "text", ["a" * 200_000, "1 " * 100_000, "密码" * 50_000, "password is " * 9_000]
)
def test_long_texts_take_linear_time(text: str) -> None:
    """Repetitive ones too, which patterns that backtrack would never finish."""
    find_personal_data(text)
    find_personal_data("x@" * 50_000 + "13812345678 " * 5_000)


@each(
    ("text", "kind", "words"),
    [
        ("我的卡号是4111111111111111", "card_number", "a card number"),
        ("my password is hunter2", "password", "a password"),
    ],
)
def test_a_refusal_names_the_kind_and_never_the_value(
    text: str, kind: DataKind, words: str
) -> None:
    policy = ContentPolicy(1_000, {**MASK.actions, kind: "refuse"})
    with pytest.raises(InvalidArgument) as error:
        apply_policy(text, policy, "messages[0].content")
    assert error.value.message == (
        f"messages[0].content contains {words}, which this server refuses to store "
        f"(KEMEM_PRIVACY_{kind.upper()}=refuse)"
    )
    assert error.value.details == {"field": "messages[0].content", "kind": kind}


def test_values_of_json_are_masked_wherever_they_stand() -> None:
    value = {"a": ["13812345678", 4111111111111111, 7, True, None, 1.5], "手机": {"x": "a@b.com"}}
    shown, _ = apply_policy_to_value(value, MASK, "metadata")
    assert shown == {
        "a": ["[phone number]", "[card number]", 7, True, None, 1.5],
        "手机": {"x": "[e-mail address]"},
    }
