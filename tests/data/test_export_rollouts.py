"""From recorded rollouts: rows for fine-tuning, and the choice of rows for further reinforcement learning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.turns.tagged import answer, think, tool_call
from tests.videos.files import write_video
from verl_video_tools.cli.main import data_app as app
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.method import rollout_overrides
from verl_video_tools.core.prompts import UNKNOWN_PROMPT
from verl_video_tools.core.types import Sample, StopReason, Trajectory
from verl_video_tools.data.export_rollouts import COLD_SHARE, export_rollouts
from verl_video_tools.data.filters import filter_rows, pass_rates_of_records
from verl_video_tools.data.sft import execute
from verl_video_tools.methods import get_method
from verl_video_tools.records.records import RecordWriter

METHOD = get_method("longvt", initial_frames=4)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """10, 10, 20 and 40 seconds at 10 frames per second."""
    folder = tmp_path_factory.mktemp("videos")
    lengths = (100, 100, 200, 400)
    return [str(write_video(folder / f"{n}.mp4", num_frames=frames, fps=10)) for n, frames in enumerate(lengths)]


def crop(start: float, end: float) -> str:
    return think(tool_call("crop_video", start_time=start, end_time=end), "there")


GOOD = [crop(2, 6), answer("B")]


async def record(
    video: str, turns: list[str], question: str = "Which?", flags: tuple[str, ...] = (), truth: str = "B", **fields: Any
) -> dict[str, Any]:
    """A line as the trainer writes it; the annotated segment is 2 to 6 seconds."""
    extra_info = {
        "question": question,
        "question_type": "mc",
        "video_path": video,
        "video_segment": [2.0, 6.0],
        **fields,
    }
    row = {"extra_info": extra_info, "reward_model": {"ground_truth": truth}}
    trajectory = await execute(METHOD, Sample.from_row(row), turns)
    reward = await METHOD.score(trajectory, Sample.from_row(row))
    trajectory.flags += flags
    return {
        "step": 1,
        "uid": question,
        "agent_name": "longvt",
        "data_source": "test",
        "ground_truth": truth,
        "extra_info": {**extra_info, "options": None, "index": 3, "tools_kwargs": {}},
        "reward": {**reward, "acc": float(reward["accuracy"] > 0)},
        "trajectory": trajectory.to_dict(),
    }


async def test_right_rollouts_that_looked_at_the_right_place_are_kept(videos: list[str], tmp_path: Path) -> None:
    lines = [
        await record(videos[0], GOOD),
        await record(videos[0], GOOD),
        await record(videos[0], [crop(2, 6), answer("A")]),
        await record(videos[0], [answer("B")]),
        await record(videos[0], [crop(2, 6), crop(7, 9), answer("B")]),
        await record(videos[0], [crop(0, 10), crop(4, 8), answer("B")]),
        await record(videos[0], [crop(2, 6)]),
        await record(videos[0], GOOD, flags=("invariant",)),
        await record(videos[1], [crop(1, 30), answer("B")]),
        await record(videos[1], GOOD, video_segment=None),
    ]
    RecordWriter(tmp_path / "run").write(1, lines[:6])
    RecordWriter(tmp_path / "run").write(2, lines[6:])
    report = export_rollouts(tmp_path / "run", tmp_path / "rft.parquet", min_iou=0.3)
    assert report.kept == {"rollout": 2}
    assert report.dropped == {
        "repetition": 1,
        "wrong answer": 1,
        "wrong place": 4,
        str(StopReason.SCRIPT_EXHAUSTED): 1,
        "flagged": 1,
    }
    rows = pq.read_table(tmp_path / "rft.parquet").to_pylist()
    assert [row["turns"] for row in rows] == [GOOD, [crop(0, 10), crop(4, 8), answer("B")]]
    assert (rows[0]["agent_name"], rows[0]["template"], rows[0]["data_source"]) == ("longvt", "rollout", "test")
    sample = Sample.from_row(rows[0])
    assert (sample.ground_truth, sample.video_segment_seconds, sample.options) == ("B", (2.0, 6.0), ())
    assert (await execute(METHOD, sample, rows[0]["turns"])).stop_reason is StopReason.ANSWER

    loose = export_rollouts(tmp_path / "run", tmp_path / "all.parquet", min_accuracy=0.0, min_iou=0.0)
    assert loose.dropped == {"repetition": 1, str(StopReason.SCRIPT_EXHAUSTED): 1, "flagged": 1}


async def test_a_named_segment_is_right_from_the_overlap_at_which_it_is_graded_correct(
    videos: list[str], tmp_path: Path
) -> None:
    """LongVT pays its IoU: 0.975, 0.5 and 0.47 here."""
    named = ["[2.1, 6.0]", "[4.0, 6.0]", "[4.1, 6.0]"]
    asked = {"question_type": "segment", "truth": "[2.0, 6.0]"}
    lines = [await record(videos[0], [crop(2, 6), answer(text)], **asked) for text in named]
    RecordWriter(tmp_path / "run").write(1, lines)
    report = export_rollouts(tmp_path / "run", tmp_path / "rft.parquet", min_iou=0.3)
    assert report.dropped == {"wrong answer": 1}
    rows = pq.read_table(tmp_path / "rft.parquet").to_pylist()
    assert [row["turns"][-1] for row in rows] == [answer(text) for text in named[:2]]


async def test_what_is_right_in_a_composition_is_its_files_to_say(videos: list[str], tmp_path: Path) -> None:
    file = tmp_path / "half.yaml"
    file.write_text(
        "initial_frames: {plan: ladder, low: [4, 28], high: [2, 56]}\n"
        "tools: [{name: crop_video}]\nreward: [{name: accuracy, weight: 0.5}]\n"
    )
    method = get_method("compose", file=str(file))
    lines = []
    for text in ("B", "A"):
        line = await record(videos[0], [crop(2, 6), answer(text)])
        sample = Sample.from_row({"extra_info": line["extra_info"], "reward_model": {"ground_truth": "B"}})
        rung = method.for_session(1, 2, validate=False)
        trajectory = await execute(rung, sample, [crop(2, 6), answer(text)])
        trajectory.settings = rollout_overrides(rung, method)
        reward = await rung.score(trajectory, sample)
        info = {**reward, "acc": method.acc(reward, sample)}
        lines.append({**line, "agent_name": "compose", "reward": info, "trajectory": trajectory.to_dict()})
    RecordWriter(tmp_path / "run").write(1, lines)
    report = export_rollouts(tmp_path / "run", tmp_path / "rft.parquet")
    assert report.kept == {"rollout": 1} and report.dropped == {"wrong answer": 1}
    assert export_rollouts(tmp_path / "run", tmp_path / "all.parquet", min_accuracy=0.0).kept == {"rollout": 2}


async def test_inconsistent_and_malformed_rollouts(videos: list[str], tmp_path: Path) -> None:
    careless = crop(2, 6).replace("<think>there</think>", "")
    inconsistent = await record(videos[0], GOOD)
    inconsistent["trajectory"]["method"], inconsistent["reward"]["ccv"] = "framethinker", 0.0
    lines = [
        await record(videos[0], GOOD),
        await record(videos[0], [careless, answer("B")]),
        {**await record(videos[1], [careless, crop(3, 6), answer("B")]), "turn_weights": [0.0, 1.0, 1.0]},
        inconsistent,
    ]
    RecordWriter(tmp_path / "run").write(1, lines)
    loose = export_rollouts(tmp_path / "run", tmp_path / "all.parquet")
    assert (loose.kept, loose.dropped) == ({"rollout": 2, "reflection": 1}, {"inconsistent": 1})
    strict = export_rollouts(tmp_path / "run" / "step_000001.jsonl", tmp_path / "strict.parquet", well_formed=True)
    assert strict.kept == {"rollout": 1, "reflection": 1}  # what a reflection corrects may be malformed
    assert strict.dropped == {"malformed": 1, "inconsistent": 1}
    weights = [row["turn_weights"] for row in pq.read_table(tmp_path / "strict.parquet").to_pylist()]
    assert weights == [[1.0, 1.0], [0.0, 1.0, 1.0]]


async def test_a_call_that_found_no_room_is_not_imitated(videos: list[str], tmp_path: Path) -> None:
    """Fine-tuning would show the frames, and the answer was written without them."""
    line = await record(videos[0], GOOD)
    call = line["trajectory"]["turns"][0]["calls"][0]
    line["trajectory"]["turns"][0]["calls"] = [{**call, "ok": False, "error": "response_budget: it does not fit"}, call]
    RecordWriter(tmp_path / "run").write(1, [line, await record(videos[1], GOOD)])
    report = export_rollouts(tmp_path / "run", tmp_path / "rft.parquet")
    assert (report.kept, report.dropped) == ({"rollout": 1}, {"no room for a call": 1})


async def test_rows_say_what_their_rollout_was_shown(videos: list[str], tmp_path: Path) -> None:
    line = await record(videos[0], GOOD)
    line["trajectory"]["settings"] = {"initial_frames": 9}
    RecordWriter(tmp_path / "run").write(1, [line])
    export_rollouts(tmp_path / "run", tmp_path / "rft.parquet")
    row = pq.read_table(tmp_path / "rft.parquet").to_pylist()[0]
    assert json.loads(row["settings"]) == {"initial_frames": 9}
    assert json.loads(row["initial_frames"]) == [frame["index"] for frame in line["trajectory"]["initial_frames"]]


async def test_the_command_names_what_it_kept(videos: list[str], tmp_path: Path) -> None:
    RecordWriter(tmp_path / "run").write(1, [await record(videos[0], [crop(2, 4), answer("B")])])
    out = tmp_path / "rft.parquet"
    result = CliRunner().invoke(app, ["export-sft", str(tmp_path / "run"), str(out), "--min-iou", "0.5"])
    assert (result.exit_code, result.stdout) == (0, f"{out}: kept 1 (rollout: 1), dropped 0 (none)\n")


async def test_a_range_of_steps(videos: list[str], tmp_path: Path) -> None:
    """LongVT takes the rollouts of "early" runs."""
    for step, video in enumerate(videos, start=1):
        RecordWriter(tmp_path / "run").write(step, [{**await record(video, GOOD), "step": step}])
    command = ["export-sft", str(tmp_path / "run"), str(tmp_path / "rft.parquet"), "--overwrite"]

    def kept(*options: str) -> list[str]:
        assert CliRunner().invoke(app, [*command, *options]).exit_code == 0
        rows = pq.read_table(tmp_path / "rft.parquet").to_pylist()
        return [row["extra_info"]["video_path"] for row in rows]

    assert kept() == videos
    assert kept("--max-step", "2") == videos[:2]
    assert kept("--min-step", "2", "--max-step", "3") == videos[1:3]
    for options, message in (
        ({"min_step": 5}, "no rollout passes"),
        ({"min_step": 3, "max_step": 2}, "no step lies"),
    ):
        with pytest.raises(UsageError, match=message):
            export_rollouts(tmp_path / "run", tmp_path / "rft.parquet", **options)


async def test_rows_of_the_cold_start_are_mixed_in(videos: list[str], tmp_path: Path) -> None:
    RecordWriter(tmp_path / "run").write(1, [await record(video, GOOD) for video in videos[:2]])
    cold = [
        {"agent_name": "longvt", "extra_info": {"question": f"q{n}", "video_path": videos[0], "index": n},
         "reward_model": {"ground_truth": "B"}, "turns": [answer("B")], "template": "A"}
        for n in range(40)
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(cold), tmp_path / "cold.parquet")
    command = ["export-sft", str(tmp_path / "run"), str(tmp_path / "rft.parquet"), "--overwrite"]

    def mixed(*options: str) -> list[str]:
        result = CliRunner().invoke(app, [*command, "--cold-start", str(tmp_path / "cold.parquet"), *options])
        assert result.exit_code == 0, result.output
        rows = pq.read_table(tmp_path / "rft.parquet").to_pylist()
        assert [row["turns"] for row in rows[:2]] == [GOOD, GOOD] and all(row["turns"] for row in rows)
        assert [row["prompt_digest"] for row in rows] == [None, None, *[UNKNOWN_PROMPT] * (len(rows) - 2)]
        questions = [row["extra_info"]["question"] for row in rows[2:]]
        assert f"kept {len(rows)} (cold start: {len(questions)}, rollout: 2)" in result.stdout
        return questions

    published = mixed()
    assert len(published) == 31 and published == mixed(), "94 of 100 rows, the same for the same seed"
    assert set(published) < {row["extra_info"]["question"] for row in cold}
    assert len(mixed("--cold-share", "0.5")) == 2
    assert len(mixed("--cold-share", "0.99")) == 40, "no row twice"
    assert pytest.approx(247_996 / (247_996 + 15_353), abs=0.005) == COLD_SHARE
    for share, message in ((1.0, "from 0 to below 1, got 1"), (0.5, "rl.parquet: no rows with turns")):
        write_rows(tmp_path / "rl.parquet", videos[:1], ["q"])
        with pytest.raises(UsageError, match=message):
            export_rollouts(
                tmp_path / "run", tmp_path / "x.parquet", cold_start=[tmp_path / "rl.parquet"], cold_share=share
            )


def test_a_run_without_good_rollouts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no recorded rollouts"):
        export_rollouts(tmp_path, tmp_path / "rft.parquet")
    RecordWriter(tmp_path).write(1, [])
    with pytest.raises(UsageError, match="no rollout passes the filters: kept 0"):
        export_rollouts(tmp_path, tmp_path / "rft.parquet")


# -------------------------------------------------------------------------------------------------- difficulty, lengths


def write_rows(path: Path, videos: list[str], questions: list[str]) -> Path:
    rows = [
        {"agent_name": "longvt", "extra_info": {"question": question, "video_path": video, "index": number}}
        for number, (video, question) in enumerate(zip(videos, questions, strict=True))
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def indices(path: Path) -> list[int]:
    return [row["extra_info"]["index"] for row in pq.read_table(path).to_pylist()]


async def test_pass_rates_of_a_run(videos: list[str], tmp_path: Path) -> None:
    lines = [
        await record(videos[0], [answer("B")], "mixed"),
        await record(videos[0], [answer("A")], "mixed"),
        await record(videos[0], [answer("B")], "mixed", flags=("judge",)),
        await record(videos[0], [answer("B")], "easy"),
        await record(videos[0], [answer("A")], "hard"),
    ]
    RecordWriter(tmp_path / "run").write(1, lines)
    rates = pass_rates_of_records(tmp_path / "run")
    assert rates == {(videos[0], "mixed"): 0.5, (videos[0], "easy"): 1.0, (videos[0], "hard"): 0.0}
    rows = write_rows(tmp_path / "rows.parquet", [videos[0]] * 4, ["easy", "mixed", "hard", "new"])
    result = CliRunner().invoke(
        app, ["filter", str(rows), str(tmp_path / "out.parquet"), "--records", str(tmp_path / "run")]
    )
    assert result.exit_code == 0, result.output
    assert "kept 1 (any length: 1), dropped 3 (all right: 1, all wrong: 1, no rollouts: 1)" in result.stdout
    assert indices(tmp_path / "out.parquet") == [1]


def test_questions_about_other_images_are_others(tmp_path: Path) -> None:
    """Known by their text alone, rows about images took each other's pass rate, and records of them broke off."""
    asked = [{"question": "Which?", "image_paths": [image], "index": n} for n, image in enumerate(("a.png", "b.png"))]
    rows = [{"agent_name": "longvt", "extra_info": {**extra_info, "video_path": None}} for extra_info in asked]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    trajectory = Trajectory(method="longvt", question="Which?").to_dict()
    lines = [
        {"step": 1, "extra_info": asked[place], "reward": {"acc": acc}, "trajectory": trajectory}
        for place, acc in ((0, 1.0), (0, 0.0), (1, 1.0))
    ]
    RecordWriter(tmp_path / "run").write(1, lines)
    rates = pass_rates_of_records(tmp_path / "run")
    assert sorted(rates.values()) == [0.5, 1.0]
    filter_rows(tmp_path / "rows.parquet", tmp_path / "out.parquet", rates)
    assert indices(tmp_path / "out.parquet") == [0]
    with pytest.raises(UsageError, match="row 0 is not about one video"):
        filter_rows(tmp_path / "rows.parquet", tmp_path / "out.parquet", rates, band_seconds=(10,))


