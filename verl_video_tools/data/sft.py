"""Cold-start data: expert turns, executed in real episodes and kept only if they deserve it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_video_tools.agent_loop.episode import Episode
from verl_video_tools.data.experts import Expert, FrameThinkerExpert, Script
from verl_video_tools.data.longvt_expert import LongVTExpert
from verl_video_tools.data.parquet import read_table
from verl_video_tools.data.videobrain_expert import VideoBrainExpert
from verl_video_tools.data.videozoomer_expert import VideoZoomerExpert
from verl_video_tools.demo.dataset import make_row, question_from_row
from verl_video_tools.demo.questions import Question, make_questions
from verl_video_tools.demo.seconds import WorldJudge
from verl_video_tools.demo.world import VideoSpec
from verl_video_tools.errors import RowError, UsageError
from verl_video_tools.methods import METHOD_NAMES, get_method
from verl_video_tools.methods.framethinker import FrameThinker
from verl_video_tools.methods.longvt import LongVT
from verl_video_tools.methods.videobrain import VideoBrain
from verl_video_tools.methods.videozoomer import VideoZoomer
from verl_video_tools.types import Method, Retriever, Sample, StopReason, Trajectory

_EPISODES_AT_ONCE = 4
_FRESH_SEEDS = 1_000_000
"""Added to the seed of fresh questions, so that they differ from those of `vvt demo` with a small seed."""


@dataclass(frozen=True)
class ExportReport:
    """What became of the rows of an export.

    Attributes:
        kept: rows written, by kind (cold start: by template).
        dropped: rows left out, by reason: "wrong answer", "inconsistent", or the stop reason of a rollout that did not
            end in an answer.
    """

    kept: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        def listed(counts: Counter[str]) -> str:
            return ", ".join(f"{name}: {count}" for name, count in sorted(counts.items())) or "none"

        return (
            f"kept {self.kept.total()} ({listed(self.kept)}), dropped {self.dropped.total()} ({listed(self.dropped)})"
        )


def write_sft_rows(
    rows: Iterable[Mapping[str, Any]],
    expert: Expert,
    out_path: str | Path,
    *,
    method: Method,
    keep_wrong: bool = False,
) -> ExportReport:
    """Let the expert write a rollout for each row, execute it, and write the good ones to a parquet file.

    A rollout is kept if it ends with an answer, is consistent (the method's verification, where it has one) and right
    (its accuracy is above 0).

    Args:
        rows: rows of the synthetic world, as `load_rows` gives them.
        out_path: file to write; its columns are those of the rows, `turns` (list of texts) and `template`.
        keep_wrong: also keep consistent rollouts whose answer is wrong.

    Raises:
        RowError: a row is not of the synthetic world, or nothing is left to write.
    """
    tasks = [(dict(row), _script(expert, row)) for row in rows]
    verdicts = asyncio.run(_judge_all(tasks, method, keep_wrong))
    report = ExportReport()
    kept = []
    for (row, script), fault in zip(tasks, verdicts, strict=True):
        if fault is None:
            report.kept[script.template] += 1
            kept.append({**row, "turns": list(script.turns), "template": script.template})
        else:
            report.dropped[fault] += 1
    if not kept:
        raise RowError(f"no rollout is worth keeping: {report}")
    Path(out_path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(kept), out_path)
    return report


def export_sft(
    rl_parquet: str | Path,
    out_parquet: str | Path,
    *,
    seed: int = 0,
    imperfection: float = 0.0,
    keep_wrong: bool = False,
    questions_per_video: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> ExportReport:
    """`write_sft_rows` for a parquet file of reinforcement-learning rows, with the scripted expert of its method.

    Args:
        questions_per_video: ask so many fresh questions about each video of the file instead of the file's own; a tiny
            model needs more examples than videos are worth rendering for.
        settings: fields of the method's config that differ from its defaults; reinforcement learning must use the same.

    Raises:
        UsageError: the file cannot be read, names several methods, or one without a scripted expert.
    """
    rows = read_table(rl_parquet).to_pylist()
    names = sorted({str(row.get("agent_name")) for row in rows})
    if len(names) != 1 or names[0] not in METHOD_NAMES:
        raise UsageError(f"{rl_parquet} has {', '.join(names) or 'no rows'}; rows must name one method as agent_name")
    method = get_method(names[0], **(settings or {}))
    open_ended = not any("options" in row["extra_info"] for row in rows)
    expert = scripted_expert(method, open_ended, seed, imperfection)
    if questions_per_video is not None:
        rows = _fresh_rows(rows, questions_per_video, seed, open_ended)
    return write_sft_rows(rows, expert, out_parquet, method=method, keep_wrong=keep_wrong)


def scripted_expert(method: Method, open_ended: bool = False, seed: int = 0, imperfection: float = 0.0) -> Expert:
    """The expert that writes the method's grammar for questions of the synthetic world.

    Raises:
        UsageError: the method has none, or none for questions without options.
    """
    if isinstance(method, LongVT):
        return LongVTExpert(method=method, open_ended=open_ended, seed=seed, imperfection=imperfection)
    if open_ended:
        raise UsageError(f"the scripted expert of {method.name} answers with letters; give it questions with options")
    if isinstance(method, FrameThinker):
        return FrameThinkerExpert(seed=seed, imperfection=imperfection, num_frames=method.num_frames)
    if isinstance(method, VideoZoomer):
        return VideoZoomerExpert(seed=seed, imperfection=imperfection, method=method)
    if isinstance(method, VideoBrain):
        return VideoBrainExpert(seed=seed, imperfection=imperfection, method=method)
    raise UsageError(f"there is no scripted expert for {method.name}")


def _fresh_rows(
    rows: Sequence[Mapping[str, Any]], questions_per_video: int, seed: int, open_ended: bool
) -> list[dict[str, Any]]:
    one_per_video = {row["extra_info"]["video_path"]: row for row in rows}
    fresh: list[dict[str, Any]] = []
    for path, row in one_per_video.items():
        spec, _ = _truth(row)
        try:
            questions = make_questions(spec, questions_per_video, _FRESH_SEEDS + seed)
        except ValueError as error:
            raise UsageError(str(error)) from error
        split = row["extra_info"]["split"]
        fresh += [
            make_row(spec, question, Path(path), len(fresh) + number, split, row["agent_name"], open_ended)
            for number, question in enumerate(questions)
        ]
    return fresh


def _script(expert: Expert, row: Mapping[str, Any]) -> Script:
    return expert.script(*_truth(row))


def _truth(row: Mapping[str, Any]) -> tuple[VideoSpec, Question]:
    try:
        return question_from_row(row)
    except (KeyError, TypeError) as error:
        index = (row.get("extra_info") or {}).get("index", "?")
        raise RowError(
            f"row index={index}: not a row of the synthetic world; make such rows with `vvt demo`"
        ) from error


async def _judge_all(
    tasks: Sequence[tuple[Mapping[str, Any], Script]], method: Method, keep_wrong: bool
) -> list[str | None]:
    slots = asyncio.Semaphore(_EPISODES_AT_ONCE)

    async def judge(row: Mapping[str, Any], script: Script) -> str | None:
        async with slots:
            return await _fault(Sample.from_row(row), script.turns, method, keep_wrong)

    return await asyncio.gather(*(judge(row, script) for row, script in tasks))


async def _fault(sample: Sample, turns: Sequence[str], method: Method, keep_wrong: bool) -> str | None:
    """Why a rollout is not kept; None if it is."""
    trajectory = await execute(method, sample, turns)
    if trajectory.stop_reason is not StopReason.ANSWER:
        return str(trajectory.stop_reason)
    reward = await method.score(trajectory, sample, WorldJudge())
    if reward.get("ccv", 1.0) == 0.0:
        return "inconsistent"
    return None if keep_wrong or reward["accuracy"] > 0.0 else "wrong answer"


async def execute(
    method: Method, sample: Sample, turns: Sequence[str], retriever: Retriever | None = None
) -> Trajectory:
    """One scripted rollout, without a model and without token budgets."""
    episode = Episode(method, sample, retriever=retriever)
    await episode.start()
    for text in turns:
        if episode.trajectory.stop_reason is not None:
            break
        await episode.step(text)
    if episode.trajectory.stop_reason is None:
        episode.exhaust_script()
    return episode.trajectory
