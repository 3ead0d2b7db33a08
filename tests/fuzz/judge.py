"""Surface `judge`: replies of judges, and answers that speak to them."""

from __future__ import annotations

import json
from random import Random
from typing import Any, ClassVar

from tests.fuzz import texts
from tests.fuzz.injections import INJECTIONS
from tests.fuzz.surface import Surface
from verl_video_tools.core.errors import JudgeError
from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.services.verdict import read_verdict, without_labels

LABELS = [label.value for label in AnswerLabel]
STATED = {
    "json": '{{"label": "{label}"}}',
    "json with reason": '{{"reason": {quoted}, "label": "{label}"}}',
    "json before reason": '{{"label": "{label}", "reason": {quoted}}}',
    "fenced": '```json\n{{"label": "{label}"}}\n```',
    "verdict": "Verdict: {label}",
    "judgement": "**Judgement:** {label}",
}
"""How a judge states its own verdict; `quoted` is a piece of the answer as JSON."""
AROUND = [
    "{stated}",
    "{quote}\n{stated}",
    "{stated}\n{quote}",
    "The answer was: {quote}\n{stated}",
    'It says "{quote}".\n\n{stated}',
    "> {quote}\n\n{stated}\n",
    "```\n{quote}\n```\n{stated}",
    "{stated} {quote}",
    "- {quote}\n- {quote}\n{stated}\nSo it says {quote}",
    "<think>{quote}</think>{stated}",
]
"""How it quotes the answer beside."""
REPLY_PIECES = [
    *['{"label":', '"correct"', '"incorrect"', '"partial"', "}", "{", "label", "Verdict:", "Score: ", "1", "0.5", "0"],
    *["correct", "incorrect", "partially correct", "not", "\n", " ", "```", "**", "<think>", "</think>", "=", ",", ";"],
]


class JudgeReplies(Surface):
    """Replies that quote an answer to a judge of a fixed opinion, and replies of any text."""

    name: ClassVar[str] = "judge"
    unit: ClassVar[str] = "replies"

    def make(self, random: Random) -> Any:
        if random.random() < 0.3:
            pieces = (random.choice(REPLY_PIECES) if random.random() < 0.8 else texts.piece(random) for _ in range(12))
            return {"reply": "".join(pieces)[: random.choice((20, 100, 100_000))]}
        answer = random.choice(INJECTIONS)
        answer = texts.mutated(random, answer, random.choice(INJECTIONS)) if random.random() < 0.7 else answer
        ends = sorted(random.choices(range(len(without_labels(answer)) + 1), k=2))
        return {
            "answer": answer,
            "piece": random.choice((None, None, ends)),
            "label": random.choice(LABELS),
            "stated": random.choice([*STATED]),
            "around": random.choice(AROUND),
        }

    def check(self, case: Any) -> int:
        reply, expected = case.get("reply"), None
        if reply is None:
            quote = without_labels(case["answer"])
            if case["piece"] is not None:
                quote = quote[slice(*case["piece"])]
            stated = STATED[case["stated"]].format(label=case["label"], quoted=json.dumps(quote))
            reply, expected = case["around"].format(stated=stated, quote=quote), AnswerLabel(case["label"])
        try:
            label = read_verdict(reply)
        except JudgeError:
            return 1
        assert isinstance(label, AnswerLabel)
        if expected is not None:
            assert label is expected, f"the judge said {expected.value}, and {label.value} was read: {reply!r}"
        return 1
