"""Tables and pictures of learning: the committed ones are what the committed results give, and hand-made results give
what was worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from examples.learning_curve import pictures, tables
from examples.learning_curve.bars import bars
from examples.learning_curve.chosen import Chosen, choose
from examples.learning_curve.claims.claim import CLAIMS
from examples.learning_curve.equal_cost import COSTS, accuracy_at, largest_common, mean_of_runs
from examples.learning_curve.held_out import Estimate
from examples.learning_curve.plans import plan_of
from examples.learning_curve.report import RFT_LESS_RL, RL_WITHOUT_TOOLS
from examples.learning_curve.schedule import COMPARED, METHODS
from examples.learning_curve.stored import CLAIMS_FOLDER, load

IMAGES = tables.REPO / "docs" / "images"
COMMAND = "run: python -m examples.learning_curve.tables"


# ------------------------------------------------------------------------------------------------------- what stands


@pytest.mark.parametrize("path", tables.PAGES, ids=lambda path: path.name)
def test_pages_have_the_tables_that_the_results_give(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert tables.page(text, choose(load(), load(CLAIMS_FOLDER))) == text, COMMAND


def test_each_part_stands_in_one_place() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in tables.PAGES)
    assert [name for name in tables.PARTS if text.count(f"<!-- {name} -->") != 1] == []


def test_pictures_show_the_results() -> None:
    for name, (_, runs_of) in pictures.drawn(choose(load())).items():
        with Image.open(IMAGES / name) as picture:
            assert picture.info["Description"] == pictures.digest(runs_of), COMMAND


# ------------------------------------------------------------------------------------------------- hand-made results


def estimate(mean: float, width: float = 0.05) -> dict[str, float]:
    return {"mean": mean, "low": mean - width, "high": mean + width}


def result(method: str, seed: int, before: float = 0.25, after: float = 0.75, **fields: Any) -> dict[str, Any]:
    """Of a run by the present plan. A quarter of "order" less than of the others after RL."""
    kinds = ("at_time", "between_things", "order")

    def policy(mean: float, order: float, calls: float) -> dict[str, Any]:
        return {
            "needs another look": estimate(mean),
            "by kind": {**dict.fromkeys(kinds, mean), "order": order, "direct": 0.9},
            "calls by kind": {**dict.fromkeys(kinds, calls), "direct": 0.0},
        }

    made = {
        "method": method,
        "seed": seed,
        "plan": asdict(plan_of(method)),
        "commits": ["0123456789" * 4],
        "minutes": {"sft": 10.4, "rl": 11.2},
        "stages_resumed": [],
        "accuracy": {"after SFT": policy(before, before, 0.0), "after RL": policy(after, after - 0.25, 1.5)},
        "after RL less after SFT": estimate(after - before),
    }
    return json.loads(json.dumps(made | fields))


def cost(*points: tuple[int, float], visual: int = 2) -> dict[str, Any]:
    """Of measurements at (generated tokens, accuracy), with so many times as many visual tokens."""
    measured = [
        {"step": number, "generated_tokens": tokens, "visual_tokens": visual * tokens, "accuracy": estimate(mean, 0.04)}
        for number, (tokens, mean) in enumerate(points)
    ]
    per_question = {"generated_tokens": 40.4, "visual_tokens": 64.0}
    return {"questions": 136, "measurements": measured, "per question": per_question}


def all_runs(**changed: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Three seeds of each method."""
    runs = {f"{method}_{seed}": result(method, seed) for method in METHODS for seed in (11, 12, 13)}
    return runs | {name: result(*name.rsplit("_", 1)[:1], int(name[-2:]), **one) for name, one in changed.items()}


OTHERS = ("direct", "compose_temporal", "compose_spatial", "longvt_branching")
"""What else the schedule has, in its order, and the recorded runs."""


def lines(table: str) -> list[str]:
    return table.splitlines()[2:]


def test_the_summary_has_mean_lowest_and_highest_of_each_method() -> None:
    runs = [result("longvt", 11, 0.2, 0.6), result("longvt", 12, 0.3, 0.8), result("framemind", 11)]
    chosen = choose({f"{run['method']}_{run['seed']}": run for run in runs})
    found = lines(tables.summary(chosen))
    assert found[0] == "| `framethinker` | not run yet |  |  |"
    assert found[2] == "| `longvt` | 11, 12 | 25.0 % (20.0 to 30.0) | **70.0 % (60.0 to 80.0)** |"
    assert found[4] == "| `framemind` | 11 | 25.0 % | **75.0 %** |"
    assert [line.split("`")[1] for line in found] == [*METHODS, *OTHERS[:-1]], "no method that left the package"
    found = lines(tables.gains(chosen))
    assert found[0] == "| `framethinker` | not run yet |  |  |"
    assert found[2] == "| `longvt` | +45.0 (+40.0 to +50.0) | +35.0 | 1.50 |"
    assert found[4] == "| `framemind` | +50.0 | +45.0 | 1.50 |"
    assert [line.split("`")[1] for line in found] == [*METHODS, *OTHERS]


