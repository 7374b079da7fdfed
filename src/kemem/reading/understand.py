"""First stage of search: what a question asks for."""

from datetime import UTC, datetime, timedelta

from kemem.reading.question import Asked
from kemem.text.query import parse
from kemem.text.when import time_phrases
from kemem.types import Micros


def understand(text: str, now: Micros) -> Asked:
    """Read a question.  "上周三吃了什么" -> its words, and Wednesday of last week"""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=now)
    return Asked(text, parse(text), tuple(time_phrases(text, moment)))
