"""What a text shows by its form: what a question asks for, and what an answer could be.

Nothing here understands a language; words and endings that hold in any talk are counted as signs,
and `kemem.search.judge` has learned what each of them is worth.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, cached_property, lru_cache

from kemem.text.advice import Advice, asked_advice, without_request
from kemem.text.idioms import without_idioms, without_telling
from kemem.text.lexicon import Lexicon, load
from kemem.text.segment import STOP_WORDS, normalise, stem
from kemem.text.when import TimePhrase, speaks_of_plans, time_phrases, without_parts_of_times

_HAN = re.compile("[\u3400-\u9fff]")
_LATIN = re.compile("[A-Za-z]")
_WORD = re.compile(r"[a-z0-9][a-z0-9+#.-]*")
_CLITIC = re.compile("['’][a-z]*")
_SENTENCE = re.compile(r"(?<=[.!?。！？\n])\s*")
_QUOTE = re.compile(r'["“「《].{8,}["”」》]|```|\n.*\n')
_DATE = re.compile(r" ?[(（][^()（）]*\d{4}-\d\d[^()（）]*[)）]")
_CAPITAL = re.compile(r"(?<!^)(?<![.!?] )\b[A-Z][a-zà-ÿ]+")
_PLACE = re.compile(r"\b(?:in|at|to|from|near|around|towards?|of|outside|via|for) (?:the )?[A-Z]")
# "Which day?" asks for a day; it is not about days.
_BRIEF = 60  # characters of a short request
_USED_TO = re.compile(r"\bused? to\b", re.IGNORECASE)  # says when, and is not about using
_WHICH_TIME = re.compile(r"\b(?:what|which) (?:time|day|date|year|month|weekday)\b", re.IGNORECASE)
# Words of questions and of talk that say nothing of a topic, beside those that no query counts.
_EMPTY = """
still now currently anymore ever again tell know remember kind type sort many much whose use used
before ago after previously originally actually got get go going went gone also else one thing
others things lot really yet already please whats im ive dont didnt doesnt isnt not no yes new last
first ok oh user done doing talk talked talking chat chatted discuss discussed mention mentioned
topic topics
"""
_EMPTY_WORDS = STOP_WORDS | {*_EMPTY.split()}
# Capital letters that open no name.
_PLAIN = """
I Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May June
July August September October November December User The A An My
"""
NAMELESS = frozenset(_PLAIN.split())
ANSWERS = ("who", "where", "when", "how_much", "what_name")
DETAILS = ("age", "money", "clock", "colour", "why", "job")  # finer kinds of answers
_SIGNS = ("requests", "first_person", "changes", "ends", "time", "place")
_IN_DIGITS = ("number", "time")  # signs that need no script


@dataclass(frozen=True)
class Reading:
    """The signs of a text that may be an answer, each looked for when it is first asked for."""

    text: str

    def __contains__(self, sign: str) -> bool:
        return sign in self.signs

    @cached_property
    def words(self) -> frozenset[str]:
        """Stems of what it is about; Chinese by characters and pairs."""
        return frozenset(content(self.text))

    @cached_property
    def asks(self) -> float:
        """The share of it that asks or supposes: both say nothing that is so."""
        return 1.0 if shows(self.text, "supposes") else asking_share(self.text)

    @cached_property
    def people(self) -> frozenset[str]:
        """What people are to the speaker, and "@name" for names."""
        return people_of(self.text)

    @cached_property
    def signs(self) -> frozenset[str]:
        text = self.text
        signs = {name for name in _SIGNS if shows(text, name)}
        signs |= {"number"} if shows(self._bare, "number") else set()
        if any(it[0] == "@" for it in self.people):
            signs.add("capital")
        if _PLACE.search(text):
            signs.add("place")
        if _QUOTE.search(text):
            signs.add("quote")
        return frozenset(signs)

    @cached_property
    def has_pronoun(self) -> bool:
        """Whether it speaks of somebody who was named before: "she"."""
        return shows(self.text, "pronoun")

    @cached_property
    def answers(self) -> frozenset[str]:
        """Kinds of questions that it could answer, of ANSWERS."""
        signs, named = self.signs, "capital" in self.signs
        can = {
            "who": named or speaks_of_relatives(self.text) or shows(self.text, "someone"),
            "where": named or "place" in signs,
            "when": bool(signs & {"time", "number"}) or self._bare != self.text,
            "how_much": "number" in signs,
            "what_name": named or shows(self.text, "called"),
        }
        return frozenset(name for name, able in can.items() if able)

    def tells(self, detail: str) -> bool:
        """Whether it could answer a question of a finer kind, of DETAILS."""
        return shows(self._bare, f"tells_{detail}")

    @property
    def length(self) -> int:
        """In characters."""
        return len(self.text)

    @cached_property
    def _bare(self) -> str:
        bracket = "(" in self.text or "（" in self.text
        return _DATE.sub("", self.text) if bracket else self.text  # a note's day is no amount


@dataclass(frozen=True, slots=True)
class Question:
    """What a question asks for."""

    topic: str  # its text without times: what a vector is made of
    terms: str  # its text without words that only ask or tell an hour: what is looked for by words
    words: tuple[str, ...]
    answers: frozenset[str]  # kinds of answers, of ANSWERS, and "whether"
    details: frozenset[str]  # the same, of DETAILS
    people: frozenset[str]
    times: tuple[TimePhrase, ...]
    past: bool  # it asks for what is over,
    original: bool  # for what was so at first,
    present: bool  # for what holds now,
    before: frozenset[str]  # or for what was so before this: words of an event;
    was: bool  # it speaks of what was: that may be over, or only be told of
    topics: frozenset[str] = frozenset()  # of notes that say what it asks for: user/works_at
    advice: Advice | None = None  # that it asks for
    of_assistant: bool = False  # it asks for what the assistant has said: "did you recommend",
    perhaps: bool = False  # or it may, and the candidates tell: 你推荐我吃什么
    of_self: bool = False  # who asks speaks of himself

    @property
    def of_one_tense(self) -> bool:
        """Whether it asks for what holds now, or for what was, and names no time or event."""
        return not (self.original or self.before or self.times or (self.was and not self.past))


@lru_cache(maxsize=8192)
def read(text: str) -> Reading:
    """Read a text that may be an answer.  "我妈李芳在上海" -> people: mother"""
    return Reading(text)


def read_question(text: str, now: datetime) -> Question:
    """Read a question.  "来杭州之前我住哪" -> what it asks for: a place; past, before 杭州"""
    # Who asks what holds "these days" wants no message of these days.
    is_now, phrases = _lexicon().pattern("PRESENT"), time_phrases(text, now, speaks_of_plans(text))
    times = [it for it in phrases if not is_now.fullmatch(it.phrase)]
    untimed = text
    for time in reversed(times):
        untimed = f"{untimed[: time.start]} {untimed[time.end :]}"
    topic, before = _without_event(untimed)
    topic = topic if content(topic) else text
    people, past, was = people_of(text), asks_for_past(text), shows(text, "was")
    of_assistant = shows(text, "of_assistant")
    perhaps = not of_assistant and shows(text, "perhaps_of_assistant")
    question = Question(
        topic,
        terms_of(searched_words(text, times)),
        tuple(dict.fromkeys(_sought(topic, of_assistant or perhaps))),
        frozenset(name for name in (*ANSWERS, "whether") if shows(text, name)),
        frozenset(name for name in DETAILS if shows(text, name)),
        people,
        tuple(times),
        past=past,
        original=shows(text, "original"),
        present=shows(text, "present"),
        was=was,
        before=before,
        topics=frozenset() if times or past or was else topics_of(text, people),
        of_assistant=of_assistant,
        perhaps=perhaps,
        of_self=shows(text, "first_person"),
    )
    # Advice for tonight, or on where to go, takes account of what was said at any time.
    advice = None if of_assistant else asked_advice(text)
    if advice is None:
        return question
    # The vector of a long request tells of its topic anyway.
    topic = question.topic if len(question.topic) > _BRIEF else _asking_for(question.topic)
    terms = _asking_for(question.terms)
    return replace(question, topic=topic, terms=terms, advice=advice, times=(), answers=frozenset())


def _sought(text: str, told: bool) -> list[str]:
    """Words of what a question is about, none for telling if it asks what was `told`."""
    bare = _WHICH_TIME.sub(" ", without_idioms(text))
    return content(without_telling(bare) if told else bare) or content(bare) or content(text)


def _asking_for(text: str) -> str:
    """What a request for advice asks for.  "Recommend a laptop" -> "a laptop" """
    bare = without_request(text).strip()
    return bare if content(bare) else text


def _without_event(text: str) -> tuple[str, frozenset[str]]:
    """A question without "now" and without what it asks to go back before; the words of that."""
    before: frozenset[str] = frozenset()
    for name in ("EN_BEFORE", "ZH_BEFORE"):
        match = _lexicon().pattern(name).search(text)
        rest = f"{text[: match.start()]} {text[match.end() :]}" if match else ""
        if match and content(rest):
            before |= {word for word in content(match["event"]) if len(word) > 1}
            text = rest
    return " ".join(_lexicon().pattern("PRESENT").sub(" ", text).split()).strip(" ,，"), before


def asks_for_past(text: str) -> bool:
    """Whether a question asks for what is over.  "Where did I use to live?" -> True"""
    return shows(text, "past") or shows(text, "original")


def searched_words(text: str, times: Sequence[TimePhrase]) -> str:
    """A text as its words are searched.  "dinner yesterday evening" -> "dinner yesterday  " """
    bare = without_parts_of_times(text, times)
    return bare if content(bare) else text


def terms_of(text: str) -> str:
    """A text without the words that say nothing of its topic.  "我现在住哪里" -> "住" """
    kept = _USED_TO.sub(" ", _lexicon().pattern("PRESENT").sub(" ", without_idioms(text)))
    kept = _without("ZH_QUESTION", kept) if _HAN.search(kept) else kept
    return kept if content(kept) else text


def content(text: str) -> list[str]:
    """Words that say what a text is about.  "我在哪家公司上班" -> 公司, 司上, 上班, 公, …"""
    folded = normalise(text)
    if "use" in folded:
        folded = _USED_TO.sub(" ", folded)
    bare = _CLITIC.sub(" ", folded) if "'" in folded or "’" in folded else folded
    words = [word.strip(".-") for word in _WORD.findall(bare)]
    stems = [stem(word) for word in words if word and word not in _EMPTY_WORDS]
    if _HAN.search(folded):
        for run in _without("ZH_FUNCTION", folded).split():
            stems += [run[at : at + 2] for at in range(len(run) - 1)]
            stems += run
    return stems


def _without(name: str, text: str) -> str:
    """A text without what a pattern finds; words that it takes as a whole stay.  成都 -> 成都"""
    return _lexicon().pattern(name).sub(lambda match: match["whole"] or " ", text)


def shows(text: str, sign: str) -> bool:
    """Whether a text shows a sign of `reading.rules`."""
    (english, chinese), (folded, latin, han) = _patterns_of(sign), _folded(text)
    if english and (latin or sign in _IN_DIGITS) and english.search(folded):
        return True
    return bool(han and chinese and chinese.search(folded))


def tells_what_was(text: str) -> bool:
    """Whether a text only tells what was.  "I used to smoke" -> True"""
    return shows(text, "tells_was") and not shows(text, "present")


def asks_ahead(text: str) -> bool:
    """Whether a question may be about what is to come.  "When does my rent go up?" """
    return shows(text, "when") or shows(text, "ahead")


def topics_of(text: str, people: frozenset[str] = frozenset()) -> frozenset[str]:
    """The topics of notes that say what a question asks for.  "我在哪上班" -> user/works_at

    Of one of the people around the speaker some are asked in the same words: user/son/studies_at
    """
    folded = text.lower()
    some = (sign.split()[2:] for sign, pattern in _topics() if pattern.search(folded))
    topics = {it for each in some for it in each}
    whose = "/".join(("user", *people)) if len(people) <= 1 else ""
    own = {it for it in topics if it[0] != "*" and not people}
    return frozenset(own | {whose + it[1:] for it in topics if it[0] == "*" and whose})


def asking_share(text: str) -> float:
    """Which share of a text asks.  "Nice. Where is it?" -> 0.7"""
    parts = [part for part in _SENTENCE.split(text.strip()) if part]
    asking = [it for it in parts if it.rstrip().endswith(("?", "？")) or shows(it, "asks")]
    return sum(map(len, asking)) / max(sum(map(len, parts)), 1)


def seeks_answer(query: str) -> bool:
    """Whether what is looked for is an answer, and no text like the query."""
    return asking_share(query) > 0 or shows(query, "seeks") or asked_advice(query) is not None


def people_of(text: str) -> frozenset[str]:
    """Who a text speaks of: "mother" for 我妈 and mum alike, and "@mia" for a name."""
    lexicon, people, folded = _lexicon(), set[str](), text.lower()
    for language, script, word in (("EN", _LATIN, r"\b(?:%s)(?='?s?\b)"), ("ZH", _HAN, "%s")):
        if script.search(text):
            table, pattern = lexicon.tables[f"{language}_PEOPLE"], _people_pattern(language, word)
            people |= {table[match] for match in pattern.findall(folded)}
    names = (match[0] for match in _CAPITAL.finditer(text))
    return frozenset(people | {f"@{name.lower()}" for name in names if name not in NAMELESS})


@cache
def people_words(language: str) -> str:
    """A pattern of the words for people around somebody, the longest first."""
    return "|".join(sorted(_lexicon().tables[f"{language}_PEOPLE"], key=len, reverse=True))


def surnames() -> str:
    """A pattern of Chinese surnames."""
    return _lexicon().lines["ZH_SURNAMES"].text


def is_about_others(note: str) -> bool:
    """Whether a note tells of somebody of the user's, or of a pet.  "User's mother has asthma" """
    names = ("EN_OF_OTHERS", "EN_HAS_PET", "ZH_OF_OTHERS", "ZH_HAS_PET")
    return any(_lexicon().pattern(name).match(note) for name in names)


