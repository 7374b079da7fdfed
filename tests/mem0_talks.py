"""What is said to mem0's client, in both languages."""

from typing import Any

TALKS: dict[str, dict[str, Any]] = {
    "zh": {
        "said": [
            {"role": "user", "content": "我对花生过敏。"},
            {"role": "assistant", "content": "记住了。"},
        ],
        "asked": "花生",
        "verbatim": "下周去成都出差",
        "changed": "下周去重庆出差",
    },
    "en": {
        "said": [
            {"role": "user", "content": "I am allergic to peanuts."},
            {"role": "assistant", "content": "Noted."},
        ],
        "asked": "peanuts allergy",
        "verbatim": "Trip to Oslo next week",
        "changed": "Trip to Bergen next week",
    },
}
