"""`vvt doctor --run`: which recipe runs, with which options, and what becomes of its report and exit code."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from verl_video_tools.cli.main import run
from verl_video_tools.cli.recipe import find_recipe
from verl_video_tools.core.errors import UsageError

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "my.sh"
    path.write_text(
        """printf '%s\n' "$@" > "$(dirname "$0")/given.txt"
echo a table
[ -z "${REPORT:-}" ] || echo "$REPORT" > "$DRY_RUN_REPORT"
exit "${CODE:-0}"
"""
    )
    return path


@pytest.mark.parametrize("name", ["longvt_grpo", "longvt_rft", str(RECIPES / "longvt_sft.sh")])
def test_recipes_by_name_and_path(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_recipe(name).resolve() == RECIPES / f"{Path(name).stem}.sh"


def test_recipes_of_this_folder_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "longvt_grpo.sh").touch()
    assert find_recipe("longvt_grpo") == Path("recipes/longvt_grpo.sh")


@pytest.mark.parametrize("name", ["grpo", "longvt", "../recipes/nothing", "common"])
def test_what_is_no_recipe(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=f"--run {name}: no such file or recipe; .*longvt_grpo, longvt_rft"):
        find_recipe(name)


@pytest.mark.parametrize("code", [0, 1, 2])
def test_options_table_and_exit_code(
    code: int, recipe: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CODE", str(code))
    assert run(["doctor", "--run", str(recipe), "a.b=1", "+c=[d, e]", "~f"]) == code
    assert (recipe.parent / "given.txt").read_text().splitlines() == ["--dry-run", "a.b=1", "+c=[d, e]", "~f"]
    assert capfd.readouterr().out == "a table\n"


def test_json(recipe: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("REPORT", '{"ok": true}')
    assert run(["doctor", "--json", "--run", str(recipe)]) == 0
    captured = capfd.readouterr()
    assert json.loads(captured.out) == {"ok": True}
    assert captured.err == "a table\n", "what the recipe prints does not get between"


def test_json_of_a_recipe_that_ends_early(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CODE", "2")
    assert run(["doctor", "--json", "--run", str(recipe)]) == 2
    report = json.loads(capfd.readouterr().out)
    assert report["ok"] is False and "exit code 2" in report["checks"][0]["detail"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a=b"], "vvt doctor --run RECIPE a=b"),
        (["--run", "nonesuch"], "--run nonesuch: no such file or recipe"),
        (["--run", "longvt_grpo", "--judge-base-url", "http://x"], "the judge is the one that the run's options name"),
    ],
)
def test_bad_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.long
def test_a_real_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("verl", reason="recipes configure verl")
    from verl_video_tools.data.synthetic_rows import make_demo
    from verl_video_tools.methods import method_class
    from verl_video_tools.methods.toolkit.synthetic import write_prompt
    from verl_video_tools.synthetic import base_model_dir

    make_demo(tmp_path / "demo", num_train_videos=2, num_test_videos=1, questions_per_video=2, num_processes=1)
    write_prompt(method_class("framethinker"), tmp_path / "demo" / "prompts")
    os.symlink(base_model_dir(), tmp_path / "demo" / "base")
    for name, value in {
        **{"DEVICE": "cpu", "PYTHON": sys.executable, "OUTPUT_DIR": str(tmp_path)},
        **{"PYTHONPATH": str(RECIPES.parent)},
    }.items():
        monkeypatch.setenv(name, value)
    demo = [f"video_tools.demo_dir={tmp_path / 'demo'}", "video_tools.demo.is_made=true"]
    assert run(["doctor", "--run", "framethinker_grpo", *demo]) == 0, capfd.readouterr()
    table = capfd.readouterr().out
    assert "not there yet: the recipe trains it first" in table
    assert table.endswith("No problem found. Nothing was started.\n")
    assert run(["doctor", "--run", "framethinker_grpo", *demo, "data.max_prompt_length=10", "--json"]) == 1
    report = json.loads(capfd.readouterr().out)
    assert [check["name"] for check in report["checks"] if check["status"] == "failed"] == ["training prompts"]
