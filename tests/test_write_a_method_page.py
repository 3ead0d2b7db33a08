"""docs/write-a-method.md, followed literally in an empty folder.

Stand-ins: `vvt train` notes the commands of verl's trainers instead of running them, and takes the small synthetic
world that the page has made before. `uv pip install -e` unpacks the wheel onto the Python path, with a link in the
place of the package.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from tests.written_package import PAGE, REPO, as_script, blocks, commands
from verl_video_tools import methods
from verl_video_tools.testing.run import PROPERTIES

PLUGIN = "verl_video_tools.testing.pytest_plugin"
PYTHON = f"""#!{sys.executable}
import os, sys
arguments = sys.argv[1:]
if arguments[:2] == ["-m", "pytest"] and {not any(point.value == PLUGIN for point in entry_points(group="pytest11"))}:
    arguments += ["-p", "{PLUGIN}"]
os.execv("{sys.executable}", ["{sys.executable}", *arguments])
"""
VVT = f"""#!{sys.executable}
import json, os, sys
from verl_video_tools.cli.main import run
if sys.argv[1] == "train":
    from verl_video_tools.launch import train
    from verl_video_tools.launch.checks.report import Report
    def start(plan):
        with open(os.environ["TRAINED"], "a") as file:
            print(json.dumps([*train._program(plan), *plan.overrides]), file=file)
        model = plan.folder / "huggingface"
        model.mkdir(parents=True, exist_ok=True)
        (model / "config.json").write_text("{{}}")
        return 0
    train._start = start
    if os.environ.get("DEVICE") == "gpu":  # whose model and rows are on the reader's machine
        train._check = lambda plan, thorough: Report("gpu", [])
    if os.environ.get("DEVICE") == "cpu":  # the usual world has forty times as many videos as the page's
        sys.argv += ["video_tools.demo_dir=" + os.environ["DEMO"], "video_tools.demo.is_made=true"]
if __name__ == "__main__":  # processes that render videos import this program
    sys.exit(run(sys.argv[1:]))
