"""The package's import graph as a picture: `python docs/make_architecture.py` writes docs/images/architecture.svg.

Parts (folders and single modules below the package) stand on a diagonal, in the order of import-linter's first contract
in pyproject.toml. An import goes from the importing part to the right, turns at a dot, and goes down to what is
imported. One that went upwards would stand out in red, left of the diagonal.
"""

from __future__ import annotations

import ast
import tomllib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

REPO = Path(__file__).resolve().parents[1]
PACKAGE = "verl_video_tools"
TARGET = REPO / "docs" / "images" / "architecture.svg"
EXTERNAL = ("verl", "vllm", "ray")
"""Top-level packages of others that are drawn, as one box at the bottom."""

DOT_SIZES = {3: "1 to 3", 12: "4 to 12", 40: "13 to 40", 10**6: "more than 40"}
"""Import statements up to which a dot has its size: not their number, which would change with almost every commit."""
DOT_RADII = (2.5, 4.0, 5.5, 7.5)

STEP_X, STEP_Y = 56, 40
BOX_WIDTH, BOX_HEIGHT = 92, 26
LEFT, TOP = 430, 24
"""Where the first box has its centre, and its top; what a part is for stands to the left of it."""
SUMMARY_WIDTH, CHARACTER_WIDTH = 540, 5.8
"""Of a summary at most; of its characters on average."""

STYLE = """
  text { font: 12px sans-serif; fill: #1f2328 }
  .summary, .legend { font-size: 11px; fill: #59636e }
  .name { text-anchor: middle }
  .band { fill: #eff2f5 }
  rect.part { fill: #ddf4ff; stroke: #0969da }
  rect.external { fill: #fff8c5; stroke: #9a6700 }
  .line { stroke: #818b98; stroke-width: 1; fill: none }
  .dot { fill: #0969da }
  .upward { stroke: #cf222e; stroke-width: 2; fill: none }
  .upward.dot { fill: #cf222e }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .summary, .legend { fill: #9198a1 } .band { fill: #1b2028 }
    rect.part { fill: #10233f; stroke: #4493f8 } rect.external { fill: #2e2a1f; stroke: #d29922 }
    .line { stroke: #59636e } .dot { fill: #4493f8 }
  }
"""


class Part(NamedTuple):
    """A box: its name, what it is for, and the row of the contract that it stands in (-1: not in the contract)."""

    name: str
    summary: str
    layer: int


def layers() -> list[list[str]]:
    """The parts of each layer, from the top down, as the linter checks them."""
    settings = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    return [row.split(" | ") for row in settings["contracts"][0]["layers"]]


def find_parts() -> list[Part]:
    """All parts that there are; those that the contract does not name come first."""
    root = REPO / PACKAGE
    folders = {path.parent.name: path for path in root.glob("*/__init__.py")}
    files = folders | {path.stem: path for path in root.glob("*.py")}
    rank = {name: number for number, row in enumerate(layers()) for name in row}
    names = sorted(files.keys() - {"__init__"}, key=lambda name: (rank.get(name, -1), name))
    return [Part(name, summary(files[name]), rank.get(name, -1)) for name in names]


def summary(path: Path) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".").replace("`", "")


def shortened(text: str, width: int) -> str:
    """As much of a text as has room in `width`."""
    most = int(width / CHARACTER_WIDTH)
    return text if len(text) <= most else text[: most - 3].rpartition(" ")[0] + " ..."


