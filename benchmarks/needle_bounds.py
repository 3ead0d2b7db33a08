"""Bounds of NeedleClips: what initial frames alone can earn, and what an oracle earns that looks at the right place.

Both are scripted policies in `replay`, so that loops, tools and rewards are the real ones; methods are set as the
runs set them in the synthetic world (`config/video_tools/synthetic`).

    initial_frames  Knows exactly what each initial frame shows, and answers at once. Asked about one of them, it says
                    what is there. Else it takes the option that was true most often among thousands of other
                    questions where an option compared like that with the initial frames and with the other options.
    oracle          The scripted expert of the cold start, without imperfection. It is told where the evidence is, but
                    what it concludes it takes from the frames that its calls show.

Kinds are those of `synthetic.needle`; `search` are VideoBrain's questions by shape. For each method and kind the share
of right answers, with the number of questions, is printed. Exits with 1 if initial frames earn more than 40 % on the
questions that need another one or less than 100 % on direct ones, or the oracle less than 100 % on any.

Usage: python -m benchmarks.needle_bounds
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_video_tools.core.types import Method, Retriever
from verl_video_tools.data.sft import scripted_oracle
from verl_video_tools.data.synthetic_rows import load_rows, make_demo, make_row, question_from_row
from verl_video_tools.methods import METHOD_NAMES, get_method
from verl_video_tools.methods.toolkit.oracle import initial_frame_numbers, synthetic_fields
from verl_video_tools.methods.videobrain.oracle import search_words
from verl_video_tools.replay import replay
from verl_video_tools.services.retrieval import RetrievalConfig, local
from verl_video_tools.synthetic import clip_dir
from verl_video_tools.synthetic.needle import MOST_BY_INITIAL_FRAMES, needle_questions, needle_spec
from verl_video_tools.synthetic.questions import LETTERS, Question
from verl_video_tools.synthetic.world import VideoSpec, label_at

POLICIES = ("initial_frames", "oracle")
NUM_VIDEOS = 134
METHODS = tuple(name for name in METHOD_NAMES if name not in ("direct", "compose"))
"""A composition's initial frames are its file's."""
NUM_STUDIED = 3000
_STUDIED_SEEDS = 10_000_000

_ANSWER = {
    "framethinker": "<think>guess</think><action>output answer: {}</action>",
    "videobrain": "<thinking>guess</thinking><answer>{}</answer>",
}
_OTHER_ANSWER = "<think>guess</think><answer>{}</answer>"

Comparison = tuple[bool, int, int, int, int]
"""Of an option: whether the initial frames show it, how many things they show of its colour and of its shape, and
how many other options have its colour and its shape."""


def synthetic_settings(name: str) -> dict[str, Any]:
    """Fields of the method's config in the synthetic world, whose prompts the package holds."""
    return synthetic_fields(type(get_method(name)))


def initial_frames(method: Method, spec: VideoSpec) -> dict[int, str]:
    """Numbers of those of the method's initial frames that show a thing, and what they show."""
    return {
        frame: label for frame in initial_frame_numbers(method, spec) if (label := label_at(spec, frame)) is not None
    }


@dataclass
class Guesser:
    """Learns from examples how true options compare with the initial frames."""

    times_true: Counter[Comparison] = field(default_factory=Counter)
    times_seen: Counter[Comparison] = field(default_factory=Counter)

    def study(self, options: Sequence[str], truth: str, shown: Iterable[str]) -> None:
        for option in options:
            compared = self._compare(option, options, set(shown))
            self.times_seen[compared] += 1
            self.times_true[compared] += option == truth

    def guess(self, options: Sequence[str], shown: Iterable[str]) -> str:
        def share_true(option: str) -> float:
            compared = self._compare(option, options, set(shown))
            return self.times_true[compared] / max(1, self.times_seen[compared])

        return max(options, key=share_true)

    @staticmethod
    def _compare(option: str, options: Sequence[str], shown: set[str]) -> Comparison:
        def alike(things: Iterable[str]) -> tuple[int, int]:
            words = [word for thing in things for word in thing.split()]
            colour, shape = option.split()
            return words.count(colour), words.count(shape)

        return (option in shown, *alike(shown), *alike(other for other in options if other != option))


