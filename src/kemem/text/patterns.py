"""Word lists as text: readable in the source, sets and patterns where they are used."""


def words(listed: str) -> frozenset[str]:
    """The words of a list.  "so also" -> {"so", "also"}"""
    return frozenset(listed.split())


def any_word(listed: str) -> str:
    """A pattern for one word of a list; "_" is a blank.  "cat red_fox" -> "(?:cat|red fox)" """
    return "(?:" + "|".join(listed.split()).replace("_", " ") + ")"