def speaks_of_relatives(text: str) -> bool:
    """Whether a text speaks of somebody by what they are to somebody, not by a name alone."""
    return any(it[0] != "@" for it in read(text).people)


@lru_cache(maxsize=8192)
def named_people(text: str) -> Mapping[str, str]:
    """Names of people that a text introduces.  "my sister Mia" -> {"mia": "sister"}"""
    lexicon, names = _lexicon(), dict[str, str]()
    if not speaks_of_relatives(text):
        return names
    for pattern in of_scripts(text, ("EN_NAMED", "EN_NAMED_AFTER", "ZH_NAMED")):
        table = lexicon.tables[f"{pattern[:2]}_PEOPLE"]
        for match in lexicon.pattern(pattern).finditer(text):
            if match["name"] not in NAMELESS:
                name, one = match["name"].lower(), table[match["one"].lower()]
                # How long a Chinese name is cannot be seen: 李芳退休 may go on with 退.
                names |= {name: one, name[:2]: one} if pattern == "ZH_NAMED" else {name: one}
    return names


def of_scripts(text: str, patterns: Iterable[str]) -> Iterator[str]:
    """Those names of patterns that are of a language whose script a text has: EN_NAMED, ZH_NAMED"""
    scripts = {"EN": _LATIN.search(text), "ZH": _HAN.search(text)}
    return (name for name in patterns if scripts[name[:2]])