def test_lengths_are_balanced_before_difficulty(videos: list[str], tmp_path: Path) -> None:
    """Paper 3.2: a pool of balanced lengths, and of its questions those that rollouts answer differently."""
    questions = [f"q{number}" for number in range(8)]
    paths = [videos[number] for number in (0, 1, 0, 1, 2, 2, 3, 3)]
    rows = write_rows(tmp_path / "rows.parquet", paths, questions)
    rates = dict.fromkeys(zip(paths, questions, strict=True), 0.5)
    rates[paths[7], questions[7]] = 1.0
    chosen = set()
    for seed in range(8):
        report = filter_rows(rows, tmp_path / "out.parquet", rates, band_seconds=(10, 30), seed=seed)
        assert report.kept == {"0-10 s": 2, "10-30 s": 2, "above 30 s": 1}, "what is too easy costs the others nothing"
        assert report.dropped == {"all right": 1, "balance of lengths": 2}
        *first, second, third, fourth = indices(tmp_path / "out.parquet")
        assert set(first) < {0, 1, 2, 3} and (second, third, fourth) == (4, 5, 6)
        chosen.add(tuple(first))
    assert len(chosen) > 1
    two = filter_rows(rows, tmp_path / "out.parquet", rates, band_seconds=(15,))
    assert two.kept == {"0-15 s": 4, "above 15 s": 3}


