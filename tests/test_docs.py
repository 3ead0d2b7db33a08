"""What the documentation says in numbers and names, against the code: versions, token costs, commands, paths."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import subprocess
import sys
import textwrap
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import get_type_hints

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.method_costs import LABEL_TOKENS
from verl_video_tools.core.method import Method
from verl_video_tools.core.types import FrameRequest, PixelEnvelope, Sample, VideoInfo
from verl_video_tools.data.formats import SOURCE_NAMES, get_source
from verl_video_tools.launch.checks.installation import ENGINES
from verl_video_tools.launch.plan import HOUR, actor_memory, find_model, plan_workload, recipe_options
from verl_video_tools.methods import get_method, toolkit
from verl_video_tools.rollout.cost import GROUP_SIZE, estimated_tokens, max_cost_call
from verl_video_tools.video import fit_envelope, image_tokens

REPO = Path(__file__).parents[1]
DOCS = REPO / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
READMES = [REPO / "README.md", REPO / "CONTRIBUTING.md", *sorted((REPO / "examples").rglob("README.md"))]
"""What stands outside the site, so that `mkdocs --strict` checks none of it."""
FACTORS = {"Qwen2.5-VL": 28, "Qwen3-VL": 32}

PIXEL_BOUNDS = {
    "framethinker": (3136, 235_200),
    "videozoomer": (25_088, 100_352),
    "longvt": (784, 50_176),
    "framemind": (50_176, 200_704),
    "videobrain": (4096, 235_200),
}
"""`data.mm_processor_kwargs` of the recipes."""
STEPS = {
    "framethinker": (32, 8),
    "videozoomer": (128, 16),
    "longvt": (16, 16),
    "framemind": (64, 8),
    "videobrain": (32, 8),
}
"""`TRAIN_BATCH_SIZE` and `ROLLOUT_N` of the recipes."""
VIDEO = VideoInfo(3600.0, 108_000, 30.0, 1920, 1080)
SAMPLE = Sample(question="?", ground_truth="A", video_path="v.mp4", question_type="mc")


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------------------------ versions


def test_versions() -> None:
    """The table has the pins of `make install`, and what the package accepts."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    pinned = {}
    for device in ENGINES:
        for name, version in re.findall(
            r"^([\w.-]+)==(\S+)", (REPO / "requirements" / f"{device}.txt").read_text(), re.M
        ):
            pinned[canonicalize_name(name)] = version
    needed = [(Requirement(line), "always") for line in project["dependencies"]]
    for extra in ("gpu", "cpu", "judge", "retrieval", "decord", "torchcodec"):
        lines = map(Requirement, project["optional-dependencies"][extra])
        needed += [(line, f"extra `{extra}`") for line in lines if extra not in ENGINES or line.name == ENGINES[extra]]
    rows = [line for line in page("versions.md").splitlines() if line.startswith("| `")]
    for row, (line, needed_for) in zip(rows, needed, strict=True):
        tested = row.split(" | ")[1]
        assert row == f"| `{line.name}` | {tested} | `{line.specifier}` | {needed_for} |"
        assert tested == pinned.get(canonicalize_name(line.name), tested) and line.specifier.contains(tested)
    assert f"Python `{project['requires-python']}`" in page("versions.md")
    (flash,) = project["optional-dependencies"]["flash"]
    assert f"'{flash}'" in page("installation.md")


# -------------------------------------------------------------------------------------------------------- costs


def initial_frame_requests(name: str, factor: int) -> list[FrameRequest]:
    """Those of a group, on an hour of 1920x1080."""
    method, envelope = get_method(name), PixelEnvelope(factor, *PIXEL_BOUNDS[name])
    group = [method.for_session(number, GROUP_SIZE, validate=False) for number in range(GROUP_SIZE)]
    return [member.plan_initial_frames(VIDEO, SAMPLE, envelope) for member in group]


def dearest_look(name: str, factor: int) -> FrameRequest:
    return max(initial_frame_requests(name, factor), key=lambda look: look_tokens(look, factor))


def look_tokens(look: FrameRequest, factor: int) -> int:
    return len(look) * image_tokens(look.width, look.height, factor)


def product(num_frames: int, frame_tokens: int, label_tokens: int) -> str:
    return f"{num_frames} x ({frame_tokens} + {label_tokens}) = {num_frames * (frame_tokens + label_tokens):,}"