def _lexicon() -> Lexicon:
    return load(__package__, "reading.rules")


@cache
def _people_pattern(language: str, word: str) -> re.Pattern[str]:
    ends: dict[str, list[str]] = {}  # by the first letter: far fewer are compared with each word
    for it in people_words(language).split("|"):
        ends.setdefault(it[0], []).append(it[1:])
    return re.compile(word % "|".join(f"{it}(?:{'|'.join(rest)})" for it, rest in ends.items()))


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    """One pattern for each language and sign, to be searched in a text in lower case.

    A pattern that ignores case takes twice the time.
    """
    lexicon, patterns = _lexicon(), dict[str, re.Pattern[str]]()
    for heading, lines in lexicon.rules:
        parts = "|".join(lexicon.expand(line) for line in lines)
        whole = rf"(?<!\w)(?:{parts})(?!\w)" if heading.text.startswith("en ") else parts
        if parts.startswith("^"):
            whole = rf"(?:{parts})\b"
        patterns[heading.text] = lexicon.compile(heading, whole)
    return patterns


@cache
def _patterns_of(sign: str) -> tuple[re.Pattern[str] | None, re.Pattern[str] | None]:
    """The patterns of a sign in English and Chinese."""
    return _patterns().get(f"en {sign}"), _patterns().get(f"zh {sign}")


@lru_cache(maxsize=64)  # a text is searched for many signs in turn
def _folded(text: str) -> tuple[str, bool, bool]:
    """A text in lower case, and whether it has Latin and Chinese letters."""
    return text.lower(), _LATIN.search(text) is not None, _HAN.search(text) is not None


@cache
def _topics() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple(it for it in _patterns().items() if " topic " in it[0])
