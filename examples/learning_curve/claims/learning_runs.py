"""Claims that something does no harm, decided by learning runs of the schedule rather than in a world of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from examples.learning_curve.report import RFT_LESS_RL
from examples.learning_curve.schedule import COMPARED_WITH, SHARED_TURNS
from examples.learning_curve.stored import Result
from verl_video_tools.core.errors import UsageError

RFT = "longvt_rft"
"""Fine-tuning on rollouts keeps accuracy: the policy after it, and before it."""
SEEDS = {RFT: 3, SHARED_TURNS: 3}
LEAST, BOUND = -0.02, -0.05
"""Of the mean difference, and of its interval; see `verdict.decide`."""

MOST_TOKENS = 0.70
"""Of what rollouts without shared turns have sampled."""

Metrics = dict[str, dict[str, float]]
"""By title: means of both choices and of their difference. The first one decides."""


def compared(results: Mapping[str, Result]) -> Iterator[tuple[str, str, Metrics]]:
    """Name or path of a run's result, the claim that it decides, and what it says.

    Raises:
        UsageError: a result decides none, or its counterpart is missing.
    """
    for path, result in results.items():
        if result.get("method") == SHARED_TURNS:
            yield path, SHARED_TURNS, _shared_turns(path, result, results)
        elif RFT_LESS_RL in result:
            yield path, RFT, _rft(result)
        else:
            raise UsageError(f"{path}: neither the result of a claim nor of a learning run that decides one")


def _rft(result: Result) -> Metrics:
    paper, other = (result["accuracy"][name]["all questions"]["mean"] for name in ("after RFT", "after RL"))
    return {"accuracy, all questions": {"paper": paper, "other": other, "difference": result[RFT_LESS_RL]["mean"]}}


def counterpart(result: Result, results: Iterable[Result]) -> Result | None:
    """The run of the same seed in which each rollout has its own first turn, if it is among the results."""
    wanted = COMPARED_WITH, result["seed"]
    return next((each for each in results if (each.get("method"), each["seed"]) == wanted), None)


def token_share(result: Result, plain: Result) -> float:
    """Tokens that a run with shared turns has sampled in training, of those of its counterpart.

    Raises:
        UsageError: the tokens of either are not known.
    """
    if not all("cost" in run for run in (result, plain)):
        raise UsageError(f"the tokens of {SHARED_TURNS}, or of {COMPARED_WITH}, seed {result['seed']}, are not known")
    shared, own = (run["cost"]["measurements"][-1]["generated_tokens"] for run in (result, plain))
    return float(shared / own)


def _shared_turns(path: str, result: Result, results: Mapping[str, Result]) -> Metrics:
    """Two rollouts for each first turn, less the run of the same seed in which each has its own."""
    if (plain := counterpart(result, results.values())) is None:
        raise UsageError(f"{path}: give the result of {COMPARED_WITH}, seed {result['seed']}, too, to compare it with")
    accuracies = [run["accuracy"]["after RL"]["needs another look"]["mean"] for run in (result, plain)]
    return {
        "accuracy, needs another look": _difference(*accuracies),
        f"tokens sampled in training, of {COMPARED_WITH}'s": _difference(token_share(result, plain), 1.0),
    }


def _difference(paper: float, other: float) -> dict[str, float]:
    return {"paper": paper, "other": other, "difference": paper - other}
