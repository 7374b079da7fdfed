"""How often is personal data found in ordinary conversations? Read the findings to judge them.

python -m bench.privacy --data PATH [--show 5]

The file is that of bench.retrieval. Counts findings by language and kind, and shows the first of
each with the text around them. What is shown holds texts of the sets: mind their licences.
"""

import argparse
from collections import Counter
from pathlib import Path

from bench.scoring import users
from kemem.records.privacy import DATA_KINDS
from kemem.text.personal import find_personal_data

AROUND = 30  # characters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--show", type=int, default=0, help="findings of each kind to show")
    options = parser.parse_args()
    messages, found = Counter[str](), Counter[tuple[str, str]]()
    for user in users(options.data, ()):
        language = user["lang"]
        for message in user["messages"]:
            messages[language] += 1
            text = message["content"]
            for start, end, kind in find_personal_data(text):
                found[language, kind] += 1
                if found[language, kind] <= options.show:
                    before, after = text[max(start - AROUND, 0) : start], text[end : end + AROUND]
                    print(f"{language} {kind}: {before!r} >{text[start:end]!r}< {after!r}")
    for language, count in sorted(messages.items()):
        kinds = ", ".join(f"{kind} {found[language, kind]}" for kind in DATA_KINDS)
        print(f"{language}: {count} messages: {kinds}")


if __name__ == "__main__":
    main()
