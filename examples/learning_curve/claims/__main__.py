"""Claims of the papers (docs/decisions/claims.md): run one, decide it, or look whether it can show.

Usage: python -m examples.learning_curve.claims run longvt_recall [--seed 1] [--out FOLDER]
       python -m examples.learning_curve.claims all [--out FOLDER]
       python -m examples.learning_curve.claims report RESULT.json [RESULT.json ...]
       python -m examples.learning_curve.claims rollouts FOLDER [FOLDER ...]
       python -m examples.learning_curve.claims advantages [--claim longvt_recall] [--folder FOLDER]
       python -m examples.learning_curve.claims forecast [--claim longvt_recall] [--folder FOLDER]
       python -m examples.learning_curve.claims power
       python -m examples.learning_curve.claims table

`run` leaves `claim_result.json`, and goes on where it was stopped. So does `all`, which makes the runs of all claims
and keeps their results in `examples/learning_curve/results/claims`; exit code 1: some have failed. `report` takes
these, and `results.json` of LongVT's learning runs for fine-tuning on rollouts. `rollouts` shows what the rollouts of
runs' training did and were paid. `advantages`, `forecast` and `power`
need no training. `table` is the page's.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from examples.learning_curve.claims import advantages, power, report, rollouts
from examples.learning_curve.claims.advantages import Clip
from examples.learning_curve.claims.all_trials import run_all
from examples.learning_curve.claims.claim import CLAIMS, Claim
from examples.learning_curve.claims.forecast import RATE, forecast
from examples.learning_curve.claims.trial import Trial
from examples.learning_curve.run import StageError
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import Retriever
from verl_video_tools.data.synthetic_rows import load_rows, make_demo, question_from_row
from verl_video_tools.evaluation.tables import markdown_table
from verl_video_tools.services.retrieval import RetrievalConfig, local
from verl_video_tools.synthetic import clip_dir


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="one seed of a claim, both choices")
    run.add_argument("claim", choices=sorted(CLAIMS))
    run.add_argument("--seed", type=int, help="default: the claim's first that decides")
    run.add_argument("--out", type=Path, help="default: outputs/claim_<claim>_<seed>")
    every = commands.add_parser("all", help="all seeds of all claims")
    every.add_argument("--out", type=Path, default=Path("outputs"), help="for the runs' folders")
    decide = commands.add_parser("report", help="what finished runs say")
    decide.add_argument("results", type=Path, nargs="+")
    done = commands.add_parser("rollouts", help="what rollouts of training did and were paid")
    done.add_argument("folders", type=Path, nargs="+", help="of runs of one claim")
    for name, text in (
        ("advantages", "what scripted behaviours earn under both choices"),
        ("forecast", "what a policy of scripted behaviours would learn"),
    ):
        check = commands.add_parser(name, help=text)
        check.add_argument("--claim", choices=sorted(CLAIMS), action="append")
        check.add_argument("--folder", type=Path, default=Path("outputs/claim_clips"))
        check.add_argument("--videos", type=int, default=24)
    commands.add_parser("power", help="seeds that each claim needs")
    commands.add_parser("table", help="what is claimed and how it is decided, for the page")
    arguments = parser.parse_args()
    try:
        if arguments.command == "run":
            claim = CLAIMS[arguments.claim]
            seed = claim.pilots if arguments.seed is None else arguments.seed
            out = arguments.out or Path("outputs") / f"claim_{arguments.claim}_{seed}"
            Trial(arguments.claim, claim, seed, out).run()
        elif arguments.command == "all":
            if failed := run_all(arguments.out):
                sys.exit("\n".join(f"failed: {name}: {cause}" for name, cause in failed.items()))
        elif arguments.command == "report":
            print(report.table(report.read({str(path): json.loads(path.read_text()) for path in arguments.results})))
        elif arguments.command == "rollouts":
            print(rollouts.table(arguments.folders))
        elif arguments.command in ("advantages", "forecast"):
            show = _advantages if arguments.command == "advantages" else _forecast
            print(show(arguments.claim or list(CLAIMS), _clips(arguments.folder, arguments.videos)))
        elif arguments.command == "power":
            print(_power())
        else:
            print(report.plan_table())
    except (StageError, UsageError) as error:
        sys.exit(f"error: {error}")


def _clips(folder: Path, num_videos: int) -> list[Clip]:
    rows = load_rows(make_demo(folder, num_train_videos=1, num_test_videos=num_videos, needle=True) / "test.parquet")
    return [(*question_from_row(row), Path(row["extra_info"]["video_path"])) for row in rows]


def _retriever(claim: Claim) -> Retriever | None:
    return local(RetrievalConfig(model=str(clip_dir()))) if claim.method == "videobrain" else None


def _advantages(names: list[str], clips: list[Clip]) -> str:
    lines = []
    for name in names:
        claim = CLAIMS[name]
        retriever = _retriever(claim)
        for kind in claim.cold:
            for arm in (claim.paper, claim.other):
                groups = advantages.earned(claim, arm, clips, kind, retriever)
                for behaviour, each in groups.behaviours.items():
                    numbers = f"{each.reward:.2f}", f"{each.advantage:+.2f}", f"{groups.live_share:.0%}"
                    lines.append([name, kind, arm.title, behaviour, *numbers])
    return markdown_table(["claim", "kind", "choice", "behaviour", "reward", "advantage", "unequal groups"], lines, 4)


def _forecast(names: list[str], clips: list[Clip]) -> str:
    rates = (RATE / 2, RATE, 2 * RATE)
    lines = []
    for name in names:
        found = forecast(CLAIMS[name], clips, _retriever(CLAIMS[name]), rates)
        for rate, (paper, other) in zip(rates, found, strict=True):
            gains = paper - other
            numbers = f"{100 * paper.mean():.0f}", f"{100 * other.mean():.0f}", f"{100 * gains.mean():+.0f}"
            lines.append([name, f"{rate:g}", *numbers, f"{100 * gains.std(ddof=1):.0f}"])
    return markdown_table(["claim", "rate", "paper's choice", "other", "difference", "between seeds"], lines, 1)


def _power() -> str:
    lines = []
    for name, claim in CLAIMS.items():
        for num_seeds in range(2, claim.seeds + 2):
            there = power.chances(claim.effect, claim.least, num_seeds)
            absent = power.chances(0.0, claim.least, num_seeds)
            shares = [there["supports"], absent["contradicts"], absent["supports"]]
            lines.append([name, str(num_seeds), *(f"{share:.0%}" for share in shares)])
    header = ["claim", "seeds", "supports, if the effect is there", "contradicts, if not", "supports, if not"]
    return markdown_table(header, lines, 1)


if __name__ == "__main__":
    main()
