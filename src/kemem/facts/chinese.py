"""Chinese sentences read clause by clause: who is spoken of, and what is said of them."""

import re
from collections.abc import Iterator
from dataclasses import replace

from kemem.facts.announced import with_beginning
from kemem.facts.grammar import Clause, Part, Reader, Statement, Subject, named
from kemem.facts.sentences import Sentence, is_open, without_asides, without_times

_SUBJECTLESS = {"user_preference", "residence", "health"}  # as answers often are: 不吃辣


class Chinese(Reader):
    """Reads what one speaker says in Chinese, where a clause often names no subject."""

    def parts(self, sentence: Sentence) -> list[Part]:
        parts: list[Part] = []
        about: Subject | None = None
        of_thing = False  # the clause before speaks of something that is not the speaker
        # Or of somebody else: rules do not know whom.
        of_other = bool(self.discourse.introduced) or self.discourse.other
        for clause, silent in self.clauses(sentence):
            new: list[Statement] = []
            if silent:
                parts.append(Part(clause, clause, silent=True))
                continue
            if self.pattern("STANDING").fullmatch(clause):
                wish = f"{self.me.label}希望{self.third_person(clause)}"
                new = [Statement(wish, "user_preference")]
            elif (of_thing or of_other or self.pattern("ADVICE").match(clause)) and not any(
                self.readings(clause)
            ):
                pass  # 舞蹈课改到八点，搬到文化馆了; 班长结婚了，搬到北京了; 习惯就好
            elif not self.pattern("ORDER").match(clause) and not re.search("[你您]", clause):
                new = self.statements_of(clause, about, not parts)
                if parts and about is None and not any(self.readings(clause)):
                    # Whom a clause means whose sentence began with somebody else is not certain.
                    new = [replace(it, relations=()) for it in new]
            reading = next(self.readings(clause), None)
            about = new[-1].about if new else about
            said_of = about if new else self.spoken_of(reading)
            self.discourse.subject = said_of or self.discourse.subject
            of_thing = of_thing or self.pattern("OF_THING").match(clause) is not None
            bare = without_times(clause)
            somebody = self.names_other(bare, said_of)
            if opens := somebody or said_of or not self.is_subjectless(bare):
                of_other, self.discourse.other = somebody or said_of is None, somebody
            note = self.text(clause, reading) if reading else self.third_person(clause)
            introduction = "" if opens else self.discourse.introduced
            if self.introduces(bare, said_of):
                of_other, about, self.discourse.introduced = True, None, note
            elif opens:
                self.discourse.introduced = ""
            subject = reading.subject if reading else None
            stands = reading is not None and bool(reading.predicate)
            parts.append(Part(clause, note, tuple(new), subject, stands, introduction=introduction))
            self.mention(clause, new)
        return parts

    def names_other(self, clause: str, about: Subject | None) -> bool:
        """Whether a clause speaks of somebody of whom rules know nothing.  听说陈老师不干了"""
        own = about is None or about.topic == self.me.topic
        others = ("OTHER", "PRONOUN", "HEARSAY", "MY_OTHER", "STRANGER")
        return own and any(self.pattern(it).match(clause) for it in others)

    def is_subjectless(self, clause: str) -> bool:
        """Whether a clause has no subject, or something of the speaker's: 辞职了, 房子卖了

        Any other clause is taken for one of somebody else: better silent than wrong.
        """
        to_them = self.pattern("ORDER").match(clause) or re.search("[你您]", clause)
        return bool(to_them or self.pattern("SUBJECTLESS").match(clause))

    def introduces(self, clause: str, about: Subject | None) -> bool:
        """Whether a clause introduces somebody of whom rules know nothing else.  有个老顾客"""
        own = about is None or about.topic == self.me.topic
        return own and self.pattern("INTRODUCES").match(clause) is not None

    def spoken_of(self, reading: Clause | None) -> Subject | None:
        """Whom a clause is about that no rule knows: the speaker, or somebody in their role."""
        subject = reading.subject if reading and reading.predicate else None
        sure = subject and (subject.role or subject.topic == self.me.topic)
        return subject if sure else None

    def clauses(self, sentence: Sentence) -> list[tuple[str, bool]]:
        """The clauses, and whether each is silent: a question, a supposition, filler."""
        clauses: list[str] = []
        for part in self.pattern("BORDER").split(self.pattern("NAMED").sub(r"\1，", sentence.text)):
            text = part.strip()
            if clauses and (
                is_open(clauses[-1]) or self.pattern("TOGETHER").search(f"{clauses[-1]}，{text}")
            ):
                clauses[-1] += f"，{text}"
            elif clauses and not without_times(clauses[-1]):
                clauses[-1] += text
            else:
                clauses.append(text)
        opened = [*map(self.without_opener, clauses)]
        asks, filler = self.pattern("ASKS"), self.pattern("FILLER")
        doubt = sentence.asks and self.pattern("TAG").fullmatch(opened[-1])
        marked, supposed = [], False
        for at, clause in enumerate(opened, 1):
            supposed = supposed or bool(self.pattern("SUPPOSED").search(clause))
            asked = asks.search(clause) or (sentence.asks and at == len(opened))
            marked.append((clause, bool(doubt or supposed or asked or filler.fullmatch(clause))))
        return [it for it in marked if it[0]]

    def statements_of(self, text: str, last: Subject | None, first: bool) -> list[Statement]:
        """The statements of a clause by the first reading that a rule knows."""
        bare = without_times(without_asides(text))
        if last:
            bare, text = (re.sub("^其", "的", each) for each in (bare, text))
        if last and last.kind == "setting" and not self.pattern("PART").match(bare):
            last = last.owner
        own = self.pattern("ME").match(bare) or self.pattern("INTENDED").match(bare)
        implied = [Clause(self.me if own else last or self.me, "", f"@{bare}")]
        implied += [Clause(last or self.discourse.subject or self.me, "", bare)]
        timed = self.readings(text) if text != bare else ()
        for clause in [*self.readings(bare), *implied, *timed]:
            whole = clause.predicate.startswith("@")
            unclear = not clause.words and "我" in bare and not whole
            if unclear or self.pattern("MENTAL").match(clause.predicate):
                continue
            new = self.read(clause, self.text(text, clause))
            alone = first and new and new[0].state and not self.discourse.latest()
            sure = clause.words or last or whole or alone
            if new and (sure or new[0].memory_type in _SUBJECTLESS):
                return with_beginning(self, new, [clause])
        return with_beginning(self, self.general(text, bare, last), self.readings(bare))

    def readings(self, text: str) -> Iterator[Clause]:
        """The clause by its subject: the speaker, a pronoun, a name, or somebody in their role."""
        for subject, opening in self.openings(text):
            rest = text[len(opening) :]
            yield from self.role_clauses(subject, opening, rest)
            plural = replace(subject, label=f"{subject.label}等人")
            yield Clause(plural if opening[1:] == "们" else subject, opening, rest)
        if self.pattern("OWN_FAMILY").match(text):
            yield from self.role_clauses(self.me, "", text)

    def openings(self, text: str) -> Iterator[tuple[Subject, str]]:
        if match := self.pattern("ME").match(text):
            yield self.me, match.group()
        elif match := self.pattern("PRONOUN").match(text):
            if subject := self.discourse.resolve(self.tables["PRONOUNS"][match.group()]):
                yield subject, match.group()
        else:
            names = [match.group() for it in self.language.names if (match := it.match(text))]
            for name in dict.fromkeys(names):
                address = self.pattern("ADDRESS").match(text, len(name))
                called = name + (address.group() if address else "")
                yield replace(named(name), label=called), called

    def text(self, text: str, clause: Clause) -> str:
        """The clause in the third person, with its subject in full."""
        if clause.predicate.startswith("@"):
            of_me = clause.subject.topic == self.me.topic
            return ("" if of_me else clause.subject.label) + self.third_person(text)
        before, words, after = text.partition(clause.words) if clause.words else ("", "", text)
        label = clause.subject.label if words or not clause.words else ""
        return self.third_person(before) + label + self.third_person(after)

    def third_person(self, text: str) -> str:
        return self.pattern("OWN").sub(lambda _: self.me.label, text)

    def general(self, text: str, bare: str, last: Subject | None) -> list[Statement]:
        """A statement that no rule knows, if it tells something of somebody."""
        timed = bare != self.pattern("LATELY").sub("", text)
        other = self.pattern("OTHER").match(bare)
        implied = [Clause(last, "", bare)] if last and timed and not other else []
        for clause in [*self.readings(bare), *implied]:
            rest, subject = clause.predicate, clause.subject
            known = subject.entity in {*self.discourse.people, self.me.entity}
            sure = subject.entity != subject.topic or known
            long = len(rest) >= (2 if timed else 4)
            concrete = self.pattern("CONCRETE").search(rest) or self.pattern("TELLING").match(rest)
            idle = self.pattern("TRIVIAL").match(rest) or self.pattern("VAGUE").search(rest)
            if sure and long and (timed or concrete) and not idle:
                full, edges = self.text(text, clause), subject.relations
                return [Statement(full, "general", relations=edges, about=subject)]
        return []
