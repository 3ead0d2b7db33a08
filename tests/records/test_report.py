"""Numbers, table and figure of a report over hand-made runs: every value below can be checked by eye."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.recorded_run import looked, refused, rollout, write_run
from verl_video_tools.core.errors import CallErrorCode, UsageError
from verl_video_tools.core.types import StopReason
from verl_video_tools.records.report import (
    Panel,
    moving_average,
    panels_of,
    read_log,
    read_run,
    read_training,
    smoothing_window,
    write_report,
)


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Two methods, a flagged rollout, two held-out rounds, a log with a step more than there are records."""
    first = [
        rollout("a", 1.0, calls=[looked("crop_video", 4)], accuracy=1.0, format=0.5),
        rollout("a", 0.0, calls=[refused("crop_video", "out_of_range")], stop=StopReason.INVALID_ACTION),
        rollout("b", 0.5, method="framethinker", calls=[looked("choose_frames", 8)], ccv=1.0),
        rollout("b", 0.5, method="framethinker", stop=StopReason.VIDEO_ERROR, flags=["video_error"]),
    ]
    second = [rollout("a", 1.0, format=0.5), rollout("b", 1.0, method="framethinker")]
    validation = {
        0: [rollout("v", 0.0), rollout("w", 1.0, method="framethinker")],
        2: [rollout("v", 1.0), rollout("w", 1.0, method="framethinker")],
    }
    log = {
        1: {"actor/grad_norm": 2.0, "val-core/clips/acc/mean@1": 0.125, "actor/entropy": None},
        2: {"actor/grad_norm": 1.0},
        3: {"actor/grad_norm": 0.5},
    }
    return write_run(tmp_path / "mixed", {1: first, 2: second}, validation, log)


def panel(panels: list[Panel], title: str) -> dict[str, dict[int, float]]:
    """Curves of the only run in a panel, as values by step."""
    (found,) = [panel for panel in panels if panel.title == title]
    (curves,) = found.curves
    return {label: dict(values) for label, values in curves.items()}


def titles(panels: list[Panel]) -> list[str]:
    return [panel.title for panel in panels]


def test_panels_of_a_run_that_mixes_methods(mixed: Path) -> None:
    run = read_run("mixed", mixed)
    panels = panels_of([run])
    assert panel(panels, "Reward") == {"training": {1: 0.5, 2: 1.0}, "held-out": {0: 0.5, 2: 1.0}}
    assert panel(panels, "Accuracy") == {"training": {1: 0.75, 2: 1.0}, "held-out": {0: 0.5, 2: 1.0}}
    assert panel(panels, "Executed calls per rollout") == {"calls": {1: 0.5, 2: 0.0}}
    assert panel(panels, "Frames per rollout") == {
        "all": {1: 5.0, 2: 2.0},
        "initial": {1: 2.0, 2: 2.0},
        "by calls": {1: 3.0, 2: 0.0},
    }
    assert panel(panels, "Reward by method") == {"framethinker": {1: 0.5, 2: 1.0}, "longvt": {1: 0.5, 2: 1.0}}
    assert panel(panels, "Held-out accuracy by method") == {
        "framethinker": {0: 1.0, 2: 1.0},
        "longvt": {0: 0.0, 2: 1.0},
    }
    assert panel(panels, "Parts of the reward: longvt")["format"] == {1: 0.25, 2: 0.5}
    assert panel(panels, "Parts of the reward: framethinker")["ccv"] == {1: 0.5, 2: 0.0}
    assert panel(panels, "Calls per rollout, by tool") == {
        "crop_video": {1: 0.5, 2: 0.0},
        "choose_frames": {1: 0.25, 2: 0.0},
    }
    assert panel(panels, "Refused calls per rollout, by reason") == {"out_of_range": {1: 0.25, 2: 0.0}}
    assert panel(panels, "How rollouts ended") == {
        "answer": {1: 0.5, 2: 1.0},
        "invalid_action": {1: 0.25, 2: 0.0},
        "video_error": {1: 0.25, 2: 0.0},
    }
    assert panel(panels, "Groups with unequal rewards") == {
        "groups": {1: 0.5}
    }  # in step 2 there is one rollout of each
    assert panel(panels, "Generated tokens per rollout") == {"tokens": {1: 10.0, 2: 10.0}}
    assert panel(panels, "Flagged rollouts of a step") == {"rollouts": {1: 1.0, 2: 0.0}}
    assert panel(panels, "Norm of the gradient") == {"norm": {1: 2.0, 2: 1.0, 3: 0.5}}
    assert "Entropy" not in titles(panels)  # logged, but never a number


