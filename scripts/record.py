"""Records a session of the command line in a pseudo-terminal as an animated SVG.

    python scripts/record.py docs/images/terminal.svg

The commands run for real in an empty data directory; the SVG shows what they printed. Pauses are
shortened to PAUSE seconds and typing has a fixed speed, so that a recording does not depend on
the machine. Ids are left out of the picture (they differ in every run).
"""

import os
import pty
import re
import sys
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path

SESSION = [
    'kemem add "My sister Mia lives in Hamburg." --user ann',
    'kemem add "Mia moved to Berlin." --user ann',
    'kemem search "Where does she live now?" --user ann --limit 1',
    'kemem search "她以前住在哪里？" --user ann --limit 1',
]
KEY, PAUSE, END = 0.04, 0.6, 5.0  # seconds: a key, a command's answer, the last picture
LEFT, LINE, LETTER = 16, 22, 8.4  # px
IDS = re.compile(r" *(·? *\b[mn]_[0-9A-Z]{26}\b)")
TOKENS = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|[\r\n]|[^\x1b\r\n]+")


def run(command: str, folder: str) -> list[str]:
    """What a command prints on a terminal."""
    printed = bytearray()

    def read(source: int) -> bytes:
        data = os.read(source, 4096)
        printed.extend(data)
        return data

    settings = {"KEMEM_DATA_DIR": folder, "NO_COLOR": "1", "COLUMNS": "90", "LANG": "C.UTF-8"}
    os.environ.update(settings)
    with Path(os.devnull).open("wb") as nothing:
        kept = os.dup(1)
        os.dup2(nothing.fileno(), 1)
        status = pty.spawn(["sh", "-c", command], read)
        os.dup2(kept, 1)
    lines = screen(printed.decode("utf-8"))
    if status:
        raise SystemExit(f"{command}\n" + "\n".join(lines))
    return [line for it in lines if (line := IDS.sub("", it).rstrip())]


def screen(printed: str) -> list[str]:
    """What a terminal shows in the end: progress bars that erased themselves are gone."""
    lines, row = [""], 0
    for token in TOKENS.finditer(printed):
        match token[2], token[0]:
            case "A", _:  # up
                row = max(0, row - int(token[1] or 1))
            case "K", _:  # erase
                lines[row] = ""
            case _, "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            case None, text if text != "\r":
                lines[row] += text
    return lines


def frames(folder: str) -> Iterator[tuple[float, float, str, bool]]:
    """When each line begins and ends to appear, its text, and whether it is typed."""
    now = PAUSE
    for command in SESSION:
        yield now, now + KEY * len(command), command, True
        now += KEY * len(command) + PAUSE
        for line in run(command, folder):
            yield now, now, line, False
        now += PAUSE


def draw(lines: list[tuple[float, float, str, bool]]) -> str:
    length = lines[-1][1] + END
    width = round(2 * LEFT + LETTER * max(len(text) + 2 for _, _, text, _ in lines)) + LINE
    height = LINE * (len(lines) + 2)
    styles, texts = [], []
    for number, (begin, end, text, typed) in enumerate(lines):
        first, last = (f"{100 * it / length:.2f}%" for it in (begin, max(end, begin + 0.01)))
        hidden = "clip-path:inset(0 100% 0 0)" if typed else "opacity:0"
        shown = "clip-path:inset(0 0 0 0)" if typed else "opacity:1"
        pace = f"steps({len(text)})" if typed else "steps(1,end)"
        styles.append(
            f"@keyframes l{number}{{0%,{first}{{{hidden}}}{last},100%{{{shown}}}}}"
            f"#l{number}{{animation:l{number} {length:.1f}s infinite {pace}}}"
        )
        y = LINE * (number + 2)
        mark = '<tspan fill="#4db6ac">$ </tspan>' if typed else ""
        colour = "#fff" if typed else "#b0bec5"
        texts.append(
            f'<text id="l{number}" x="{LEFT}" y="{y}" fill="{colour}">{mark}{escape(text)}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">'
        f"<style>text{{font:14px ui-monospace,Menlo,Consolas,monospace;white-space:pre}}"
        f"@media(prefers-reduced-motion:reduce){{text{{animation:none!important}}}}"
        f"{''.join(styles)}</style>"
        f'<rect width="{width}" height="{height}" rx="8" fill="#263238"/>'
        f"{''.join(texts)}</svg>\n"
    )


if __name__ == "__main__":
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with tempfile.TemporaryDirectory() as folder:
        Path(sys.argv[1]).write_text(draw(list(frames(folder))), "utf-8")
