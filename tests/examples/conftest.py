"""Examples as their readers use them: installed, or on the Python path."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from verl_video_tools import methods
from verl_video_tools.core.types import Method
from verl_video_tools.testing.run import check_method

EXAMPLES = Path(__file__).parents[2] / "examples"


def failed_properties(method: str | type[Method]) -> dict[str, str | None]:
    """Why, by the property that does not hold."""
    findings = check_method(method)
    assert any(finding.status == "pass" for finding in findings)
    return {finding.property: finding.reason for finding in findings if finding.status == "fail"}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """`install(name)` does what `uv pip install -e examples/NAME` does, for one test, and gives the folder.

    An editable installation is metadata made of `pyproject.toml`, and the folder on the path.
    """

    def install(name: str) -> Path:
        folder = EXAMPLES / name
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        metadata = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        groups = [
            "\n".join([f"[{group}]", *(f"{key} = {value}" for key, value in points.items())])
            for group, points in project["entry-points"].items()
        ]
        (metadata / "entry_points.txt").write_text("\n".join(groups))
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.syspath_prepend(str(folder))
        methods.installed_methods.cache_clear()
        return folder

    yield install
    methods.installed_methods.cache_clear()