def test_the_parts_of_the_reward(tmp_path: Path) -> None:
    training = {1: [rollout("a", 1.5, accuracy=1.0, format=0.5, temporal_iou=0.25)]}
    run = read_run("r", write_run(tmp_path / "r", training))
    parts = panel(panels_of([run]), "Parts of the reward: longvt")
    assert parts == {"accuracy": {1: 1.0}, "format": {1: 0.5}, "temporal_iou": {1: 0.25}}
    assert "Reward by method" not in titles(panels_of([run]))


def test_a_methods_reward_that_is_only_measured_stays_apart(beside_direct: Path) -> None:
    assert panel(panels_of([read_run("r", beside_direct)]), "Reward") == {"training": {1: 1.0}, "held-out": {0: 2.0}}


@pytest.fixture
def beside_direct(tmp_path: Path) -> Path:
    """A run of LongVT that also measures its policy without tools, which is never right."""
    own = rollout("v", 2.0, calls=[looked("crop_video", 4)], format=0.5)
    others = [rollout(group, 0.0, method="direct", stop=StopReason.MAX_TURNS) for group in "wxy"]
    return write_run(tmp_path / "beside", {1: [rollout("a", 1.0)]}, {0: [own, *others], 1: others})


def test_what_is_only_measured_does_not_dilute_the_policy(beside_direct: Path) -> None:
    run = read_run("r", beside_direct)
    assert run.only_measured() == ["direct"]
    metrics = run.held_out[0]
    assert (metrics["rollout/count"], metrics["rollout/score/mean"], metrics["rollout/acc/mean"]) == (1.0, 2.0, 1.0)
    assert (metrics["tool/executed_per_rollout"], metrics["frames/total/mean"]) == (1.0, 6.0)
    assert (metrics["stop/answer"], metrics["video_tools/longvt/format/mean"]) == (1.0, 0.5)
    assert metrics["video_tools/direct/acc/mean"] == 0.0
    assert "rollout/acc/mean" not in run.held_out[1]  # nothing of the policy was measured there


def test_logs_that_share_a_step_are_merged(tmp_path: Path) -> None:
    """A run that was started again validates at the step at which it resumes, and logs that alone."""
    log = {1: {"actor/grad_norm": 2.0}, 2: {"actor/grad_norm": 1.0, "actor/entropy": 0.5}}
    folder = write_run(tmp_path / "r", {1: [rollout("a", 1.0)]}, log=log)
    resumed = {2: {"val-core/clips/acc/mean@1": 0.25, "actor/entropy": 0.75}, 3: {"actor/grad_norm": 0.5}}
    lines = [json.dumps({"step": step, "data": data}) + "\n" for step, data in resumed.items()]
    (folder / "metrics_2.jsonl").write_text("".join(lines))
    assert read_run("r", folder).log == {
        1: {"actor/grad_norm": 2.0},
        2: {"actor/grad_norm": 1.0, "actor/entropy": 0.75, "val-core/clips/acc/mean@1": 0.25},
        3: {"actor/grad_norm": 0.5},
    }


def test_what_a_lost_policy_has_logged_is_left_out(tmp_path: Path) -> None:
    """A run had come to step 4, was started again from step 1, and has come to step 2. Then its step 3 was measured."""

    def trained(step: int, **metrics: float) -> dict[str, float]:
        return {"training/global_step": step, **metrics}

    logs = [
        {step: trained(step, lost=1.0, entropy=0.5) for step in (1, 2, 3, 4)},
        {1: {"val-core/clips/acc/mean@1": 0.25}, 2: trained(2, entropy=0.75)},
        {3: {"val-core/clips/acc/mean@1": 0.5}},
    ]
    folder = write_run(tmp_path / "r", {1: [rollout("a", 1.0)]})
    for number, log in enumerate(logs):
        lines = [json.dumps({"step": step, "data": data}) + "\n" for step, data in log.items()]
        (folder / f"metrics_{number}.jsonl").write_text("".join(lines))
    assert read_run("r", folder).log == {
        1: trained(1, lost=1.0, entropy=0.5) | {"val-core/clips/acc/mean@1": 0.25},
        2: trained(2, entropy=0.75),
        3: {"val-core/clips/acc/mean@1": 0.5},
    }