@pytest.mark.parametrize("name", PIXEL_BOUNDS)
def test_costs_of_looks(name: str) -> None:
    method, label = get_method(name), LABEL_TOKENS[name]
    for family, factor in FACTORS.items():
        look = dearest_look(name, factor)
        first = product(len(look), image_tokens(look.width, look.height, factor), label)
        dearest = max_cost_call(method, VIDEO, PixelEnvelope(factor, *PIXEL_BOUNDS[name]))
        assert dearest is not None
        call = product(len(dearest), image_tokens(dearest.width, dearest.height, factor), label)
        row = f"| {family} | {first} | {call} |"
        assert row in page(f"methods/{name}.md")
        assert f"| `{name}` {row}" in page("budgets.md")
    budget = method.recipe_budget
    row = (
        f"| `{name}` | {budget.prompt_tokens:,} | {budget.response_tokens:,} | {budget.images:,} | {method.max_turns} |"
    )
    assert row in page("budgets.md")


@pytest.mark.parametrize("side", [(56, 56), (112, 112), (224, 224), (336, 336), (448, 448), (640, 360), (1280, 720)])
def test_costs_of_pictures(side: tuple[int, int]) -> None:
    cells = []
    for factor, least in ((28, 3136), (32, 65_536), (32, 1024)):
        width, height = fit_envelope(*side, PixelEnvelope(factor, least, 1 << 24))
        cells.append(f"{image_tokens(width, height, factor):,} ({width}x{height})")
    assert f"| {side[0]}x{side[1]} | {' | '.join(cells)} |" in page("budgets.md")


@pytest.mark.parametrize("name", PIXEL_BOUNDS)
def test_memory_of_initial_frames(name: str) -> None:
    family = "Qwen3-VL" if name == "videobrain" else "Qwen2.5-VL"
    factor = FACTORS[family]
    looks = initial_frame_requests(name, factor)
    distinct = [look for number, look in enumerate(looks) if look not in looks[:number]]
    questions, rollouts = STEPS[name]
    pixel_bytes = 3 * factor**2  # of a token, in 8 bits

    def mean(values: list[int]) -> float:
        return sum(values) / len(values)

    per_rollout = mean([look_tokens(look, factor) for look in looks]) * pixel_bytes
    shared = sum(look_tokens(look, factor) for look in distinct) * pixel_bytes * questions
    in_every_row = per_rollout * 2 * 2 * questions * rollouts  # the processor doubles them in time; bfloat16
    row = (
        f"| `{name}`, {family} | {per_rollout / 1e6:.0f} MB | {questions} x {rollouts} "
        f"| {shared / 1e9:.1f} GB | {in_every_row / 1e9:.0f} GB |"
    )
    assert row in page("memory.md"), row


@pytest.mark.parametrize("name", ["qwen3-vl-8b", "qwen3-vl-30b-a3b", "qwen3.5-4b", "qwen3.5-9b", "qwen3.5-35b-a3b"])
def test_memory_of_an_update_of_each_family(name: str) -> None:
    model = find_model(name)
    cells = []
    for method_name in ("framethinker", "longvt"):
        method = get_method(method_name)
        options = replace(recipe_options(method), fused_head=True)  # otherwise: whether flash-attn is missing here
        if model.linear_layers:
            options = replace(options, ulysses=1)
        work = plan_workload(method, HOUR, estimated_tokens(options.envelope(model.factor)), options)
        for num_gpus in (8, 32):
            total = actor_memory(model, options, work, num_gpus, options.longest_tokens).total
            cells.append(f"{total / 1e9:.0f} GB")
    row = f"| `{name}` | {model.num_parameters / 1e9:.1f} billion | {' | '.join(cells)} |"
    assert row in page("models.md"), row


# -------------------------------------------------------------------------------------------------- commands and paths


def code_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def test_named_files_exist() -> None:
    pattern = re.compile(r"`((?:verl_video_tools|recipes|examples|tests|requirements|benchmarks)/[\w./-]+)`")
    pages = (*PAGES, *READMES)
    named = [(path.name, match) for path in pages for match in pattern.findall(path.read_text(encoding="utf-8"))]
    assert named
    assert [(name, file) for name, file in named if not (REPO / file).exists()] == []


def anchors(page: Path) -> set[str]:
    """Names under which a page's headings are linked to, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = [re.sub(r"\]\([^)]*\)", "", heading) for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)]
    return {re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """Relative links to what is not there, a file or a heading in it."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if re.match(r"[a-z]+:", link):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", READMES, ids=lambda page: str(page.relative_to(REPO)))
