"""The recipe of a session's end: draw the experience, then let short-term memory go."""

from kemem.batch import Ending, Job
from kemem.ports import Parts
from kemem.types import SHORT_TERM, Where
from kemem.writing.commit import Committed
from kemem.writing.draw import settle
from kemem.writing.experience import draw_experience
from kemem.writing.extraction import Extraction

_LAST = 200  # messages of a session that its experience is drawn from


async def end(job: Job, parts: Parts) -> Committed:
    """Carry out an `end` job: one batch keeps the experience and drops the rest."""
    newest = await parts.store.scan(Where(job.scope), limit=_LAST)
    messages = newest[::-1]
    notes = await parts.store.notes(Where(job.scope, kinds=SHORT_TERM), limit=_LAST)
    fact = await draw_experience(messages, notes, parts)
    found = Extraction((fact,) if fact else ())
    return await settle(found, messages, job, parts, Ending(job.scope, parts.clock()))
