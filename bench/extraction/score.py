"""How much was found."""

from dataclasses import dataclass


@dataclass(slots=True)
class Score:
    """How many were found rightly, wrongly, and not."""

    right: int = 0
    wrong: int = 0
    missed: int = 0

    def __str__(self) -> str:
        precision = self.right / max(1, self.right + self.wrong)
        recall = self.right / max(1, self.right + self.missed)
        return f"{precision:9.3f}{recall:9.3f}{self.right:7}{self.wrong:7}{self.missed:7}"
