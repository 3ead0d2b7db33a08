"""What finished runs say about each claim."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from examples.learning_curve.chosen import has_present_plan
from examples.learning_curve.claims import learning_runs
from examples.learning_curve.claims.claim import CLAIMS
from examples.learning_curve.claims.verdict import decide, over_seeds
from examples.learning_curve.report import TRAINING
from examples.learning_curve.stored import Result
from verl_video_tools.core.errors import UsageError
from verl_video_tools.evaluation.tables import markdown_table

_HEADER = ["claim", "verdict", "measured", "seeds", "paper's choice", "other", "difference", "flagged"]


_KEYS = ("paper", "other", "difference", "flagged")


@dataclass(frozen=True)
class Measured:
    """A metric in the runs of a claim, by seed.

    Attributes:
        flagged: share of the rollouts of training that were kept out of it, of the choice with more of them; NaN for
            learning runs that were made before results told it.
    """

    paper: Mapping[int, float]
    other: Mapping[int, float]
    difference: Mapping[int, float]
    flagged: Mapping[int, float]


def read(results: Mapping[str, Result]) -> dict[str, dict[str, Measured]]:
    """Metrics by claim, the deciding one first.

    Args:
        results: by the name or path of their file.

    Raises:
        UsageError: a result is none of a claim's, or was made with other settings than the present ones, or two are of
            the same claim and seed.
    """
    found: dict[str, dict[str, dict[int, dict[str, float]]]] = {}
    own = [(path, result["claim"], _metrics(result)) for path, result in results.items() if "claim" in result]
    learning = {path: result for path, result in results.items() if "claim" not in result}
    for path, name, metrics in (*own, *learning_runs.compared(learning)):
        result = results[path]
        if name not in {*CLAIMS, *learning_runs.SEEDS}:
            raise UsageError(f"{path}: there is no claim {name!r}; choose of {', '.join(CLAIMS)}")
        if aside := set_aside(result):
            name = f"{name} ({aside}, seed {result['seed']})"
        elif not is_present(result):
            raise UsageError(f"{path}: made with other settings of {name} than the present ones; leave it out")
        flagged = _most_flagged(result)
        for title, means in metrics.items():
            seeds = found.setdefault(name, {}).setdefault(title, {})
            if result["seed"] in seeds:
                raise UsageError(f"{path}: a second result of {name}, seed {result['seed']}; give one")
            seeds[result["seed"]] = means | {"flagged": flagged}
    return {
        name: {
            title: Measured(*({s: m[key] for s, m in seeds.items()} for key in _KEYS))
            for title, seeds in metrics.items()
        }
        for name, metrics in found.items()
    }


def set_aside(result: Result) -> str | None:
    """Why a result of a claim decides nothing: seeds are fixed before the runs; None if it may."""
    if "claim" not in result:
        return None
    claim = CLAIMS[result["claim"]]
    if result["seed"] < claim.pilots:
        return "pilot"
    return None if result["seed"] < claim.pilots + claim.seeds else "not planned"


def is_present(result: Result) -> bool:
    """Whether a result, of a known claim or of a learning run, was made with the present settings."""
    if "claim" not in result:
        return has_present_plan(result)
    return bool(result.get("settings") == CLAIMS[result["claim"]].settings())


def table(found: Mapping[str, Mapping[str, Measured]]) -> str:
    """One line per metric in Markdown: means of the seeds, and the interval of their paired differences.

    Numbers are points or, of IoU, hundredths. `flagged`, in per cent, is that of the run with most of them. The verdict
    is that of the first metric, once all seeds are there.
    """
    lines = []
    for name, metrics in found.items():
        for number, (title, measured) in enumerate(metrics.items()):
            means = [f"{100 * sum(each.values()) / len(each):.1f}" for each in (measured.paper, measured.other)]
            interval = str(over_seeds(list(measured.difference.values())))
            verdict = _verdict(name, list(measured.difference.values())) if number == 0 else ""
            known = [share for share in measured.flagged.values() if not math.isnan(share)]
            flagged = f"{100 * max(known):.1f}" if known and number == 0 else ""
            if flagged and len(known) < len(measured.flagged):
                flagged += f" ({len(known)} seeds)"
            shown = f"`{name}`" if number == 0 else ""
            lines.append([shown, verdict, title, str(len(measured.difference)), *means, interval, flagged])
    return markdown_table(_HEADER, lines, num_text_columns=3)


def plan_table() -> str:
    """What is claimed, in which world, and how it is decided, in Markdown; differences in points or hundredths."""
    header = ["claim", "the paper says", "cold start", "compared", "decided by", "effect", "least", "seeds"]
    lines = []
    for name, claim in CLAIMS.items():
        colds = (
            f"`{kind}`: {', '.join(f'{share:.0%} {each}'.replace('_', ' ') for each, share in shares.items())}"
            for kind, shares in claim.cold.items()
        )
        metric = claim.metrics[0]
        decided = f"{metric.measure.replace('_', ' ')}, {' and '.join(f'`{kind}`' for kind in metric.kinds)}"
        numbers = f"{100 * claim.effect:.0f}", f"{100 * claim.least:.0f}", str(claim.seeds)
        said = f"{claim.says} ({claim.source})"
        compared = f"{claim.paper.title}; {claim.other.title}"
        lines.append([f"`{name}`", said, "; ".join(colds), compared, decided, *numbers])
    return markdown_table(header, lines, num_text_columns=5)


def _verdict(name: str, differences: Sequence[float]) -> str:
    if name not in {*CLAIMS, *learning_runs.SEEDS}:  # `set_aside`
        return "decides nothing"
    if name in learning_runs.SEEDS:
        wanted, least, bound = learning_runs.SEEDS[name], learning_runs.LEAST, learning_runs.BOUND
    else:
        wanted, least, bound = CLAIMS[name].seeds, CLAIMS[name].least, 0.0
    if len(differences) < wanted:
        return f"undecided: {len(differences)} of {wanted} seeds"
    return decide(differences, least, bound=bound)


def _metrics(result: Result) -> dict[str, dict[str, float]]:
    titles = {}
    for metric in result["metrics"]:
        shown = f" with `{', '.join(metric['fields'])}`" if metric["fields"] else ""
        kinds = " and ".join(f"`{kind}`" for kind in metric["kinds"])
        title = f"{metric['measure'].replace('_', ' ')}, {kinds}{shown}"
        titles[title] = {key: metric[key]["mean"] for key in ("paper", "other", "difference")}
    return titles


def _most_flagged(result: Result) -> float:
    counts = result.get(TRAINING, {}).values()
    return max((count["flagged"] / max(1, count["rollouts"]) for count in counts), default=math.nan)
