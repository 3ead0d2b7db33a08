"""What came out of `run.py`: English, outputs of no use, three rollouts as pictures, and the bars of the plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoTokenizer, Qwen2_5_VLForConditionalGeneration

from examples.learning_curve.measured import kind_of
from examples.learning_curve.report import GAIN, TRAINING
from examples.learning_curve.run import RESULTS
from examples.learning_curve.texts import percent, points
from examples.smollm.english import perplexity, shuffled
from verl_video_tools.core.files import write_lines, write_text
from verl_video_tools.core.types import Trajectory
from verl_video_tools.evaluation.tables import markdown_table
from verl_video_tools.methods import get_method
from verl_video_tools.records.metrics import Rollout, rollout_metrics
from verl_video_tools.records.records import read_records
from verl_video_tools.records.report import GAP, read_run

if TYPE_CHECKING:
    from examples.smollm.run import SmolLearning

LEAST_RECOGNISED = 0.98
"""Share of held-out frames whose tokens are nearest to the words of what they show."""
MOST_MALFORMED_SFT = 0.20
"""Share of held-out rollouts after the cold start with a turn that is not to the letter."""
LEAST_GAIN = 0.20
"""In accuracy where another look is needed, after RL less after SFT."""
MOST_MALFORMED, MOST_UNREAD, MOST_FLAGGED = 0.05, 0.10, 0.01
"""After RL; flagged: of all rollouts of training."""
MOST_PERPLEXITY = 1.5
"""Perplexity of thoughts after RL, in multiples of that after SFT."""
MOST_GAP = 0.001
"""Of every step: mean difference of engine's and actor's probabilities."""
NUM_THOUGHTS = 300
EXPERT, SHUFFLED = "expert", "expert, words shuffled"


# ------------------------------------------------------------------------------------------------------------- english


def english_of(model: Path, expert_turns: Sequence[str], policies: Mapping[str, Path]) -> dict[str, Any]:
    """Perplexity of thoughts under the untrained language model, and shares of outputs that are of no use.

    Args:
        model: folder of the model whose language model is untrained.
        expert_turns: turns of the cold start.
        policies: file of held-out rollouts by name of the policy.
    """
    untrained = Qwen2_5_VLForConditionalGeneration.from_pretrained(model, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(model)
    parse = get_method("framethinker").parse
    expert = [parse(turn).thought or "" for turn in expert_turns[:NUM_THOUGHTS]]
    thoughts = {EXPERT: expert, SHUFFLED: shuffled(expert)}
    outputs = {}
    for name, path in policies.items():
        lines = list(read_records(path))
        thoughts[name] = thoughts_of([line["trajectory"] for line in lines])[:NUM_THOUGHTS]
        outputs[name] = outputs_of(lines)
    return {
        "perplexity": {name: perplexity(untrained, tokenizer, texts) for name, texts in thoughts.items()},
        "outputs": outputs,
    }


def thoughts_of(trajectories: Sequence[Trajectory]) -> list[str]:
    """Thoughts of all turns; of a turn without one, all that it says."""
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    return [turn.text if turn.thought is None else turn.thought for turn in turns]


def outputs_of(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Shares of rollouts with a turn that is not to the letter, without a readable answer, and flagged ones."""
    metrics = rollout_metrics([Rollout.from_line(line) for line in lines])
    trajectories: list[Trajectory] = [line["trajectory"] for line in lines]
    malformed = [any(not turn.well_formed for turn in trajectory.turns) for trajectory in trajectories]
    return {
        "malformed": sum(malformed) / len(lines),
        "unread": metrics["rollout/unread"],
        "flagged": metrics["rollout/flagged"] / len(lines),
    }


# -------------------------------------------------------------------------------------------------------------- report


def three_rollouts(records: Path, out: Path) -> Path:
    """Writes a held-out rollout of each kind of question that needs another look: a right one that looked, if any."""
    lines = [json.loads(text) for text in records.read_text(encoding="utf-8").splitlines()]
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        by_kind.setdefault(kind_of(line["extra_info"]), []).append(line)
    by_kind.pop("direct", None)
    write_lines(out, [max(by_kind[kind], key=_worth_showing) for kind in sorted(by_kind)])
    return out


