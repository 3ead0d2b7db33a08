"""Text on which the demonstration's tokenizer is trained, so that what its models read and write takes few tokens.

Only the tokenizer sees these sentences; no model is trained on them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from verl_video_tools.synthetic.world import LABELS

NAMES: tuple[str, ...] = (
    "lamp", "door", "river", "stone", "cloud", "chair", "garden", "window", "bread", "paper", "mountain", "table",
    "water", "music", "winter", "summer", "letter", "market", "island", "forest",
)  # fmt: skip
"""Everyday nouns: keys of the tables that the base model learns to read."""

FILLER_WORDS: tuple[str, ...] = (
    *NAMES, "the", "a", "of", "to", "in", "is", "and", "it", "that", "this", "was", "for", "with", "you", "at", "by",
    "from", "one", "then", "before", "after", "look", "see", "time", "video", "frame", "frames", "question", "first",
    "last", "each", "all", "only", "when", "where", "what", "which", "how", "often", "shown", "thing", "between",
)  # fmt: skip

_SENTENCES: tuple[str, ...] = (
    "You watch a video through single frames and answer a question about it.",
    "You are a careful assistant. Each frame has a number; look again where the answer may be.",
    "First think, then act: write your thoughts in <think></think> and one action in <action></action>.",
    "Give the answer inside <answer></answer>. Choose one option and reply with its letter only.",
    "The actions are: choose frames between START and END, get frame number at time MM:SS, output answer: OPTION.",
    "This returns 8 frames. Hours count as minutes. The video has 400 frames at 5 frames per second.",
    "You may call a tool to see more of the video. Tools take seconds: start_time, end_time, segment, fps.",
    'Call a tool with JSON: <tool_call>{"name": "crop_video", "arguments": {"video_path": "video.mp4", '
    '"start_time": 12.0, "end_time": 20.5}}</tool_call>',
    '<video_zoom>{"segment": [12.0, 20.5], "fps": 2}</video_zoom>',
    '{"name": "uniform_sample", "arguments": {"start": 10, "end": 60, "num_frames": 8}}',
    '{"name": "clip_sample", "arguments": {"query": "red circle", "num_frames": 8}}',
    '<tool_call>{"name": "FrameAt", "arguments": {"t": 34.0}}</tool_call>',
    '<tool_call>{"name": "VideoClip", "arguments": {"t0": 30.0, "t1": 40.0}}</tool_call><turn_sum></turn_sum>',
    "<tool_response></tool_response> <thinking></thinking> <answer>B</answer> error: no such frame, out of range.",
    "Nothing is shown here, so I look further. The thing appears later. It is not in these frames.",
    "list the frames that show a thing, list all frames, what is in frame 7, find the first thing, say it again,\n"
    "list the things in order, list the frame numbers, count by ten from 20, - table. red circle",
    "What is shown at 0:34? What is shown between frames 150 and 190? Which comes first? How often is it shown?",
)


def tokenizer_corpus(seed: int = 0, num_passages: int = 3000) -> Iterator[str]:
    """Passages in the style of prompts, observations and actions, with random things, numbers and names."""
    rng = random.Random(seed)
    for _ in range(num_passages):
        low, high = sorted(rng.sample(range(600), 2))
        label, other = rng.sample(LABELS, 2)
        letter = rng.choice("ABCD")
        clock = f"{rng.randrange(3)}:{rng.randrange(60):02d}"
        yield "system\n" + rng.choice(_SENTENCES)
        yield (
            f"user\nWhat is shown at {clock}? What is shown between frames {low} and {high}?\nA. {label}\nB. {other}\n"
            f"C. nothing\nD. {label}\nHow often does a {other} appear? Which thing comes first, then second?"
        )
        window = f"between {low} and {high}"
        yield f"assistant\n<think>{window}</think><action>choose frames {window}</action>"
        yield f"<think>time {clock}</think><action>get frame number at time {clock}</action>"
        yield f"user\nFrame number at time {clock} is: {low}."
        yield f"\nframe {low}: "
        yield f"<think>frame {low} {label}. {letter}</think><action>output answer: {letter}</action>"
        yield f"frame {low} {label}\nframe {high} nothing\n{label}, {other}"
        yield " ".join(rng.choices(FILLER_WORDS, k=12))
