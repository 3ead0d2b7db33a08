"""All runs that the claims ask for, one after another; stopped at any moment and started again, it goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from examples.learning_curve import stored
from examples.learning_curve.claims.claim import CLAIMS, Claim
from examples.learning_curve.claims.trial import RESULT, Trial
from examples.learning_curve.run import StageError
from verl_video_tools.core.files import whole_file

RESULTS = stored.FOLDER / "claims"


class Run(Protocol):
    """What a trial is asked for."""

    def run(self) -> object: ...


def schedule(claims: Mapping[str, Claim] = CLAIMS) -> list[tuple[str, int]]:
    """(claim, seed) in order: those that need the fewest seeds first, seed by seed, so that few runs decide most."""
    by_need: dict[int, list[str]] = {}
    for name, claim in claims.items():
        by_need.setdefault(claim.seeds, []).append(name)
    return [(name, seed) for need, names in sorted(by_need.items()) for seed in range(need) for name in names]


def run_all(
    outputs: Path, results: Path = RESULTS, trial: Callable[[str, Claim, int, Path], Run] = Trial
) -> dict[str, str]:
    """Make the runs whose result is not in `results` yet, in folders of `outputs`; why each failed one did."""
    failed = {}
    results.mkdir(parents=True, exist_ok=True)
    for name, seed in schedule():
        kept = results / f"{name}_{seed}.json"
        if kept.exists():
            continue
        folder = outputs / f"claim_{name}_{seed}"
        try:
            trial(name, CLAIMS[name], seed, folder).run()
        except StageError as error:
            failed[f"{name}_{seed}"] = str(error)
            continue
        with whole_file(kept) as partial:
            shutil.copyfile(folder / RESULT, partial)
    return failed
