"""The main verbs on the command line do what the methods of the same names do."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.command import SECONDS, command, environment, kemem

LIVES = [
    ("mia", "I live in Lisbon", "I moved to Porto", "Lisbon", "Porto", "Where do I live?"),
    ("李明", "我住在杭州", "我搬到了成都", "杭州", "成都", "我现在住在哪里？"),
]
EACH_LIFE = pytest.mark.parametrize(("user", "first", "then", "old", "new", "question"), LIVES)


def shown(home: Path, *arguments: str, typed: str = "") -> str:
    """What people see of a command that succeeds."""
    ran = kemem(home, *arguments, typed=typed)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    return ran.stdout


def spoken(home: Path, *arguments: str, typed: str = "") -> Any:
    """What programs read of it."""
    return json.loads(shown(home, *arguments, "--json", typed=typed))


@EACH_LIFE
def test_adding_says_what_is_stored_and_which_note_it_replaced(
    tmp_path: Path, user: str, first: str, then: str, old: str, new: str, question: str
) -> None:
    """From an argument or from standard input; a search then finds notes and messages."""
    stored, added = shown(tmp_path, "add", first, "--user", user).splitlines()
    assert stored.startswith("stored  m_") and added.startswith("added  ") and old in added
    _, replaced = shown(tmp_path, "add", "--user", user, typed=f"{then}\n").splitlines()
    before, after = replaced.removeprefix("replaced  ").split(" → ")
    assert old in before and new in after and after.split()[-1].startswith("n_")
    found = shown(tmp_path, "search", question, "--user", user)
    assert (
        new in found.splitlines()[0]
        and "user_info (residence) · " in found
        and "message (user) · " in found
    )
    assert spoken(tmp_path, "messages", "--user", user)["items"][0]["content"] == then


@EACH_LIFE
def test_one_note_is_shown_changed_reopened_and_deleted(
    tmp_path: Path, user: str, first: str, then: str, old: str, new: str, question: str
) -> None:
    """Its history and its sources are there; who names another user finds nothing."""
    whose = ("--user", user)
    note = spoken(tmp_path, "add", first, *whose)["results"][0]["id"]
    assert old in shown(tmp_path, "get", note).splitlines()[0]
    assert first in shown(tmp_path, "get", note, "--sources", *whose)
    assert new in shown(tmp_path, "update", note, new, *whose)
    assert shown(tmp_path, "update", note, "-", *whose, typed=then).startswith(then)
    history = shown(tmp_path, "history", note, *whose)
    assert f"{new} → {then}" in history and "added" in history
    assert then in shown(tmp_path, "list", *whose)
    for verb in ("get", "history", "update", "delete"):
        rest = [then] if verb == "update" else []
        other = kemem(tmp_path, verb, note, *rest, "--user", "mallory")
        assert (other.returncode, other.stdout) == (3, ""), verb
    assert "deleted: 1" in shown(tmp_path, "delete", note, *whose)
    assert note in shown(tmp_path, "list", "--changed", "forgotten", *whose)
    assert shown(tmp_path, "list", *whose) == "Nothing is remembered.\n"


@EACH_LIFE
def test_what_ended_can_hold_again(
    tmp_path: Path, user: str, first: str, then: str, old: str, new: str, question: str
) -> None:
    note = spoken(tmp_path, "add", first, "--user", user)["results"][0]["id"]
    shown(tmp_path, "add", then, "--user", user)
    assert spoken(tmp_path, "get", note, "--user", user)["valid_until"]
    assert old in shown(tmp_path, "reopen", note, "--user", user)
    assert spoken(tmp_path, "get", note, "--user", user)["valid_until"] is None


@pytest.mark.parametrize("fact", ["Refunds take five days.", "退款需要五天。"])
def test_knowledge_is_learned_for_all_users_of_an_agent(tmp_path: Path, fact: str) -> None:
    learned = shown(tmp_path, "learn", fact, "--agent", "support", "--tag", "refunds")
    assert learned.startswith(f"learned  {fact}  n_")
    (item,) = spoken(tmp_path, "list", "--agent", "support")["results"]
    assert (item["memory"], item["kind"], item["keywords"]) == (fact, "knowledge", ["refunds"])


def test_users_agents_and_sessions_are_listed_page_by_page(tmp_path: Path) -> None:
    for user in ("ann", "李明"):
        shown(tmp_path, "add", "ok", "--user", user, "--agent", "coach", "--session", "s_1")
    first, more = shown(tmp_path, "users", "--limit", "1").splitlines()
    assert first.startswith("ann  agent coach · last change 20")
    rest = shown(tmp_path, "users", *more.removeprefix("more: ").split())
    assert rest.startswith("李明  ") and "more:" not in rest
    assert shown(tmp_path, "agents").startswith("coach  last change ")
    assert shown(tmp_path, "sessions", "--user", "ann").startswith("s_1  user ann · agent coach · ")
    assert spoken(tmp_path, "sessions", "--user", "nobody")["items"] == []


@pytest.mark.parametrize("said", ["I take the train to Braga", "我坐火车去布拉加"])
def test_a_session_is_shown_saved_brought_back_and_ended(tmp_path: Path, said: str) -> None:
    here = ("s_1", "--user", "u")
    shown(tmp_path, "add", said, "--user", "u", "--session", "s_1")
    assert said in shown(tmp_path, "session", "context", *here)
    assert shown(tmp_path, "session", "show", *here).endswith("It has no checkpoint.\n")
    assert spoken(tmp_path, "session", "summarize", *here) == {"checkpoint": None}
    saved = spoken(tmp_path, "session", "checkpoint", *here)["checkpoint_id"]
    assert saved in shown(tmp_path, "session", "show", *here)
    restored = spoken(tmp_path, "session", "restore", "s_1", saved, "--user", "u")
    assert restored["checkpoint_id"] != saved  # a new one, which says the same
    assert kemem(tmp_path, "session", "end", *here).returncode == 0
    assert spoken(tmp_path, "session", "show", *here)["active"] is False


def test_relations_and_messages_near_one_are_shown(tmp_path: Path) -> None:
    shown(tmp_path, "add", "I live in Porto", "--user", "mia")
    shown(tmp_path, "add", "我住在成都", "--user", "李明")
    assert "—lives_in→ Porto" in shown(tmp_path, "graph", "--user", "mia", "--around", "Porto")
    assert "成都" in shown(tmp_path, "graph", "--user", "李明")
    last = spoken(tmp_path, "messages", "--user", "mia")["items"][0]["message_id"]
    near = shown(tmp_path, "messages", "--user", "mia", "--around", last)
    assert "user: I live in Porto" in near and last in near


def test_facts_are_drawn_later_or_not_at_all(tmp_path: Path) -> None:
    """--no-infer keeps the words; --no-wait leaves facts to a job; extract reads again."""
    (outcome,) = spoken(tmp_path, "add", "我住在成都", "--user", "u", "--no-infer")["results"]
    assert outcome["memory"] == "我住在成都"
    later = shown(tmp_path, "add", "I live in Porto", "--user", "v", "--no-wait")
    assert later.endswith("A job will extract the facts: kemem work --once\n")
    assert "Porto" in shown(tmp_path, "extract", "--user", "v")


def test_without_ids_all_verbs_mean_the_default_user(tmp_path: Path) -> None:
    """As in Python."""
    shown(tmp_path, "add", "I live in Porto")
    assert "Porto" in shown(tmp_path, "search", "Where do I live?")
    assert "Porto" in shown(tmp_path, "list") and "Porto" in shown(tmp_path, "profile")


def test_forgetting_follows_the_settings(tmp_path: Path) -> None:
    for said in ("I live in Porto", "我不吃辣"):
        shown(tmp_path, "add", said, "--user", "u")
    assert shown(tmp_path, "forget", "--user", "u") == "Nothing was forgotten.\n"
    ran = kemem(tmp_path, "forget", "--user", "u", "--json", KEMEM_FORGET_LIMIT="1")
    assert len(json.loads(ran.stdout)["forgotten"]) == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("add", "hi", "--metadata", "[1]"), "--metadata must be a JSON object, not '[1]'"),
        (("list", "--filters", "x"), "--filters must be a JSON object, not 'x'"),
        (("list", "--changed", "ended", "--kind", "message"), "takes --user, --agent and --limit"),
        (("update", "n_1"), "give a text or --metadata"),
        (("add", "--user", "u"), "the text is empty"),
        (("add", " ", "--user", "u"), "the text is empty"),
        (("delete", "n_1"), "--user or --agent is required"),
    ],
)
def test_a_wrong_value_is_named_and_nothing_is_stored(
    tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    ran = kemem(tmp_path, *arguments)
    assert ran.returncode != 0 and ran.stdout == "" and reason in ran.stderr
    assert not (tmp_path / "data").exists()


def test_what_is_piped_in_must_be_a_text(tmp_path: Path) -> None:
    """Bytes of something else are refused; a mark of the byte order and the last line end go."""
    call = command("add", "--user", "u", "--no-infer")
    place: dict[str, Any] = {"env": environment(tmp_path), "cwd": tmp_path, "timeout": SECONDS}
    ran = subprocess.run(call, input=b"\xff\xfe\x00", capture_output=True, **place)
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert ran.stderr == b"error: standard input is not a text in UTF-8\n"
    windows = "\ufeff我住在成都\r\n".encode()
    subprocess.run(call, input=windows, capture_output=True, check=True, **place)
    (item,) = spoken(tmp_path, "list", "--user", "u")["results"]
    assert item["memory"] == "我住在成都"
