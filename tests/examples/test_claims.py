"""Claims of the papers: the direction of the gradient from real episodes, and a trial with stand-ins for training."""

from __future__ import annotations

import asyncio
import fcntl
import json
import math
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from examples.learning_curve.claims import __main__ as program
from examples.learning_curve.claims import report
from examples.learning_curve.claims.advantages import Clip, earned, lead, method_of, sampled
from examples.learning_curve.claims.all_trials import run_all, schedule
from examples.learning_curve.claims.behaviours import LOOK_FRAMES, Behaviour, Mixture, Shares, script
from examples.learning_curve.claims.claim import CLAIMS, Arm, Claim
from examples.learning_curve.claims.forecast import forecast
from examples.learning_curve.claims.trial import RESULT, Trial
from examples.learning_curve.learn_all import LOCK, NUM_TRIES
from examples.learning_curve.plans import PLANS
from examples.learning_curve.report import RFT_LESS_RL, TRAINING
from examples.learning_curve.run import Learning, StageError
from tests.examples.test_learning_curve import FOLDER, MODEL, Training
from tests.recorded_run import rollout
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import CallRecord, Retriever, Sample
from verl_video_tools.data.sft import execute
from verl_video_tools.data.synthetic_rows import load_rows, make_demo, make_row, question_from_row
from verl_video_tools.services.retrieval import RetrievalConfig, local
from verl_video_tools.synthetic import clip_dir
from verl_video_tools.synthetic.needle import needle_questions, needle_spec

pytestmark = pytest.mark.long

DIRECTED = [name for name, claim in CLAIMS.items() if claim.direction is not None]
CERTAIN = 0.1
"""A lead that chance in places and guesses does not make."""
LARGEST_SPREAD = 0.16
"""Of differences between seeds, with which the number of seeds still decides."""


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> list[Clip]:
    folder = make_demo(tmp_path_factory.mktemp("clips"), 1, 8, needle=True, num_processes=1)
    rows = load_rows(folder / "test.parquet")
    return [(*question_from_row(row), Path(row["extra_info"]["video_path"])) for row in rows]


def retriever_of(claim: Claim) -> Retriever | None:
    return local(RetrievalConfig(model=str(clip_dir()))) if claim.method == "videobrain" else None


# ------------------------------------------------------------------------------------------------------- the direction


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", DIRECTED)
def test_the_choices_push_a_policy_apart(name: str, clips: list[Clip]) -> None:
    """Real episodes and rewards: the paper's choice favours what it says, and the other does not."""
    claim = CLAIMS[name]
    assert claim.direction is not None
    paper, other = (
        lead(claim, claim.direction, earned(claim, arm, clips, claim.direction.kind, retriever_of(claim)))
        for arm in (claim.paper, claim.other)
    )
    assert paper > CERTAIN, f"under the paper's choice the lead is {paper:.2f}"
    assert other < CERTAIN / 2, f"under the other one it is {other:.2f}"


def test_dynamic_sampling_has_groups_to_replace(clips: list[Clip]) -> None:
    claim = CLAIMS["videozoomer_sampling"]
    live = {kind: earned(claim, claim.paper, clips, kind).live_share for kind in claim.cold}
    assert live["direct"] == 0.0 and live["at_time"] > 0.95


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CLAIMS)
def test_there_is_time_for_the_effect_to_show(name: str, clips: list[Clip]) -> None:
    """And it is much the same in every seed: of policies that are close to looking, greedy answers all look or none.
    Of VideoBrain's the pilot told that, and no forecast; FrameMind's are sampled as those of its pilots were."""
    claim = CLAIMS[name]
    ((paper, other),) = forecast(claim, clips, retriever_of(claim))
    assert (paper - other).mean() > 0.8 * claim.effect
    assert (paper - other).std(ddof=1) < LARGEST_SPREAD
    if claim.samples_answers and claim.method == "videozoomer":
        greedy = replace(
            claim, paper=replace(claim.paper, options=()), other=replace(claim.other, options=_kept(claim))
        )
        ((paper, other),) = forecast(greedy, clips, retriever_of(claim))
        assert (paper - other).std(ddof=1) > LARGEST_SPREAD