def test_by_kind_leaves_empty_what_a_method_is_not_asked() -> None:
    spatial = result("compose_spatial", 1)
    for policy in spatial["accuracy"].values():
        policy["by kind"] = {"on_card": 0.5}
    after_rft = {"accuracy": result("longvt", 11)["accuracy"]}
    after_rft["accuracy"]["after RFT"] = after_rft["accuracy"]["after SFT"]
    after_rft["accuracy"][RL_WITHOUT_TOOLS] = {"by kind": {"at_time": 0.1, "direct": 0.4}}
    table = tables.by_kind(choose({"a": spatial, "b": result("longvt", 11, **after_rft)}))
    assert table.splitlines()[0] == (
        "| method | policy | at a time | between two | order of two | on a card | initial frames tell |"
    )
    assert lines(table) == [
        "| `longvt` | after SFT | 25.0 % | 25.0 % | 25.0 % |  | 90.0 % |",
        "| `longvt` | after RL | 75.0 % | 75.0 % | 50.0 % |  | 90.0 % |",
        "| `longvt` | after RFT | 25.0 % | 25.0 % | 25.0 % |  | 90.0 % |",
        "| `longvt` | after RL, without tools | 10.0 % |  |  |  | 40.0 % |",
        "| `compose_spatial` | after SFT |  |  |  | 50.0 % |  |",
        "| `compose_spatial` | after RL |  |  |  | 50.0 % |  |",
    ]
    assert tables.by_kind(choose({})) == "Not run yet."


def test_every_run_is_listed_also_one_that_does_not_count() -> None:
    other = result("longvt", 12)
    other["plan"]["rl_steps"] += 1
    runs = {"longvt_11": result("longvt", 11), "longvt_12": other, "longvt_7": result("longvt", 7)}
    runs["longvt_7"].update(
        stages_resumed=["rl"], commits=["ab" * 20 + "+"], **{"after RL less after SFT": estimate(-0.25)}
    )
    chosen = choose(runs)
    assert [run["seed"] for run in chosen.counted] == [11]
    row = "| 25.0 % (20.0 to 30.0) | 75.0 % (70.0 to 80.0) | {} |  |  | {} | {} | {} |"
    assert lines(tables.every_run(chosen)) == [
        "| `longvt_11` " + row.format("+50.0 (+45.0 to +55.0)", "22", "`01234567`", ""),
        "| `longvt_12` " + row.format("+50.0 (+45.0 to +55.0)", "22", "`01234567`", "other settings"),
        "| `longvt_7` " + row.format("-25.0 (-30.0 to -20.0)", "22+", "`abababab+`", "not of the schedule"),
    ]


def test_of_a_run_that_was_repeated_the_first_counts() -> None:
    earlier = result("longvt", 11)
    earlier["plan"]["rl_steps"] += 1
    runs = {"longvt_11": earlier, "longvt_11_2": result("longvt", 11), "longvt_11_3": result("longvt", 11, 0.2, 0.9)}
    chosen = choose(runs)
    assert chosen.counted == [runs["longvt_11_2"]]
    assert chosen.remarks == {"longvt_11": "other settings", "longvt_11_3": "repeats `longvt_11_2`"}


def test_measuring_more_or_less_makes_no_other_plan() -> None:
    """As of the run that was made before there were measurements in between."""
    run = result("longvt", 11)
    run["plan"] = run["plan"] | {"measures_base": False, "compares_without_tools": False}
    for name in ("world", "composition", "interim_questions"):
        del run["plan"][name]
    assert choose({"a": run}).counted == [run]


def marks(chosen: Chosen) -> list[str]:
    """Of the bars of the five methods."""
    return [line.split("|")[3].strip() for line in lines(bars(chosen))][:5]


def test_bars_are_open_until_all_runs_are_made() -> None:
    runs = all_runs()
    assert marks(choose(runs)) == ["met"] * 4 + ["not met"], "half of the questions about order"
    del runs["framemind_13"]
    assert marks(choose(runs)) == ["open"] * 5
    assert lines(bars(choose(runs)))[0] == "| 3 seeds for each of the 5 methods | 14 of 15 runs | open |"
    runs["framemind_12_2"] = result("framemind", 12)  # made twice
    assert marks(choose(runs))[0] == "open"
    assert marks(choose({})) == ["open"] * 5


