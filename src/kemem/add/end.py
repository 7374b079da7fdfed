"""The recipe of a session's end: draw the experience, then let short-term memory go."""

from kemem.add.commit import Committed
from kemem.add.draw import settle
from kemem.add.experience import draw_experience
from kemem.add.extraction import Extraction
from kemem.batch import Ending, Job
from kemem.ports import Deps, read_messages, read_notes
from kemem.records import MESSAGES, SHORT_TERM, Where

_LAST = 200  # messages of a session that its experience is drawn from


async def end(job: Job, deps: Deps) -> Committed:
    """Carry out an `end` job: one batch keeps the experience and drops the rest.

    What is sensitive teaches nothing, so that an experience can be told to everyone.
    """
    seen = Where(job.scope, kinds=MESSAGES | SHORT_TERM, sensitive=False)
    newest = await read_messages(deps.store, seen, limit=_LAST)
    messages = newest[::-1]
    notes = await read_notes(deps.store, seen, limit=_LAST)
    fact = await draw_experience(messages, notes, deps)
    found = Extraction((fact,) if fact else ())
    return await settle(found, messages, job, deps, Ending(job.scope, deps.clock()))
