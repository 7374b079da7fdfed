"""Sentences read clause by clause: who is spoken of, and what is said of them.

An English clause is put into the third person first, a Chinese one when its text is written:
"I don't like my job" -> "User doesn't like user's job"
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from kemem.facts.announced import with_beginning
from kemem.facts.chinese import Chinese
from kemem.facts.grammar import Clause, Discourse, Part, Reader, Statement, Subject, named
from kemem.facts.language import language
from kemem.facts.sentences import Sentence, is_open, trimmed, without_asides, without_times

# What only people do: here the first word of a sentence may be trusted to be a name.
_PERSONAL = {"work", "residence", "education", "relationship", "identity", "health", "contact"}


def parts_of(sentence: Sentence, discourse: Discourse) -> list[Part]:
    """The clauses of a sentence with what rules read in them.

    我叫李明，住在北京 -> 用户叫李明; 用户住在北京
    I'm Emma and I live in Rome -> User is Emma; User lives in Rome
    """
    reader = Chinese if sentence.language == "zh" else _English
    return reader(discourse, sentence.language).parts(sentence)


def hands_over(sentence: Sentence) -> bool:
    """Whether a sentence is an order with its material, or opens a text or a play of others.

    翻译成英文：我喜欢雨天
    """
    patterns = language(sentence.language).patterns
    if patterns.pattern("FRAME").search(sentence.text):
        return True
    order = patterns.pattern("ORDER")
    if sentence.language == "en":
        return bool(order.match(sentence.text))
    before, colon, _ = sentence.text.replace(":", "：").partition("：")
    return bool(colon and (before.endswith(("说", "问", "道")) or order.match(before)))


class _English(Reader):
    def parts(self, sentence: Sentence) -> list[Part]:
        text = sentence.text
        if self.pattern("STANDING").fullmatch(text) and not sentence.asks:
            wish = self.third_person(text[:1].lower() + text[1:])
            wish = f"{self.me.label} wants this: {wish}"
            return [Part(text, wish, (Statement(wish, "user_preference"),))]
        parts: list[Part] = []
        for clause, silent in self.clauses(sentence):
            if silent:
                parts.append(Part(clause, clause, silent=True))
                self.mention(self.third_person(clause, "User"), ())
                continue
            owned = self.with_owner(clause)
            new = self.statements_of(owned)
            own = self.third_person(owned)
            reading = next(self.readings(own), None)
            note = self.text(own, reading) if reading else own
            subject = reading.subject if reading else None
            stands = reading is not None and bool(reading.predicate)
            if parts and not parts[-1].silent and self.pattern("OF_IT").search(clause):
                new, stands = [], False  # what "it" is stands in the clause before
            parts.append(Part(clause, note, tuple(new), subject, stands))
            self.mention(self.third_person(clause, "User"), new)
        return parts

    def clauses(self, sentence: Sentence) -> Iterator[tuple[str, bool]]:
        """The clauses, each with its subject, and whether it is silent: it asks or supposes."""
        whole = self.pattern("THE_USER").sub("User", sentence.text)
        whole = self.pattern("APPOSED").sub(r"\g<whose> \g<role> \g<name>", whole)
        introduced = self.pattern("THIS").sub(r"\1I'm ", whole)
        parts = self.borders(self.pattern("NAMED").sub(r"\1, I'm ", introduced))
        question, dropped = self.pattern("QUESTION"), self.pattern("DROPPED")
        doubt = sentence.asks and self.pattern("TAG").fullmatch(parts[-1])
        subject, supposed = "", False
        for at, part in enumerate(parts, 1):
            part = self.pattern("ASIDE").sub("", part)
            clause = part.removeprefix("who ").removeprefix("which ")
            idle = self.pattern("FILLER").fullmatch(part)
            doubtful = self.pattern("SUPPOSED").search(part)
            asked = part.endswith("?") or (sentence.asks and at == len(parts))
            if clause != part and (latest := self.discourse.latest()):
                subject = latest.label
            elif (
                idle is None
                and (who := self.subject_of(without_times(part), subject, at == 1)) is not None
            ):
                subject = who
                self.discourse.other = self.pattern("SOMEBODY").search(who) is not None
            elif question.match(part) and not (subject and dropped.match(part)):
                asked = True
            if asked:
                clause = clause.rstrip("?")
            elif subject and dropped.match(clause):
                clause = f"{subject} {clause}"
            elif subject not in ("", "I", "i") and self.pattern("GOING_ON").match(clause):
                several = " and " in subject or subject in ("We", "we", "They", "they")
                clause = f"{subject} {'are' if several else 'is'} {clause}"
            elif at > 1 and self.pattern("PROFILE").fullmatch(parts[0]) and clause[:1].islower():
                clause = f"{self.me.label} {clause}"
            elif subject in ("I", "i") or (at == 1 and self.is_alone()):
                clause = self.with_subject(clause)
            if clause:
                if self.pattern("TAKEN_BACK").match(part):
                    idle = self.pattern("RIGHTED").search(", ".join(parts[at:]))
                yield clause, bool(doubt or supposed or doubtful or asked or idle)
            supposed = supposed or bool(doubtful and doubtful.start() < 3)  # and what follows

    def subject_of(self, clause: str, before: str, first: bool) -> str | None:
        """Whom the next clause means if it names nobody: "" for somebody unclear, None as before.

        "My old landlord sold the house" -> "My old landlord"; "The lease is up" -> "I"
        """
        if heard := self.pattern("HEARSAY").match(clause):
            return self.subject_of(clause[heard.end() :], "", False) or ""
        if match := self.pattern("WHOLE_SUBJECT").match(clause):
            whole = match.group()
            own = self.pattern("OWN_THING").fullmatch(whole) is not None
            return (before or "I") if own else whole[0].upper() + whole[1:]
        if match := self.pattern("SUBJECT").match(clause):
            return match.group()
        if not first or not self.is_alone() or self.pattern("QUESTION").match(clause):
            return None
        opens = self.pattern("VERB_FIRST").match(clause) or self.with_subject(clause) != clause
        return "I" if opens else None

    def is_alone(self) -> bool:
        """Whether nobody but the speaker came up, who could be meant where nobody is named."""
        return not (self.discourse.latest() or self.discourse.other)

    def with_subject(self, clause: str) -> str:
        """A clause with the "I" that it leaves out.  "moved to Rome" -> "I moved to Rome" """
        if self.pattern("STARTING").match(clause):
            return clause
        for name, left_out in (("IMPLIED", "I"), ("BEEN", "I've"), ("DOING", "I'm")):
            if self.pattern(name).match(clause):
                return f"{left_out} {clause[0].lower()}{clause[1:]}"
        return clause

    def with_owner(self, clause: str) -> str:
        """A clause with whose something is.  "his name is Rex" -> "User's dog's name is Rex" """
        match = self.pattern("POSSESSIVE").match(clause)
        owner = match and self.discourse.resolve(self.tables["POSSESSIVES"][match["whose"].lower()])
        return f"{owner.label}'s {clause[match.end() :]}" if match and owner else clause

    def borders(self, text: str) -> list[str]:
        """A sentence at its borders; "my wife and I" has none inside."""
        first, *rest = self.pattern("BORDER").split(text)
        parts = [self.without_opener(trimmed(first))]
        for border, part in zip(rest[::2], rest[1::2], strict=True):
            two = "and" in border and self.pattern("MY").fullmatch(parts[-1])
            if is_open(parts[-1]):
                parts[-1] += border + trimmed(part)
            elif (two and (part[:2] in ("I ", "i ") or self.pattern("NAME").match(part))) or (
                "and" in border and self.is_wished_too(parts[-1], part)
            ):
                parts[-1] += f" and {part}"
            elif parts[-1] and not without_times(parts[-1]):  # Last Friday, I went
                parts[-1] = f"{part} {parts[-1][0].lower()}{parts[-1][1:]}"
            else:
                asks = border.strip() == "," and self.pattern("QUESTION").match(part)
                asks = asks and not part.startswith(("who ", "which "))
                parts.append(self.without_opener(trimmed(part)) + ("?" if asks else ""))
        return parts

    def is_wished_too(self, before: str, part: str) -> bool:
        """Whether a clause goes on with a wish.  "I want to live in Rome" | "work at a bar" """
        verb = part.partition(" ")[0]
        verbs = self.tables["MORE_VERBS"].keys() | self.tables["OR_NOUNS"].keys()
        return verb in verbs and self.pattern("WISHED").fullmatch(before) is not None

    def statements_of(self, clause_text: str) -> list[Statement]:
        """The statements of a clause by the first reading that a rule knows."""
        text, me = self.third_person(clause_text), self.me.label
        match = self.pattern("CONTRACTED").match(text)
        if match and match.group() != f"{me}'s ":  # Anna's from Rome
            text = f"{match.group()[:-3]} is {text[match.end() :]}"
        bare = without_times(without_asides(text))
        timed = self.readings(text) if text != bare else ()
        for clause in [*self.readings(bare), Clause(self.me, "", f"@{bare}"), *timed]:
            if self.pattern("YOU").search(clause.predicate) and clause.predicate[0] != "@":
                continue
            new = self.read(clause, self.text(text, clause))
            if new and (self.is_personal(new[0]) or self.is_sure(clause.subject)):
                return with_beginning(self, new, [clause])
        return with_beginning(self, self.general(text, bare), self.readings(bare))

    def readings(self, text: str) -> Iterator[Clause]:
        """The clause by its subject: the speaker, a pronoun, a name, or somebody in their role."""
        for subject, opening in self.openings(text):
            rest = self.pattern("ADVERB").sub(r"\1", text[len(opening) :])
            yield from self.role_clauses(subject, opening, rest)
            yield Clause(subject, opening, rest.lstrip(" ,"))

    def openings(self, text: str) -> Iterator[tuple[Subject, str]]:
        for one in self.discourse.mentioned():
            if text.startswith(f"{one.label}'s "):
                yield one, one.label
        me, own = self.me.label, re.escape(self.me.label)
        both = rf"(?:{own}'s [\w ]{{2,20}}|{self.pattern('NAME').pattern}) and {own}(?= )"
        match = re.match(both, text)
        group = match.group() if match else f"{me} and others"
        if text.startswith(f"{group} "):
            yield replace(self.me, label=group), group
        elif text.startswith((f"{me} ", f"{me}'s ")):
            yield self.me, me
        elif match := self.pattern("PRONOUN").match(text):
            if subject := self.discourse.resolve(match.group().lower()):
                yield subject, match.group()
        elif match := self.pattern("BARE").match(text):
            yield self.in_role(self.me, match.group().lower()), match.group()
        elif (match := self.language.names[0].match(text)) and not (
            self.tables["NOT_NAMES"].keys() & match.group().split()
        ):
            yield named(match.group()), match.group()

    def is_personal(self, statement: Statement) -> bool:
        """Whether only people do so: "Choir moved to the town hall" is said of no one."""
        placed = any(it[:1].isupper() for it in statement.values)
        is_home = statement.memory_type == "residence"
        return statement.memory_type in _PERSONAL and (placed or not is_home)

    def is_sure(self, subject: Subject) -> bool:
        """Whether a subject is somebody, not just the first word of a sentence."""
        first, blank, _ = subject.entity.partition(" ")
        known = blank or first in self.tables["FIRST_NAMES"] or first in self.discourse.people
        return bool(known) or "/" in subject.topic or subject.topic == self.me.topic

    def text(self, text: str, clause: Clause) -> str:
        """The clause with its subject in full."""
        return text.replace(clause.words, clause.subject.label, 1) if clause.words else text

    def general(self, text: str, bare: str) -> list[Statement]:
        """A statement that no rule knows, if it tells something of somebody."""
        timed = bare != text
        for clause in self.readings(bare):
            rest, subject = clause.predicate, clause.subject
            long = len(rest.split()) >= (1 if timed else 2) and self.pattern("VERB").match(rest)
            passing = not timed and self.pattern("PASSING").match(rest)
            idle = self.pattern("TRIVIAL").match(rest) or self.pattern("VAGUE").search(rest)
            own = self.pattern("CONCRETE").search(rest.replace(self.me.label, ""))
            telling = timed or own or self.pattern("TELLING").match(rest)
            if long and telling and not passing and not idle and self.is_sure(subject):
                full, edges = self.text(text, clause), subject.relations
                return [Statement(full, "general", relations=edges, about=subject)]
        return []

    def third_person(self, text: str, me: str = "") -> str:
        """A clause as said of the speaker.  "I'm glad I moved" -> "User is glad User moved" """
        me = me or self.me.label
        text = self.pattern("ME").sub(lambda match: self.spoken(match, me), text)
        if f"{me} " in text:
            text = self.with_more_verbs(text, me)

        def own(match: re.Match[str]) -> str:
            who = "user" if me == "User" and match.group()[0].islower() else me
            return f"{who}'s" if match["owner"] else who

        text = self.pattern("OWN").sub(own, text)
        return text[:1].upper() + text[1:] if text.startswith("user's ") else text

    def spoken(self, match: re.Match[str], me: str) -> str:
        """The speaker and the verb.  "I really live" -> "User really lives" """
        joined, rest = match["joined"] or "", match["rest"]
        if match["me"].lower() == "we":
            plural = self.tables["PLURAL"].get(joined)
            return f"{me} and others {plural}{rest}" if plural else f"{me} and others{rest}"
        if joined:
            return f"{me} {self.tables['THIRD_PERSON'].get(joined, 'is')}{rest}"
        words = rest.split()
        if match.string[: match.start()].endswith("and "):  # my husband and I live
            return " ".join([me, *words])
        for at, word in enumerate(words):
            if word in self.tables["NO_ADVERB"] or not self.pattern("BEFORE_VERB").fullmatch(word):
                words[at] = self.verb_s(word)
                break
        return " ".join([me, *words])

    def with_more_verbs(self, text: str, me: str) -> str:
        """All verbs of the speaker in the third person.  "User drives and pay" -> "… and pays" """
        before, _, said = text.rpartition(f"{me} ")
        if before.endswith(" and ") or said.startswith("and "):  # "my wife and I": a plural
            return text
        words = [it for it in said.split() if not self.pattern("BEFORE_VERB").fullmatch(it)]
        verb = words[0] if words else ""
        if verb in self.tables["INFINITIVE"] or self.pattern("INTENDED").match(" ".join(words)):
            return text
        other = self.pattern("ELSE").search(said)
        own = said[: other.start()] if other else said

        def inflected(match: re.Match[str]) -> str:
            if match["noun"] and verb in self.tables["TASTES"]:
                return match.group()
            return f"{match['joint']}{self.verb_s(match['verb'] or match['noun'])}"

        return f"{before}{me} {self.pattern('MORE').sub(inflected, own)}{said[len(own) :]}"

    def goes_on(self, item: str) -> bool:
        """Whether what follows in a list is a predicate.  "eats meat and avoids dairy" """
        verb = item.partition(" ")[0]
        return super().goes_on(item) or verb in self.more_verbs()

    def more_verbs(self) -> set[str]:
        """The verbs that may be coordinated, in the third person."""
        verbs = (*self.tables["MORE_VERBS"], *self.tables["OR_NOUNS"])
        return {self.verb_s(it) for it in verbs} | {*self.tables["MORE_VERBS"]}

    def verb_s(self, verb: str) -> str:
        """The third person of a verb: live -> lives, study -> studies, went -> went"""
        if form := self.tables["THIRD_PERSON"].get(verb):
            return form
        past = verb.endswith("ed") and verb not in ("need", "feed", "breed", "speed")
        if past or verb in self.tables["SAME_FORM"]:
            return verb
        if verb.endswith("y") and verb[-2:-1] not in "aeiou":
            return verb[:-1] + "ies"
        return verb + ("es" if verb.endswith(("s", "x", "z", "ch", "sh", "o")) else "s")