def test_a_method_that_is_only_measured_has_a_validation_curve_of_its_own(beside_direct: Path) -> None:
    run = read_run("r", beside_direct)
    accuracy = panel(panels_of([run]), "Accuracy")
    assert accuracy == {"training": {1: 1.0}, "held-out": {0: 1.0}, "held-out direct": {0: 0.0, 1: 0.0}}


def test_of_methods_that_were_trained_together_none_is_left_out(tmp_path: Path) -> None:
    both = [rollout("a", 1.0), rollout("b", 0.0, method="framethinker")]
    run = read_run("r", write_run(tmp_path / "r", {1: both}, {1: [*both, rollout("c", 0.0, method="direct")]}))
    accuracy = panel(panels_of([run]), "Accuracy")
    assert accuracy == {"training": {1: 0.5}, "held-out": {1: 0.5}, "held-out direct": {1: 0.0}}
    by_method = panel(panels_of([run]), "Held-out accuracy by method")
    assert by_method == {"framethinker": {1: 0.0}, "longvt": {1: 1.0}}


def on_row(index: int, score: float, **options: Any) -> dict[str, Any]:
    """A held-out rollout on a row of a data set."""
    return rollout(f"v{index}", score, **options) | {"extra_info": {"index": index, "video_path": "/no/video.mp4"}}


def test_rounds_are_drawn_over_the_rows_that_all_have_measured(tmp_path: Path) -> None:
    """Of an unchanged policy that is right on the first two of eight rows. Its curve was 0.25, 1.0, 0.25."""
    measured = {0: range(8), 1: range(2), 2: range(8)}
    rounds = {step: [on_row(index, float(index < 2)) for index in rows] for step, rows in measured.items()}
    run = read_run("r", write_run(tmp_path / "r", {1: [rollout("a", 1.0)]}, rounds))
    assert panel(panels_of([run]), "Accuracy") == {
        "training": {1: 1.0},
        "held-out": {0: 1.0, 1: 1.0, 2: 1.0},
    }
    assert "held-out rollouts of a validation: 2 in the curves, 8 in the table" in write_report([run], tmp_path)
    ends = {
        step: (metrics["rollout/count"], metrics["rollout/acc/mean"]) for step, metrics in run.held_out_ends.items()
    }
    assert ends == {0: (8.0, 0.25), 2: (8.0, 0.25)}, "first and last round are compared over all rows"


def test_a_run_that_goes_on_is_compared_over_the_rows_of_its_last_round(tmp_path: Path) -> None:
    rounds = {0: [on_row(0, 1.0), on_row(1, 0.0), on_row(2, 0.0)], 5: [on_row(0, 0.0), on_row(1, 1.0)]}
    run = read_run("r", write_run(tmp_path / "r", {1: [rollout("a", 1.0)]}, rounds))
    assert [metrics["rollout/acc/mean"] for metrics in run.held_out_ends.values()] == [0.5, 0.5]


def test_rounds_that_share_no_row_have_no_curve(tmp_path: Path) -> None:
    """Of a run that was started again with another validation file."""
    rounds = {0: [on_row(0, 1.0)], 1: [on_row(1, 0.0), on_row(2, 0.0)]}
    run = read_run("r", write_run(tmp_path / "r", {1: [rollout("a", 1.0)]}, rounds))
    accuracy = panel(panels_of([run]), "Accuracy")
    assert list(accuracy) == ["training"]


def test_trained_methods_are_drawn_over_the_rows_that_rounds_share(tmp_path: Path) -> None:
    """The second round measures one method alone."""
    first = [on_row(0, 1.0), on_row(1, 0.0)]
    second = [on_row(2, 1.0, method="framethinker")]
    training = {1: [rollout("a", 1.0), rollout("b", 1.0, method="framethinker")]}
    rounds = {0: [*first, *second], 1: first[:1], 2: [*first, *second]}
    run = read_run("r", write_run(tmp_path / "r", training, rounds))
    assert panel(panels_of([run]), "Accuracy")["held-out"] == {0: 1.0, 1: 1.0, 2: 1.0}
    assert [metrics["rollout/count"] for metrics in run.held_out_ends.values()] == [3.0, 3.0]


