"""English sentences read clause by clause: who is spoken of, and what is said of them."""

import re
from collections.abc import Iterator
from dataclasses import replace

from kemem.facts.dates import without_times
from kemem.facts.english_person import third_person
from kemem.facts.english_rules import FIRST_NAMES, MOODS, NAME, english
from kemem.facts.grammar import Clause, Statement, Subject, Talk, in_roles, named, read
from kemem.facts.sentences import Sentence
from kemem.text.patterns import any_word, words

_VERBS = any_word("""
live lives work works study studies love loves like likes hate hates prefer prefers speak speaks
play plays have has own owns drive drives use uses am is was grew moved don't doesn't can't enjoy
enjoys dislike dislikes switched started joined became graduated
""")
_BORDER = re.compile(
    r"(;|,?\s+(?:and|but|so|while|although|yet)\s+(?:also\s+|now\s+)?"
    rf"(?=(?:I|i|we|he|she|they|my|our|it|the \w+ (?:is|was|has)|{_VERBS}"
    r"|everyone|everybody|people|(?:please|you can|just) call|call me)\b)"
    r"|,\s*(?=(?:I|i|we|my|he|she|who|which|can|could|what|how|is|do)\b)"
    r"|,\s*(?=the \w+ (?:is|are|was|were)\b))"
)
# What follows a name without "I am".  "I'm Ann, a nurse" -> "I'm Ann, I'm a nurse"
_NAMED = re.compile(
    rf"((?:I'm|I am|[Mm]y name(?: is|'s)|[Cc]all me) {NAME}),? "
    r"(?=(?:an?|the|from|living|working|studying|\d+)\b)"
)
_THIS = re.compile(  # one who speaks, not one who is shown
    r"((?:[Hh]i|[Hh]ello|[Hh]ey)\b[\w ]{0,16},? )?[Tt]his is "
    rf"(?={NAME}(?(1)|(?:,| and) I(?:'m| am| work| live| study)\b))"
)
_SUPPOSED = re.compile(
    r"\b(?:if|unless|suppose|imagine|pretend|assuming|wish|let's say|would be|would have)\b", re.I
)
_ASKS = any_word("""
what where when who whom whose which why how can could would should will do does did is are am was
were have has may shall any isn't don't doesn't aren't won't can't
""")
_QUESTION = re.compile(rf"{_ASKS}\b", re.I)
_TASKS = any_word("""
translate summari[sz]e explain rewrite fix correct write answer proofread edit improve convert
analy[sz]e review check say repeat paraphrase
""")
_ORDER = re.compile(rf"(?:please\s+)?{_TASKS}\b[^:]*:|.*\bsa(?:id|ys?):", re.I)  # and its material
_WAYS = any_word("""
answer reply respond use write speak call give include keep format explain address ask add make show
tell be start end
""")
_STANDING = re.compile(
    r"(?:please )?(?:always|never|from now on,?|by default,?|in (?:the )?future,?) (?:please )?"
    rf"{_WAYS}\b.{{3,}}",
    re.I,
)
_REMEMBER = "(?:please )?(?:remember|note|don't forget)"
_HELLO = any_word("""
hi hello hey well oh ah yes yeah no nope ok okay so also actually btw by_the_way fyi and but sure
thanks thank_you right anyway honestly in_fact just_so_you_know as_I_said as_I_mentioned
for_the_record because besides
""")
_OPENER = re.compile(
    rf"(?:{_HELLO}|{_REMEMBER})(?:[,:!—-]+\s*|\s+(?=I\b|my\b|we\b))|{_REMEMBER} that\s+", re.I
)
_IDLE = any_word("""
would could should can may might thinks? guess(?:es)? knows? sees? agrees? understands? wonders?
means? hopes? believes? feels? needs? wants? tr(?:y|ies|ied) said says told asks? asked doesn't
don't does_not didn't got_it appreciates? thanks? forgets? forgot supposes? remembers? figured
noticed heard has_to have_to hasn't haven't thought did
has_(?:a|an|another|some)_(?:question|problem|issue|request|idea)s?
""")
_MINE = "question|problem|point|guess|bad|mistake|goodness"
_TRIVIAL = re.compile(
    rf"(?:(?:is|are|was|were|has been) (?:not )?{any_word(MOODS)}|{_IDLE}|'s (?:{_MINE}))\b"
)
_PASSING = re.compile(r"(?:is|are) (?:trying|looking|getting|having|seeing|using|making)\b|will ")
_VAGUE = re.compile(
    r"\b(?:this|that|these|those|it|here|there|you|your|something|anything|him|them|they)\b", re.I
)
_CONCRETE = re.compile(
    r"\d|\b(?!I\b|I'|User\b)[A-Z][\w-]|\b(?:two|three|four|five|six|ten|dozen|hundred|million)\b"
)
_DEEDS = any_word("""
wear wore tak took build built writ wrote grow grew sell sold run ran lead led draw drew sing sang
sleep slept snor commut volunteer train coach rais collect manag paint cook bak garden hik camp fish
knit sew design develop research renovat rent own adopt stud practi[cs] rehears perform record
publish blog donat invest sav walk cycl bik swim jog smok pay paid earn sponsor host organi[sz]
redecorat plant repair restor tutor mentor danc handl appl sign roast
""")
_TELLING = re.compile(  # of things done, and of what somebody is
    r"(?:'s [\w ]+? )?(?:(?:is|are|was|were|has|have|been) )*"
    rf"(?:{_DEEDS}\w* \w|(?:a|an) \w|\w+-\w+$|[a-z]+ed in )"
)
_YOU = re.compile(r"\b(?:you|your|yours)\b", re.I)
_PRONOUN = re.compile(r"(?:He|She|They|he|she|they)\b")
_BARE = re.compile(r"(?:Mom|Mum|Dad)(?= [a-z])")
_NOT_NAMES = words("""
The This That These Those It There Here What Where When Who Why How Yes No Ok Okay Today Tomorrow
Yesterday Please Let And But So If Then Also Maybe Perhaps Everyone Someone Nobody People Thanks
Sorry Sure You Your In On At For With From After Before Since Because While Some Any All Most Many
One Two Not Never Always Just Now Still My Our His Her Their
""")
_CONTRACTED = re.compile(
    rf"(?:[Hh]e|[Ss]he|[Ii]t|(?:\w+'s \w+|{NAME})(?='s (?:\w+ing|an?|in|from|not|already) ))'s "
)
_ADVERBS = any_word("""
really just currently also now still actually mostly absolutely recently already finally both
definitely particularly especially generally originally personally so truly very pretty quite
""")
_ADVERB = re.compile(rf"^((?: \w+)? )(?:{_ADVERBS} )+")
# What only people do: here the first word of a sentence may be trusted to be a name.
_PERSONAL = {"work", "residence", "education", "relationship", "identity", "health", "contact"}
_VERB = re.compile(r"'s |and |is |are |was |has |had |have |will |can |[a-z]+(?:ed|s|t|w|e|n|d)\b")
_MY = re.compile(rf"[Mm]y(?: (?!{_VERBS}\b)\w+){{1,3}}|{NAME}")
_DROPPED = re.compile(rf"{_VERBS}\b")  # opens a clause that goes on about the same subject
_SUBJECT = re.compile(rf"(?:I|i|[Ww]e|[Hh]e|[Ss]he|[Tt]hey|[Mm]y \w+|{NAME})(?=\b)")


