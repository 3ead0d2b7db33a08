"""A report's files: the picture, the page, what stands in it, and what Chromium makes of it."""

from __future__ import annotations

import base64
import builtins
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image

from tests.recorded_run import looked, refused, rollout, write_run
from tests.viewer_page import Page
from verl_video_tools.core.errors import SetupError
from verl_video_tools.records import report_page
from verl_video_tools.records.report_curves import Run, read_run
from verl_video_tools.records.report_figures import (
    PNG_HEIGHT,
    PNG_WIDTH,
    colour_of_run,
    curves_png,
    moving_average,
    panel_svg,
    smoothing_window,
)
from verl_video_tools.records.report_page import write_report
from verl_video_tools.records.report_panels import Curve, Panel, main_panels

pytestmark = pytest.mark.slow

ATTACK = "</h2><script>document.body.dataset.broken = 1</script><img src=x onerror=alert(1)> $\\frac{ \x00 \ud83d"


def recorded(folder: Path, num_steps: int, name: str) -> Run:
    """A run whose reward rises to 1, with held-out rounds at the first and the last step."""
    steps = {
        step: [rollout("a", step / num_steps, calls=[looked("crop_video", 4)]), rollout("a", 0.0)]
        for step in range(1, num_steps + 1)
    }
    validation = {step: [rollout("v", 1.0)] for step in {1, num_steps}}
    return read_run(name, write_run(folder, steps, validation, {1: {"actor/grad_norm": 1.0}}))


def written(runs: list[Run], out: Path, pages: dict[str, str] | None = None) -> Page:
    size = write_report(runs, out, pages or {})
    assert size == (out / "report.html").stat().st_size < 3_000_000
    return Page((out / "report.html").read_text(encoding="utf-8"))


def pictures(page: Page) -> list[bytes]:
    return [base64.b64decode(source.partition(",")[2]) for source in page.having("src")]


@pytest.mark.parametrize("num_steps", [1, 40])
def test_the_picture(tmp_path: Path, num_steps: int) -> None:
    run = recorded(tmp_path / "r", num_steps, "r")
    with Image.open(io.BytesIO(curves_png(main_panels([run]), ["r"]))) as picture:
        assert (picture.format, picture.size) == ("PNG", (PNG_WIDTH, PNG_HEIGHT))
        pixels = picture.convert("RGB")
    colours = {colour for _, colour in pixels.getcolors(maxcolors=1 << 24)}
    assert {(255, 255, 255), (0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)} <= colours  # paper, training, held-out


def test_the_page_of_one_run(tmp_path: Path) -> None:
    page = written([recorded(tmp_path / "r", 3, "my run")], tmp_path, {"my run": "rollouts.html"})
    titles = [str(attributes["alt"]) for tag, attributes in page.tags if tag == "img"]
    with Image.open(tmp_path / "curves.png") as picture:
        assert picture.size == (PNG_WIDTH, PNG_HEIGHT)
    assert titles[:6] == [
        "Reward: training, held-out",
        "Parts of the reward: longvt: accuracy, format, temporal_iou",
        "Accuracy: training, held-out",
        "Executed calls per rollout: calls",
        "Frames per rollout: all, first look, by calls",
        "Why rollouts ended: answer",
    ]
    assert "Norm of the gradient: norm" in titles
    assert page.having("href")[0] == "rollouts.html"
    texts = [text.strip() for text in page.texts if text.strip()]
    assert texts.count("step 1") == texts.count("step 3") == 2  # training and held-out
    row = texts.index("reward")
    assert texts[row + 1 : row + 5] == ["0.167", "0.500", "1.000", "1.000"]
    for picture in pictures(page):
        assert ElementTree.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"
        assert b"prefers-color-scheme:dark" in picture


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what the page says in words: figures take nearly all of a report's time."""
    monkeypatch.setattr(report_page, "curves_png", lambda panels, names: b"")
    monkeypatch.setattr(report_page, "panel_svg", lambda panel, names: b"<svg/>")


