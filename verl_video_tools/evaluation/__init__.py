"""Measure a model with the loop, the prompts, the frames and the graders of training.

questions.py        what is asked: rows or a benchmark, which of them, how often, under which controls
run.py              one evaluation in one folder, `data.generate.generate` doing the asking
items.py            what became of each item: verdicts and costs
results.py          the result, from these
statistics.py       by how much a figure may be chance: intervals and paired tests
tables.py           results as tables, and paired differences of runs
protocols.py        options of published evaluations; protocols.yaml has them
serve.py            the model that is evaluated: a vLLM of its own, its digest, the sizes of its images
chat.py             one question, shown turn by turn
lmms_eval_model.py  our loop as a model of lmms-eval

`cli.evaluation` has the commands; benchmarks are in `data.formats`, extractors in `data.extractors`.
"""

from __future__ import annotations

from enum import StrEnum


class Control(StrEnum):
    """What is changed of an evaluation to see what its accuracy rests on (LongVT, table 4). It stands here because the
    command line reads it at its start, without the imports of the modules."""

    NO_VISUAL = "no-visual"
    """The question without a frame of its video."""
    SHUFFLED_OPTIONS = "shuffled-options"
    """The options in another order, the truth with them."""
