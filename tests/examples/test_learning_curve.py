"""The learning curve example: its data are real here, training is replaced by records of what it would have earned."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.recorded_run import looked, rollout, write_run
from verl_video_tools.cli.main import run as vvt
from verl_video_tools.core.config import read_assignments
from verl_video_tools.core.errors import UsageError
from verl_video_tools.data.synthetic_rows import load_rows, question_from_row
from verl_video_tools.methods import get_method

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).parents[2] / "examples" / "learning_curve" / "run.py"
STEPS = 2
TEMPLATES = ("direct", "look", "zoom")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


MODEL = "actor_rollout_ref.model.path"
FOLDER = "trainer.default_local_dir"


class Training:
    """Stands for `vvt train`: a policy learns to look, and is right where it looks."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, dict[str, str]]] = []
        """Method and stage, as its config group has them, and options."""
        self.stopped_before_measuring = False

    def __call__(self, *command: Any, **environment: Any) -> None:
        program, *arguments = [str(part) for part in command]
        assert Path(program).name == "vvt"
        if arguments[0] != "train":
            assert vvt(arguments) == 0
            return
        options = dict(argument.split("=", 1) for argument in arguments[2:])
        self.runs.append((options["+video_tools"], options))
        assert environment["DEVICE"] == "cpu"
        if arguments[1] != "grpo":
            return
        rows = load_rows(options["data.val_files"])
        saved = Path(options[FOLDER], "latest_checkpointed_iteration.txt")
        num_trained, steps = 0, [int(saved.read_text()) if saved.exists() else 0]
        if "trainer.val_only" not in options:
            num_trained = last = int(options["trainer.total_training_steps"])
            steps = [*range(0, last, int(options["trainer.test_freq"])), last]
            steps = steps[: 1 if self.stopped_before_measuring else None]
        few = int(options.get("video_tools.trainer.interim_validation_rows", 0))
        write_run(
            Path(options[FOLDER]),
            {step: [in_cells(rollout("a", score)) for score in (1.0, 0.0)] for step in range(1, num_trained + 1)},
            {
                step: [self.answer(row, looks=step > 0) for row in (rows[:few] if 0 < step < num_trained else rows)]
                for step in steps
            },
        )
        if "trainer.val_only" not in options:
            saved.write_text(str(last))

    @staticmethod
    def answer(row: dict[str, Any], looks: bool) -> dict[str, Any]:
        looks = looks and row["agent_name"] != "direct"
        line = rollout("x", float(looks), method=row["agent_name"], calls=[looked("choose_frames", 8)] * looks)
        return in_cells(line | {"extra_info": row["extra_info"], "agent_name": row["agent_name"]})


def in_cells(line: dict[str, Any]) -> dict[str, Any]:
    """The rollout with frames of 56x56 pixels, which are 4 tokens."""
    trajectory = line["trajectory"]
    calls = [call for turn in trajectory["turns"] for call in turn["calls"]]
    for frame in [*trajectory["initial_frames"], *(frame for call in calls for frame in call["frames"])]:
        frame["width"] = frame["height"] = 56
    return line | {"agent_name": trajectory["method"]}


def learning(example: dict[str, Any], folder: Path, training: Training, ablation: Any = None) -> Any:
    plan = example["Plan"](
        num_train_videos=2,
        num_validation_videos=2,
        questions_per_video=8,
        num_direct_rows=4,
        rl_steps=STEPS,
    )
    result = example["Learning"]("framethinker", 3, folder, plan, ablation)
    type(result).run.__globals__["run_program"] = training
    return result


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished folder, to be copied: videos are dear to render."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    learning(runpy.run_path(str(SCRIPT)), folder, Training()).run()
    return folder


@pytest.fixture
def before_rl(finished: Path, tmp_path: Path) -> Path:
    """The same as it was before reinforcement learning."""
    folder = tmp_path / "run"
    shutil.copytree(
        finished,
        folder,
        ignore=shutil.ignore_patterns("videos", "rl", "rl.done", "report", "results.json", "plan.json"),
    )
    return folder