def imported_modules(path: Path) -> Iterator[str]:
    """Modules of this package and of `EXTERNAL` that a file imports, anywhere in it; once for each statement."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            from_package = node.module == PACKAGE
            yield from (f"{PACKAGE}.{name.name}" for name in node.names) if from_package else (node.module,)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def count_imports(names: set[str]) -> Counter[tuple[str, str]]:
    """Number of import statements from part to part, and from part to `EXTERNAL`."""
    root = REPO / PACKAGE
    counts: Counter[tuple[str, str]] = Counter()
    for path in sorted(root.rglob("*.py")):
        source = path.relative_to(root).parts[0].removesuffix(".py")
        for module in imported_modules(path) if source in names else ():
            top, _, rest = module.partition(".")
            target = rest.partition(".")[0] if top == PACKAGE else "external" if top in EXTERNAL else ""
            if target in names | {"external"} and target != source:
                counts[source, target] += 1
    return counts


def draw(parts: list[Part], counts: Counter[tuple[str, str]]) -> str:
    """The picture as SVG."""
    boxes = [*parts, Part("external", "Not ours", len(parts))]
    x = {part.name: LEFT + STEP_X * number for number, part in enumerate(boxes)}
    y = {part.name: TOP + STEP_Y * number for number, part in enumerate(boxes)}
    width, height = LEFT + STEP_X * len(boxes) + BOX_WIDTH // 2, TOP + STEP_Y * len(boxes) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>Which part of the package imports which</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">',
        '<path d="M0 0 8 4 0 8z" fill="#818b98"/></marker></defs>',
        *draw_bands(boxes, y, width),
        *draw_imports(counts, x, y),
    ]
    for part in boxes:
        left, middle = x[part.name] - BOX_WIDTH // 2, y[part.name] + BOX_HEIGHT // 2 + 4
        purpose = shortened(part.summary, min(left - 16, SUMMARY_WIDTH))
        kind, shown = ("external", "verl, vLLM, Ray") if part.name == "external" else ("part", part.name)
        lines += [
            f'<rect class="{kind}" x="{left}" y="{y[part.name]}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4"/>',
            f'<text class="name" x="{x[part.name]}" y="{middle}">{escape(shown)}</text>',
            f'<text class="summary" x="8" y="{middle}">{escape(purpose)}</text>',
        ]
    lines += [*draw_legend(height - 14), "</svg>"]
    return "\n".join(lines) + "\n"


def draw_bands(boxes: list[Part], y: dict[str, int], width: int) -> Iterator[str]:
    """A tint behind every other layer."""
    for number, layer in enumerate(sorted({part.layer for part in boxes})):
        rows = [y[part.name] for part in boxes if part.layer == layer]
        if number % 2 == 0:
            top, tall = rows[0] - (STEP_Y - BOX_HEIGHT) // 2, rows[-1] - rows[0] + STEP_Y
            yield f'<rect class="band" x="0" y="{top}" width="{width}" height="{tall}"/>'


def draw_imports(counts: Counter[tuple[str, str]], x: dict[str, int], y: dict[str, int]) -> Iterator[str]:
    """Lines first, then dots, which stand on them: a crossing without a dot is no import."""
    dots = []
    for (source, target), number in sorted(counts.items()):
        downward = y[target] > y[source]
        side = 1 if downward else -1
        start, level = x[source] + side * BOX_WIDTH // 2, y[source] + BOX_HEIGHT // 2
        end = y[target] - 1 if downward else y[target] + BOX_HEIGHT + 1
        kind = "line" if downward else "upward"
        yield f'<path class="{kind}" d="M{start} {level}H{x[target]}V{end}" marker-end="url(#tip)"/>'
        radius = DOT_RADII[bisect_left(list(DOT_SIZES), number)]
        dots.append(
            f'<circle class="{"" if downward else "upward "}dot" cx="{x[target]}" cy="{level}" r="{radius}">'
            f"<title>{source} imports {target}</title></circle>"
        )
    yield from dots


def draw_legend(level: int) -> Iterator[str]:
    yield f'<text class="legend" x="8" y="{level}">import statements:</text>'
    for number, (radius, label) in enumerate(zip(DOT_RADII, DOT_SIZES.values(), strict=True)):
        left = 120 + 80 * number
        yield f'<circle class="dot" cx="{left}" cy="{level - 4}" r="{radius}"/>'
        yield f'<text class="legend" x="{left + 12}" y="{level}">{label}</text>'


def make_picture() -> str:
    """The picture of the package as it is."""
    parts = find_parts()
    return draw(parts, count_imports({part.name for part in parts}))


if __name__ == "__main__":
    TARGET.write_text(make_picture(), encoding="utf-8")
