"""The synthetic world's questions for VideoBrain: places in frame numbers only, and some whose place is not given."""

from __future__ import annotations

import random
from dataclasses import replace

from verl_video_tools.synthetic.questions import LETTERS, Question
from verl_video_tools.synthetic.world import COLOURS, VideoSpec


def search_words(spec: VideoSpec, question: Question) -> str | None:
    """The shape to search for, where the question is asked without saying at which frames its thing is shown.

    So is a question about one event that the initial frames do not show, if no other event of the video has its shape.
    """
    if question.kind not in ("at_time", "between_frames"):
        return None
    _, shape = question.options[question.answer].split()
    shapes = [event.label.split()[1] for event in spec.events]
    return shape if shapes.count(shape) == 1 else None


def asked_by_frames(spec: VideoSpec, question: Question) -> Question:
    """The question as VideoBrain's rows ask it: one with `search_words` asks which thing of that shape is shown,
    wherever it is; elsewhere a clock becomes the frames that show the answer."""
    shape = search_words(spec, question)
    if shape is None:
        text, *options = question.text.splitlines()
        first, last = question.evidence[0]
        text = text.replace(f"at {question.clock}", f"between frames {first} and {last}")
        return replace(question, text="\n".join([text, *options]), clock=None)
    labels = [f"{colour} {shape}" for colour in COLOURS]
    random.Random(f"{spec.seed}/{question.text}").shuffle(labels)
    texts = dict(zip(LETTERS, labels, strict=True))
    truth = question.options[question.answer]
    lines = [f"Which {shape} is shown?", *(f"{letter}. {label}" for letter, label in texts.items())]
    return replace(question, text="\n".join(lines), options=texts, answer=LETTERS[labels.index(truth)], clock=None)