@pytest.fixture(scope="module")
def overlaid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the report of two runs."""
    folder = tmp_path_factory.mktemp("overlaid")
    runs = [recorded(folder / name, 2, name) for name in ("recall", "iou")]
    write_report(runs, folder, {"recall": "rollouts.html", "iou": "rollouts_2.html"})
    return folder


def test_overlaid_runs_have_a_colour_each(overlaid: Path) -> None:
    page = Page((overlaid / "report.html").read_text(encoding="utf-8"))
    reward = pictures(page)[0].decode()
    assert colour_of_run(0) in reward and colour_of_run(1) in reward and colour_of_run(2) not in reward
    assert {"recall", "iou"} <= {text.strip() for text in page.texts}
    assert {"rollouts.html", "rollouts_2.html"} <= set(page.having("href"))


def test_names_from_elsewhere_stay_text(tmp_path: Path) -> None:
    lines = [rollout("a", 1.0, method=ATTACK, calls=[refused(ATTACK, "unknown_tool"), looked("_tool", 1)])]
    other = [rollout("a", 1.0, calls=[looked("画像", 1)])]
    folder = write_run(tmp_path / "r", {1: lines + other})
    page = written([read_run(ATTACK, folder)], tmp_path)
    assert not page.programs and not page.having("onerror")
    assert {tag for tag, _ in page.tags if tag in ("script", "svg")} == set()
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.having("src"))
    assert (
        "".join(page.texts).count("<script>document.body.dataset.broken = 1</script>") >= 2
    )  # title, heading, methods
    for picture in pictures(page):
        assert "script" not in {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(picture).iter()}
    (policy,) = [str(attributes["content"]) for _, attributes in page.tags if "http-equiv" in attributes]
    assert re.fullmatch(r"default-src 'none'; img-src data:; style-src 'sha256-[^']+'", policy)


def test_a_run_of_validation_alone_has_a_report(tmp_path: Path) -> None:
    run = read_run("r", write_run(tmp_path / "r", {}, validation={0: [rollout("a", 1.0)]}))
    page = written([run], tmp_path)
    assert "held-out" in page.texts and "training" not in page.texts
    assert (tmp_path / "curves.png").stat().st_size > 10_000  # with panels of which nothing was recorded


@pytest.mark.usefixtures("undrawn")
def test_the_table_says_whose_validation_rollouts_it_is_of(tmp_path: Path) -> None:
    validation = {0: [rollout("v", 1.0, calls=[looked("crop_video", 4)]), rollout("w", 0.0, method="direct")]}
    run = read_run("r", write_run(tmp_path / "r", {1: [rollout("a", 0.5)]}, validation))
    texts = [text.strip() for text in written([run], tmp_path).texts if text.strip()]
    assert "held-out, longvt alone" in texts and "held-out" not in texts
    for label, training, of_longvt in (
        ("reward", "0.500", "1.000"),
        ("accuracy", "1.000", "1.000"),
        ("executed calls per rollout", "0.000", "1.000"),
        ("frames per rollout", "2.000", "6.000"),
    ):
        row = texts.index(label)
        assert texts[row + 1 : row + 3] == [training, of_longvt]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("rows", "in_table", "in_facts", "accuracies"),
    [
        ([[0, 1], [0, 1]], "on 2 rows", "rounds recorded: 2;", ["0.500", "0.500"]),
        (
            [[0, 1, 2, 3], [0, 1], [0, 1, 2]],
            "on the 3 rows of both",
            "rounds recorded: 3, of 2 to 4 rows; their curves are over the 2 rows that all have measured;",
            ["0.333", "0.333"],
        ),
        (
            [[0], [1, 2]],
            "each on other rows",
            "of 1 to 2 rows, none of which all have measured: points of their curves cannot be compared;",
            ["1.000", "0.000"],
        ),
    ],
)
def test_the_page_says_what_rows_rounds_are_compared_on(
    tmp_path: Path, rows: list[list[int]], in_table: str, in_facts: str, accuracies: list[str]
) -> None:
    """Of a policy that is right on the first row alone."""
    rounds = {
        step: [
            rollout(f"v{index}", float(index == 0)) | {"extra_info": {"index": index, "video_path": "/no/video.mp4"}}
            for index in own
        ]
        for step, own in enumerate(rows)
    }
    run = read_run("r", write_run(tmp_path / "r", {1: [rollout("a", 1.0), rollout("a", 0.0)]}, rounds))
    texts = [text.strip() for text in written([run], tmp_path).texts if text.strip()]
    assert in_table in texts and in_facts in "".join(texts)
    place = texts.index("accuracy")
    assert texts[place + 2 : place + 4] == accuracies
    place = texts.index("groups with unequal rewards")
    assert texts[place + 1 : place + 4] == ["1.000", "-", "-"], "groups of one rollout have none to compare"


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("validation", "told"), [(0, "Rollouts of step 1: "), (1, "Rollouts of held-out rows at step 1: ")]
)
def test_the_page_says_whose_rollouts_it_links(tmp_path: Path, validation: int, told: str) -> None:
    run = read_run("r", write_run(tmp_path / "r", {1: [rollout("a", 1.0)]}, {validation: [rollout("v", 1.0)]}))
    assert told in written([run], tmp_path, {"r": "rollouts.html"}).texts


def test_moving_average() -> None:
    assert moving_average([0.0, 3.0, 6.0, 3.0, 0.0], 3).tolist() == [1.5, 3.0, 4.0, 3.0, 1.5]
    assert moving_average([2.0, 4.0], 1).tolist() == [2.0, 4.0]
    assert moving_average([1.0] * 40, smoothing_window(40)).tolist() == pytest.approx([1.0] * 40)
    assert smoothing_window(29) == 1 and smoothing_window(500) == 29


def test_without_matplotlib_the_mend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return imported(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SetupError, match=r"pip install .*matplotlib=="):
        panel_svg(Panel("Reward", [[Curve("training", (1,), (1.0,))]]), ["r"])


def test_chromium_draws_the_figures(overlaid: Path, tmp_path: Path, chromium: Callable[..., bytes]) -> None:
    screenshot = tmp_path / "screenshot.png"
    chromium(f"--screenshot={screenshot}", (overlaid / "report.html").as_uri())
    with Image.open(io.BytesIO(screenshot.read_bytes())) as picture:
        colours = {colour: count for count, colour in picture.convert("RGB").getcolors(maxcolors=1 << 24)}
    assert colours[(0x00, 0x72, 0xB2)] > 100 and colours[(0xD5, 0x5E, 0x00)] > 100  # the runs' curves
    assert colours[(0xF5, 0xF6, 0xF8)] > 10_000  # the style's header
