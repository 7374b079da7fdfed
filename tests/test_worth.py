"""Which clauses are worth keeping: by words alone, and with the embeddings of the package."""

from importlib.resources import files

from kemem.add.rules import rate, read_by_rules
from kemem.backends.local import LocalEmbedder
from kemem.facts.worth import KINDS, LEVELS, WIDTH, weights
from kemem.records import Message
from tests.cases import each

NOON = 1_768_910_400_000_000


def message(content: str) -> Message:
    return Message("m", "a", "u", "s", "user", content, NOON, NOON)


async def notes(content: str) -> list[str]:
    reading = read_by_rules([message(content)])
    matrix = await LocalEmbedder().embed(reading.texts() or ["."], purpose="passage")
    vectors = dict(zip(reading.texts() or ["."], matrix, strict=True))
    return [fact.text for fact in rate(reading, vectors).facts]


def test_the_weights_are_small_and_whole() -> None:
    """One table of words for each level and kind, and a direction for each kind of talk."""
    assert len((files("kemem.facts") / "worth.npz").read_bytes()) <= 200_000
    for level in LEVELS:
        assert weights()[f"{level}_dense"].shape == (3 * WIDTH, len(KINDS))


@each(
    ("said", "told"),
    [
        ("体检查出轻度脂肪肝", ["体检查出轻度脂肪肝"]),
        ("雅思出分了，7.5！", ["雅思出分了，7.5"]),
        ("换了新手机，iPhone 16", ["换了新手机，iPhone 16"]),
        ("my wee lad has asthma, is a wood burner a daft idea", ["User's wee lad has asthma"]),
        ("Passed my driving test!", ["User passed user's driving test"]),
        ("今天好累啊", []),
        ("翻译成英文：我住在北京，对海鲜过敏", []),
        ("haha yeah exactly that", []),
        ("If I won the lottery I'd buy a farm in Tasmania", []),
        ("translate to hindi: I am allergic to penicillin. I live in Rome.", []),
    ],
)
async def test_the_clause_itself_is_the_note(said: str, told: list[str]) -> None:
    """Of the speaker's own life; not of material, fiction or idle talk."""
    assert await notes(said) == told