def _kept(claim: Claim) -> tuple[str, ...]:
    """Options of the other choice that are no measurement's."""
    return tuple(option for option in claim.other.options if "val_kwargs" not in option)


def test_what_sampling_leaves_out_is_not_learned(clips: list[Clip]) -> None:
    """The nucleus of `skip` and `guess` is 0.93 of what the temperature makes of this: no rollout looks. FrameMind's
    second pilot had this cold start; of 2,560 rollouts none did."""
    claim = CLAIMS["framemind_ladder"]
    shares: Shares = {"look": 0.12, "guess": 0.28, "skip": 0.6}
    assert sampled(shares, 1.0, 1.0) == pytest.approx(shares)
    assert sampled(shares, 0.7, 1.0) == pytest.approx({"look": 0.0700, "guess": 0.2347, "skip": 0.6963}, abs=1e-3)
    assert sampled(shares, 0.7, 0.9) == pytest.approx({"look": 0.0, "guess": 0.2517, "skip": 0.7483}, abs=1e-3)

    never = replace(claim, cold={"between_things": shares})
    groups = earned(never, claim.paper, clips, "between_things")
    assert math.isnan(groups.behaviours["locate"].advantage)
    ((paper, other),) = forecast(never, clips)
    assert (paper - other).mean() < claim.least


def test_no_effect_is_forecast_where_there_is_none(clips: list[Clip]) -> None:
    claim = CLAIMS["framethinker_bonus"]
    ((paper, other),) = forecast(replace(claim, other=claim.paper), clips)
    assert (paper == other).all()


def test_a_forecast_knows_which_tools_were_called(clips: list[Clip]) -> None:
    """All learn to ask for a number where that is paid in any case, and none where it has to be right."""
    claim = CLAIMS["framethinker_bonus"]
    asked = next(metric for metric in claim.metrics if metric.measure == "asked_for_number")
    ((paper, other),) = forecast(replace(claim, metrics=(asked,)), clips)
    assert paper.max() < 0.1 and other.min() > 0.9


# ------------------------------------------------------------------------------------------------------------ behaviour


def calls_of(behaviour: Any, claim: Claim, clip: Clip) -> tuple[list[CallRecord], float]:
    """Executed calls, and the reward's accuracy."""
    spec, question, path = clip
    method = method_of(claim, claim.paper)
    sample = Sample.from_row(make_row(spec, question, path, 0, "test", method.name))

    async def run() -> tuple[list[CallRecord], float]:
        trajectory = await execute(method, sample, script(behaviour, method, spec, question).turns)
        return trajectory.executed_calls(), (await method.score(trajectory, sample, None))["accuracy"]

    return asyncio.run(run())


def test_behaviours_look_where_they_say(clips: list[Clip]) -> None:
    claim = CLAIMS["longvt_recall"]
    for clip in clips:
        spec, question, _ = clip
        skipped, accuracy = calls_of("skip", claim, clip)
        assert not skipped
        looks = {name: calls_of(name, claim, clip)[0] for name in ("look", "look_always", "near", "wide")}
        if question.kind == "direct":
            assert accuracy == 1.0 and not looks["look"]
            (look,) = looks["look_always"]
            assert look.result["end_time"] - look.result["start_time"] == pytest.approx(
                (LOOK_FRAMES + 1) / spec.fps, abs=0.1
            )
        elif question.kind == "between_things":
            spans = {name: (look.result["start_time"], look.result["end_time"]) for name, (look,) in looks.items()}
            start, end = spans["look"]
            assert spans["wide"][0] < start < end < spans["wide"][1]
            assert abs(spans["near"][0] - start) < (end - start) / 2
            assert calls_of("look", claim, clip)[1] == 1.0


@pytest.mark.parametrize(
    ("name", "said", "unsaid"), [("longvt_recall", "wide", "near"), ("framemind_ladder", "guess", "look")]
)
def test_a_thought_says_what_digits_alone_would_tell(
    name: str, said: Behaviour, unsaid: Behaviour, clips: list[Clip]
) -> None:
    spec, question, _ = next(clip for clip in clips if clip[1].kind == "between_things")
    for behaviour in (said, unsaid):
        first, _ = script(behaviour, method_of(CLAIMS[name]), spec, question).turns
        assert first.startswith("<think>") and first.startswith(f"<think>{said} ") == (behaviour == said)