def english_statements(sentence: Sentence, talk: Talk) -> list[Statement]:
    """What a sentence states.  I'm Emma and I live in Rome -> User is Emma; User lives in Rome"""
    text = sentence.text
    if _SUPPOSED.search(text) or _ORDER.match(text):
        return []
    if _STANDING.fullmatch(text) and not sentence.asks:
        wish = third_person(text[:1].lower() + text[1:], talk.me.label)
        return [Statement(f"{talk.me.label} wants this: {wish}", "user_preference")]
    made: list[Statement] = []
    for said in _clauses(sentence, talk):
        found = _read(said, talk)
        if found:
            made += found
        for match in english().mine.finditer(third_person(said, "User")):
            talk.heard(english().one_of(talk.me, match["role"]))
        talk.heard(found[-1].about if found else None)
    return made


def _clauses(sentence: Sentence, talk: Talk) -> Iterator[str]:
    """The clauses that tell something, each with its subject; a question does not."""
    parts = _parts(_NAMED.sub(r"\1, I'm ", _THIS.sub(r"\1I'm ", sentence.text)))
    if sentence.asks and not _QUESTION.match(parts.pop()):
        return
    subject = ""
    for part in filter(None, parts):
        said = part.removeprefix("who ").removeprefix("which ")
        if said != part and (latest := talk.latest()):
            subject = latest.label
        elif found := _SUBJECT.match(without_times(part)):
            subject = found.group()
        elif _QUESTION.match(part) and not (subject and _DROPPED.match(part)):
            continue
        yield f"{subject} {said}" if subject and _DROPPED.match(said) else said