def test_stages_run_once_and_their_gain_is_reported(
    example: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = Training()
    learning(example, tmp_path, training).run()
    assert [name for name, _ in training.runs] == ["framethinker_sft", "framethinker_grpo"]

    written = load_rows(tmp_path / "cold_start.parquet")
    turns = Counter((row["agent_name"], len(row["turns"]) > 1) for row in written)
    assert turns["direct", False] == 4 and turns["direct", True] == 0
    assert sum(turns.values()) == 4 + 2 * 8
    assert turns["framethinker", False] > turns["framethinker", True] > 0  # an expert that skips tool calls
    validation = load_rows(training.runs[-1][1]["data.val_files"])
    assert Counter(row["agent_name"] for row in validation) == {"framethinker": 8, "direct": 8}
    train = {row["extra_info"]["video_path"] for row in written}
    assert train.isdisjoint(row["extra_info"]["video_path"] for row in validation)

    for name, options in training.runs:
        assert options["video_tools.demo.is_made"] == "true" and Path(options["data.train_files"]).exists()
        assert options["+video_tools/synthetic"] == f"[{name},direct]", "rows of it are asked without tools"
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["accuracy"]["after SFT"]["needs another look"]["mean"] == 0.0
    assert results["accuracy"]["after RL"]["needs another look"]["mean"] == 1.0
    assert results["after RL less after RL, without tools"]["mean"] == 1.0
    assert results["accuracy"]["after SFT, without tools"]["needs another look"]["mean"] == 0.0
    seconds = {name: policy["seconds per look by kind"] for name, policy in results["accuracy"].items()}
    kinds = results["accuracy"]["after RL"]["by kind"]
    assert not seconds["after SFT"] and seconds["after RL"] == pytest.approx(dict.fromkeys(kinds, 7 / 5))
    assert (tmp_path / "report" / "curves.png").exists()

    options = training.runs[-1][1]
    assert options["trainer.test_freq"] == str(-(-STEPS // 4))  # each quarter, of two videos' questions
    assert options["trainer.save_freq"] == str(-(-STEPS // 4))
    assert options["video_tools.trainer.interim_validation_rows"] == "2"
    kinds = [question_from_row(row)[1].kind for row in validation[:2]]
    assert "direct" not in kinds and len({*kinds}) == 2
    assert len({row["extra_info"]["video_path"] for row in validation[:2]}) == 2
    assert results["cost"]["questions"] == 2 and results["cost"]["measurements"][1:] == [
        {"step": 1, "generated_tokens": 20, "visual_tokens": 16, "accuracy": {"mean": 1.0, "low": 1.0, "high": 1.0}},
        {"step": 2, "generated_tokens": 40, "visual_tokens": 32, "accuracy": {"mean": 1.0, "low": 1.0, "high": 1.0}},
    ]
    assert results["cost"]["per question"] == {"generated_tokens": 10, "visual_tokens": (2 + 8) * 4}
    assert list(results["minutes"]) == ["data", "cold", "sft", "rl"] and not results["stages_resumed"]
    (machine,), (commit,) = results["machines"], results["commits"]
    assert machine["cores"] >= 1 and len(commit.rstrip("+")) == 40
    assert "after RL less after SFT: +100.0 points" in " ".join(capsys.readouterr().out.split())

    again = Training()
    learning(example, tmp_path, again).run()
    assert not again.runs

    ablation = example["ABLATIONS"]["framethinker"]
    learning(example, tmp_path, again, ablation).run()
    ((_, options),) = again.runs  # from the same start, with the other choice
    assert options["video_tools.framethinker.bonus_condition"] == "always"
    assert options[MODEL] == training.runs[-1][1][MODEL]
    results = json.loads((tmp_path / "results.json").read_text())
    assert results[f"after RL less after RL, {ablation.title}"]["mean"] == 0.0
    assert f"reward after RL less after RL, {ablation.title}" not in results, "other rules"
    assert ablation.title in (tmp_path / "ablation_report" / "report.md").read_text()


def test_a_run_stopped_before_its_last_measurement_is_measured(example: dict[str, Any], before_rl: Path) -> None:
    training = Training()
    training.stopped_before_measuring = True
    learning(example, before_rl, training).run()
    assert [name for name, _ in training.runs] == ["framethinker_grpo", "framethinker_grpo"]
    (_, trained), (_, measured) = training.runs
    assert "trainer.val_only" in measured and "trainer.val_only" not in trained
    assert [trained[option] == measured[option] for option in (FOLDER, "data.val_files")] == [True, True]
    results = json.loads((before_rl / "results.json").read_text())
    assert results["accuracy"]["after RL"]["needs another look"]["mean"] == 1.0


def test_a_folder_belongs_to_one_plan_but_may_train_longer(
    example: dict[str, Any], finished: Path, tmp_path: Path
) -> None:
    tmp_path = shutil.copytree(finished, tmp_path / "run", ignore=shutil.ignore_patterns("videos"))

    other = learning(example, tmp_path, Training())
    other.seed = 4
    with pytest.raises(UsageError, match="give another --out"):
        other.run()
    shorter = learning(example, tmp_path, Training())
    shorter.plan = replace(shorter.plan, rl_steps=STEPS - 1)
    with pytest.raises(UsageError, match="give another --out"):
        shorter.run()

    longer = learning(example, tmp_path, training := Training())
    longer.plan = replace(longer.plan, rl_steps=STEPS + 1)
    longer.run()
    assert [options["trainer.total_training_steps"] for _, options in training.runs] == [str(STEPS + 1)]
    assert json.loads((tmp_path / "results.json").read_text())["plan"]["rl_steps"] == STEPS + 1


def test_the_same_questions_without_tools_can_be_left_out(example: dict[str, Any], before_rl: Path) -> None:
    run = learning(example, before_rl, training := Training())
    run.plan = replace(run.plan, compares_without_tools=False)
    run.run()
    validation = load_rows(training.runs[-1][1]["data.val_files"])
    assert {row["agent_name"] for row in validation} == {"framethinker"}
    results = json.loads((before_rl / "results.json").read_text())
    assert not [name for name in results["accuracy"] if "without tools" in name]
    assert results["reward after RL less after SFT"]["mean"] == results["after RL less after SFT"]["mean"] == 1.0


def test_the_composition_for_cards_is_learnt_in_its_own_world(example: dict[str, Any], tmp_path: Path) -> None:
    plan = replace(
        example["PLANS"]["compose_spatial"], num_train_videos=3, num_validation_videos=2, rl_steps=STEPS,
    )  # fmt: skip
    run = example["Learning"]("compose_spatial", 1, tmp_path, plan)
    type(run).run.__globals__["run_program"] = training = Training()
    run.run()
    assert [name for name, _ in training.runs] == ["compose_sft", "compose_grpo"]
    assert all(options["video_tools.compose.file"] == "spatial" for _, options in training.runs)
    (_, sft), (_, grpo) = training.runs
    assert sft["engine._target_"].endswith("FrozenTowerConfig")
    assert grpo["actor_rollout_ref.actor.freeze_vision_tower"] == "True"

    train = load_rows(training.runs[-1][1]["data.train_files"])
    validation = load_rows(training.runs[-1][1]["data.val_files"])
    assert (len(train), len(validation)) == (3 * 4, 2 * 4)
    assert {row["agent_name"] for row in (*train, *validation)} == {"compose"}
    assert all("on the card between" in row["extra_info"]["question"] for row in (*train, *validation))

    written = load_rows(tmp_path / "cold_start.parquet")
    assert len(written) == 3 * plan.questions_per_video
    shares = {template: sum(row["template"] == template for row in written) / len(written) for template in TEMPLATES}
    assert shares["direct"] > 0.5 and shares["zoom"] > 0.15, "most are guesses, and some show how it is done"
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["method"] == "compose_spatial" and results["plan"]["composition"] == "spatial"
    assert results["after RL less after SFT"]["mean"] == 1.0
    assert list(results["accuracy"]) == ["after SFT", "after RL"]


@pytest.mark.parametrize(("name", "method"), [("direct", "direct"), ("compose_temporal", "compose")])
def test_what_the_methods_are_compared_with(example: dict[str, Any], tmp_path: Path, name: str, method: str) -> None:
    """No tools, and a composition, on NeedleClips' questions; each with a cold start of its own kind."""
    plan = replace(example["PLANS"][name], num_train_videos=3, num_validation_videos=2, rl_steps=STEPS)
    run = example["Learning"](name, 1, tmp_path, plan)
    type(run).run.__globals__["run_program"] = training = Training()
    run.run()
    assert [name for name, _ in training.runs] == [f"{method}_sft", f"{method}_grpo"]
    written = load_rows(tmp_path / "cold_start.parquet")
    assert {row["agent_name"] for row in written} == {method}
    assert any(len(row["turns"]) > 1 for row in written) == (name != "direct")
    validation = load_rows(training.runs[-1][1]["data.val_files"])
    assert Counter(question_from_row(row)[1].kind for row in validation) == dict.fromkeys(plan.kinds, 2)
    if name == "direct":  # its group has its fields
        assert not any("+video_tools/fields" in options for _, options in training.runs)
    else:
        assert all(options["video_tools.compose.file"] == "demo" for _, options in training.runs)
    results = json.loads((tmp_path / "results.json").read_text())
    assert list(results["accuracy"]) == ["after SFT", "after RL"]
    assert len(results["cost"]["measurements"]) == 3


def test_a_failing_stage_is_named_and_goes_on_at_the_next_start(
    example: dict[str, Any], before_rl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Training):
        def __call__(self, *command: Any, **environment: Any) -> None:
            raise subprocess.CalledProcessError(3, [str(part) for part in command])

    with pytest.raises(example["StageError"], match="stage rl: vvt train ended with exit code 3"):
        learning(example, before_rl, Broken()).run()
    learning(example, before_rl, Training()).run()
    assert json.loads((before_rl / "results.json").read_text())["stages_resumed"] == ["rl"]


def test_a_run_goes_on_whose_checkpoint_was_killed_while_it_was_named(example: dict[str, Any], before_rl: Path) -> None:
    """verl empties the file before it writes a number into it."""
    named = before_rl / "rl" / "latest_checkpointed_iteration.txt"
    named.parent.mkdir()
    named.write_text("")
    run = learning(example, before_rl, Training())
    from_scratch = run.minutes_left()
    named.write_text("1")
    assert run.minutes_left() < from_scratch
    named.unlink()
    assert run.minutes_left() == from_scratch


@pytest.mark.parametrize("name", ["plan.json", "starts.json", "rl.done", "results.json"])
def test_a_full_disk_leaves_what_was_told_of_a_run(
    example: dict[str, Any], before_rl: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An emptied file would keep the run from going on."""
    write = Path.write_text
    file = before_rl / name
    if name == "plan.json":
        file.write_text(json.dumps(learning(example, before_rl, Training()).told()))
    told = file.read_text() if file.exists() else None

    def full(path: Path, *arguments: Any, **options: Any) -> int:
        if name not in path.name:
            return write(path, *arguments, **options)
        write(path, "")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match="No space"):
            learning(example, before_rl, Training()).run()
    assert (file.read_text() if file.exists() else None) == told
    learning(example, before_rl, Training()).run()
    assert json.loads((before_rl / "results.json").read_text())["minutes"].keys() == {"data", "cold", "sft", "rl"}


def test_a_run_whose_costs_are_not_known_keeps_its_accuracies(
    example: dict[str, Any], before_rl: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Lossy(Training):
        def __call__(self, *command: Any, **environment: Any) -> None:
            super().__call__(*command, **environment)
            (before_rl / "rl" / "trajectories" / "step_000001.jsonl").unlink(missing_ok=True)

    learning(example, before_rl, Lossy()).run()
    results = json.loads((before_rl / "results.json").read_text())
    assert "cost" not in results and results["after RL less after SFT"]["mean"] == 1.0
    assert "the records of step 1 are missing" in " ".join(capsys.readouterr().out.split())


def test_a_folder_of_before_there_were_worlds_goes_on(example: dict[str, Any], finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "run", ignore=shutil.ignore_patterns("videos"))
    told = json.loads((folder / "plan.json").read_text())
    for name in example["PLAN_BEFORE"]:
        del told["plan"][name]
    (folder / "plan.json").write_text(json.dumps(told))
    run = learning(example, folder, training := Training())
    run.plan = replace(run.plan, **example["PLAN_BEFORE"])
    run.run()
    assert not training.runs, "all was done before"


def test_what_no_paper_advises_against_is_refused(
    example: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["run.py", "--method", "compose_spatial", "--ablation"])
    with pytest.raises(SystemExit):
        example["main"]()
    assert "leave --ablation out" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["framethinker", "videozoomer", "longvt", "videobrain", "framemind"])
def test_every_methods_ablation_sets_fields_that_it_has(example: dict[str, Any], method: str) -> None:
    fields = read_assignments(example["ABLATIONS"][method].fields)
    changed = get_method(method, **fields)
    assert any(getattr(changed, name) != getattr(get_method(method), name) for name in fields)


def test_rft_imitates_no_guesses(example: dict[str, Any], finished: Path) -> None:
    """Mixed with the policy's own rollouts is what the scripted expert was right about and did not guess."""
    deserves = example["deserves_imitation"]
    rows = load_rows(finished / "with_tools.parquet")
    good = [row for row in rows if deserves(row)]
    assert 0 < len(good) < len(rows)
    for row in rows:
        looked_first, is_direct = len(row["turns"]) > 1, row["extra_info"]["classification"] == "direct"
        assert (looked_first or is_direct) or not deserves(row), "a guess, right or wrong"
        assert not deserves({**row, "turns": [*row["turns"][:-1], row["turns"][-1].replace("answer:", "answer: not")]})
