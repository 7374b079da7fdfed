"""The recipe of a session's end: draw the experience, then let short-term memory go."""

from kemem.batch import Ending, Job
from kemem.ports import Parts
from kemem.types import MESSAGES, SHORT_TERM, Where
from kemem.writing.commit import Committed
from kemem.writing.draw import settle
from kemem.writing.experience import draw_experience
from kemem.writing.extraction import Extraction

_LAST = 200  # messages of a session that its experience is drawn from


async def end(job: Job, parts: Parts) -> Committed:
    """Carry out an `end` job: one batch keeps the experience and drops the rest.

    What is sensitive teaches nothing, so that an experience can be told to everyone.
    """
    seen = Where(job.scope, kinds=MESSAGES | SHORT_TERM, sensitive=False)
    newest = await parts.store.scan(seen, limit=_LAST)
    messages = newest[::-1]
    notes = await parts.store.notes(seen, limit=_LAST)
    fact = await draw_experience(messages, notes, parts)
    found = Extraction((fact,) if fact else ())
    return await settle(found, messages, job, parts, Ending(job.scope, parts.clock()))
