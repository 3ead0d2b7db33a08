"""`vvt train`: what it starts around the training program, what it refuses, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("verl", reason="a run configures verl")

from omegaconf import OmegaConf

from tests.launch.conftest import Launcher
from verl_video_tools import config
from verl_video_tools.core.errors import UsageError
from verl_video_tools.launch import data
from verl_video_tools.launch.checks.report import Check, Status
from verl_video_tools.launch.train import GROUPS, STARTED_WITH, Request, _planned, _program, compose, dry_run, plan_run
from verl_video_tools.methods.run_settings import model_tools_section
from verl_video_tools.methods.toolkit.grammar import section_of_template
from verl_video_tools.verl_plugin.checkpoints import LAST_CHECKPOINT

pytestmark = pytest.mark.slow

CONFIG = Path(config.__file__).parent / "video_tools"
GROUP = "+video_tools=framethinker_grpo"
SFT_GROUP = "+video_tools=framethinker_sft"
SFT_PROGRAM = "verl_video_tools.verl_plugin.sft_trainer"


def cold_started(folder: Path) -> None:
    """Leaves the model from which a GRPO run in the synthetic world starts."""
    model = folder / "framethinker_sft" / "huggingface"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")


def test_a_missing_cold_start_comes_first(launcher: Launcher) -> None:
    """With its own options: the run's learning rate would leave the model as it is."""
    options = ("actor_rollout_ref.actor.optim.lr=1e-7", "video_tools.demo.family=qwen3_vl")
    assert launcher.run("grpo", GROUP, *options) == 0
    assert launcher.modules == [SFT_PROGRAM, "verl.trainer.main_ppo"]
    cold_start, _ = launcher.programs[0]
    assert not any("lr=" in option for option in cold_start)
    rows = f"{launcher.folder}/framethinker_sft/train.parquet"
    assert (
        launcher.vvt[0] == f"demo --out {launcher.folder}/demo_framethinker --agent-name=framethinker --family qwen3_vl"
    )
    assert (
        len(launcher.vvt) == 2
        and f"export-sft {launcher.folder}/demo_framethinker/train.parquet {rows}" in launcher.vvt[1]
    )

    launcher.programs.clear()
    assert launcher.run("grpo", GROUP) == 0
    assert launcher.modules == ["verl.trainer.main_ppo"], "it is there now"


def test_the_cold_start_of_a_composition_is_of_the_same_file(launcher: Launcher) -> None:
    options = ("video_tools.compose.file=spatial", "video_tools.demo.spatial=true")
    assert launcher.run("grpo", "+video_tools=compose_grpo", *options) == 0
    assert "--spatial" in launcher.vvt[0]
    assert "--set=compose.file=spatial" in launcher.vvt[1]
    assert "video_tools.compose.file='spatial'" in launcher.programs[0][0]


def test_the_cold_start_of_a_family_has_what_the_family_needs(launcher: Launcher) -> None:
    """Rows that are packed are refused for Qwen3.5."""
    options = ("+video_tools/model=qwen3_5_grpo", "video_tools.demo.family=qwen3_5")
    assert launcher.run("grpo", GROUP, *options) == 0
    cold_start, _ = launcher.programs[0]
    assert "+video_tools/model=qwen3_5_sft" in cold_start
    plan = launcher.checked[1][0]
    assert plan.config.model.use_remove_padding is False
    assert plan.model_path == f"{launcher.folder}/demo_framethinker/base"


def test_a_cold_start_that_fails_ends_the_run(launcher: Launcher) -> None:
    launcher.exit_code = 3
    assert launcher.run("grpo", GROUP) == 3
    assert launcher.modules == [SFT_PROGRAM] and launcher.reports == []


def test_another_model_that_is_missing_is_not_trained(launcher: Launcher) -> None:
    """The checks, which this launcher has none of, refuse it."""
    assert launcher.run("grpo", GROUP, "actor_rollout_ref.model.path=/no/model") == 0
    assert SFT_PROGRAM not in launcher.modules


def test_rows_of_a_run_that_goes_on_stay(launcher: Launcher) -> None:
    for made in (True, False):
        launcher.vvt.clear()
        assert launcher.run("sft", SFT_GROUP, "video_tools.demo.is_made=true") == 0
        assert bool(launcher.vvt) == made


