"""A forked child: what it opened works, what its parent opened is refused at once."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm

START = """
import asyncio, gc, multiprocessing, os, signal, sys, threading, time, traceback
from kemem import AsyncMemory, Memory, Settings
from kemem.errors import Unavailable

gc.freeze()  # what was imported: each child would look through it at its end

def opened(name, embedder="none"):
    return Memory(settings=Settings(data_dir=sys.argv[1] + name, embedder=embedder))

def refused(call):
    try:
        call()
    except Unavailable as error:
        assert "open a new Memory in the child process" in str(error), error
    else:
        raise AssertionError("the child was not refused")

busy = False  # whether other threads work: no Event, whose lock a child could inherit
rounds = 0  # of their work

def in_child(work):
    global busy
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # a child that hangs is killed
        try:
            work()
        except Exception:
            traceback.print_exc()
            os._exit(1)
        sys.exit()  # as a worker of gunicorn does: with atexit and the collection of its objects
    busy = False
    assert os.waitpid(pid, 0)[1] == 0

def in_child_while_busy(work):
    global busy
    before, busy = rounds, True
    while rounds == before:  # until the threads are in the midst of it
        time.sleep(0.001)
    in_child(work)

def in_threads(work, number):
    ends = False

    def go_on():
        global rounds
        while not ends:
            if busy:
                work()
                rounds += 1
            else:
                time.sleep(0.005)

    threads = [threading.Thread(target=go_on) for _ in range(number)]
    for thread in threads:
        thread.start()

    def end():
        nonlocal ends
        ends = True
        for thread in threads:
            thread.join()

    return end

"""
FORKS = """
memory = opened("parent")
memory.add("I live in Oslo", user_id="u")

# reading and writing
def child():
    refused(lambda: memory.search("Oslo", user_id="u"))
    refused(lambda: memory.for_user("u").add("I live in Rome"))
    memory.close()

in_child(child)
assert memory.search("Oslo", user_id="u")
memory.add("I like tea", user_id="u")

# while other threads write
end = in_threads(lambda: memory.add("I like tea", user_id="u"), 3)

def child():
    refused(lambda: memory.search("tea", user_id="u"))
    with opened("parent") as mine:
        mine.add("I have a dog", user_id="u")

for _ in range(5):
    in_child_while_busy(child)
in_child_while_busy(lambda: in_child(child))
end()
assert memory.search("tea", user_id="u")
assert memory.search("dog", user_id="u")

# a parent that closes its memory before the child does
memory.close()
memory = opened("parent")
memory.add("I live in Oslo", user_id="u")
child_is_open, parent_is_closed = os.pipe(), os.pipe()

def child():
    with opened("parent") as mine:
        mine.add("I have a horse", user_id="u")
        os.write(child_is_open[1], b".")
        os.read(parent_is_closed[0], 1)
        mine.add("I have a parrot", user_id="u")

process = multiprocessing.get_context("fork").Process(target=child)
process.start()
os.read(child_is_open[0], 1)
memory.close()
os.write(parent_is_closed[1], b".")
process.join(20)
assert process.exitcode == 0, process.exitcode
memory = opened("parent")
assert memory.search("parrot", user_id="u"), "what the child wrote is lost"
assert memory.add("I live in Oslo", user_id="u").results[0].event == "NONE"

# a memory of the child's own
lazy = opened("lazy")

def child():
    for mine in (opened("parent"), lazy):  # nobody used the lazy one before the fork
        with mine:
            mine.add("I have a cat", user_id="u")
            assert mine.search("cat", user_id="u")

in_child(child)
assert memory.search("cat", user_id="u")

# multiprocessing
def child():
    refused(lambda: memory.search("Oslo", user_id="u"))

process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join(20)
assert process.exitcode == 0, process.exitcode
assert memory.search("Oslo", user_id="u")

# AsyncMemory
waiting = AsyncMemory(settings=Settings(data_dir=sys.argv[1] + "async", embedder="none"))
loop = asyncio.new_event_loop()
loop.run_until_complete(waiting.add("I live in Oslo", user_id="u"))

def child():
    refused(lambda: asyncio.run(waiting.search("Oslo", user_id="u")))
    asyncio.run(waiting.close())

in_child(child)
assert loop.run_until_complete(waiting.search("Oslo", user_id="u"))
loop.run_until_complete(waiting.close())
loop.close()

memory.close()
print("parent is well")
"""
LOCAL_EMBEDDER = """
from kemem.backends.local import LocalEmbedder

def embed():
    text = f"I keep {rounds} bees"
    asyncio.run(LocalEmbedder().embed([text], purpose="passage"))

def child():
    for mine in (opened("parent", "local"), lazy):
        with mine:
            mine.add("I keep goats in Turin", user_id="u")
            assert mine.search("Where are the goats?", user_id="u")
            assert mine.semantic_search("Where are the goats?", user_id="u")

lazy = opened("lazy", "local")

# while another thread loads the model, and while it uses it
end = in_threads(embed, 1)
busy = True
time.sleep(0.05)
in_child(child)
for _ in range(2):
    in_child_while_busy(child)
end()

# after the parent has used a memory
memory = opened("parent", "local")
memory.add("I keep bees", user_id="u")
in_child(child)
assert memory.semantic_search("goats", user_id="u")
memory.close()
print("parent is well")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.parametrize("forks", [FORKS, LOCAL_EMBEDDER], ids=["store", "local-embedder"])
def test_a_forked_child_neither_hangs_nor_harms_its_parent(forks: str, tmp_path: Path) -> None:
    # Where the model was loaded before, no thread loads it while another forks.
    python = [sys.executable] if forks == LOCAL_EMBEDDER else warm.python()
    ran = subprocess.run(
        [*python, "-W", "ignore", "-c", START + forks, f"{tmp_path}/"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("parent is well\n", "", 0)
