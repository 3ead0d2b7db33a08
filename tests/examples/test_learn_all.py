"""A schedule of runs, each of which a small program stands for: order, resumption, failures, time, kept results."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from examples.learning_curve import learn_all, plans
from examples.learning_curve.learn_all import LearnAll, cause_of
from examples.learning_curve.run import Learning
from examples.learning_curve.schedule import METHODS, SCHEDULE, Planned
from tests.process_trees import descendants_of, kill

REPO = Path(__file__).parents[2]
ONE, TWO, THREE = Planned("longvt", 11), Planned("videobrain", 11), Planned("longvt", 12)

RUN = """
import json, os, sys, time
from pathlib import Path

method, seed, folder, orders = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
with (orders / "made").open("a") as file:
    file.write(f"{method}_{seed}\\n")
told = json.loads((orders / f"{method}_{seed}.told").read_text())
(folder / "plan.json").write_text(json.dumps(told))
order = orders / f"{method}_{seed}"  # a line for each start that is to do something else than to end well
waiting = order.read_text().splitlines() if order.exists() else []
if waiting:
    order.write_text("\\n".join(waiting[1:]))
    if waiting[0] == "hang":
        (orders / "pid").write_text(str(os.getpid()))
        time.sleep(100)
    print("RuntimeError: the disk is full")
    sys.exit("error: stage rl: bash longvt_grpo.sh ended with exit code 1; it says why above")
(folder / "results.json").write_text(json.dumps({**told, "commits": ["abc"]}))
"""
"""Stands for `run.py`."""


def told_by(planned: Planned) -> dict[str, Any]:
    """What the run writes down of itself."""
    return Learning(planned.method, planned.seed, Path("x"), plans.plan_of(planned.method)).told()


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    folder = tmp_path / "orders"
    folder.mkdir()
    (folder / "run.py").write_text(RUN)
    for planned in (ONE, TWO, THREE):
        (folder / f"{planned.name}.told").write_text(json.dumps(told_by(planned)))
    return folder


def schedule(orders: Path, *planned: Planned, **options: Any) -> LearnAll:
    def command(one: Planned, folder: Path) -> list[str]:
        return [sys.executable, str(orders / "run.py"), one.method, str(one.seed), str(folder), str(orders)]

    tmp_path = orders.parent
    console = Console(file=io.StringIO(), width=200)
    made = LearnAll(
        tmp_path / "outputs", tmp_path / "results", planned or (ONE, TWO, THREE), command=command, console=console
    )
    return replace(made, **options)


def made(orders: Path) -> list[str]:
    """Every start of a run."""
    path = orders / "made"
    return path.read_text().split() if path.exists() else []


def printed(one: LearnAll) -> str:
    assert isinstance(one.console.file, io.StringIO)
    return one.console.file.getvalue()


def test_runs_are_made_once_in_order_and_their_results_are_kept(orders: Path) -> None:
    assert schedule(orders).run() == 0
    assert made(orders) == ["longvt_11", "videobrain_11", "longvt_12"]
    results = orders.parent / "results"
    assert sorted(path.name for path in results.iterdir()) == ["longvt_11.json", "longvt_12.json", "videobrain_11.json"]
    assert json.loads((results / "longvt_12.json").read_text())["seed"] == 12

    again = schedule(orders)
    assert again.run() == 0 and len(made(orders)) == 3
    assert printed(again).count("finished before") == 3
    (results / "longvt_11.json").unlink()  # stopped between a run's end and the copy
    assert schedule(orders).run() == 0 and len(made(orders)) == 3
    assert (results / "longvt_11.json").exists()


def test_a_run_that_fails_is_tried_again_and_stops_no_other(orders: Path) -> None:
    (orders / ONE.name).write_text("fail")
    (orders / TWO.name).write_text("fail\nfail")
    one = schedule(orders)
    assert one.run() == 1
    assert made(orders) == ["longvt_11", "longvt_11", "videobrain_11", "videobrain_11", "longvt_12"]
    ends = [line for line in printed(one).splitlines() if "failed, exit code" in line]
    (told,) = ends
    assert "videobrain_11 failed, exit code 1: stage rl: bash longvt_grpo.sh ended with exit code 1 " in told
    assert "(RuntimeError: the disk is full); " in told and told.endswith("learn_videobrain_11/learn.log")
    assert schedule(orders).run() == 0, "it goes on at the next start"
    assert made(orders)[5:] == ["videobrain_11"]


def test_a_result_of_the_repository_counts_unless_all_are_to_be_made_again(orders: Path) -> None:
    results = orders.parent / "results"
    results.mkdir()
    told = told_by(ONE)
    del told["plan"]["interim_questions"]  # another plan: as old ones are read, none were asked
    (results / "longvt_11.json").write_text(json.dumps(told))
    told = told_by(TWO)
    (results / "videobrain_11.json").write_text(json.dumps(told))

    assert schedule(orders).run() == 0
    assert made(orders) == ["longvt_11", "longvt_12"]
    assert json.loads((results / "longvt_11_2.json").read_text())["commits"] == ["abc"], "beside the other plan's"

    assert schedule(orders, TWO, again=True).run() == 0
    assert made(orders)[2:] == ["videobrain_11"]
    assert json.loads((results / "videobrain_11.json").read_text()) == told, "no result is overwritten"
    assert (results / "videobrain_11_2.json").exists()
    assert schedule(orders, TWO, again=True).run() == 0 and len(made(orders)) == 3, "resumable, too"


def test_a_folder_of_another_plan_is_left_alone(orders: Path) -> None:
    folder = orders.parent / "outputs" / "learn_longvt_11"
    folder.mkdir(parents=True)
    told = Learning(ONE.method, ONE.seed, folder, replace(plans.plan_of(ONE.method), num_train_videos=9)).told()
    (folder / "plan.json").write_text(json.dumps(told))
    assert schedule(orders, ONE).run() == 0
    assert [path.name for path in folder.iterdir()] == ["plan.json"]
    assert (folder.with_name("learn_longvt_11_2") / "results.json").exists()


def test_a_run_of_fewer_steps_than_are_planned_now_goes_on(orders: Path) -> None:
    """Its result is not that of the plan, so that it would count as made and yet not be in the tables."""
    folder = orders.parent / "outputs" / "learn_longvt_11"
    folder.mkdir(parents=True)
    told = told_by(ONE)
    told["plan"]["rl_steps"] -= 1
    for name in ("plan.json", "results.json"):
        (folder / name).write_text(json.dumps(told))
    assert schedule(orders, ONE).run() == 0
    assert made(orders) == ["longvt_11"]
    (kept,) = (orders.parent / "results").iterdir()
    assert json.loads(kept.read_text())["plan"] == told_by(ONE)["plan"]


def test_no_run_is_started_that_would_end_too_late(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    estimates = {"longvt": 30.0, "videobrain": 10.0}
    monkeypatch.setattr(Learning, "minutes_left", lambda self: estimates[self.name])
    one = schedule(orders, ONE, TWO, minutes=20.0)
    assert one.run() == 0
    assert made(orders) == ["videobrain_11"]
    assert "not started: needs 30 min" in printed(one)
    assert schedule(orders, ONE, minutes=31.0).run() == 0
    assert made(orders)[1:] == ["longvt_11"]


def test_estimates_follow_what_runs_took(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was to take 10 minutes takes a second, so that one of two hours is to take twelve."""
    monkeypatch.setattr(Learning, "minutes_left", lambda self: 10.0 if self.seed == 11 else 120.0)
    assert schedule(orders, ONE, THREE, minutes=60.0).run() == 0
    assert made(orders) == ["longvt_11", "longvt_12"]


