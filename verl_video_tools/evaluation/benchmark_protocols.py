"""The profiles by which benchmarks fill their own tables, as far as their repositories say.

Several tables have a number of frames for each row, since every model was run by its own authors' settings; the user
gives it.
"""

from __future__ import annotations

from verl_video_tools.evaluation.protocols import FIELD, OWN_FRAMES, OWN_PROMPT, SUBTITLES, Protocol, Value

_VIDEO_MME = "github.com/BradyFU/Video-MME at 8889f313, README"
_LONG_VIDEO_BENCH = "github.com/longvideobench/LongVideoBench at fc3c5532"
_MLVU = "github.com/JUNJIE99/MLVU at fd060c10"
_LV_BENCH = "github.com/THUDM/LVBench at f998d955"
_VIDEO_MMMU = "github.com/videommmu/VideoMMMU at 103a3a50, README"
_LMMS_EVAL_TASKS = "github.com/EvolvingLMMs-Lab/lmms-eval at 75571cfe, lmms_eval/tasks"

_SETTINGS_OF_EACH_MODEL = (
    "resolution, sampling and how frames are handed over are each model's own; ours are the method's: greedy, frames "
    "as images, each after its number and time"
)


def _video_mme(name: str, with_subtitles: bool) -> Protocol:
    shown = "with subtitles" if with_subtitles else "without subtitles"
    by_row = {f"{FIELD}initial_frames": "leaderboard, video-mme.github.io"}
    cannot_match = [
        OWN_PROMPT,
        OWN_FRAMES,
        _SETTINGS_OF_EACH_MODEL,
        "the authors' script, eval_your_results.py of github.com/thanku-all/parse_answer, was not at hand; the "
        "extractor is that of lmms-eval, which goes back to it",
    ]
    if with_subtitles:
        by_row["subtitle_frames"] = "README: the subtitles at the sampled frames; give the number of frames"
        cannot_match.append("subtitles are those at so many moments spread evenly, which may miss that of a frame")
    return Protocol(
        name=name,
        about=f"A model without tools as Video-MME's authors measure it, {shown}",
        table="arXiv 2405.21075 and the leaderboard of Video-MME",
        method="direct",
        benchmarks=("video-mme",),
        values={
            SUBTITLES: Value(with_subtitles, f"{_VIDEO_MME}, Evaluation Pipeline"),
            "extractor": Value("lmms-eval-2025/videomme", "second-hand: lmms-eval's, after the authors' script"),
        },
        by_row=by_row,
        prompt="choose the best answer and reply with its letter only; subtitles before the question (README)",
        judge="none (README)",
        cannot_match=tuple(cannot_match),
    )


_LONG_VIDEO_BENCH_IMAGES = Protocol(
    name="longvideobench",
    about="A model without tools as LongVideoBench's authors measure models of images: frames and subtitles by time",
    table="arXiv 2407.15754 and the leaderboard of LongVideoBench",
    method="direct",
    benchmarks=("longvideobench",),
    values={
        f"{FIELD}initial_frames": Value(16, f"{_LONG_VIDEO_BENCH}, README, Image LMMs"),
        f"{FIELD}max_turn_tokens": Value(32, f"{_LMMS_EVAL_TASKS}/longvideobench, which the README runs"),
        "temperature": Value(0.0, f"{_LMMS_EVAL_TASKS}/longvideobench"),
        SUBTITLES: Value(True, f"{_LONG_VIDEO_BENCH}, longvideobench_dataset.py"),
        "extractor": Value("lmms-eval/longvideobench", f"{_LMMS_EVAL_TASKS}/longvideobench"),
    },
    prompt="frames and subtitles by time, the question, the options, and the request for a letter alone",
    judge="none",
    cannot_match=(
        OWN_PROMPT,
        "the published frames begin each of N equal parts, so that the end is not shown; ours go from the first to the "
        "last",
        "a video of fewer seconds than frames gets one frame a second there, and all frames here",
        "models of videos get no subtitles between frames, and 32 or 8 frames: give --set initial_frames",
        "rows of the leaderboard with up to 256 frames: give --set initial_frames",
    ),
)

