"""A table as text: Markdown, and LaTeX to paste into a paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_LATEX_CHARACTERS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text.

    Attributes:
        num_text_columns: the columns after these are set flush right, as numbers.
        note: a sentence below it.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    num_text_columns: int
    note: str = ""

    def markdown(self) -> str:
        table = markdown_table(list(self.head), [list(row) for row in self.rows], self.num_text_columns)
        return f"{table}\n\n{self.note}" if self.note else table

    def latex(self) -> str:
        """A `tabular` with the rules of the package booktabs."""
        columns = "l" * self.num_text_columns + "r" * (len(self.head) - self.num_text_columns)
        head, *rows = (" & ".join(map(_in_latex, row)) + r" \\" for row in (self.head, *self.rows))
        lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *rows, r"\bottomrule"]
        return "\n".join([*lines, r"\end{tabular}", *([f"% {self.note}"] if self.note else [])])


def markdown_table(head: list[str], rows: list[list[str]], num_text_columns: int) -> str:
    """Cells as a table; the columns after the first `num_text_columns` are set flush right, as numbers."""
    marks = ["---"] * num_text_columns + ["---:"] * (len(head) - num_text_columns)
    cells = [[cell.replace("|", "\\|") for cell in row] for row in [head, *rows]]
    return "\n".join("| " + " | ".join(row) + " |" for row in [cells[0], marks, *cells[1:]])


def _in_latex(cell: str) -> str:
    return "".join(_LATEX_CHARACTERS.get(character, character) for character in cell)
