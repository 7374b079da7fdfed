"""What only operations leave in a store, with names and texts that try to be markup."""

from kemem import AsyncMemory
from kemem.records import Change, Link, Scope
from kemem.records.batch import Batch, Job
from kemem.serve.telemetry.journal import Run, save_runs
from kemem.settings import Settings
from tests.talk import note

EVIL = "<img src=x onerror=alert(1)>\"'"
LATER = 4_000_000_000_000_000


def left_behind() -> Batch:
    """Jobs that failed and one that waits, and a note whose every field tries to be markup."""
    owner = {"agent_id": EVIL, "user_id": EVIL, "session_id": None, "kind": "user_info"}
    words = {"memory_type": EVIL, "summary": EVIL, "topic": EVIL, "keywords": (EVIL,)}
    drawn = note("n_evil", EVIL + "2", **owner, **words, metadata={EVIL: EVIL}, sources=(EVIL,))
    nobody, evil = Scope("default", "nobody"), Scope(EVIL, EVIL, EVIL)
    failed = (Job(f"j_{n}", "forget", nobody, 9, state="failed", error=EVIL) for n in range(3))
    return Batch(
        notes=(drawn,),
        links=(Link("n_evil", EVIL, EVIL, EVIL + "2", EVIL, EVIL),),
        changes=(Change(EVIL, EVIL, "n_evil", "add", drawn.created, EVIL, EVIL + "2", EVIL),),
        jobs=(*failed, Job("j_waits", "forget", evil, LATER)),
    )


def measured() -> list[Run]:
    """What a benchmark found in three months."""
    run = {"name": EVIL, "set": EVIL, "n": 9, "metrics": {"recall@10": 0.8}}
    return [
        Run.model_validate({**run, "at": f"2026-0{n}-01T00:00:00Z", "language": language})
        for n in (6, 7, 8)
        for language in ("zh", "en")
    ]


async def fill_up(settings: Settings) -> None:
    """Put beside the demo what only operations leave, and what tries to be markup."""
    metadata = {"speaker": EVIL, EVIL: EVIL}
    message = {"role": "user", "content": EVIL, "message_id": EVIL, "metadata": metadata}
    async with AsyncMemory(settings=settings) as memory:
        await memory.add([message], EVIL, EVIL, EVIL, infer=False)
        await memory.learn(EVIL, summary=EVIL, tags=[EVIL], agent_id=EVIL)
        await (await memory.runtime.deps()).store.apply(left_behind())
        await save_runs(memory, measured())
