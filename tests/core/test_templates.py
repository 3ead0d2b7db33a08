"""Templates of messages: how values are put in, and which files are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.prompts import Template, render, templates_digest
from verl_video_tools.core.types import FrameRecord, ImagePart
from verl_video_tools.methods import METHOD_NAMES, get_method
from verl_video_tools.methods.direct import Direct


@dataclass(frozen=True, kw_only=True)
class Telling(Direct):
    """A method with one template."""

    def message_templates(self) -> Mapping[str, Template]:
        return {"observation": Template('{"json": 1}\n{frames}\n{why}', once=("frames",), optional=("why",))}


def image(index: int) -> ImagePart:
    return ImagePart(FrameRecord(index, float(index), 28, 28))


def test_render() -> None:
    first, second = image(0), image(1)
    content = render(Telling(), "observation", frames=("0.0s ", first, "\n1.0s ", second), why="{frames}")
    assert content == ('{"json": 1}\n0.0s ', first, "\n1.0s ", second, "\n{frames}")
    assert render(Telling(), "observation", frames=(), why="no frame") == ('{"json": 1}\n\nno frame',)


def test_file_replaces_text(tmp_path: Path) -> None:
    path = tmp_path / "templates.toml"
    path.write_text("observation = '''\nSeen:\n{frames} and {braces}'''\n")
    method = Telling(templates_file=str(path))
    assert render(method, "observation", frames=(image(0),), why="left out") == ("Seen:\n", image(0), " and {braces}")
    digest = templates_digest(str(path))
    path.write_text("observation = 'edited: {frames}'\n")
    assert render(method, "observation", frames=(image(0),))[0] == "Seen:\n"  # an edit does not change a run
    assert templates_digest(str(path)) == digest is not None
    assert templates_digest(None) is None


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("observation = 'no frames'", "observation must hold {frames} exactly once"),
        ("observation = '{frames}{frames}'", "observation must hold {frames} exactly once"),
        ("observation = '{frames}{why:.1f}'", "observation holds {why:.1f}, which nothing fills"),
        ("error = 'x'", "direct has no template 'error'; its templates are: observation"),
        ("observation = 1", "observation must be a text, got 1"),
        ("observation = ", "cannot read templates_file"),
    ],
)
def test_refused_files(tmp_path: Path, written: str, told: str) -> None:
    path = tmp_path / "templates.toml"
    path.write_text(written)
    with pytest.raises(UsageError, match=told.replace("{", r"\{").replace("}", r"\}")):
        Telling(templates_file=str(path))


def test_missing_file_and_method_without_templates(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read templates_file"):
        Telling(templates_file=str(tmp_path / "missing.toml"))
    path = tmp_path / "templates.toml"
    path.write_text("observation = '{frames}'")
    with pytest.raises(UsageError, match="direct has no template 'observation'; its templates are: none"):
        Direct(templates_file=str(path))


NOT_LISTED = ("direct", "framemind", "compose")
"""Two have none, those of the other are keys of its file (docs/compose.md)."""


def test_page_lists_every_template() -> None:
    page = (Path(__file__).parents[2] / "docs" / "templates.md").read_text(encoding="utf-8")
    rows = {line for line in page.splitlines() if line.startswith("| `") and line.count("|") == 5}
    assert rows == {row for name in METHOD_NAMES if name not in NOT_LISTED for row in _rows(name)}


def _rows(method_name: str) -> Iterator[str]:
    def listed(placeholders: Sequence[str]) -> str:
        return ", ".join(f"`{{{placeholder}}}`" for placeholder in placeholders)

    for compat in ("strict", "reference"):
        for name, template in get_method(method_name, compat=compat).message_templates().items():
            yield f"| `{method_name}` | `{name}` | {listed(template.once)} | {listed(template.optional)} |"