def test_rows_without_an_index_are_told_apart_by_their_questions(tmp_path: Path) -> None:
    def asked(question: str, score: float) -> dict[str, Any]:
        recorded = rollout(question, score)
        recorded["trajectory"]["question"] = question
        return recorded

    rounds = {0: [asked("one?", 1.0), asked("two?", 0.0)], 1: [asked("one?", 1.0)]}
    run = read_run("r", write_run(tmp_path / "r", {1: [rollout("a", 1.0)]}, rounds))
    assert panel(panels_of([run]), "Accuracy")["held-out"] == {0: 1.0, 1: 1.0}


def test_several_runs_keep_their_curves_apart(tmp_path: Path) -> None:
    lines = {
        "one": rollout("a", 0.0, method="framethinker", ccv=1.0, stop=StopReason.MAX_TURNS),
        "two": rollout("a", 1.0, temporal_iou=1.0),
    }
    runs = [read_run(name, write_run(tmp_path / name, {1: [line]})) for name, line in lines.items()]
    panels = {panel.title: panel.curves for panel in panels_of(runs)}
    assert panels["Reward"] == [{"training": {1: 0.0}}, {"training": {1: 1.0}}]
    assert panels["How rollouts ended"] == [{}, {"answer": {1: 1.0}}]
    assert panels["Parts of the reward: framethinker"][0]["ccv"] == {1: 1.0}
    assert panels["Parts of the reward: framethinker"][1] == {}


def test_tools_that_a_policy_made_up_are_summed_up(tmp_path: Path) -> None:
    calls = [refused(f"tool {number}", "unknown_tool") for number in range(20)] + [looked("crop_video", 1)] * 3
    run = read_run("r", write_run(tmp_path / "r", {1: [rollout("a", 1.0, calls=calls)]}))
    rates = panel(panels_of([run]), "Calls per rollout, by tool")
    assert rates == {"crop_video": {1: 3.0}, "unknown": {1: 20.0}}


def test_rare_reasons_are_left_out(tmp_path: Path) -> None:
    codes = sorted(CallErrorCode)
    calls = [refused("crop_video", code) for number, code in enumerate(codes, start=1) for _ in range(number)]
    run = read_run("r", write_run(tmp_path / "r", {1: [rollout("a", 1.0, calls=calls)]}))
    rates = panel(panels_of([run]), "Refused calls per rollout, by reason")
    assert list(rates) == codes[:-7:-1]
    assert rates[codes[-1]] == {1: float(len(codes))}


@pytest.mark.slow
def test_what_is_written(mixed: Path, tmp_path: Path) -> None:
    text = write_report([read_run("mixed", mixed)], tmp_path)
    assert (tmp_path / "report.md").read_text() == text
    with Image.open(tmp_path / "curves.png") as picture:
        colours = {colour for _, colour in picture.convert("RGB").getcolors(maxcolors=1 << 24)}
    assert {(255, 255, 255), (0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)} <= colours  # paper, training, held-out
    (run,) = json.loads((tmp_path / "curves.json").read_text())["runs"]
    assert run["name"] == "mixed"
    assert run["training"]["steps"] == [1, 2] and run["held_out"]["steps"] == [0, 2]
    assert run["training"]["metrics"]["rollout/count"] == [4.0, 2.0]
    assert run["training"]["metrics"]["tool/error/out_of_range"] == [0.25, None]
    assert run["log"]["metrics"]["actor/grad_norm"] == [2.0, 1.0, 0.5]