def test_links_outside_the_site(page: Path) -> None:
    assert broken_links(page) == []


def test_data_sets_are_published_where_their_readers_say() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (\[.*?\)) \|", page("data.md"), flags=re.MULTILINE)
    assert sorted(name for name, _ in rows) == list(SOURCE_NAMES)
    for name, links in rows:
        reader = type(get_source(name))
        read_from = f"{reader.__doc__}{sys.modules[reader.__module__].__doc__}"
        for text, address in re.findall(r"\[([^]]+)\]\(([^)]+)\)", links):
            assert address in (f"https://github.com/{text}", f"https://huggingface.co/datasets/{text}")
            known_as = f"github.com/{text}" if "github.com" in address else text
            assert known_as in read_from, f"{name} was not read from {known_as}"


def test_pictures_are_small() -> None:
    pictures = list((DOCS / "images").iterdir())
    assert all(picture.stat().st_size < 150_000 for picture in pictures)
    for picture in pictures:
        assert any(picture.name in path.read_text(encoding="utf-8") for path in PAGES), f"{picture.name} is not shown"


def test_decisions_are_listed() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", page("decisions/index.md"))
    assert sorted([*listed, "index.md"]) == sorted(path.name for path in (DOCS / "decisions").iterdir())
    nav = (REPO / "mkdocs.yml").read_text(encoding="utf-8")
    assert [name for name in listed if f"decisions/{name}" not in nav] == []
    for name in listed:
        headings = re.findall(r"^## (.+)$", page(f"decisions/{name}"), flags=re.MULTILINE)
        assert headings == ["Context", "Decision", "Why", "Consequences", "How to undo it"], name


def test_citation() -> None:
    citation = yaml.safe_load((REPO / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    assert (citation["title"], citation["version"]) == (project["name"], project["version"])
    cited = {reference["title"]: reference["url"] for reference in citation["references"]}
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    papers = re.findall(r"^- (.+?)\. \[arXiv [\d.]+\]\((.+)\)$", readme, flags=re.MULTILINE)
    assert len(papers) == 5
    assert [title for title, address in papers if cited.get(title) != address] == []


@pytest.mark.slow
def test_first_steps_of_the_quick_start(tmp_path: Path) -> None:
    (block,) = code_blocks(page("quickstart.md").partition("## One rollout by hand")[2].partition("## ")[0], "bash")
    vvt = f'vvt() {{ {sys.executable} -m verl_video_tools.cli "$@"; }}\n'
    subprocess.run(["bash", "-euo", "pipefail", "-c", vvt + block], check=True, timeout=100, cwd=tmp_path)
    rollout = json.loads((tmp_path / "rollout.json").read_text())
    assert rollout["stop_reason"] == "answer"
    assert rollout["reward"]["score"] == 1.02
    assert rollout["turns"][0]["observation"].startswith("frame 156: <image>")
    assert (tmp_path / "rollout.html").stat().st_size > 0


def imports_of(page: Path) -> set[tuple[str, str]]:
    """(module, name) of what a page's Python blocks import from the package."""
    blocks = re.findall(r"^ *```python\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE)
    nodes = [node for block in blocks for node in ast.walk(ast.parse(textwrap.dedent(block)))]
    given = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {
        (node.module or "", name.name)
        for node in given
        for name in node.names
        if (node.module or "").startswith("verl_video_tools")
    }


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in [*PAGES, *READMES] if imports_of(page)], ids=lambda page: page.stem)
def test_what_a_page_imports_is_there(page: Path) -> None:
    for module, name in imports_of(page):
        try:
            found = hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}")
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("verl_video_tools"):
                raise
            continue  # an extra that is not installed
        assert found, f"from {module} import {name}"


def test_the_pages_for_authors_list_all_that_is_public() -> None:
    """The table of `Method`'s names, and that of the toolkit's."""
    table = page("write-a-method.md").partition("| names of `Method` | for |")[2].partition("\n\n")[0]
    listed = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.partition(" | ")[0])]
    assert sorted(listed) == sorted(name for name in {*dir(Method), *get_type_hints(Method)} if name[0] != "_")
    table = page("api/toolkit.md").partition("| for | names |")[2].partition("\n\n")[0]
    listed = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row)]
    assert sorted(listed) == sorted(toolkit.__all__)
