"""The defects of other packages that we work around are still there, and each page's patch fits the installed file.

A page on vLLM names the version that has the defect; with another one, it is not tried.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from verl_video_tools.core.machine import installed_version, module_exists
from verl_video_tools.launch.checks.installation import ENGINES

DOCS = Path(__file__).parents[1] / "docs" / "upstream"
PAGES = sorted(path for path in DOCS.glob("*.md") if path.name != "index.md")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not module_exists("verl"), reason="verl is not installed"),
]


def of_another_vllm(page: Path) -> bool:
    named = re.search(r"^vLLM ([\d.]*\d)\.", page.read_text(encoding="utf-8"), re.MULTILINE)
    return named is not None and named[1] not in {installed_version(engine) for engine in ENGINES.values()}


TRIED = [page for page in PAGES if not of_another_vllm(page)]


def block(page: Path, language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(found) == 1, f"{page.name} has {len(found)} blocks of {language}"
    return str(found[0])


RUNNER = """
import json, sys, traceback
found = {}
for name, code in json.load(open(sys.argv[1])).items():
    try:
        exec(compile(code, name, "exec"), {"__name__": name})
    except BaseException:
        found[name] = traceback.format_exc()
json.dump(found, open(sys.argv[2], "w"))
"""


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What went otherwise than the pages say. All of them in one program: each would import verl for many seconds."""
    folder = tmp_path_factory.mktemp("upstream")
    pages, found = folder / "pages.json", folder / "found.json"
    pages.write_text(json.dumps({page.name: block(page, "python") for page in TRIED}))
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, str(pages), str(found)],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "VERL_USE_EXTERNAL_PLUGINS": "none"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(found.read_text()))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", TRIED, ids=lambda page: page.stem)
def test_the_defect_is_still_there(page: Path, fixed: dict[str, str]) -> None:
    assert page.name not in fixed, f"is the defect fixed? Then its workaround can go.\n{fixed[page.name]}"


def patched(patch: str) -> Iterator[tuple[Path, str]]:
    """Each installed file of a patch, and what its text would be."""
    for part in re.split(r"^(?=--- )", patch, flags=re.MULTILINE)[1:]:
        head, *hunks = re.split(r"^(?=@@ )", part, flags=re.MULTILINE)
        name = head.splitlines()[0].removeprefix("--- a/")
        package = importlib.util.find_spec(name.partition("/")[0])
        assert package is not None and package.origin is not None, f"{name} is not installed"
        file = Path(package.origin).parents[1] / name
        lines = file.read_text(encoding="utf-8").splitlines()
        for hunk in reversed(hunks):
            header, *body = hunk.splitlines()
            place = re.fullmatch(r"@@ -(\d+),(\d+) \+\d+,(\d+) @@", header)
            assert place is not None, header
            start, num_before, num_after = int(place[1]) - 1, int(place[2]), int(place[3])
            before = [line[1:] for line in body if not line.startswith("+")]
            after = [line[1:] for line in body if not line.startswith("-")]
            assert (len(before), len(after)) == (num_before, num_after), header
            assert lines[start : start + num_before] == before, f"{name} is not what the patch expects at {header}"
            lines[start : start + num_before] = after
        yield file, "\n".join(lines)


@pytest.mark.parametrize("page", TRIED, ids=lambda page: page.stem)
def test_the_patch_fits_the_installed_file(page: Path) -> None:
    files = list(patched(block(page, "diff")))
    assert files
    for file, text in files:
        assert text != file.read_text(encoding="utf-8").rstrip("\n")
        ast.parse(text)


def test_all_but_pages_on_other_versions_of_vllm_are_tried() -> None:
    assert 1 <= sum(map(of_another_vllm, PAGES)) < len(PAGES) // 2


def test_all_pages_are_listed() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\(([a-z-]+\.md)\)", index)) == [page.name for page in PAGES]
    for page in PAGES:
        headings = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert headings == ["Symptom", "Reproduction", "Patch", "Meanwhile"], page.name