def test_who_asks_for_a_frame_number_sees_no_frame(clips: list[Clip]) -> None:
    claim = CLAIMS["framethinker_bonus"]
    clip = next(clip for clip in clips if clip[1].kind == "between_things")
    (call,), _ = calls_of("ask", claim, clip)
    assert call.name == "get_frame_number" and not call.frames and call.result["frame_number"] > 0


@pytest.mark.parametrize("name", CLAIMS)
def test_a_cold_start_behaves_as_planned(name: str) -> None:
    claim = CLAIMS[name]
    expert = Mixture(method_of(claim), claim.cold, seed=3)
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in claim.cold}
    for number in range(200):
        spec = needle_spec(2 * number)
        for question in needle_questions(spec, 4, seed=0):
            if question.kind in claim.cold:
                written = expert.script(spec, question)
                assert written == expert.script(spec, question)
                counts[question.kind][written.template] += 1
    for kind, shares in claim.cold.items():
        assert counts[kind].keys() <= shares.keys()
        for behaviour, share in shares.items():
            assert counts[kind][behaviour] / 200 == pytest.approx(share, abs=0.12), (kind, behaviour)


def test_shares_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="add up to 1"):
        Mixture(method_of(CLAIMS["longvt_recall"]), {"direct": {"skip": 0.5}})


# ----------------------------------------------------------------------------------------------------------- the trial


class Stand:
    """Stands for a trial: notes its name in `made`, does what `failures` has for it, and else leaves a result."""

    made: ClassVar[list[str]]
    failures: ClassVar[dict[str, list[Exception]]]

    def __init__(self, name: str, claim: Claim, seed: int, folder: Path) -> None:
        self.name, self.folder, self.claim = f"{name}_{seed}", folder, claim
        self.told = {"claim": name, "seed": seed, "settings": claim.settings()}

    def run(self) -> None:
        self.made.append(self.name)
        if waiting := self.failures.get(self.name):
            raise waiting.pop()
        self.folder.mkdir(parents=True)
        (self.folder / RESULT).write_text(json.dumps(self.told))


class Choices(Training):
    """Stands for `vvt train`: under the paper's choice every rollout looks, under the other one none."""

    def answer(self, row: dict[str, Any], looks: bool) -> dict[str, Any]:
        looks = looks and self.of_paper
        look = CallRecord(
            "crop_video",
            {},
            ok=True,
            result=dict(zip(("start_time", "end_time"), row["extra_info"]["video_segment"], strict=True)),
        )
        line = rollout("x", float(looks), method=row["agent_name"], calls=[look] * looks)
        return line | {"extra_info": row["extra_info"], "agent_name": row["agent_name"]}

    def __call__(self, *command: Any, **environment: Any) -> None:
        folders = [str(part).partition("=")[2] for part in command if str(part).startswith(FOLDER)]
        self.of_paper = any(Path(folder).name.startswith("rl") for folder in folders)
        super().__call__(*command, **environment)