def kind_of(method: Method, spec: VideoSpec, question: Question) -> str:
    """The question's kind as the method's rows ask it."""
    searched = method.name == "videobrain" and search_words(spec, question) is not None
    return "search" if searched else question.kind


def studied_seed(number: int) -> int:
    """Seed of a video to study: even, as no data set's is (`data.synthetic_rows.video_seed`)."""
    return _STUDIED_SEEDS + 2 * number


def study(method: Method, num_questions: int) -> Mapping[str, Guesser]:
    """A guesser for each kind of question, after study of questions about videos of its own."""
    guessers: dict[str, Guesser] = defaultdict(Guesser)
    for number in range(num_questions // 8):
        spec = needle_spec(studied_seed(number))
        shown = initial_frames(method, spec).values()
        for question in needle_questions(spec, 8, seed=0):
            row = make_row(spec, question, Path("none"), 0, "train", method.name)
            options = row["extra_info"]["options"]
            truth = options[LETTERS.index(row["reward_model"]["ground_truth"])]
            guessers[kind_of(method, spec, question)].study(options, truth, shown)
    return guessers


def shares_right(
    name: str,
    clips: Sequence[tuple[VideoSpec, Question, Path]],
    retriever: Retriever | None,
    num_studied: int = NUM_STUDIED,
) -> dict[str, dict[str, list[bool]]]:
    """For each policy and kind of question, which answers are right.

    Args:
        num_studied: questions that the guesser learns from.
    """
    settings = synthetic_settings(name)
    method = get_method(name, **settings)
    expert, guessers = scripted_oracle(method), study(method, num_studied)
    right: dict[str, dict[str, list[bool]]] = {policy: defaultdict(list) for policy in POLICIES}
    for number, (spec, question, path) in enumerate(clips):
        row = make_row(spec, question, path, number, "test", name)
        kind = kind_of(method, spec, question)
        options, truth = row["extra_info"]["options"], row["reward_model"]["ground_truth"]
        shown = initial_frames(method, spec)
        if kind == "direct":
            guess = shown[min(shown, key=lambda frame: abs(frame - question.evidence[0][0]))]
        else:
            guess = guessers[kind].guess(options, shown.values())
        letter = LETTERS[options.index(guess)]
        scripts = {
            "initial_frames": (_ANSWER.get(name, _OTHER_ANSWER).format(letter),),
            "oracle": expert.script(spec, question).turns,
        }
        for policy, turns in scripts.items():
            extra = row["extra_info"]
            result = replay(name, str(path), extra["question"], truth, turns, extra, settings, retriever=retriever)
            right[policy][kind].append(result["reward"]["accuracy"] > 0.0)
    return right


def main() -> int:
    """Command line: see the module's docstring."""
    folder = make_demo(Path("outputs/bench_needle"), num_train_videos=1, num_test_videos=NUM_VIDEOS, needle=True)
    rows = load_rows(folder / "test.parquet")
    clips = [(*question_from_row(row), Path(row["extra_info"]["video_path"])) for row in rows]
    held = True
    for name in METHODS:
        retriever = local(RetrievalConfig(model=str(clip_dir()))) if name == "videobrain" else None
        right = shares_right(name, clips, retriever)
        for policy, kinds in right.items():
            needles = [one for kind, each in kinds.items() if kind != "direct" for one in each]
            share = sum(needles) / len(needles)
            if policy == "initial_frames":
                held &= share <= MOST_BY_INITIAL_FRAMES and all(kinds["direct"])
            else:
                held &= all(map(all, kinds.values()))
            by_kind = (f"{kind} {sum(each) / len(each):.3f} ({len(each)})" for kind, each in sorted(kinds.items()))
            told = ", ".join(by_kind)
            print(f"{name:13}{policy:11} all but direct {share:.3f} ({len(needles)}): {told}", flush=True)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
