"""Whether a question is about the past, by its words or by the time that it names."""

from collections.abc import Iterable

from kemem.records import Micros
from kemem.records.times import to_datetime
from kemem.text.asked import asked_in
from kemem.text.reading import asks_for_past
from kemem.text.when import TimePhrase, speaks_of_plans, time_phrases

_READ = 2_000  # characters in which times are looked for


def is_about_past(text: str, now: Micros, times: Iterable[TimePhrase] | None = None) -> bool:
    """Whether what has ended may be asked for.  "Where did I live in 2019?" -> True

    `times` are those of the text, where they are known already.
    """
    text = asked_in(text[:_READ])
    if times is None:
        times = time_phrases(text, to_datetime(now), speaks_of_plans(text))
    return asks_for_past(text) or any(time.until <= now for time in times)
