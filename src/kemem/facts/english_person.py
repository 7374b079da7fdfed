"""English from the first person into the third.  "I don't like my job" -> "User doesn't like …" """

import re

from kemem.text.patterns import words

_FORMS = {
    **{"am": "is", "'m": "is", "have": "has", "'ve": "has", "do": "does", "don't": "doesn't"},
    **{"haven't": "hasn't", "'ll": "will", "'d": "would", "go": "goes", "were": "was"},
    **{"ain't": "isn't", "dont": "doesn't", "im": "is", "weren't": "wasn't"},
}
_FIXED = words(  # the same in every person: modal verbs, and the past of strong verbs
    """
    can can't cannot could couldn't will won't would wouldn't should shouldn't must mustn't may
    might shall used is has does was did had didn't hadn't wasn't isn't hasn't doesn't ought not
    went got bought saw met made took came left lost won ate began broke built caught chose drank
    drove fell felt found flew forgot gave grew heard held kept knew led lent paid put ran said
    sang sat sent slept sold spent spoke stood swam taught thought threw told understood woke wore
    wrote quit hurt cut set became brought rode hid drew fed fought hit let lay lit meant read rose
    shot shut sank stuck stole swore tore upset cost wanna gonna gotta
    """
)
_ADVERB = re.compile(
    r"(?:also|always|no|longer|often|never|still|just|now|not|really|sometimes|even|already|only|ever|once"
    r"|mostly|rarely|seldom|currently|usually|both|all|kinda|\w{3,}ly)(?!\w)"
)
_NO_ADVERB = words("apply fly rely reply supply imply multiply comply")
_ME = re.compile(
    r"(?<![\w'@./-])(?P<me>I|i|[Ww]e)(?P<joined>'(?:m|ve|ll|d|re))?(?![\w'@/-])"
    r"(?P<rest>(?:\s+(?!(?:I|i|we)\b)[\w']+){0,4})"
)
_OWN = re.compile(  # not "US": that is a country
    r"(?<![\w'@./-])(?:(?P<owner>[Mm]y|[Mm]ine|[Oo]urs?)|[Mm]e|[Mm]yself|us)(?![\w'@./-])"
)


def verb_s(verb: str) -> str:
    """The third person of a verb.  "live" -> "lives", "study" -> "studies", "went" -> "went" """
    if verb in _FORMS:
        return _FORMS[verb]
    if verb in _FIXED or (verb.endswith("ed") and verb not in ("need", "feed", "breed", "speed")):
        return verb
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + ("es" if verb.endswith(("s", "x", "z", "ch", "sh", "o")) else "s")


def third_person(text: str, me: str) -> str:
    """A clause as said of the speaker.  "I'm glad I moved" -> "User is glad User moved" """
    told = _ME.sub(lambda match: _told(match, me), text)
    told = _OWN.sub(lambda match: _own(match, me), told)
    return told[:1].upper() + told[1:] if told.startswith("user's ") else told


def _told(match: re.Match[str], me: str) -> str:
    joined, rest = match["joined"] or "", match["rest"]
    if match["me"].lower() == "we":
        spoken = {"'m": " are", "'re": " are", "'ve": " have", "'ll": " will", "'d": " would"}
        return f"{me} and others{spoken.get(joined, '')}{rest}"
    if joined:
        return f"{me} {_FORMS.get(joined, 'is')}{rest}"
    words = rest.split()
    if match.string[: match.start()].endswith("and "):  # my husband and I live
        return " ".join([me, *words])
    for at, word in enumerate(words):
        if word in _NO_ADVERB or not _ADVERB.fullmatch(word):
            words[at] = verb_s(word)
            break
    return " ".join([me, *words])


def _own(match: re.Match[str], me: str) -> str:
    who = "user" if me == "User" and match.group()[0].islower() else me
    return f"{who}'s" if match["owner"] else who