def cells(text: str) -> dict[str, list[str]]:
    """Cells of a table of Markdown by the first of their row."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {first: others for first, *others in rows}


@pytest.mark.slow
def test_the_table(beside_direct: Path, tmp_path: Path) -> None:
    text = write_report([read_run("r", beside_direct)], tmp_path)
    assert "1 training steps with 1 rollouts, 0 of them flagged; held-out rollouts of a validation: 1 in the" in text
    assert "; held-out columns are without direct." in text
    table = cells(text)
    assert table["mean per rollout"] == ["step 1", "held-out, step 0", "held-out, step 1"]
    assert table["reward"] == ["1.000", "2.000", "-"], "in step 1 nothing of the policy was measured"
    assert table["executed calls per rollout"] == ["0.000", "1.000", "-"]
    assert table["frames per rollout"] == ["2.000", "6.000", "-"]
    assert "groups with unequal rewards" not in table


@pytest.mark.slow
def test_a_figure_of_long_runs(tmp_path: Path) -> None:
    """A name that a figure might take for a formula stays text."""
    formula = "$\\frac{"
    steps = {step: [rollout("a", step / 40, calls=[looked("crop_video", 1)])] for step in range(1, 41)}
    runs = [read_run(name, write_run(tmp_path / "r", steps, {40: [rollout("v", 1.0)]})) for name in (formula, "b")]
    write_report(runs, tmp_path)
    with Image.open(tmp_path / "curves.png") as picture:
        colours = {colour for _, colour in picture.convert("RGB").getcolors(maxcolors=1 << 24)}
    assert {(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)} <= colours  # the two runs


def test_moving_average() -> None:
    assert moving_average([0.0, 3.0, 6.0, 3.0, 0.0], 3) == [1.5, 3.0, 4.0, 3.0, 1.5]
    assert moving_average([2.0, 4.0], 1) == [2.0, 4.0]
    assert moving_average([1.0] * 40, smoothing_window(40)) == [1.0] * 40
    assert smoothing_window(29) == 1 and smoothing_window(500) == 29


# --------------------------------------------------------------------------------------------------- partial, broken


def test_a_run_that_still_goes_on(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "r", {1: [rollout("a", 1.0)], 2: [rollout("a", 0.0)]}, log={1: {"actor/pg_loss": 0.5}}
    )
    records = folder / "trajectories"
    (records / "step_000003.partial").write_text("{")
    with (records / "step_000002.jsonl").open("a") as file:
        file.write('{"step": 2, "uid')
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "da')
    run = read_run("r", folder)
    assert {step: metrics["rollout/count"] for step, metrics in run.training.items()} == {1: 1.0, 2: 1.0}
    assert run.log == {1: {"actor/pg_loss": 0.5}}


def test_a_run_of_validation_alone(tmp_path: Path) -> None:
    run = read_run("r", write_run(tmp_path / "r", {}, validation={0: [rollout("a", 1.0)]}))
    assert panel(panels_of([run]), "Accuracy") == {"held-out": {0: 1.0}}
    assert not run.training


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{\n", "not a recorded rollout"),
        ('{"step": 1, "uid": "a", "reward": {}}\n', "KeyError"),
        (json.dumps({"step": 1, **rollout("a", 1.0), "reward": {"acc": 1.0}}) + "\n", "reward.score"),
        (json.dumps({"step": 1, **rollout("a", 1.0), "reward": {"acc": 1.0, "score": None}}) + "\n", "TypeError"),
        (json.dumps(rollout("a", 1.0)) + "\n", "'step'"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    folder = write_run(tmp_path / "r", {1: [rollout("a", 1.0)]})
    with (folder / "trajectories" / "step_000001.jsonl").open("a") as file:
        file.write(text)
    with pytest.raises(UsageError, match=r"step_000001\.jsonl, line 2: ") as caught:
        read_run("r", folder)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("text", ["[]\n", '{"step": 1}\n', '{"step": "x", "data": {}}\n', '{"step": 1, "data": 3}\n'])
def test_a_broken_line_of_the_log_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0, "data": {}}\n' + text)
    with pytest.raises(UsageError, match=r"metrics\.jsonl, line 2: not a line of verl's log"):
        read_log(path)


def test_a_line_that_a_full_disk_has_cut_costs_its_step(tmp_path: Path) -> None:
    """The next line stands right behind what was written of it."""
    lines = [json.dumps({"step": step, "data": {"actor/lr": step / 10}}) for step in (1, 2, 3)]
    log = tmp_path / "log.jsonl"
    log.write_text(lines[0] + "\n" + lines[1][:20] + lines[2] + "\n")
    assert read_log(log) == {1: {"actor/lr": 0.1}, 3: {"actor/lr": 0.3}}


def test_nothing_recorded_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no recorded step; give a run's folder \(trainer\.default_local_dir\)"):
        read_run("r", tmp_path)
    assert read_training(tmp_path) == {}
    (tmp_path / "step_000001.jsonl").write_text('{"step": 1')
    with pytest.raises(UsageError, match="no whole line"):
        read_run("r", tmp_path)


def test_records_are_found_by_their_own_folder(mixed: Path) -> None:
    assert read_run("mixed", mixed / "trajectories") == read_run("mixed", mixed)
