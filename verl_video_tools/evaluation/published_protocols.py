"""The profiles of published evaluations: data with sources. `protocols` says what a profile is; those by which
benchmarks fill their own tables are in `benchmark_protocols`.

Files of code are those of the method's published repository, which the pages of the methods name.
"""

from __future__ import annotations

from verl_video_tools.core.errors import UsageError
from verl_video_tools.evaluation.benchmark_protocols import OF_BENCHMARKS
from verl_video_tools.evaluation.protocols import FIELD, OWN_FRAMES, OWN_PROMPT, SUBTITLES, Protocol, Value

_LMMS_EVAL = "github.com/EvolvingLMMs-Lab/lmms-eval at 75571cfe"
_QWEN = f"{_LMMS_EVAL}, lmms_eval/models/simple/qwen2_5_vl.py"
_TASKS = f"{_LMMS_EVAL}, lmms_eval/tasks"
_BEFORE_APRIL = "lmms_eval/tasks before commit 9ca4445d of April 2026"
_LENGTHS = {"longvideobench": 32, "charades-sta": 50, "video-holmes": 64, "video-mmmu": 1024, "lsdbench": 2048}
"""Tokens of an answer in lmms-eval's tasks, where it is not 16."""
_WITHOUT_LENGTH = ("next-qa", "perception-test")
"""Tasks that leave it to the model."""


def _lmms_eval_sampling() -> dict[str, dict[str, Value]]:
    lengths = {name: Value(length, _TASKS) for name, length in _LENGTHS.items()}
    lengths |= dict.fromkeys(_WITHOUT_LENGTH, Value(32_768, f"{_QWEN}: the task names none"))
    values = {name: {f"{FIELD}max_turn_tokens": length} for name, length in lengths.items()}
    values["lsdbench"] |= {"temperature": Value(0.7, _TASKS), "top_p": Value(0.001, _TASKS)}
    return values


def _former_extractors() -> dict[str, dict[str, Value]]:
    names = {"video-mme": "videomme", "lvbench": "lvbench", "mlvu-dev": "mlvu", "mlvu-test": "mlvu"}
    names |= {"video-mmmu": "videommmu"}
    values = _lmms_eval_sampling()
    for benchmark, task in names.items():
        extractor = Value(f"lmms-eval-2025/{task}", _BEFORE_APRIL)
        values[benchmark] = {**values.get(benchmark, {}), "extractor": extractor}
    return values


_FRAMETHINKER = Protocol(
    name="framethinker",
    about="FrameThinker by its authors' script: sampled, verified, up to three attempts, the last without tools",
    table="arXiv 2509.24304, tables 1 to 3",
    method="framethinker",
    benchmarks=("video-holmes", "longvideo-reason", "longvideobench", "mlvu-dev", "video-mme", "lvbench"),
    values={
        f"{FIELD}initial_frames": Value(8, "paper 4.1; code, infer.py"),
        f"{FIELD}initial_frames_long": Value(12, "paper 4.1; code, infer.py, from 300 s on"),
        f"{FIELD}call_frames": Value(8, "paper 4.1; code, infer.py"),
        f"{FIELD}call_frames_long": Value(12, "paper 4.1; code, infer.py, from 300 s on"),
        f"{FIELD}max_turns": Value(5, "code, infer.py"),
        f"{FIELD}max_turn_tokens": Value(2048, "code, infer.py"),
        "temperature": Value(0.6, "code, infer.py"),
        "top_p": Value(0.9, "code, infer.py"),
        "attempts": Value(3, "code, infer.py; paper B.2"),
        "min_pixels": Value(3136, "the processor's default: the code scales frames into 640x360, or 448x252"),
        "max_pixels": Value(235_200, "holds 640x360, the largest frame of the code"),
        "extractor": Value("framethinker/exact", "code, infer.py"),
    },
    prompt="the method's; baselines have the reasoning prompt of Video-Holmes (paper B.3)",
    judge="none: an answer is right if it is the letter and no more",
    cannot_match=(
        OWN_PROMPT,
        OWN_FRAMES,
        "answers are sampled and no seed is published: two runs differ; give --seed and compare means",
        "Video-MME is reported for its long videos only: read the group `duration`",
        "which split of MLVU was measured is not stated",
    ),
)

_FRAMETHINKER_BASELINE = Protocol(
    name="framethinker-baseline",
    about="A model without tools as FrameThinker's authors measure it: 32 frames, thoughts before the answer",
    table="arXiv 2509.24304, tables 2 and 3, rows of Qwen2.5-VL",
    method="direct",
    benchmarks=_FRAMETHINKER.benchmarks,
    values={
        f"{FIELD}initial_frames": Value(32, "paper, tables 2 and 3"),
        f"{FIELD}answering": Value("cot", "paper B.3: the prompt of Video-Holmes"),
    },
    prompt="think, then answer between tags (paper B.3)",
    judge="none: multiple choice only",
    cannot_match=(
        OWN_PROMPT,
        OWN_FRAMES,
        "sampling, resolution and extractor of the baselines are not stated; ours are greedy decoding, the method's "
        "box and lmms-eval's extractor",
        "numbers of other models in the same tables were taken from their papers",
    ),
)