DRIVER = """
import sys
from pathlib import Path

from examples.learning_curve import learn_all
from examples.learning_curve.schedule import Planned

orders = Path(sys.argv[1])

def command(planned, folder):
    whole = real(planned, folder)
    run = [sys.executable, str(orders / "run.py")]
    return [*whole[: whole.index("--") + 1], *run, planned.method, str(planned.seed), str(folder), str(orders)]

real = learn_all.command_of

class Schedule(learn_all.LearnAll):
    def __init__(self, outputs, **options):
        runs = (Planned("longvt", 11), Planned("videobrain", 11))
        super().__init__(outputs, orders.parent / "results", runs, command=command, **options)

learn_all.LearnAll = Schedule
sys.argv = ["learn_all", "--outputs", str(orders.parent / "outputs")]
learn_all.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "ended_by",
    [
        signal.SIGKILL,
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.long),  # Python's own handler ends the schedule, not ours
    ],
    ids=lambda number: number.name,
)
def test_a_killed_schedule_ends_its_run_and_goes_on_when_it_is_started_again(
    orders: Path, ended_by: signal.Signals
) -> None:
    (orders / TWO.name).write_text("hang")
    command = [sys.executable, "-c", DRIVER, str(orders)]
    process = subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        hanging = psutil.Process(int(wait_for(orders / "pid")))
        process.send_signal(ended_by)
        assert process.wait(60) == (-ended_by if ended_by == signal.SIGKILL else 128 + ended_by)
        again = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=100)
        assert not hanging.is_running(), "it would have written into the folder of the next"
    finally:
        kill(descendants_of(process.pid))
        process.kill()
        process.communicate()
    assert again.returncode == 0, again.stdout + again.stderr
    assert made(orders) == ["longvt_11", "videobrain_11", "videobrain_11"]
    assert len([*(orders.parent / "results").iterdir()]) == 2


def wait_for(path: Path, seconds: float = 60.0) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.05)
    raise AssertionError(f"{path} did not come")


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (["step 1", "  torch.OutOfMemoryError: 2 GiB", "error: stage sft: bash x.sh ended with exit code 1; x"],
         "stage sft: bash x.sh ended with exit code 1 (torch.OutOfMemoryError: 2 GiB)"),
        (["error: stage sft: bash x.sh ended with exit code 137; it"], "stage sft: bash x.sh ended with exit code 137"),
        (["[verl_video_tools] `python` was ended by SIGKILL (out of memory?). Start", "bye"],
         "[verl_video_tools] `python` was ended by SIGKILL (out of memory?). Start"),
        (["error: plan.json: the folder was begun otherwise"], "error: plan.json: the folder was begun otherwise"),
        (["hello", "good bye"], "good bye"),
        ([], "it printed nothing"),
    ],
)  # fmt: skip
def test_the_cause_of_a_failure(lines: list[str], cause: str) -> None:
    assert cause_of("\n".join(lines)) == cause


def test_the_schedule_has_whole_columns() -> None:
    """Five methods and two comparisons by three seeds, and questions in space by three others."""
    assert len({*SCHEDULE}) == len(SCHEDULE) == 24
    by_seed: dict[int, list[str]] = {}
    for planned in SCHEDULE:
        by_seed.setdefault(planned.seed, []).append(planned.method)
    assert by_seed == {
        **{seed: [*METHODS, "direct", "compose_temporal"] for seed in (11, 12, 13)},
        **{seed: ["compose_spatial"] for seed in (0, 1, 2)},
    }
    seeds = [planned.seed for planned in SCHEDULE if planned.method == METHODS[0]]
    assert [planned.seed for planned in SCHEDULE if planned.seed > 10] == [seed for seed in seeds for _ in range(7)]
    assert {planned.method for planned in SCHEDULE} <= {*plans.PLANS, "videobrain"} <= {*plans.SECONDS_PER_STEP}


def test_the_command_of_a_run_is_one_that_users_start() -> None:
    command = learn_all.command_of(ONE, Path("/out"))
    run = command[command.index("--") + 1 :]
    assert run[1:] == ["-m", "examples.learning_curve.run", "--method", "longvt", "--seed", "11", "--out", "/out"]


def test_a_run_whose_result_is_told_anew_counts_once(tmp_path: Path) -> None:
    """`make learn` writes the result of a finished run again, with what the present version tells of it."""

    def add(content: Mapping[str, Any]) -> str:
        (tmp_path / "results.json").write_text(json.dumps(content))
        return learn_all.stored.add(tmp_path / "results.json", "longvt_11", tmp_path / "kept").name

    run = {"method": "longvt", "seed": 11, "accuracy": {"after RL": {"by kind": {"direct": 0.91}}}}
    other = run | {"accuracy": {"after RL": {"by kind": {"direct": 0.92}}}}
    assert [add(each) for each in (run, run | {"rollouts": 1280}, other)] == [
        "longvt_11.json", "longvt_11.json", "longvt_11_2.json",
    ]  # fmt: skip
    assert json.loads((tmp_path / "kept" / "longvt_11.json").read_text()) == run


def test_results_are_listed_by_method_seed_and_number(tmp_path: Path) -> None:
    def add(name: str, content: Mapping[str, Any]) -> str:
        (tmp_path / "results.json").write_text(json.dumps(content))
        return learn_all.stored.add(tmp_path / "results.json", name, tmp_path / "kept").name

    one = {"method": "longvt", "seed": 11}
    names = [add("longvt_11", one | {"run": number}) for number in [*range(11), 3]]
    assert names == ["longvt_11.json", *(f"longvt_11_{number}.json" for number in range(2, 12)), "longvt_11_4.json"]
    add("longvt_2", one | {"seed": 2})
    add("direct_30", {"method": "direct", "seed": 30})
    listed = [*learn_all.stored.load(tmp_path / "kept")]
    assert listed[:4] == ["direct_30", "longvt_2", "longvt_11", "longvt_11_2"] and listed[-1] == "longvt_11_11"