def _parts(text: str) -> list[str]:
    """A sentence at its borders; "my wife and I" has none inside."""
    first, *rest = _BORDER.split(text)
    parts = [_open(first.strip(" ,."))]
    for border, part in zip(rest[::2], rest[1::2], strict=True):
        if "and" in border and part[:2] in ("I ", "i ") and _MY.fullmatch(parts[-1]):
            parts[-1] += f" and {part}"
        elif parts[-1] and not without_times(parts[-1]):  # Last Friday, I went
            parts[-1] = f"{part} {parts[-1][0].lower()}{parts[-1][1:]}"
        else:
            parts.append(_open(part.strip(" ,.")))
    return parts


def _open(said: str) -> str:
    while match := _OPENER.match(said):
        said = said[match.end() :]
    return said


def _read(said: str, talk: Talk) -> list[Statement]:
    """The statements of a clause by the first reading that a rule knows."""
    told = _expanded(third_person(said, talk.me.label), talk.me.label)
    bare = without_times(told)
    for clause in [*_said(bare, talk), Clause(talk.me, "", f"@{bare}"), *_said(told, talk)]:
        if _YOU.search(clause.predicate) and clause.predicate[0] != "@":
            continue
        found = read(clause, _text(told, clause), english(), talk.me)
        if found and (found[0].memory_type in _PERSONAL or _sure(clause.subject, talk)):
            return found
    return _general(told, bare, talk)


def _expanded(told: str, me: str) -> str:
    """The first "'s" as a verb where it is one.  "Anna's from Rome" -> "Anna is from Rome" """
    match = _CONTRACTED.match(told)
    if match and match.group() != f"{me}'s ":
        return f"{match.group()[:-3]} is {told[match.end() :]}"
    return told


def _said(told: str, talk: Talk) -> Iterator[Clause]:
    """The clause by its subject: the speaker, a pronoun, a name, or somebody in a role of these."""
    for subject, opening in _openings(told, talk):
        rest = _ADVERB.sub(r"\1", told[len(opening) :])
        yield from in_roles(subject, opening, rest, talk, english())
        yield Clause(subject, opening, rest.lstrip(" ,"))


def _openings(told: str, talk: Talk) -> Iterator[tuple[Subject, str]]:
    me = talk.me.label
    both = re.match(rf"(?:{re.escape(me)}'s [\w ]{{2,20}}|{NAME}) and {re.escape(me)}(?= )", told)
    group = both.group() if both else f"{me} and others"
    if told.startswith(f"{group} "):
        yield replace(talk.me, label=group), group
    elif told.startswith((f"{me} ", f"{me}'s ")):
        yield talk.me, me
    elif match := _PRONOUN.match(told):
        if known := talk.meant(match.group().lower()):
            yield known, match.group()
    elif match := _BARE.match(told):
        yield english().one_of(talk.me, match.group().lower()), match.group()
    elif (match := english().names[0].match(told)) and not _no_name(match.group()):
        yield named(match.group()), match.group()


def _no_name(said: str) -> bool:
    return not _NOT_NAMES.isdisjoint(said.split())


def _sure(subject: Subject, talk: Talk) -> bool:
    """Whether a subject is somebody, not just the first word of a sentence."""
    first, blank, _ = subject.entity.partition(" ")
    named_so = bool(blank) or first in FIRST_NAMES or first in talk.known
    return named_so or "/" in subject.topic or subject.topic == talk.me.topic


def _text(told: str, clause: Clause) -> str:
    """The clause with its subject in full."""
    if clause.words and clause.subject.label != clause.words:
        return told.replace(clause.words, clause.subject.label, 1)
    return told


def _general(told: str, bare: str, talk: Talk) -> list[Statement]:
    """A statement that no rule knows, if it tells something of somebody."""
    for clause in _said(bare, talk):
        rest = clause.predicate
        timed, subject = bare != told, clause.subject
        long = len(rest.split()) >= (1 if timed else 2) and _VERB.match(rest)
        idle = _TRIVIAL.match(rest) or _VAGUE.search(rest) or (not timed and _PASSING.match(rest))
        own = rest.replace(talk.me.label, "")
        telling = timed or _CONCRETE.search(own) or _TELLING.match(rest)
        if long and telling and not idle and _sure(subject, talk):
            text = _text(told, clause)
            return [Statement(text, "general", relations=subject.relations, about=subject)]
    return []
