"""The tutorial's data and its judge; `tests/integration/test_tutorial.py` runs its pages."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.page_commands import REPO, commands_of, page_commands
from verl_video_tools.cli.main import run
from verl_video_tools.data import synthetic_rows
from verl_video_tools.data.synthetic_rows import load_rows
from verl_video_tools.launch.checks import installation

TUTORIAL = Path(__file__).parents[2] / "examples" / "tutorial"


@pytest.fixture(scope="module")
def label() -> Callable[[str, str], str]:
    return runpy.run_path(str(TUTORIAL / "judge.py"))["label"]


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("Blue circle.", "correct"),
        ("a blue circle", "correct"),
        ("blue", "partial"),
        ("green circle", "incorrect"),
        ("", "incorrect"),
    ],
)
def test_the_judge_compares_words(label: Callable[[str, str], str], answer: str, verdict: str) -> None:
    assert label("blue circle", answer) == verdict


def test_the_readme_trains_by_commands_of_the_tutorial() -> None:
    """Which `tests/integration/test_tutorial.py` runs; the README lets the machine choose what `--synthetic` does."""
    section = (REPO / "README.md").read_text().partition("## Train on your own questions")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```bash\n(.*?)^```", section, flags=re.DOTALL | re.MULTILINE)
    readme = [command for command in commands_of(block) if command.words[0] not in ("source", "export")]
    left_out = {"--synthetic", "trainer.total_training_steps=10"}
    tutorial = [
        (command.variables, [word for word in command.words if word not in left_out])
        for command in page_commands()
        if command.page.startswith("docs/tutorial/")
    ]
    unknown = [str(command) for command in readme if (command.variables, [*command.words]) not in tutorial]
    assert len(readme) == 8
    assert unknown == [str(command) for command in readme if command.words[:2] == ("vvt", "eval")]


@pytest.mark.slow
def test_the_doctor_accepts_the_judge(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Which asks it with an answer that is right in other words, and with a wrong one."""
    monkeypatch.setattr(installation, "check_installation", lambda device: [])  # no look at the installation
    judge: dict[str, Any] = runpy.run_path(str(TUTORIAL / "judge.py"))
    server = judge["ThreadingHTTPServer"](("127.0.0.1", 0), judge["Handler"])
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        run(["doctor", f"--judge-base-url=http://127.0.0.1:{server.server_port}/v1"])
    finally:
        server.shutdown()
        server.server_close()
    checks = capsys.readouterr().out.partition("judge\n")[2].splitlines()[:3]
    assert [line.split()[0] for line in checks] == ["ok"] * 3


@pytest.mark.slow
def test_table_and_dialogues_become_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--videos=2", "--questions-per-video=2", "--expert-videos=3"]
    monkeypatch.setattr(sys, "argv", ["make_data.py", str(tmp_path / "d"), *options])
    render = synthetic_rows._render_all  # in this process: others would import everything for five short videos
    monkeypatch.setattr(synthetic_rows, "_render_all", lambda jobs, _, progress: render(jobs, 1, progress))
    runpy.run_path(str(TUTORIAL / "make_data.py"), run_name="__main__")
    table, rows = tmp_path / "d" / "questions.csv", tmp_path / "rows.parquet"
    assert run(["data", "convert", str(table), str(rows), "--from=table", "--method=longvt", "--yes"]) == 0
    assert [row["extra_info"]["question_type"] in ("open", "numeric") for row in load_rows(rows)] == [True] * 4
    assert all(row["extra_info"]["video_segment"] is not None for row in load_rows(rows))
    (validate,) = [
        command.words[1:]
        for command in page_commands()
        if command.page == "docs/tutorial/1-questions.md" and command.words[:3] == ("vvt", "data", "validate")
    ]
    monkeypatch.chdir(tmp_path)
    assert run(list(validate)) == 0
    video = Path(load_rows(rows)[0]["extra_info"]["video_path"])
    whole = video.read_bytes()
    video.write_bytes(b"no video")
    assert run(list(validate)) == 1, "the page says that it opens every video"
    video.write_bytes(whole)
    expert, taught = tmp_path / "d" / "expert.parquet", tmp_path / "cold.parquet"
    words = ["data", "convert", str(expert), str(taught), "--from=longvt-parquet", "--turns", "--method=longvt"]
    assert run([*words, f"--videos={tmp_path / 'd'}"]) == 0
    turns = [row["turns"] for row in load_rows(taught)]
    assert len(turns) > 15 and any(len(each) > 1 and "<tool_call>" in each[0] for each in turns)
