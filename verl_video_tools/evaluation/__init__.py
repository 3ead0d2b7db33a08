"""Measure a model with the loop, the prompts, the frames and the graders of training.

questions.py        the questions: rows or a benchmark, a part of them, repeats, controls
run.py              one evaluation in one folder; `data.generate.generate` makes the rollouts
items.py            labels and costs of each item
results.py          the result, computed from the items
statistics.py       intervals and paired tests
tables.py           results as tables, and paired differences of runs
protocols.py        options of published evaluations, from protocols.yaml
serve.py            a vLLM server of the evaluated model, a digest of its files, the sizes of its images
chat.py             one question, printed turn by turn
lmms_eval_model.py  our loop as a model of lmms-eval

`cli.evaluation` has the commands; benchmarks are in `data.formats`, extractors in `data.extractors`.
"""

from __future__ import annotations

from enum import StrEnum


class Control(StrEnum):
    """A change of the questions that shows what accuracy depends on (LongVT, table 4). The class is here because the
    command line reads it at its start, without the imports of the modules."""

    NO_VISUAL = "no-visual"
    """The question without a frame of its video."""
    SHUFFLED_OPTIONS = "shuffled-options"
    """The options in another order, the truth with them."""