def test_a_bar_for_each_run_is_lost_with_the_first_that_misses_it() -> None:
    runs = all_runs(longvt_12={"after": 0.5}, framemind_11={"after RL less after SFT": estimate(0.4, 0.41)})
    del runs["framemind_13"]
    assert marks(choose(runs)) == ["open", "not met", "not met", "open", "open"]


@pytest.mark.parametrize(
    ("changed", "missed", "shown"),
    [
        ({"longvt_12": {"after": 0.549}}, 1, "lowest +29.9 (`longvt 12`)"),
        ({"longvt_12": {"after RL less after SFT": estimate(0.4, 0.41)}}, 2, "lowest -1.0 (`longvt 12`)"),
        ({"videobrain_11": {"after": 0.59}}, 3, "69.7 %"),
    ],
)
def test_a_bar_is_missed(changed: dict[str, Any], missed: int, shown: str) -> None:
    chosen = choose(all_runs(**changed))
    assert [number for number, mark in enumerate(marks(chosen)[:4]) if mark == "not met"] == [missed]
    assert lines(bars(chosen))[missed].split(" | ")[1] == shown


def test_order_is_to_be_right_for_three_methods() -> None:
    better = {f"{method}_{seed}": {"after": 0.85} for method in METHODS[:3] for seed in (11, 12, 13)}
    assert marks(choose(all_runs(**better)))[4] == "met"
    better["videozoomer_12"] = {"after": 0.84}  # 59.7 % on average
    assert marks(choose(all_runs(**better)))[4] == "not met"


def test_shared_turns_are_to_save_tokens() -> None:
    def bar(*tokens: int) -> str:
        runs = all_runs(**{f"longvt_{seed}": {"cost": cost((0, 0.2), (1000, 0.8))} for seed in (11, 12, 13)})
        for seed, num_tokens in zip((11, 12, 13), tokens, strict=False):
            runs[f"shared_{seed}"] = result("longvt_branching", seed, cost=cost((0, 0.2), (num_tokens, 0.8)))
        return lines(bars(choose(runs)))[5]

    start = "| `longvt_branching` samples at most 70.0 % of `longvt`'s tokens |"
    assert bar() == f"{start}  | open |"
    assert bar(600) == f"{start} 60.0 % | open |"
    assert bar(600, 650, 700) == f"{start} 60.0 %, 65.0 %, 70.0 % | met |"
    assert bar(600, 710) == f"{start} 60.0 %, 71.0 % | not met |"


def test_shared_turns_wait_for_the_run_that_they_are_compared_with() -> None:
    runs = {"shared_13": result("longvt_branching", 13, cost=cost((0, 0.2), (600, 0.8)))}
    assert lines(bars(choose(runs)))[5].endswith("|  | open |")
    assert tables.claims(choose(runs)) == "Not run yet."


def test_recorded_runs_count_and_name_the_commit_with_their_code() -> None:
    chosen = choose({"shared_13": result("longvt_branching", 13, plan={"branches": 2})})
    assert [run["seed"] for run in chosen.of("longvt_branching")] == [13]
    (line,) = lines(tables.every_run(chosen))
    assert line.endswith("| code at `983c6c5a` |")


def test_a_repeated_run_decides_no_claim_a_second_time() -> None:
    runs = {name: result("longvt", 11, **{RFT_LESS_RL: estimate(0.01)}) for name in ("longvt_11", "longvt_11_2")}
    for run in runs.values():
        run["accuracy"] |= {name: {"all questions": estimate(0.5)} for name in ("after RL", "after RFT")}
    only_first = {"longvt_11": runs["longvt_11"]}
    assert tables.claims(choose(runs)) == tables.claims(choose(only_first)) != tables.claims(choose({}))


# ------------------------------------------------------------------------------------------------------- equal cost

costs = st.lists(st.integers(1, 10**6), min_size=1, max_size=6, unique=True).map(lambda each: [0, *sorted(each)])


@given(costs, st.data())
def test_accuracy_between_measurements_is_as_numpy_interpolates_it(tokens: list[int], data: st.DataObject) -> None:
    shares = st.floats(0, 1)
    ends = [sorted(data.draw(st.tuples(shares, shares, shares))) for _ in tokens]
    measured = [
        {"visual_tokens": count, "accuracy": dict(zip(("low", "mean", "high"), each, strict=True))}
        for count, each in zip(tokens, ends, strict=True)
    ]
    budget = data.draw(st.one_of(st.sampled_from(tokens), st.floats(0, tokens[-1])))
    found = accuracy_at(measured, "visual_tokens", budget)
    for place, name in enumerate(("low", "mean", "high")):
        expected = np.interp(budget, tokens, [each[place] for each in ends])
        assert getattr(found, name) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("budget", [-1, 101])