def _worth_showing(line: Mapping[str, Any]) -> tuple[bool, bool]:
    return len(line["trajectory"]["turns"]) > 1, bool(line["reward"]["acc"])


def write_outcome(run: SmolLearning) -> str:
    """Adds bars, accuracies and English to the run's `report/report.md`; returns what was added."""
    results = json.loads((run.out / RESULTS).read_text())
    english = json.loads(run.english.read_text())
    gaps = [metrics[GAP] for metrics in read_run(run.name, run.rl).log.values() if GAP in metrics]
    recognised = json.loads((run.base / "recognised.json").read_text())["recognised"]
    text = "\n\n".join(
        [
            "## SmolLM2 learns to look",
            markdown_table(["bar", "measured", ""], bars(results, english, recognised, gaps), num_text_columns=3),
            markdown_table(["policy", "needs another look", "95 %"], _accuracies(results), num_text_columns=1),
            markdown_table(
                ["thoughts of", "perplexity, untrained SmolLM2"],
                [[name, f"{value:.1f}"] for name, value in english["perplexity"].items()],
                num_text_columns=1,
            ),
            markdown_table(
                ["policy", "malformed", "unread", "flagged"],
                [[name, *map(percent, shares.values())] for name, shares in english["outputs"].items()],
                num_text_columns=1,
            ),
            "A rollout of each kind of question: [three_rollouts.html](three_rollouts.html)",
        ]
    )
    page = run.out / "report" / "report.md"
    write_text(page, page.read_text(encoding="utf-8") + "\n" + text + "\n")
    return text


def bars(
    results: Mapping[str, Any], english: Mapping[str, Any], recognised: float, gaps: Sequence[float]
) -> list[list[str]]:
    """A row for each bar of the plan: the bar, what was measured, and whether it is met."""
    gain, training = results[GAIN], results[TRAINING]["rl"]
    before, after = (english["outputs"][name] for name in ("after SFT", "after RL"))
    flagged = training["flagged"] / training["rollouts"]
    perplexities = english["perplexity"]
    growth = perplexities["after RL"] / perplexities["after SFT"]
    checks = [
        (f"at least {percent(LEAST_RECOGNISED)} of held-out frames recognised", percent(recognised),
         recognised >= LEAST_RECOGNISED),
        (f"after SFT at most {percent(MOST_MALFORMED_SFT)} malformed", percent(before["malformed"]),
         before["malformed"] <= MOST_MALFORMED_SFT),
        (f"gain of at least {points(LEAST_GAIN)} points", points(gain["mean"]), gain["mean"] >= LEAST_GAIN),
        ("interval of the gain above zero", points(gain["low"]), gain["low"] > 0),
        (f"after RL at most {percent(MOST_MALFORMED)} malformed", percent(after["malformed"]),
         after["malformed"] <= MOST_MALFORMED),
        (f"after RL at most {percent(MOST_UNREAD)} unread", percent(after["unread"]), after["unread"] <= MOST_UNREAD),
        (f"at most {percent(MOST_FLAGGED)} of training flagged", percent(flagged), flagged <= MOST_FLAGGED),
        (f"perplexity of thoughts after RL at most {MOST_PERPLEXITY} of that after SFT", f"{growth:.2f}",
         growth <= MOST_PERPLEXITY),
        ("perplexity of thoughts after RL below that of the expert's words shuffled",
         f"{perplexities['after RL']:.1f} and {perplexities[SHUFFLED]:.1f}",
         perplexities["after RL"] < perplexities[SHUFFLED]),
        (f"engine and actor at most {MOST_GAP} apart in every step", f"{max(gaps):.2g}", max(gaps) <= MOST_GAP),
    ]  # fmt: skip
    return [[bar, measured, "met" if is_met else "not met"] for bar, measured, is_met in checks]


def _accuracies(results: Mapping[str, Any]) -> list[list[str]]:
    return [
        [name, percent(shares["mean"]), f"{percent(shares['low'])} to {percent(shares['high'])}"]
        for name, policy in results["accuracy"].items()
        if (shares := policy["needs another look"])
    ]