_FRAMEMIND = Protocol(
    name="framemind",
    about="FrameMind with 32 initial frames",
    table="arXiv 2509.24008, table 1",
    method="framemind",
    benchmarks=("mvbench", "mlvu-test", "video-mme"),
    values={
        f"{FIELD}initial_frames": Value(32, "paper, table 1"),
        f"{FIELD}max_turns": Value(3, "paper 4.1"),
        "temperature": Value(0.01, "paper E.2, table E1, val_override"),
        "top_p": Value(0.95, "paper E.2, table E1, val_override"),
        "min_pixels": Value(50_176, "paper E.2, table E1"),
        "max_pixels": Value(200_704, "paper E.2, table E1"),
    },
    prompt="the method's; its figures in the paper have lost their text",
    judge="none: multiple choice only",
    cannot_match=(
        "code and checkpoint are not public, and the prompts cannot be read",
        OWN_FRAMES,
        "the resolution of frames in evaluation is not stated; ours is that of the ladder at this number of frames",
        "whether 32 counts the frames of tools is not stated; ours are counted apart",
        "how answers were read is not stated; the extractor is lmms-eval's",
    ),
)

_VIDEOBRAIN = Protocol(
    name="videobrain",
    about="VideoBrain by its authors' script",
    table="arXiv 2602.04094, table 2",
    method="videobrain",
    benchmarks=("longvideobench", "lvbench", "video-mme", "mlvu-test"),
    values={
        f"{FIELD}initial_frames": Value(16, "paper 4.1"),
        f"{FIELD}call_frames": Value(8, "paper 4.1, calls of uniform_sample"),
        f"{FIELD}clip_frames": Value(4, "paper 4.1, calls of clip_sample"),
        f"{FIELD}max_turns": Value(6, "paper 4.1: five rounds of calls, then the answer"),
        f"{FIELD}max_turn_tokens": Value(32_678, "code, examples/agent/infer.py; looks like a slip for 32768"),
        "temperature": Value(0.0, "code, examples/agent/infer.py"),
    },
    prompt="the method's (paper A)",
    judge="none: multiple choice only",
    cannot_match=(
        OWN_PROMPT,
        OWN_FRAMES,
        "images were sent as JPEG of a quality that is not stated; --jpeg-quality sets one, the default is PNG",
        "the script neither lists options nor scores; the extractor is lmms-eval's",
        "frames by text need --retrieval with SigLIP2-B/16 (paper 4.1)",
        "Video-MME is reported for its long videos only: read the group `duration`",
    ),
)

_VIDEOZOOMER = Protocol(
    name="videozoomer",
    about="VideoZoomer with 64 frames and four zooms of up to 16",
    table="arXiv 2512.22315, tables 1 and 2",
    method="videozoomer",
    benchmarks=("mlvu-dev", "mlvu-test", "longvideobench", "video-mme", "lvbench", "video-mmmu", "longvideo-reason"),
    values={
        f"{FIELD}glance_fps": Value(0.5, "code, eval_video.sh"),
        f"{FIELD}initial_frames": Value(64, "paper, table 1"),
        f"{FIELD}call_frames": Value(16, "paper, table 1"),
        f"{FIELD}max_turns": Value(5, "paper, table 1: four zooms, then the answer"),
        f"{FIELD}max_turn_tokens": Value(4096, "code, eval_video.sh"),
        "temperature": Value(0.0, "paper, evaluation details"),
        "min_pixels": Value(25_088, "code, eval_video.sh"),
        "max_pixels": Value(100_352, "paper, evaluation details"),
        "extractor": Value("videozoomer/letter", "code, the scorer of multiple choice"),
    },
    prompt="the method's, which in evaluation also asks for \\boxed{} (code)",
    judge="GPT-4o for open answers; none for multiple choice",
    cannot_match=(
        OWN_PROMPT,
        OWN_FRAMES,
        "the script asks for \\boxed{}; its scorer takes a bare letter as well",
        "open answers of Video-MMMU and LongVideo-Reason were scored by GPT-4o (gpt-4o-2024-11-20 in the code)",
    ),
)