def test_no_accuracy_is_made_up_beyond_the_measurements(budget: float) -> None:
    with pytest.raises(ValueError, match="not between the first measurement and the last"):
        accuracy_at(cost((0, 0.2), (100, 0.4))["measurements"], "generated_tokens", budget)
    with pytest.raises(ValueError, match="must rise"):
        accuracy_at(cost((0, 0.2), (100, 0.4), (100, 0.5))["measurements"], "generated_tokens", 50)


def test_an_interval_over_runs_holds_what_differs_between_seeds() -> None:
    """Narrow ones of single runs say nothing of other seeds."""
    runs = [Estimate(mean, mean - 0.001, mean + 0.001) for mean in (0.77, 0.659, 0.686)]
    found = mean_of_runs(runs)
    assert (found.mean, found.low, found.high) == pytest.approx((0.705, 0.561, 0.849), abs=1e-3)
    single = Estimate(0.5, 0.4, 0.7)
    assert mean_of_runs([single]) == single


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_an_interval_over_runs_holds_their_mean_and_no_impossible_share(means: list[float]) -> None:
    found = mean_of_runs([Estimate(mean, mean, mean) for mean in means])
    assert found.mean == pytest.approx(np.mean(means))
    assert 0.0 <= found.low <= found.mean + 1e-12 and found.mean - 1e-12 <= found.high <= 1.0


def test_methods_are_compared_at_the_largest_cost_that_all_have_reached() -> None:
    """FrameMind has reached 100,000 generated tokens, 200,000 visual ones; LongVT, of four times as many visual ones,
    stands there at a quarter of the first and at an eighth of them."""
    runs = {
        "framemind_11": result("framemind", 11, cost=cost((0, 0.2), (50_000, 0.5), (100_000, 0.6))),
        "longvt_11": result("longvt", 11, cost=cost((0, 0.2), (200_000, 0.6), (400_000, 0.7), visual=4)),
        "longvt_12": result("longvt", 12, cost=cost((0, 0.2), (200_000, 0.8), (300_000, 0.9), visual=4)),
        "longvt_13": result("longvt", 13),  # of which it is not known
    }
    chosen = choose(runs)
    curves = [run["cost"]["measurements"] for run in chosen.counted if "cost" in run]
    assert [largest_common(curves, name) for name in COSTS] == [100_000, 200_000]
    runs["longvt_12"]["cost"]["per question"]["generated_tokens"] = 90.2
    table, shown = tables.equal_cost(chosen).split("\n\n")
    assert "| at 100 k generated tokens | at 200 k visual tokens | whole run |" in table
    found = dict(zip((*METHODS, *COMPARED), lines(table), strict=True))
    assert found["framemind"] == (
        "| `framemind` | 1 | 60.0 % (56.0 to 64.0) | 60.0 % (56.0 to 64.0) | 60.0 % (56.0 to 64.0) "
        "| 100 k and 200 k | 40 | 64 |"
    )
    assert found["longvt"] == (  # 0.4 and 0.5; 0.3 and 0.35; 0.7 and 0.9
        "| `longvt` | 2 | 45.0 % (0.0 to 100.0) | 32.5 % (0.7 to 64.3) | 80.0 % (0.0 to 100.0) "
        "| 350 k and 1400 k | 65 (40 to 90) | 64 |"
    )
    assert found["direct"].startswith("| `direct` | not run yet |")
    assert "](images/learning_cost.png)" in shown


def test_without_any_cost_there_is_no_picture_of_it() -> None:
    assert "images/" not in tables.equal_cost(choose({"longvt_11": result("longvt", 11)}))
    assert [*pictures.drawn(choose({}))] == []


def test_claims_are_told_with_the_counted_runs_of_fine_tuning_on_rollouts() -> None:
    assert tables.claims(choose({"longvt_11": result("longvt", 11)})) == "Not run yet."
    runs = {f"longvt_{seed}": result("longvt", seed, **{RFT_LESS_RL: estimate(0.01)}) for seed in (11, 12, 7)}
    for run in runs.values():
        run["accuracy"] |= {name: {"all questions": estimate(0.5)} for name in ("after RL", "after RFT")}
    compared = {"paper": estimate(0.9), "other": estimate(0.3), "difference": estimate(0.6)}
    claim = {
        "claim": "framethinker_bonus",
        "seed": 0,
        "settings": CLAIMS["framethinker_bonus"].settings(),
        "metrics": [{"measure": "accuracy", "kinds": ["order"], "fields": None} | compared],
    }
    assert lines(tables.claims(choose(runs, {"framethinker_bonus_0": claim}))) == [
        "| `framethinker_bonus` | undecided: 1 of 3 seeds | accuracy, `order` | 1 | 90.0 | 30.0 | +60.0 |  |",
        "| `longvt_rft` | undecided: 2 of 3 seeds | accuracy, all questions | 2 | 50.0 | 50.0 "
        "| +1.0 (+1.0 to +1.0) |  |",
    ]


