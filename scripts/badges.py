"""Draws the badges of the README into docs/images/, from the metadata of the package.

    .venv/bin/python scripts/badges.py

They are files of the repository, so that its pages load nothing from elsewhere. A test compares
them with the metadata.
"""

import tomllib
from pathlib import Path

from kemem import __version__

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs/images"
LETTER = 6.6  # width of a letter in px
PADDING = 7
SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img"
  aria-label="{label}: {value}">
  <rect width="{width}" height="20" rx="3" fill="#00796b"/>
  <path d="M3 0H{left}V20H3A3 3 0 0 1 0 17V3A3 3 0 0 1 3 0Z" fill="#455a64"/>
  <g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
    <text x="{padding}" y="14" textLength="{label_width}">{label}</text>
    <text x="{value_x}" y="14" textLength="{value_width}">{value}</text>
  </g>
</svg>
"""


def badge(label: str, value: str) -> str:
    label_width, value_width = (round(len(text) * LETTER) for text in (label, value))
    left = label_width + 2 * PADDING
    return SVG.format(
        label=label,
        value=value,
        left=left,
        padding=PADDING,
        label_width=label_width,
        value_x=left + PADDING,
        value_width=value_width,
        width=left + value_width + 2 * PADDING,
    )


def badges() -> dict[str, str]:
    """The badges by the names of their files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pythons = [it.rpartition(" ")[2] for it in project["classifiers"] if ":: 3." in it]
    return {
        "badge-version.svg": badge("version", __version__),
        "badge-python.svg": badge("python", f"{pythons[0]} – {pythons[-1]}"),
        "badge-licence.svg": badge("licence", project["license"]),
    }


if __name__ == "__main__":
    for name, svg in badges().items():
        (IMAGES / name).write_text(svg, "utf-8")
