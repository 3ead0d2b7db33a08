"""English sentences for the thoughts of the scripted expert, and how English the thoughts of a policy are."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence

import torch
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen2_5_VLForConditionalGeneration

_THOUGHT = re.compile(r"<think>(.*?)</think>", re.DOTALL)
_LOOK = re.compile(r"(?:(first|last) )?between (\d+) and (\d+)")
_CLOCK = re.compile(r"time (\d+:\d\d)")
_CONCLUSION = re.compile(
    r"(?:(?:first|last) )?(?P<seen>nothing|frame [^.]+)\. "
    r"(?:(?P<which>first|last) (?P<thing>[^.]+)\. )?(?P<answer>[^.]+)"
)
_SEEN = re.compile(r"frame (\d+) (\w+ \w+)")
_HEADER = "<|im_start|>assistant\n"


def in_english(turn: str) -> str:
    """A turn of FrameThinker's scripted expert with its thought as English sentences; the action stays as it is.

    A segment's numbers remain the thought's last ones, as FrameThinker's verification demands.

    Raises:
        ValueError: the turn's thought is none of the scripted expert's.
    """
    thought = _THOUGHT.match(turn)
    if thought is None:
        raise ValueError(f"the turn {turn!r} does not begin with a thought")
    return f"<think>{_sentences(thought[1])}</think>{turn[thought.end() :]}"


def _sentences(thought: str) -> str:
    if look := _LOOK.fullmatch(thought):
        which, start, end = look.groups()
        aim = f"find out what comes {which}" if which else "see what happens"
        return f"I want to {aim} between frames {start} and {end}."
    if clock := _CLOCK.fullmatch(thought):
        return f"I need to know which frame is shown at {clock[1]}."
    if conclusion := _CONCLUSION.fullmatch(thought):
        return _concluded(**conclusion.groupdict())
    raise ValueError(f"the scripted expert writes no thought such as {thought!r}")


def _concluded(seen: str, which: str | None, thing: str | None, answer: str) -> str:
    shown = [f"frame {number} shows a {label}" for number, label in _SEEN.findall(seen)]
    sentences = ", ".join(shown) or "the frames show nothing that helps"
    if which:
        sentences += f". The {which} of them is a {thing}" if shown else f". The {which} may be a {thing}"
    conclusion = f"So the answer is {answer}" if shown else f"I guess {answer}"
    return f"{sentences[0].upper()}{sentences[1:]}. {conclusion}."


@torch.no_grad()
def perplexity(
    model: Qwen2_5_VLForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, thoughts: Sequence[str]
) -> float:
    """How much thoughts surprise a language model, per token, each as the beginning of an assistant's message.

    Raises:
        ValueError: there are no tokens to measure.
    """
    header = tokenizer.encode(_HEADER)
    total, count = 0.0, 0
    for thought in thoughts:
        ids = tokenizer.encode(thought)
        if not ids:
            continue
        logits = model(input_ids=torch.tensor([[*header, *ids]]), use_cache=False).logits[0, len(header) - 1 : -1]
        total += functional.cross_entropy(logits, torch.tensor(ids), reduction="sum").item()
        count += len(ids)
    if count == 0:
        raise ValueError("no thought has a token; measure a policy that thinks")
    return math.exp(total / count)


def shuffled(thoughts: Sequence[str], seed: int = 0) -> list[str]:
    """The thoughts with their words in random order: what the same words are worth without grammar."""
    rng = random.Random(seed)
    return [" ".join(rng.sample(words, len(words))) for words in map(str.split, thoughts)]
