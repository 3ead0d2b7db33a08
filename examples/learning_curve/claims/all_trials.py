"""All runs that the claims ask for, one after another; stopped at any moment and started again, it goes on."""

from __future__ import annotations

import json
import shutil
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from examples.learning_curve import stored
from examples.learning_curve.claims.claim import CLAIMS, Claim
from examples.learning_curve.claims.report import is_present
from examples.learning_curve.claims.trial import RESULT, Trial
from examples.learning_curve.learn_all import LOCK, NUM_TRIES, locked
from verl_video_tools.core.files import whole_file


class Run(Protocol):
    """What a trial is asked for."""

    def run(self) -> object: ...


def schedule(claims: Mapping[str, Claim] = CLAIMS) -> list[tuple[str, int]]:
    """(claim, seed) in order: those that need the fewest seeds first, seed by seed, so that few runs decide most."""
    by_need: dict[int, list[str]] = {}
    for name, claim in claims.items():
        by_need.setdefault(claim.seeds, []).append(name)
    return [
        (name, claims[name].pilots + number)
        for need, names in sorted(by_need.items())
        for number in range(need)
        for name in names
    ]


def run_all(
    outputs: Path, results: Path = stored.CLAIMS_FOLDER, trial: Callable[[str, Claim, int, Path], Run] = Trial
) -> dict[str, str]:
    """Make the runs whose result is not in `results` yet, in folders of `outputs`; why each failed one did.

    A run that fails is tried once more, and stops no other, whatever it fails with. No other schedule works in
    `outputs` meanwhile, of learning runs neither: two runs need more memory than a small machine has.
    """
    failed: dict[str, str] = {}
    for folder in (outputs, results):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(outputs / LOCK, print):
        for name, seed in schedule():
            kept = results / f"{name}_{seed}.json"
            if kept.exists():
                if not is_present(json.loads(kept.read_text())):
                    failed[kept.stem] = f"{kept} was made with other settings; move it away"
                continue
            folder = outputs / f"claim_{kept.stem}"
            for _ in range(NUM_TRIES):
                try:
                    trial(name, CLAIMS[name], seed, folder).run()
                except Exception as error:
                    traceback.print_exc()
                    failed[kept.stem] = str(error) or repr(error)
                else:
                    failed.pop(kept.stem, None)
                    with whole_file(kept) as partial:
                        shutil.copyfile(folder / RESULT, partial)
                    break
    return failed