"""
UV = f"""#!/bin/sh
set -e
test "$*" = "pip install --no-deps -e ."
{sys.executable} -m hatchling build -t wheel -d "$SITE/wheel"
{sys.executable} -m zipfile -e "$SITE"/wheel/*.whl "$SITE"
rm -r "$SITE/spotter"
ln -s "$PWD/spotter" "$SITE/spotter"
"""
ACTIVATE = """
VIRTUAL_ENV=$VVT_REPO/.venv
export VIRTUAL_ENV PATH="$VIRTUAL_ENV/bin:$PATH"
"""


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the page was followed: `outputs`, `trained.jsonl`, and the package in `spotter`."""
    folder = tmp_path_factory.mktemp("write_a_method")
    programs = folder / "checkout" / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "activate").write_text(ACTIVATE)
    for name, text in {"python": PYTHON, "vvt": VVT, "uv": UV}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    for name in ("recipes", "examples"):
        (folder / "checkout" / name).symlink_to(REPO / name)
    (folder / "outputs").mkdir()
    (folder / "site").mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": os.pathsep.join([str(REPO), str(folder / "site")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        "DEMO": str(folder / "spotter" / "demo"),
        "SITE": str(folder / "site"),
        "TRAINED": str(folder / "trained.jsonl"),
    }
    script = as_script(folder / "checkout", folder / "outputs")
    run = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=540
    )
    printed = "\n".join(path.read_text()[-3000:] for path in sorted((folder / "outputs").iterdir()))
    assert run.returncode == 0, f"{printed}\n{run.stderr[-3000:]}"
    return folder


def output(folder: Path, command: str) -> str:
    """What the page's block with this command printed."""
    (number,) = (number for number, text in enumerate(commands()) if command in text)
    return (folder / "outputs" / f"{number}.txt").read_text()


pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_the_checker_says_what_the_page_says(followed: Path) -> None:
    (told,) = (block.text for block in blocks() if block.language == "text" and block.file is None)
    assert output(followed, "check-method").endswith(told)
    assert sum(map(int, re.findall(r"(\d+) (?:pass|fail|not)", told))) == len(PROPERTIES)


def test_the_rollout_by_hand(followed: Path) -> None:
    rollout = json.loads((followed / "spotter" / "rollout.json").read_text())
    (reward,) = (json.loads(block.text) for block in blocks() if block.language == "json" and block.file is None)
    assert rollout["reward"] == reward
    observation = rollout["turns"][0]["observation"].splitlines()
    assert [observation[0], *observation[-2:]] == ["31.0 s: <image>", "37.0 s: <image>", "Turns left: 3"]
    assert all(f"`{line}`" in PAGE.read_text() for line in (observation[0], *observation[-2:]))
    assert (followed / "spotter" / "rollout.html").stat().st_size > 0


def test_its_question_is_one_of_the_rows(followed: Path) -> None:
    (command,) = (text for text in commands() if "vvt replay" in text)
    (question,) = re.findall(r"--question \$'(.*?)'", command)
    rows = pq.read_table(followed / "spotter" / "demo" / "train.parquet").to_pylist()
    asked = {(row["extra_info"]["question"], row["reward_model"]["ground_truth"]) for row in rows}
    assert (question.replace("\\n", "\n"), "D") in asked


def test_the_package_s_tests_pass(followed: Path) -> None:
    printed = output(followed, "pytest")
    counts = {what: int(number) for number, what in re.findall(r"(\d+) (passed|skipped|failed|error)", printed)}
    assert counts.keys() == {"passed", "skipped"} and sum(counts.values()) == len(PROPERTIES) + 2


def trained(folder: Path) -> list[list[str]]:
    """Program and options of each run that was started, without the interpreter."""
    commands = [json.loads(line) for line in (folder / "trained.jsonl").read_text().splitlines()]
    return [command[command.index("-m") + 1 :] for command in commands]


def composed(folder: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The configuration that verl makes of a run's options."""
    pytest.importorskip("verl", reason="its configuration is composed")
    from verl_video_tools.verl_plugin.run_checks import compose_run

    monkeypatch.syspath_prepend(str(folder / "site"))
    # Without its cache, which an earlier test of the process may have filled.
    monkeypatch.setattr(methods, "installed_methods", inspect.unwrap(methods.installed_methods))
    return compose_run("grpo" if number else "sft", trained(folder)[number][1:])


def test_the_run_makes_a_cold_start_and_two_steps(followed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sft, *_), (grpo, *_), (large, *_) = trained(followed)
    assert sft.endswith("sft_trainer") and grpo == large == "verl.trainer.main_ppo"
    outputs = followed / "spotter" / "outputs"
    cold, run = (composed(followed, number, monkeypatch) for number in (0, 1))
    assert run.trainer.total_training_steps == 2
    assert cold.data.video_tools.spotter.initial_frames == 8
    assert run.actor_rollout_ref.rollout.custom.video_tools.spotter.initial_frames == 8
    assert run.actor_rollout_ref.model.path == f"{outputs}/spotter_sft/huggingface"
    rows = pq.read_table(outputs / "spotter_sft" / "train.parquet").to_pylist()
    assert {row["agent_name"] for row in rows} == {"spotter"}
    assert sum("<look>" in row["turns"][0] for row in rows) > 0.7 * len(rows)


@pytest.mark.parametrize("number", [1, 2], ids=["cpu", "gpu"])
def test_verl_accepts_the_run(followed: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    config = composed(followed, number, monkeypatch)
    from hydra.utils import get_class
    from verl.trainer.ppo.utils import need_reference_policy
    from verl.utils.config import validate_config

    validate_config(config, need_reference_policy(config), use_critic=False)
    agent = config.actor_rollout_ref.rollout.agent
    (loop,) = yaml.safe_load(Path(agent.agent_loop_config_path).read_text())
    assert loop["name"] == loop["method"] == agent.default_agent_loop == "spotter"
    assert get_class(loop["_target_"]).__name__ == "VideoAgentLoop"
    rollout = config.actor_rollout_ref.rollout
    assert rollout.max_model_len == config.data.max_prompt_length + config.data.max_response_length


def test_the_configuration_has_the_methods_fields_and_limits(followed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import json; from dataclasses import asdict; from spotter.method import Spotter as S; s = S();"
        "b = s.recipe_budget; looks = (s.max_turns - 1) * s.call_frames;"
        "limits = [b.prompt_tokens, b.response_tokens, b.images, s.initial_frames + looks, 8 + looks];"
        "print(json.dumps([asdict(s), *limits]))"
    )
    environment = {**os.environ, "PYTHONPATH": f"{REPO}{os.pathsep}{followed / 'site'}"}
    printed = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    fields, prompt, response, images, most, most_on_cpu = json.loads(printed.stdout)
    assert images == most
    cpu, gpu = (composed(followed, number, monkeypatch) for number in (1, 2))
    assert cpu.video_tools.max_images == most_on_cpu
    assert gpu.video_tools.max_images == images
    assert (gpu.data.max_prompt_length, gpu.data.max_response_length) == (prompt, response)
    assert gpu.video_tools.spotter == fields


def test_the_table_of_files_is_complete() -> None:
    shown = {block.file for block in blocks() if block.file is not None} - {"spotter/__init__.py"}
    table = PAGE.read_text().partition("| file | content |")[2].partition("\n\n")[0]
    listed = {name for row in table.splitlines() for name in re.findall(r"`([^`]+)`", row.partition(" | ")[0])}
    assert listed == shown


def test_the_package_imports_documented_names_alone(followed: Path) -> None:
    pytest.importorskip("verl", reason="what imports the test of the examples")
    from tests.examples.test_own_methods import undocumented

    assert {path.name: undocumented(path) for path in (followed / "spotter" / "spotter").glob("*.py")} == {
        name: [] for name in ("__init__.py", "look.py", "method.py", "oracle.py")
    }