def _longvt(name: str, frames: int, about: str) -> Protocol:
    return Protocol(
        name=name,
        about=about,
        table="arXiv 2511.20785, table 2",
        method="longvt",
        benchmarks=("video-mme", "video-mmmu", "lvbench", "videosiah-eval"),
        values={
            f"{FIELD}initial_frames": Value(frames, "paper 5.1"),
            f"{FIELD}fps": Value(1.0, "code, examples/eval"),
            f"{FIELD}call_frames": Value(128, "code, crop_video"),
            f"{FIELD}max_turns": Value(6, "code, single_inference.py: five rounds of tools and one more"),
            "temperature": Value(0.0, "code, single_inference.py; lmms-eval's default"),
            "min_pixels": Value(784, "code, examples/eval"),
            "max_pixels": Value(50_176, "code, examples/eval"),
            SUBTITLES: Value(False, "paper, table 2: only of Video-MME"),
        },
        for_benchmark={
            "video-mme": {
                SUBTITLES: Value(True, "paper, table 2"),
                "extractor": Value("lmms-eval-2025/videomme", "code, lmms_eval_tasks/videomme/utils.py"),
            },
            "lvbench": {"extractor": Value("lmms-eval-2025/lvbench", "code, lmms_eval_tasks")},
            "video-mmmu": {"extractor": Value("lmms-eval-2025/videommmu", "code, lmms_eval_tasks")},
            "videosiah-eval": {
                "judge_settings": Value(["profile=videosiah"], "code, custom_rewards/lmms_lab_recipe.py")
            },
        },
        prompt="the method's (paper 14)",
        judge="Qwen3-235B-A22B or gpt-oss-120b, for what rules do not settle, also in multiple choice (code)",
        cannot_match=(
            OWN_PROMPT,
            OWN_FRAMES,
            "the code's scorer asks a judge also about multiple choice; ours and the extractors read letters",
            "a video of fewer seconds than frames gets one frame a second, as in training",
            "the authors' VideoSIAH-Eval had 1,280 questions in the paper; 652 are published",
        ),
    )


_LONGVT_SPARSE = _longvt("longvt-sparse", 64, "LongVT with 64 frames")
_LONGVT_DENSE = _longvt(
    "longvt-dense", 768, "LongVT with up to 768 frames (the paper prints the better of 512 and 768)"
)


_QWEN_2_5_VL = Protocol(
    name="qwen-video",
    about="A model without tools by its own video input, as Qwen2.5-VL's report measures it",
    table="arXiv 2502.13923, video benchmarks",
    method="direct",
    benchmarks=("video-mme", "mvbench", "lvbench", "longvideobench", "mlvu-dev", "perception-test", "charades-sta"),
    values={
        f"{FIELD}frames_as": Value("video", "report: videos, not images"),
        f"{FIELD}video_fps": Value(2.0, "report, training and evaluation of videos"),
        f"{FIELD}max_video_frames": Value(768, "report, video benchmarks"),
        f"{FIELD}max_video_tokens": Value(24_576, "report, video benchmarks"),
        "temperature": Value(0.0, "not stated; greedy as in lmms-eval"),
    },
    prompt="not stated",
    judge="none for these",
    cannot_match=(
        "prompt, sampling and extractor are not stated",
        "vLLM does not tell the processor of Qwen2.5-VL the times of our frames",
        "Video-MME is reported without and with subtitles: give --subtitles for the second",
    ),
)


def _of_lmms_eval(name: str, about: str, for_benchmark: dict[str, dict[str, Value]]) -> Protocol:
    return Protocol(
        name=name,
        about=about,
        table="numbers of models without tools that cite lmms-eval",
        method="direct",
        benchmarks=(
            *("cg-bench", "charades-sta", "longvideobench", "lsdbench", "lvbench", "mlvu-dev", "mlvu-test", "mvbench"),
            *("next-qa", "perception-test", "video-holmes", "video-mme", "video-mmmu"),
        ),
        values={
            f"{FIELD}initial_frames": Value(32, _QWEN),
            f"{FIELD}box": Value((8192, 8192), f"{_QWEN}: pixels alone bound a frame"),
            f"{FIELD}max_turn_tokens": Value(16, _TASKS),
            "temperature": Value(0.0, _TASKS),
            "min_pixels": Value(200_704, _QWEN),
            "max_pixels": Value(1_605_632, _QWEN),
            SUBTITLES: Value(False, _TASKS),
        },
        for_benchmark=for_benchmark,
        prompt="the question, the options, and `Answer with the option's letter from the given choices directly.`",
        judge="none for these",
        cannot_match=(
            "lmms-eval hands the frames over as a video, whose frames the model merges in pairs; ours are images, each "
            "after its number and time, and cost twice the tokens",
            "its prompts differ by task and are not in this package; ours asks for an answer as short as possible",
            "its prompts are used where our loop runs as a model inside lmms-eval",
        ),
    )


_OF_LMMS_EVAL = _of_lmms_eval(
    "lmms-eval", "A model without tools as lmms-eval measures Qwen2.5-VL by default", _lmms_eval_sampling()
)
_OF_LMMS_EVAL_2025 = _of_lmms_eval(
    "lmms-eval-2025", "The same with the extractors that lmms-eval had until April 2026", _former_extractors()
)

PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        _FRAMETHINKER,
        _FRAMETHINKER_BASELINE,
        _VIDEOZOOMER,
        _LONGVT_SPARSE,
        _LONGVT_DENSE,
        _FRAMEMIND,
        _VIDEOBRAIN,
        _QWEN_2_5_VL,
        _OF_LMMS_EVAL,
        _OF_LMMS_EVAL_2025,
        *OF_BENCHMARKS,
    )
}


def get_protocol(name: str) -> Protocol:
    """The profile of a name.

    Raises:
        UsageError: there is none.
    """
    if name not in PROTOCOLS:
        raise UsageError(f"there is no protocol {name!r}; choose one of: {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
