"""Curves as SVG: a few values over sizes, both axes logarithmic."""

from collections.abc import Mapping, Sequence
from math import log10
from pathlib import Path

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 560, 300, 60, 40, 34, 130
COLOURS = ("#2563eb", "#d97706", "#059669")
Figures = Mapping[int, Mapping[str, float]]  # by size, by name
PLOTS = {  # by kind of size: a title with its unit, and the figures in it
    "rows": {
        "Search, CPU ms": ("hybrid_p50", "lexical_p50", "semantic_p50"),
        "First search of a process, ms": ("first_ms", "later_first_ms"),
        "Adding one message, CPU ms": ("add_cpu_ms",),
        "Memory, MB": ("resident_mb",),
        "Disk, bytes for each message": ("bytes_per_message",),
        "Messages a second, in batches": ("ingest_per_s",),
    },
    "users": {
        "Search and add, CPU ms": ("search_p50", "add_p50"),
        "List of users and overview, CPU ms": ("listing_ms", "overview_ms"),
        "Memory, MB": ("resident_mb",),
    },
}


def write_plots(folder: Path, kind: str, results: Figures) -> list[Path]:
    """One file for each plot of which there are figures."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for title, names in PLOTS[kind].items():
        lines = {
            name: [(size, own[name]) for size, own in sorted(results.items()) if name in own]
            for name in names
            if any(name in own for own in results.values())
        }
        if any(len(points) > 1 for points in lines.values()):
            path = folder / f"scale_{kind}_{names[0]}.svg"
            path.write_text(svg(f"{title}, by {kind}", lines), "utf-8")
            written.append(path)
    return written


def svg(title: str, lines: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """A plot of some lines; the axes end at powers of ten."""
    points = [point for own in lines.values() for point in own]
    x_low, x_high = (round(log10(end(x for x, _ in points))) for end in (min, max))
    bottom = int(log10(min(y for _, y in points)) // 1)
    top = max(bottom + 1, -int(-log10(max(y for _, y in points)) // 1))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (log10(x) - x_low) / max(x_high - x_low, 1)
        up = (log10(y) - bottom) / (top - bottom)
        height = HEIGHT - BOTTOM - TOP
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * height

    parts = [_text(LEFT, 18, title, 14)]
    for power in range(bottom, top + 1):
        _, y = place(10**x_low, 10**power)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 6, y + 4, f"{10**power:,g}", anchor="end"))
    for power in range(x_low, x_high + 1):
        x, _ = place(10**power, 10**bottom)
        parts.append(_text(x, HEIGHT - BOTTOM + 18, f"{10**power:,}", anchor="middle"))
    for colour, (name, own) in zip(COLOURS, lines.items(), strict=False):
        places = [place(*point) for point in own]
        route = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{route}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        parts += [
            _text(x, y - 7, f"{it:,.4g}", 10, "middle")
            for (x, y), (_, it) in zip(places, own, strict=True)
        ]
        parts.append(_text(places[-1][0] + 12, places[-1][1] + 4, name, colour=colour))
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>\n"])


def _text(
    x: float, y: float, text: str, size: int = 11, anchor: str = "start", colour: str = "#333"
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {place}>{text}</text>"