_OF_MLVU = Protocol(
    name="mlvu",
    about="A model without tools as MLVU's authors measure it",
    table="arXiv 2406.04264 and the two leaderboards in MLVU's README; M-Avg, and not G-Avg",
    method="direct",
    benchmarks=("mlvu-dev", "mlvu-test"),
    values={
        SUBTITLES: Value(False, f"{_MLVU}, README: questions are about what is seen"),
        "extractor": Value(
            "lmms-eval-2025/mlvu", f"the rule of {_MLVU}, multiple_choice_evaluation/choice_bench.py, check_ans"
        ),
    },
    by_row={f"{FIELD}initial_frames": "README, column Input; some rows have a rate instead"},
    prompt="watch carefully, choose the best option; the reply is begun with `Best Option: (` (choice_bench.py)",
    judge="none for multiple choice; GPT-4-turbo for the two tasks of free text, which are not asked here",
    cannot_match=(
        OWN_PROMPT,
        OWN_FRAMES,
        _SETTINGS_OF_EACH_MODEL,
        "the reply is begun for the model, which this command cannot; a bare letter is read as right all the same",
        "the script for Video-LLaVA samples at temperature 0.1 (evaluation_test/test_bench.py): give --temperature",
        "the test split is scored by the authors' server: hand in test_res.json, or have the file with the answers",
    ),
)

_OF_LV_BENCH = Protocol(
    name="lvbench",
    about="A model without tools as LVBench's authors measure it",
    table="arXiv 2406.08035 and the leaderboard of LVBench",
    method="direct",
    benchmarks=("lvbench",),
    values={"extractor": Value("lvbench/letter", f"{_LV_BENCH}, lvbench/utils/answer_util.py")},
    by_row={f"{FIELD}initial_frames": "not in the repository: as the row's own publication says"},
    prompt="not stated: the repository takes answers and scores them",
    judge="none (lvbench/metrics/compute_accuracy.py compares letters)",
    cannot_match=(
        "frames and prompt of each model are not in the repository",
        OWN_FRAMES,
        _SETTINGS_OF_EACH_MODEL,
        "questions without an answer are left out of the published mean; here they are wrong",
    ),
)

_OF_VIDEO_MMMU = Protocol(
    name="video-mmmu",
    about="A model without tools as Video-MMMU's authors measure it, through lmms-eval",
    table="arXiv 2501.13826 and the leaderboard in Video-MMMU's README",
    method="direct",
    benchmarks=("video-mmmu", "video-mmmu-question-only"),
    values={
        f"{FIELD}initial_frames": Value(32, f"{_VIDEO_MMMU}, its command"),
        f"{FIELD}max_turn_tokens": Value(1024, f"{_LMMS_EVAL_TASKS}/videommmu"),
        "temperature": Value(0.0, f"{_LMMS_EVAL_TASKS}/videommmu"),
        SUBTITLES: Value(False, f"{_VIDEO_MMMU}: none are given"),
        "extractor": Value("lmms-eval-2025/videommmu", "lmms-eval until April 2026, by which the table was made"),
    },
    for_benchmark={
        "video-mmmu-question-only": {f"{FIELD}initial_frames": Value(1, f"{_VIDEO_MMMU}, its command of question_only")}
    },
    prompt="lmms-eval's for the track; for Adaptation also that the last frame shows the question's picture",
    judge="none: open answers by the official rule",
    cannot_match=(
        OWN_PROMPT,
        OWN_FRAMES,
        _SETTINGS_OF_EACH_MODEL,
        "the command is an example, with LLaVA-OneVision-7B; the frames of other rows are not listed",
    ),
)

OF_BENCHMARKS: tuple[Protocol, ...] = (
    _video_mme("video-mme", with_subtitles=False),
    _video_mme("video-mme-subtitles", with_subtitles=True),
    _LONG_VIDEO_BENCH_IMAGES,
    _OF_MLVU,
    _OF_LV_BENCH,
    _OF_VIDEO_MMMU,
)
