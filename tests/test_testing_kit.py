"""The small parts of the shipped test kit."""

import subprocess
import sys

import numpy as np
import pytest

from kemem.testing import FakeClock, HashingEmbedder


@pytest.mark.parametrize(
    ("text", "alike", "unlike"),
    [
        ("我不吃辣", "他也不吃辣的菜", "明天开会"),
        ("I can't eat spicy food", "SPICY foods again", "the meeting is tomorrow"),
    ],
)
async def test_texts_that_share_words_are_near(text: str, alike: str, unlike: str) -> None:
    """That is all a hashing embedder knows, and it knows it on every machine."""
    embedder = HashingEmbedder(width=256)
    matrix = await embedder.embed([text, alike, unlike], purpose="passage")
    assert matrix.shape == (3, 256)
    assert matrix.dtype == np.float32
    assert matrix[0] @ matrix[1] > 0.3 > matrix[0] @ matrix[2]
    (again,) = await HashingEmbedder(width=256).embed([text], purpose="query")
    assert np.array_equal(again, matrix[0])


async def test_every_text_has_a_direction() -> None:
    """Also one without words; no texts give no rows."""
    embedder = HashingEmbedder()
    texts = ["", "！！！", "\0", "🎉", "火", "x" * 10_000]
    matrix = await embedder.embed(texts, purpose="passage")
    assert np.linalg.norm(matrix, axis=1) == pytest.approx(np.ones(len(texts)), abs=1e-6)
    assert (await embedder.embed([], purpose="query")).shape == (0, embedder.width)


def test_a_fake_clock_stands_still_until_it_is_advanced() -> None:
    """Equal times are wanted in tests."""
    clock = FakeClock(1_767_225_600_000_000)
    assert clock() == clock() == 1_767_225_600_000_000
    clock.advance(seconds=0.000_001)
    assert clock() == 1_767_225_600_000_001
    clock.advance(seconds=90)
    assert clock() == 1_767_225_690_000_001


def test_the_reference_store_needs_no_test_framework() -> None:
    """Only the suite imports pytest and hypothesis."""
    code = "import sys, kemem.testing; print({'pytest', 'hypothesis'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.returncode) == ("set()", 0)