def trial(name: str, folder: Path, training: Training, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Trial:
    plan = replace(CLAIMS[name].plan, num_train_videos=2, num_validation_videos=3, questions_per_video=8, rl_steps=2)
    monkeypatch.setattr("examples.learning_curve.run.run_program", training)
    return Trial(name, replace(CLAIMS[name], plan=plan, **changes), 5, folder)


def test_a_trial_compares_two_choices_from_one_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Choices()
    trial("longvt_recall", tmp_path, training, monkeypatch).run()
    assert [name for name, _ in training.runs] == ["longvt_sft", "longvt_grpo", "longvt_grpo"]
    _, (_, first), (_, second) = training.runs
    assert [run["video_tools.longvt.time_reward"] for run in (first, second)] == ["iou", "recall"]
    same = (MODEL, "data.train_files", "data.val_files", "trainer.total_training_steps")
    assert [first[key] for key in same] == [second[key] for key in same] and first[FOLDER] != second[FOLDER]

    cold = load_rows(tmp_path / "cold_start.parquet")
    kinds = Counter(question_from_row(row)[1].kind for row in cold)
    assert kinds == {"between_things": 4, "direct": 4}
    asked = {row["extra_info"]["question"] for row in load_rows(tmp_path / "train.parquet")}
    assert {row["template"] for row in cold} <= {"wide", "near", "skip"} and len(asked) == 4

    result = json.loads((tmp_path / RESULT).read_text())
    assert (result["claim"], result["seed"]) == ("longvt_recall", 5)
    iou, _, at_once, _ = result["metrics"]
    assert iou["paper"]["mean"] == 1.0 and iou["other"]["mean"] == 0.0 and iou["difference"]["mean"] == 1.0
    assert at_once["difference"]["mean"] == -1.0
    assert result[TRAINING] == {run: {"rollouts": 4, "flagged": 0} for run in ("rl", "ablation")}
    assert result["settings"]["other"]["fields"] == ["time_reward=recall"]

    again = Choices()
    trial("longvt_recall", tmp_path, again, monkeypatch).run()
    assert not again.runs
    with pytest.raises(UsageError, match="another claim"):
        trial("longvt_recall", tmp_path, again, monkeypatch, paper=Arm("recall", ("time_reward=recall",))).run()
    other = trial("longvt_recall", tmp_path, again, monkeypatch)
    other.plan = replace(other.plan, rl_steps=3)
    other.claim = replace(other.claim, plan=other.plan)
    with pytest.raises(UsageError, match="another claim"):
        other.run()
    trial("longvt_recall", tmp_path, again, monkeypatch).run()
    assert not again.runs, "a claim that was refused has changed nothing"


def test_fields_of_both_choices_reach_all_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Choices()
    trial("framethinker_bonus", tmp_path, training, monkeypatch).run()
    assert all(options["video_tools.framethinker.ccv"] == "false" for _, options in training.runs)
    asked = [row for row in load_rows(tmp_path / "cold_start.parquet") if row["template"] == "ask"]
    assert all("get frame number" in row["turns"][0] and len(row["turns"]) == 2 for row in asked)


def test_a_metric_may_be_measured_with_fields_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Choices()
    trial("framemind_ladder", tmp_path, training, monkeypatch).run()
    runs = {Path(options[FOLDER]).name: options for _, options in training.runs[1:]}
    assert list(runs) == ["rl", "rl_metric_0", "rl_metric_1", "ablation", "ablation_metric_0", "ablation_metric_1"]
    prefix = "video_tools.framemind"
    assert runs["ablation"][f"{prefix}.low"] == "[4,112]"
    for name in ("rl", "ablation"):
        options = runs[f"{name}_metric_1"]
        assert options[MODEL] == str(tmp_path / name / "huggingface") and options["trainer.val_only"] == "True"
        assert (options[f"{prefix}.initial_frames"], options[f"{prefix}.nested_times"]) == ("4", "true")
        assert f"{prefix}.low" not in options
    result = json.loads((tmp_path / RESULT).read_text())
    assert [metric["fields"] for metric in result["metrics"]] == [[], ["initial_frames=4"]]


def test_training_keeps_the_share_of_a_kind_and_may_sample_all_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Choices()
    trial("videozoomer_sampling", tmp_path, training, monkeypatch, train_shares={"at_time": 0.5}).run()
    kinds = Counter(question_from_row(row)[1].kind for row in load_rows(tmp_path / "train.parquet"))
    assert kinds == {"direct": 2, "at_time": 1}
    options = {Path(options[FOLDER]).name: options for _, options in training.runs[1:]}
    assert options["ablation"]["algorithm.filter_groups.enable"] == "False"
    assert "algorithm.filter_groups.enable" not in options["rl"]


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> type[Stand]:
    monkeypatch.setattr(Stand, "made", [], raising=False)
    monkeypatch.setattr(Stand, "failures", {}, raising=False)
    return Stand


PLANNED = [f"{name}_{seed}" for name, seed in schedule()]


def test_all_runs_are_made_once_and_a_failed_one_is_named(tmp_path: Path, stand: type[Stand]) -> None:
    """Whatever a run fails with, the others are made."""
    outputs, results = tmp_path / "outputs", tmp_path / "results"
    stand.failures["longvt_recall_1"] = [StageError("stage rl: no memory") for _ in range(NUM_TRIES)]
    stand.failures["framemind_ladder_3"] = [subprocess.CalledProcessError(9, ["vvt"]), ValueError("other questions")]
    stand.failures["videobrain_behavior_2"] = [OSError("the disk is full")]
    failed = run_all(outputs, results, stand)
    assert failed == {
        "longvt_recall_1": "stage rl: no memory",
        "framemind_ladder_3": "Command '['vvt']' returned non-zero exit status 9.",
    }
    assert len(PLANNED) == sum(claim.seeds for claim in CLAIMS.values())
    assert "longvt_recall_0" not in PLANNED and "longvt_recall_3" in PLANNED  # seed 0 was the pilot
    assert list(dict.fromkeys(stand.made)) == PLANNED
    assert {name: stand.made.count(name) for name in stand.failures} == dict.fromkeys(stand.failures, 2)
    assert PLANNED[-1] == "videozoomer_sampling_6", "the dearest last"

    stand.made.clear()
    assert run_all(outputs, results, stand) == {} and sorted(stand.made) == sorted(failed)
    assert sorted(path.stem for path in results.iterdir()) == sorted(PLANNED)


def test_a_kept_result_of_other_settings_is_named_and_not_counted(tmp_path: Path, stand: type[Stand]) -> None:
    outputs, results = tmp_path / "outputs", tmp_path / "results"
    run_all(outputs, results, stand)
    kept = results / "longvt_recall_1.json"
    told = json.loads(kept.read_text())
    told["settings"]["plan"]["rl_steps"] = 1
    kept.write_text(json.dumps(told))
    (failed,) = run_all(outputs, results, stand).items()
    assert failed == ("longvt_recall_1", f"{kept} was made with other settings; move it away")
    assert json.loads(kept.read_text()) == told


def test_no_other_schedule_works_meanwhile(tmp_path: Path, stand: type[Stand]) -> None:
    """Neither a second one of the claims nor `learn-all`, which holds the same lock."""
    free: list[bool] = []

    class Watched(stand):  # type: ignore[misc, valid-type]  # made by a fixture
        def run(self) -> None:
            with (tmp_path / LOCK).open("w") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    free.append(False)
                else:
                    free.append(True)
            super().run()

    assert run_all(tmp_path, tmp_path / "results", Watched) == {}
    assert free == [False] * len(PLANNED)


def test_fine_tuning_on_rollouts_takes_late_ones_and_is_compared_with_rl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training()
    monkeypatch.setattr("examples.learning_curve.run.run_program", training)
    plan = replace(PLANS["longvt"], num_train_videos=2, num_validation_videos=2, questions_per_video=8, rl_steps=20)
    plan = replace(plan, num_direct_rows=4)
    monkeypatch.setitem(PLANS, "longvt", plan)
    Learning("longvt", 0, tmp_path, plan).run()
    (options,) = [options for name, options in training.runs if name == "longvt_rft"]
    assert options["video_tools.rft.min_step"] == "11" and float(options["optim.lr"]) < 1e-3
    results = json.loads((tmp_path / "results.json").read_text())
    # The stand-in answers from the initial frames after RFT, and looks after RL.
    assert results[RFT_LESS_RL]["mean"] == -1.0
    (line,) = report.table(report.read({"longvt": results})).splitlines()[2:]
    assert line.startswith("| `longvt_rft` | undecided: 1 of 3 seeds |")
    assert line.endswith("| 0.0 | 100.0 | -100.0 | 0.0 |")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["longvt_recall"], ("longvt_recall", 1, Path("outputs/claim_longvt_recall_1"))),
        (["framethinker_bonus"], ("framethinker_bonus", 0, Path("outputs/claim_framethinker_bonus_0"))),
        (["longvt_recall", "--seed", "0", "--out", "pilot"], ("longvt_recall", 0, Path("pilot"))),
    ],
)
def test_the_first_seed_that_decides_is_run(
    arguments: list[str], expected: tuple[str, int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[str, int, Path]] = []

    class Begun:
        def __init__(self, name: str, claim: Claim, seed: int, out: Path) -> None:
            begun.append((name, seed, out))

        def run(self) -> None:
            pass

    monkeypatch.setattr(program, "Trial", Begun)
    monkeypatch.setattr("sys.argv", ["claims", "run", *arguments])
    program.main()
    assert begun == [expected]
