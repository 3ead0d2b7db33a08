"""Dotted names that README, docs and recipes of version 0.1.0 gave: each works still, moved ones with a warning."""

from __future__ import annotations

import importlib
import runpy
import subprocess
import sys
import warnings
from typing import Any

import pytest

import verl_video_tools
from verl_video_tools._moved import PACKAGE, Loader
from verl_video_tools.core.environment import module_exists

IN_PLACE = [
    "data.stock_rows.convert_parquet",
    "evaluation.questions.Questions",
    "evaluation.questions.questions_of_benchmark",
    "evaluation.questions.questions_of_rows",
    "evaluation.run.evaluate",
    "methods.direct.Direct",
    "methods.framemind.FrameMind",
    "methods.framemind.resolution_ladder",
    "methods.framethinker.FrameThinker",
    "methods.get_method",
    "methods.longvt.LongVT",
    "methods.method_names",
    "methods.videobrain.VideoBrain",
    "methods.videozoomer.VideoZoomer",
    "replay.replay",
    "rewards.ConsistencyRules",
    "rewards.Verdict",
    "rewards.grade_multiple_choice",
    "rewards.temporal_iou",
    "rewards.verify_consistency",
    "tools.stock.ChooseFramesTool",
    "tools.stock.GetFrameNumberTool",
    "tools.stock.VideoZoomTool",
    "video.Video",
    "video.cache_stats",
    "video.decode_frames",
    "video.decode_many",
    "video.envelope_of",
    "video.fit_box",
    "video.fit_envelope",
    "video.fit_pixels",
    "video.fps_seconds",
    "video.image_tokens",
    "video.linspace_indices",
    "video.not_before",
    "video.open_video",
    "video.probe.probe",
    "video.uniform_seconds",
]
MOVED_NAMES = [
    "agent_loop.episode.Budget",
    "agent_loop.episode.Episode",
    "agent_loop.loop.VideoAgentLoop",
    "agent_loop.worker.VideoAgentLoopManager",
    "config.config_path",
    "data.export_model.export_model",
    "data.sft_dataset.TrajectorySFTDataset",
    "endpoint.policy.PolicyConfig",
    "errors.CallErrorCode",
    "evaluation.benchmarks.Benchmark",
    "evaluation.benchmarks.BenchmarkFiles",
    "evaluation.benchmarks.GradedItem",
    "evaluation.benchmarks.entries.benchmark_row",
    "evaluation.benchmarks.entries.find_video",
    "judge.JudgeConfig",
    "judge.LLMJudge",
    "methods.fields.require",
    "protocols.blocks.find_blocks",
    "protocols.json_object.json_objects",
    "retrieval.RetrievalConfig",
    "retrieval.connect",
    "retrieval.local",
    "retrieval.local_from_fields",
    "rewards.grading.check_question",
    "rewards.grading.decided_by_rule",
    "rewards.grading.grade_answer",
    "rewards.manager.VideoToolsRewardManager",
    "rewards.manager.scored_by_manager",
    "selectors.most_similar",
    "trace.records.read_records",
    "trace.summary.main",
    "types.Method",
    "types.RecipeBudget",
    "types.frames.VideoInfo",
    "types.messages.Message",
    "types.method.Method",
    "types.sample.Sample",
    "types.services.Judge",
    "types.trajectory.Trajectory",
]


def look_up(name: str) -> Any:
    """As an import statement does: the longest part that is a module, then its attributes.

    Raises:
        AssertionError, AttributeError: there is no such module, or it has no such name.
    """
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module_name = ".".join([PACKAGE, *parts[:length]])
        try:
            found: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not module_name.startswith(error.name):
                raise
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"{name} is not there")


def forget() -> None:
    """Modules under their former names: warnings come with the first import of a name in a process."""
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{PACKAGE}.") and isinstance(getattr(module.__spec__, "loader", None), Loader):
            del sys.modules[name]


@pytest.mark.timeout(300)  # imports verl
def test_public_names_stay() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in IN_PLACE:
            look_up(name)


@pytest.mark.timeout(300)
def test_moved_names_work_with_a_warning() -> None:
    for name in MOVED_NAMES:
        if name.startswith("rewards.manager") and not module_exists("verl"):
            continue  # the reward manager subclasses verl's
        forget()
        with pytest.warns(FutureWarning, match="has moved to verl_video_tools"):
            look_up(name)


def test_a_moved_class_is_the_same_class() -> None:
    from verl_video_tools.core.types import Sample

    forget()
    with pytest.warns(FutureWarning):
        assert look_up("types.Sample") is Sample


def test_moved_programs_run() -> None:
    """Recipes and docs of version 0.1.0 start these by ``python -m``."""
    modules = [f"{PACKAGE}.{name}" for name in ("data.export_model", "lost_nodes", "platforms.cpu_sft", "config")]
    code = f"import runpy\nfor module in {modules}: runpy._get_module_details(module)"
    program = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert program.returncode == 0, program.stderr


@pytest.mark.filterwarnings("ignore:.*has moved to:FutureWarning")
def test_programs_that_left_the_package_tell_the_new_command() -> None:
    for program in ("clip_pretrain", "evaluate", "pretrain"):
        told = f"run `python -m examples.tiny_models.{program}` in the root of a checkout"
        with pytest.raises(ImportError, match=told):
            runpy.run_module(f"{PACKAGE}.demo.{program}")


@pytest.mark.filterwarnings("ignore:.*has moved to:FutureWarning")
def test_what_never_was_is_not_found() -> None:
    with pytest.raises(AssertionError, match="nothing is not there"):
        look_up("nothing")
    with pytest.raises(AttributeError, match="no_such_name"):
        look_up("trace.records.no_such_name")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{PACKAGE}.trace.nothing")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{PACKAGE}.nothing")
    assert not hasattr(verl_video_tools, "nothing")