# ------------------------------------------------------------------------------------------- pages and their pictures


def test_a_page_keeps_its_own_text_and_the_readme_its_old_figures_until_each_method_has_a_result() -> None:
    runs = all_runs()
    text = "before <!-- learning-headline -->old figures<!-- end --> after\n<!-- learning-picture --><!-- end -->\n"
    first = {name: run for name, run in runs.items() if not name.startswith("framemind")}
    early = tables.page(text, choose(first))
    assert early.startswith("before <!-- learning-headline -->old figures<!-- end --> after\n")
    assert "earlier runs, at other settings](images/learning.png)" in early

    chosen = choose(runs | {"compose_spatial_0": result("compose_spatial", 0, 0.2, 0.9)})
    whole = tables.page(early, chosen)
    assert whole.startswith(
        "before <!-- learning-headline -->The reward alone raises accuracy by 50 to 50 points (15 runs)"
    )
    assert "and by 70 for a [composition]" in whole and "earlier runs" not in whole
    assert tables.page(whole, chosen) == whole
    with pytest.raises(ValueError, match="nothing makes the part learning-nothing"):
        tables.page("<!-- learning-nothing --><!-- end -->", chosen)


def test_the_readme_tells_the_shortest_and_the_longest_run() -> None:
    """Of those whose minutes are known whole."""
    text = "(<!-- learning-duration -->old<!-- end -->)"
    runs = all_runs(longvt_12={"minutes": {"sft": 3.2, "rl": 9.0}}, longvt_13={"minutes": {"sft": 40.0, "rl": 20.6}})
    runs["longvt_11"].update(minutes={"sft": 1.0, "rl": 1.0}, stages_resumed=["rl"])
    assert tables.page(text, choose(runs)) == "(<!-- learning-duration -->12 to 61 minutes<!-- end -->)"
    del runs["framemind_11"], runs["framemind_12"], runs["framemind_13"]
    assert tables.page(text, choose(runs)) == text


def test_pictures_have_a_bar_for_each_stage_and_a_line_for_each_method(tmp_path: Path) -> None:
    runs = all_runs()
    for number, name in enumerate(("framethinker_11", "framethinker_12", "direct_11")):
        method, seed = name.rsplit("_", 1)
        runs[name] = result(method, int(seed), cost=cost((0, 0.2), (100_000 * (number + 1), 0.6)))
    runs["longvt_11"]["accuracy"]["after RFT"] = runs["longvt_11"]["accuracy"]["after RL"]
    chosen = choose(runs)
    pictures.draw_all(chosen, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [pictures.BY_STAGE, pictures.BY_COST]
    assert all(path.stat().st_size < 150_000 for path in tmp_path.iterdir())

    drawn = pictures.drawn(chosen)
    (axes,) = pictures.by_stage(drawn[pictures.BY_STAGE][1]).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["after SFT", "after RL", "after RFT"]
    assert len(axes.patches) == 2 * 6 + 1
    left, right = pictures.by_cost(drawn[pictures.BY_COST][1]).axes
    for axes, per_generated in ((left, 1), (right, 2)):
        two_runs, direct = (line for line in axes.lines if line.get_marker() == "o")
        assert two_runs.get_xdata() == pytest.approx([0, 25 * per_generated, 50 * per_generated, 75 * per_generated,
                                                      100 * per_generated])  # fmt: skip
        assert two_runs.get_ydata() == pytest.approx([0.2, 0.275, 0.35, 0.425, 0.5])  # 0.6 and 0.4 at the end
        assert direct.get_ydata() == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.6])
    with Image.open(tmp_path / pictures.BY_COST) as picture:
        assert picture.info["Description"] == pictures.digest(drawn[pictures.BY_COST][1])
    runs["direct_11"]["cost"]["measurements"][1]["accuracy"]["mean"] = 0.61
    changed = pictures.drawn(choose(runs))[pictures.BY_COST][1]
    assert pictures.digest(changed) != picture.info["Description"]
