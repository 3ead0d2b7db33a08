"""Cold-start data: expert turns, executed in real episodes and kept only if they are right and consistent."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Unpack

import pyarrow as pa

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.types import Method, Retriever, Sample, StopReason, Trajectory
from verl_video_tools.data.append import work_through
from verl_video_tools.data.export_rollouts import ExportReport
from verl_video_tools.data.parquet import read_table, write_table
from verl_video_tools.data.rows import RowMethods
from verl_video_tools.data.synthetic_rows import make_row, question_from_row, questions_about
from verl_video_tools.methods import method_names
from verl_video_tools.methods.toolkit.oracle import Habits, Oracle
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import ScriptedPolicy
from verl_video_tools.services.retrieval import recorded_answers
from verl_video_tools.synthetic.questions import Kind, Question
from verl_video_tools.synthetic.seconds import WorldJudge
from verl_video_tools.synthetic.world import VideoSpec

_EPISODES_AT_ONCE = 4
_FRESH_SEEDS = 1_000_000
"""Added to the seed of fresh questions, so that they differ from those of `vvt demo` with a small seed."""


def write_sft_rows(
    rows: Iterable[Mapping[str, Any]],
    expert: Oracle,
    out_path: str | Path,
    *,
    method: Method,
    keep_wrong: bool = False,
    retriever: Retriever | None = None,
) -> ExportReport:
    """Let the expert write a rollout for each row, execute it, and write the good ones to a parquet file.

    A rollout is kept if it ends with an answer, is consistent (the method's verification, where it has one) and right
    (its accuracy is above 0).

    Args:
        rows: rows of the synthetic world, as `load_rows` gives them.
        out_path: file to write; its columns are those of the rows, `turns` (list of texts), `template`, and with a
            retriever its answers, `retrieved_frames`.
        keep_wrong: also keep consistent rollouts whose answer is wrong.
        retriever: for methods that find frames by text.

    Raises:
        RowError: a row is not of the synthetic world, or nothing is left to write.
        UsageError: the file cannot be written.
    """
    report = ExportReport()
    _write(_rows_with_turns(rows, expert, method, keep_wrong, report, retriever), report, out_path)
    return report


def _rows_with_turns(
    rows: Iterable[Mapping[str, Any]],
    expert: Oracle,
    method: Method,
    keep_wrong: bool,
    report: ExportReport,
    retriever: Retriever | None,
) -> list[dict[str, Any]]:
    """The rows whose scripts pass the filters, with these; all rows are counted in the report."""
    tasks = [(dict(row), expert.script(*_truth(row))) for row in rows]
    verdicts: dict[int, tuple[str | None, Trajectory]] = {}

    async def judge(number: int) -> None:
        row, script = tasks[number]
        sample = Sample.from_row(row)
        trajectory = await execute(method, sample, script.turns, retriever)
        verdicts[number] = await _fault(trajectory, sample, method, keep_wrong), trajectory

    asyncio.run(work_through(range(len(tasks)), judge, _EPISODES_AT_ONCE))
    rows_with_turns = []
    for number, (row, script) in enumerate(tasks):
        fault, trajectory = verdicts[number]
        if fault is None:
            report.kept[script.template] += 1
            answers = {} if retriever is None else {"retrieved_frames": recorded_answers(trajectory)}
            rows_with_turns.append({**row, "turns": list(script.turns), "template": script.template, **answers})
        else:
            report.dropped[fault] += 1
    return rows_with_turns


def _write(rows: list[dict[str, Any]], report: ExportReport, out_path: str | Path) -> None:
    if not rows:
        raise RowError(f"no rollout passes the filters: {report}")
    write_table(pa.Table.from_pylist(rows), out_path)


def export_sft(
    rl_parquet: str | Path,
    out_parquet: str | Path,
    *,
    seed: int = 0,
    keep_wrong: bool = False,
    questions_per_video: int | None = None,
    kinds: Collection[Kind] | None = None,
    settings: Mapping[str, Any] | None = None,
    retriever: Retriever | None = None,
    **habits: Unpack[Habits],
) -> ExportReport:
    """`write_sft_rows` for a parquet file of reinforcement-learning rows, with the scripted expert of each method.

    Args:
        seed: of the expert's choices and of fresh questions.
        questions_per_video: ask so many fresh questions about each video of the file instead of the file's own; a tiny
            model needs more examples than videos are worth rendering for.
        kinds: keep only questions of these kinds; all by default.
        settings: fields of the methods that differ from their defaults, as `RowMethods` takes them; reinforcement
            learning must use the same.
        retriever: for methods that find frames by text.
        habits: how the experts err and answer; their meanings and defaults are those of `ScriptedOracle`.

    Raises:
        UsageError: a file cannot be read or written, or names a method that does not exist or has no scripted expert.
    """
    rows = read_table(rl_parquet).to_pylist()
    names = list(dict.fromkeys(str(row.get("agent_name")) for row in rows))
    if not names or not set(names) <= set(method_names()):
        raise UsageError(f"{rl_parquet} has {', '.join(names) or 'no rows'}; rows must name methods as agent_name")
    open_ended = not any("options" in row["extra_info"] for row in rows)
    if questions_per_video is not None:
        rows = _fresh_rows(rows, names, questions_per_video, seed, open_ended)
    if kinds is not None:
        rows = [row for row in rows if _truth(row)[1].kind in kinds]
    report = ExportReport()
    rows_with_turns = []
    methods = RowMethods(settings=settings)
    for name in names:
        method = methods.of(name)
        assert method is not None  # the names are those of methods
        expert = scripted_oracle(method, open_ended, seed=seed, **habits)
        rows_of_method = [row for row in rows if row["agent_name"] == name]
        rows_with_turns += _rows_with_turns(rows_of_method, expert, method, keep_wrong, report, retriever)
    _write(rows_with_turns, report, out_parquet)
    return report


def scripted_oracle(method: Method, open_ended: bool = False, *, seed: int = 0, **habits: Unpack[Habits]) -> Oracle:
    """The expert that writes the method's grammar for questions of the synthetic world.

    Args:
        open_ended: the questions have no options; the expert answers in words.
        seed: of its choices.
        habits: how it errs and answers; their meanings and defaults are those of `ScriptedOracle`.

    Raises:
        UsageError: the method has none, or none for questions without options.
    """
    if method.oracle is None:
        raise UsageError(f"there is no scripted expert for {method.name}")
    oracle_class = resolve_name(method.oracle)
    if open_ended and not oracle_class.takes_open_questions:
        raise UsageError(f"the scripted expert of {method.name} answers with an option; give it questions with options")
    if open_ended:
        habits["answers_in_words"] = True
    expert: Oracle = oracle_class(method=method, seed=seed, **habits)
    return expert


def _fresh_rows(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], questions_per_video: int, seed: int, open_ended: bool
) -> list[dict[str, Any]]:
    one_per_video = {row["extra_info"]["video_path"]: row for row in rows}
    fresh: list[dict[str, Any]] = []
    for path, row in one_per_video.items():
        spec, _ = _truth(row)
        try:
            questions = questions_about(spec, questions_per_video, _FRESH_SEEDS + seed)
        except ValueError as error:
            raise UsageError(str(error)) from error
        split = row["extra_info"]["split"]
        for question in questions:
            name = names[len(fresh) % len(names)]
            fresh.append(make_row(spec, question, Path(path), len(fresh), split, name, open_ended))
    return fresh


def _truth(row: Mapping[str, Any]) -> tuple[VideoSpec, Question]:
    try:
        return question_from_row(row)
    except (KeyError, TypeError) as error:
        index = (row.get("extra_info") or {}).get("index", "?")
        raise RowError(
            f"row index={index}: not a row of the synthetic world; make such rows with `vvt demo`"
        ) from error


async def _fault(trajectory: Trajectory, sample: Sample, method: Method, keep_wrong: bool) -> str | None:
    """Why a rollout is not kept; None if it is."""
    if trajectory.stop_reason is not StopReason.ANSWER:
        return str(trajectory.stop_reason)
    if trajectory.flags:  # it answered, though a call failed that it is not to blame for
        return "flagged"
    reward = await method.score(trajectory, sample, WorldJudge())
    if reward.get("ccv", 1.0) == 0.0:
        return "inconsistent"
    return None if keep_wrong or reward["accuracy"] > 0.0 else "wrong answer"


async def execute(
    method: Method, sample: Sample, turns: Sequence[str], retriever: Retriever | None = None
) -> Trajectory:
    """One scripted rollout, without a model and without token budgets."""
    return await Episode(method, sample, retriever=retriever).run(ScriptedPolicy(turns))
