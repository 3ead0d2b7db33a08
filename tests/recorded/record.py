"""Writes the recording: `python -m tests.recorded.record [--run FOLDER]`, where a change of behaviour is wanted.

The files in `data/` hold what the package gave before it was rebuilt; `test_recorded` makes them again and compares
byte for byte. Most are JSON lines, an `id` and what was given:

    replays.jsonl    what `vvt replay` prints for each script of `scripts`, on one line, or the error that it raises;
                     an id is method, mode and what is special about the script
    prompts.jsonl    the messages that a rollout begins with, as text
    sft_rows.jsonl   cold-start rows of the scripted experts of all methods, after a line with the file's columns
    compositions.jsonl  replays, prompts and expert turns of the packaged compositions and of examples/compose
    run_keys.json    keys and types of a real run's records, and the names of its metrics (`run_keys`)
    run_lines.jsonl  two records and the metrics of one step of that run, for the comparison's own test

and `configurations` writes data/configurations, what the recipes hand to verl.

Not as given: the path of the folder of videos and rows is `FOLDER`; and of the frames that an encoder finds for
VideoBrain's cold-start rows (`retrieved_frames`) only their numbers are kept. `vvt replay` prints no latencies, no
tokens and no prompts, so nothing else is normalised. To read one replay:

    grep -F '"id":"longvt/strict/crop"' tests/recorded/data/replays.jsonl | python -m json.tool

With `--run FOLDER`, a run's folder that holds `trajectories/` and `metrics_*.jsonl`, the keys are written as well.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.recorded.compositions import composition_lines
from tests.recorded.prompts import prompt_lines
from tests.recorded.replays import replay_lines
from tests.recorded.run_keys import metric_names, record_keys
from tests.recorded.sft_rows import sft_lines

DATA = Path(__file__).parent / "data"


def write(name: str, lines: Iterable[str]) -> None:
    path = DATA / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{path}: {path.stat().st_size} bytes")


def write_run(run: Path) -> None:
    """Keys of a training run, and two of its records: one without a call, one with a call that showed frames."""
    records: list[dict[str, Any]] = []
    for path in sorted((run / "trajectories").glob("step_*.jsonl")):
        records += map(json.loads, path.read_text(encoding="utf-8").splitlines())
    logged: list[dict[str, Any]] = []
    for path in sorted(run.glob("metrics_*.jsonl")):
        logged += [json.loads(line)["data"] for line in path.read_text(encoding="utf-8").splitlines()]
    keys = {"records": record_keys(records), "metrics": metric_names(name for data in logged for name in data)}
    write("run_keys.json", [json.dumps(keys, indent=1)])
    with_call = next(line for line in records if any(call["frames"] for call in _calls(line)))
    without = next(line for line in records if not _calls(line))
    step = next(data for data in logged if any(name.startswith("rollout/") for name in data))
    examples = [{"record": without}, {"record": with_call}, {"metrics": step}]
    write("run_lines.jsonl", [json.dumps(line).replace(f"{run.parent.resolve()}", "FOLDER") for line in examples])


def _calls(line: dict[str, Any]) -> list[dict[str, Any]]:
    return [call for turn in line["trajectory"]["turns"] for call in turn["calls"]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Record what the package gives.")
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="also take the keys of this training run")
    run = parser.parse_args().run
    recorded = {"replays.jsonl": replay_lines, "sft_rows.jsonl": sft_lines, "compositions.jsonl": composition_lines}
    for name, lines in recorded.items():
        with tempfile.TemporaryDirectory() as folder:
            write(name, lines(Path(folder)))
    write("prompts.jsonl", prompt_lines())
    if run is not None:
        write_run(run)


if __name__ == "__main__":
    main()