def test_a_band_of_few_rows_does_not_cut_the_others(videos: list[str], tmp_path: Path) -> None:
    """The size of the middle band is the bound: short videos cannot crowd out others."""
    paths = [*videos[:1] * 6, *videos[2:3] * 3, videos[3]]
    rows = write_rows(tmp_path / "rows.parquet", paths, [f"q{number}" for number in range(10)])
    report = filter_rows(rows, tmp_path / "pool.parquet", band_seconds=(10, 30))
    assert report.kept == {"0-10 s": 3, "10-30 s": 3, "above 30 s": 1} and report.dropped == {"balance of lengths": 3}
    command = ["filter", str(rows), str(tmp_path / "out.parquet"), "--band-seconds", "10", "--band-seconds", "30"]
    result = CliRunner().invoke(app, command)
    assert "kept 7 (0-10 s: 3, 10-30 s: 3, above 30 s: 1), dropped 3 (balance of lengths: 3)" in result.stdout


def test_rows_without_rollouts_are_no_part_of_the_pool(videos: list[str], tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.parquet", [*videos[:1] * 3, videos[3]], ["a", "b", "c", "d"])
    rates = {(videos[0], "a"): 0.5, (videos[3], "d"): 0.5}
    report = filter_rows(rows, tmp_path / "out.parquet", rates, band_seconds=(10,))
    assert report.kept == {"0-10 s": 1, "above 10 s": 1} and report.dropped == {"no rollouts": 2}


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"data_source": ["a", "b"]}, "no column extra_info, so these are not rows of ours"),
        ({"extra_info": [{"question": "q", "video_path": "v"}, None]}, "row 1 has no extra_info.question"),
        ({"extra_info": pa.array([None, None], pa.struct([("question", pa.string())]))}, "row 0 has no extra_info"),
        ({"extra_info": ["x", "y"]}, "row 0 has no extra_info.question"),
        ({"extra_info": [{"video_path": "v"}]}, "row 0 has no extra_info.question"),
    ],
)
@pytest.mark.parametrize("choice", [{"pass_rates": {}}, {"band_seconds": (10,)}])
def test_what_are_no_rows_is_named(columns: dict[str, Any], fault: str, choice: dict[str, Any], tmp_path: Path) -> None:
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    with pytest.raises(UsageError, match=fault):
        filter_rows(tmp_path / "rows.parquet", tmp_path / "out.parquet", **choice)


def test_impossible_wishes(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.parquet", ["v"], ["q"])
    with pytest.raises(UsageError, match="must be positive and ascend"):
        filter_rows(rows, tmp_path / "out.parquet", {}, band_seconds=(30, 10))
    with pytest.raises(UsageError, match="nothing to choose by"):
        filter_rows(rows, tmp_path / "out.parquet")
    with pytest.raises(UsageError, match="no row is left: kept 0"):
        filter_rows(rows, tmp_path / "out.parquet", {("v", "q"): 1.0})
    with pytest.raises(UsageError, match="cannot read rows"):
        filter_rows(tmp_path / "gone.parquet", tmp_path / "out.parquet", {})
    with pytest.raises(UsageError, match="holds no recorded rollouts"):
        pass_rates_of_records(tmp_path)
    result = CliRunner().invoke(app, ["filter", str(rows), str(tmp_path / "out.parquet")])
    assert isinstance(result.exception, UsageError)