def test_a_cold_start_takes_nothing_that_is_meant_for_the_run(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"EXPERIMENT_NAME": "mine", "NDEVICES_PER_NODE": "2", "TRAIN_FILES": "mine.parquet"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", str(launcher.folder / "mine.jsonl"))
    assert launcher.run("grpo", GROUP) == 0
    (cold, environment), (run, of_run) = launcher.programs
    folder = launcher.folder / "framethinker_sft"
    assert not any("mine" in option or option.startswith("trainer.n_gpus") for option in cold)
    assert environment["VERL_FILE_LOGGER_PATH"].startswith(str(folder))
    assert of_run["VERL_FILE_LOGGER_PATH"] == str(launcher.folder / "mine.jsonl")
    assert any("mine.parquet" in option for option in run)


def test_every_folder_of_config_groups_has_its_place() -> None:
    """A group that is not listed would come last, and replace what the synthetic world or a machine sets."""
    folders = {path.name for path in CONFIG.iterdir() if path.is_dir()}
    assert {f"+video_tools/{name}" for name in folders} == {*GROUPS} - {"+video_tools"}


def test_the_synthetic_world_sets_fields_of_a_second_method(launcher: Launcher) -> None:
    groups = ["+video_tools/synthetic=[framethinker_grpo,direct]", "+video_tools/fields=direct"]
    plan = plan_run(Request("grpo", (GROUP, *groups)))
    assert plan.config.video_tools.direct.initial_frames == 8


def test_a_group_for_a_family_leaves_the_tiny_model_of_the_synthetic_world(launcher: Launcher) -> None:
    plan = plan_run(Request("sft", (SFT_GROUP, "+video_tools/model=qwen3_5_sft")))
    assert plan.model_path == f"{launcher.folder}/demo_framethinker/base"
    assert plan.config.model.use_remove_padding is False, "the family's other values stay"
    family = "+video_tools/model=qwen3_vl_moe_grpo"
    for flags in ({}, {"synthetic": True}, {"smoke_test": True}):
        plan = plan_run(Request("grpo", (GROUP, family), **flags))
        assert plan.model_path == f"{launcher.folder}/framethinker_sft/huggingface"
        assert plan.config.actor_rollout_ref.rollout.tensor_model_parallel_size == 1
    options = ("actor_rollout_ref.rollout.tensor_model_parallel_size=2", "actor_rollout_ref.model.path=/m")
    plan = plan_run(Request("grpo", (GROUP, family, *options)))
    assert plan.config.actor_rollout_ref.rollout.tensor_model_parallel_size == 2
    assert plan.model_path == "/m"


@pytest.mark.parametrize("has_list", [True, False])
def test_processes_of_a_run_list_tools_as_its_plan_does(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, has_list: bool
) -> None:
    """The hub may answer one of them and not the next."""
    template = config.config_path("hermes-template").read_text("utf-8").replace("These tools", "Model\\'s tools")
    model = launcher.folder / "model"
    model.mkdir()
    (model / "chat_template.jinja").write_text(template if has_list else "{{ messages }}")
    monkeypatch.setenv("MODEL_PATH", str(model))
    plan = plan_run(Request("grpo", ("+video_tools=longvt_grpo",)))
    section = plan.config.video_tools.longvt.tools_section
    assert section == (section_of_template(template) if has_list else None)
    assert not has_list or "Model's tools" in section
    (model / "chat_template.jinja").write_text("{{ messages }}" if has_list else template)
    model_tools_section.cache_clear()
    again = compose("grpo", plan.overrides)
    assert again.video_tools.longvt.tools_section == section


@pytest.mark.parametrize(
    ("stage", "overrides", "flags", "message"),
    [
        ("sft", [SFT_GROUP], {"smoke_test": True}, "--smoke-test is for reinforcement learning"),
        ("sft", [SFT_GROUP], {"save_on_signal": True}, "--save-on-signal is for reinforcement learning"),
        ("sft", [GROUP], {}, "is not a group of `vvt train sft`"),
        ("grpo", [GROUP, "+video_tools/machine=4x48gb_lora_grpo"], {}, "is for real models"),
        ("grpo", [GROUP, "+video_tools.jugde.model=x"], {}, "did you mean 'judge'"),
        ("grpo", [GROUP, "trainer.logger=[wnadb]"], {}, "trainer.logger names wnadb"),
    ],
)
def test_what_contradicts_itself_is_refused(
    stage: str, overrides: list[str], flags: dict[str, bool], message: str, launcher: Launcher
) -> None:
    with pytest.raises(UsageError, match=message):
        launcher.run(stage, *overrides, **flags)
    assert launcher.programs == []


def test_rft_mixes_rows_of_the_cold_start(launcher: Launcher) -> None:
    assert launcher.run("rft", "+video_tools=longvt_rft", "video_tools.demo.is_made=true") == 0
    folder = launcher.folder
    exported = f"data export-sft {folder}/longvt_grpo/trajectories {folder}/longvt_rft/train.parquet --overwrite"
    mixed = f"--min-iou 0.3 --cold-start={folder}/longvt_sft/train.parquet --cold-share 0.94"
    assert launcher.vvt == [f"{exported} {mixed}"]


def test_rft_takes_the_steps_and_the_share_that_are_given(launcher: Launcher) -> None:
    rft = {"records_dir": "/r", "min_iou": 0.0, "min_step": 3, "max_step": 20, "cold_start": ["/a", "/b"]}
    for share, expected in ((0.5, " --cold-start=/a --cold-start=/b --cold-share 0.5"), (0, "")):
        launcher.vvt.clear()
        config = OmegaConf.create({"video_tools": {"rft": {**rft, "cold_share": share}}})
        data.export_rollouts(config, launcher.folder / "rows.parquet")
        (command,) = launcher.vvt
        assert command.endswith(f"--overwrite --min-iou 0.0 --min-step 3 --max-step 20{expected}")


def test_rft_on_real_data_asks_for_the_cold_start(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVICE", "gpu")
    with pytest.raises(UsageError, match=r"video_tools\.rft\.cold_start=\[FILE,...\]"):
        launcher.run("rft", "+video_tools=longvt_rft")


# ------------------------------------------------------------------------------------------------------------ the end


def test_a_smoke_test_resumes_with_metrics_of_its_own(launcher: Launcher, capsys: pytest.CaptureFixture[str]) -> None:
    """verl's logger empties its file. A summary that cannot be made costs no model."""
    cold_started(launcher.folder)
    launcher.has_summary = False
    assert launcher.run("grpo", GROUP, smoke_test=True) == 0
    (first, of_first), (second, of_second) = launcher.programs
    assert second == [*first, "trainer.total_training_steps=3"]
    assert of_first["VERL_FILE_LOGGER_PATH"] != of_second["VERL_FILE_LOGGER_PATH"]
    assert [report[0] for report in launcher.reports] == ["summary", "export_model"]
    printed = capsys.readouterr()
    assert "no summary: step_000001.jsonl, line 3" in printed.err and "smoke test on DEVICE=cpu" in printed.out


def test_the_exit_code_is_that_of_the_training(launcher: Launcher) -> None:
    cold_started(launcher.folder)
    launcher.exit_code = 130
    assert launcher.run("grpo", GROUP, smoke_test=True) == 130
    assert len(launcher.programs) == 1 and launcher.reports == []


def test_a_checkpoint_at_a_signal_is_asked_for(launcher: Launcher) -> None:
    cold_started(launcher.folder)
    assert launcher.run("grpo", GROUP, save_on_signal=True) == 0
    assert launcher.run("grpo", GROUP) == 0
    assert launcher.stop_files == [launcher.folder / "framethinker_grpo" / "stop_requested", None]


def test_a_cluster_is_asked_for_lost_nodes(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    cold_started(launcher.folder)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    for code, asked in ((1, True), (143, False)):
        launcher.reports.clear()
        launcher.exit_code = code
        assert launcher.run("grpo", GROUP) == code
        assert bool(launcher.reports) == asked


# -------------------------------------------------------------------------------------------------- other runs' folders


def test_a_run_goes_on_from_its_own_checkpoints_alone(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not from those of another model, or of rows that have been made anew."""
    folder = launcher.folder
    for name in ("one.parquet", "two.parquet"):
        (folder / name).write_text(name)

    def run(rows: str, *options: str) -> int:
        monkeypatch.setenv("TRAIN_FILES", rows)
        return launcher.run("sft", SFT_GROUP, "model.path=/a/model", *options)

    kept = folder / "framethinker_sft" / STARTED_WITH
    for _ in range(2):
        assert run("one.parquet") == 0
    before = kept.read_text()
    assert before == "MODEL_PATH /a/model\nTRAIN_FILES one.parquet (11 bytes)\n"
    for rows, *options in (("one.parquet", "model.path=/b"), ("two.parquet",), ("[one.parquet,two.parquet]",)):
        with pytest.raises(UsageError, match=r"holds checkpoints of a run that was started with .* another OUTPUT_DIR"):
            run(rows, *options)
        assert kept.read_text() == before
    (foreign,) = dry_run(Request("sft", (SFT_GROUP, "model.path=/b"))).failed
    assert foreign.group == "checkpoints" and "remove" in foreign.fix
    assert launcher.checked[-1][1], "a dry run starts nothing, so that it checks the rest as well"

    (folder / "moved").mkdir()
    (folder / "moved" / "one.parquet").write_text("one.parquet")
    assert run("moved/one.parquet") == 0, "a job of Ray unpacks its folder anew"
    (folder / "framethinker_sft" / LAST_CHECKPOINT).unlink()
    assert run("two.parquet") == 0, "without checkpoints a folder is nobody's"


# ------------------------------------------------------------------------------------------------------------ programs


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "--nnodes=1 --nproc_per_node=8 --standalone"),
        (
            {"NNODES": "2", "NDEVICES_PER_NODE": "4", "NODE_RANK": "1", "MASTER_ADDR": "node"},
            "--nnodes=2 --nproc_per_node=4 --node_rank=1 --master_addr=node --master_port=29500",
        ),
    ],
)
def test_fine_tuning_starts_a_process_per_gpu(
    variables: dict[str, str], expected: str, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ({"DEVICE": "gpu", "TRAIN_FILES": "train.parquet"} | variables).items():
        monkeypatch.setenv(name, value)
    words = _program(plan_run(Request("sft", ("+video_tools=longvt_sft",))))
    assert " ".join(words[1:]) == f"-m torch.distributed.run {expected} -m verl_video_tools.verl_plugin.sft_trainer"


def test_a_node_without_a_rank_is_refused(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVICE", "gpu")
    monkeypatch.setenv("TRAIN_FILES", "train.parquet")
    with pytest.raises(UsageError, match=r"with trainer\.nnodes=2 start this on every node, with its NODE_RANK from 0"):
        launcher.run("sft", "+video_tools=longvt_sft", "trainer.nnodes=2")


def test_nodes_have_logs_and_rows_of_their_own(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_RANK", "1")
    assert launcher.run("sft", SFT_GROUP) == 0
    assert launcher.vvt[1].split()[3] == f"{launcher.folder}/framethinker_sft/train_node1.parquet"
    assert not (launcher.folder / "framethinker_sft" / STARTED_WITH).exists() and launcher.reports == []


# -------------------------------------------------------------------------------------------------------------- checks


def test_a_check_that_fails_comes_before_the_cold_start(launcher: Launcher, capsys: pytest.CaptureFixture[str]) -> None:
    launcher.found.append(Check("model", "weights", Status.FAILED, "/a", "no file of weights", "download it"))
    assert launcher.run("grpo", GROUP) == 1
    assert launcher.programs == [] and not (launcher.folder / "framethinker_grpo").exists()
    told = " ".join(capsys.readouterr().err.split())
    assert told == (
        "[verl_video_tools] framethinker_grpo: model failed weights /a, no file of weights fix: download it"
    )


def test_what_may_give_trouble_is_told_and_good_checks_are_silent(
    launcher: Launcher, capsys: pytest.CaptureFixture[str]
) -> None:
    cold_started(launcher.folder)
    launcher.found.append(Check("model", "weights", Status.OK))
    assert launcher.run("grpo", GROUP) == 0
    assert capsys.readouterr().err == ""
    launcher.found.append(Check("rows", "training rows", Status.WARNING, detail="3 rows cannot be used"))
    assert launcher.run("grpo", GROUP) == 0 and len(launcher.programs) == 2
    assert "3 rows cannot be used" in capsys.readouterr().err
    assert [thorough for _, thorough in launcher.checked] == [False, False]


def test_a_dry_run_checks_the_options_of_the_run(launcher: Launcher) -> None:
    dry_run(Request("grpo", (GROUP, "data.train_batch_size=2")))
    ((plan, thorough),) = launcher.checked
    assert thorough and plan.config == plan_run(plan.request).config
    assert launcher.programs == [] and not list(launcher.folder.glob("*_*/*"))


def test_the_base_model_stands_in_until_there_is_a_cold_start(launcher: Launcher) -> None:
    plan = plan_run(Request("grpo", (GROUP,)))
    assert _planned(plan, thorough=False).stand_in == f"{launcher.folder}/demo_framethinker/base"
    cold_started(launcher.folder)
    assert _planned(plan, thorough=False).stand_in is None
    other = plan_run(Request("grpo", (GROUP, "actor_rollout_ref.model.path=/no/model")))
    assert _planned(other, thorough=True).stand_in is None


def test_several_nodes_are_not_asked_for_their_rank(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"DEVICE": "gpu", "NNODES": "4", "TRAIN_FILES": "train.parquet"}.items():
        monkeypatch.setenv(name, value)
    dry_run(Request("sft", ("+video_tools=longvt_sft",)))
    ((plan, _),) = launcher.checked
    assert plan.device == "gpu" and _planned(plan, thorough=True).uses_other_nodes
