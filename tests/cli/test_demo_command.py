"""`vvt demo`: rows, videos and base model end up in one folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import verl_video_tools.synthetic
from verl_video_tools.cli.main import run
from verl_video_tools.methods import REGISTERED
from verl_video_tools.synthetic import FAMILIES


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "packaged"
    for family in FAMILIES:
        (folder / family).mkdir(parents=True)
        (folder / family / "config.json").write_text(family)
    monkeypatch.setattr(verl_video_tools.synthetic, "base_model_dir", lambda family: folder / family)
    return folder


def small(out: Path, *more: str) -> list[str]:
    return ["demo", "--out", str(out), "--train-videos", "2", "--test-videos", "1", "--questions-per-video", "2", *more]


@pytest.mark.slow
def test_makes_everything_and_says_where(base: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "demo"
    assert run(small(out, "--seed", "3", "--agent-name", "other_method")) == 0
    train, test = pq.read_table(out / "train.parquet"), pq.read_table(out / "test.parquet")
    assert (train.num_rows, test.num_rows) == (4, 2)
    assert set(train["agent_name"].to_pylist()) == {"other_method"}
    assert len(list(out.glob("videos/*.mp4"))) == 3
    assert (out / "base" / "config.json").read_text() == "qwen2_5_vl"
    assert (out / "prompts" / "framethinker.txt").read_text().strip()
    assert (out / "clip" / "model.safetensors").is_file()
    printed = capfd.readouterr()
    assert "3/3" in printed.err
    assert all(
        str(out / name) in printed.out for name in ("train.parquet", "test.parquet", "video_mme.parquet", "base")
    )

    modified = (out / "train.parquet").stat().st_mtime_ns
    assert run(small(out, "--seed", "3", "--agent-name", "other_method")) == 0
    assert (out / "train.parquet").stat().st_mtime_ns == modified


def test_base_model_of_another_family(base: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for family in FAMILIES:  # in the same folder: the last one asked for is what is there
        assert run(small(tmp_path / "demo", "--family", family)) == 0
        assert (tmp_path / "demo" / "base" / "config.json").read_text() == family
    assert run(small(tmp_path / "demo", "--family", "gpt2")) == 2
    assert "qwen3_vl" in capfd.readouterr().err


def test_sizes_of_the_test_split(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[bool, bool, int]] = []

    def make_demo(*_: object, needle: bool, spatial: bool, num_test_videos: int, **__: object) -> Path:
        asked.append((needle, spatial, num_test_videos))
        raise ValueError("enough")

    monkeypatch.setattr("verl_video_tools.data.synthetic_rows.make_demo", make_demo)
    for options in ([], ["--needle"], ["--needle", "--test-videos", "3"], ["--spatial"]):
        run(["demo", "--out", str(tmp_path / "demo"), *options])
    assert asked == [(False, False, 24), (True, False, 134), (True, False, 3), (False, True, 134)]


def test_two_worlds_at_once_are_bad_usage(base: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--out", str(tmp_path / "demo"), "--needle", "--spatial"]) == 2
    assert "ask for one of them" in capfd.readouterr().err


def test_impossible_number_of_questions_is_bad_usage(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def make_demo(*_: object, **__: object) -> Path:
        raise ValueError("found only 7 different questions")

    monkeypatch.setattr("verl_video_tools.data.synthetic_rows.make_demo", make_demo)
    assert run(small(tmp_path / "demo")) == 2
    assert capfd.readouterr() == ("", "vvt: found only 7 different questions\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["file", "file/demo", "demo"])
def test_a_folder_that_cannot_be_written_is_bad_usage(
    name: str, base: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "base").touch()  # where the model's folder would be
    assert run(small(tmp_path / name)) == 2
    told = capfd.readouterr().err.splitlines()[-1]
    assert told.startswith(f"vvt: cannot write {tmp_path / name}: ")
    assert told.endswith("; name a folder that can be made and written")


def test_missing_base_model_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def missing(family: str) -> Path:
        raise FileNotFoundError("no base model in the package; reinstall it")

    monkeypatch.setattr(verl_video_tools.synthetic, "base_model_dir", missing)
    assert run(small(tmp_path / "demo")) == 1
    assert "no base model" in capfd.readouterr().err
    assert not (tmp_path / "demo").exists()


@pytest.fixture
def own_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of a method that this package does not bring."""
    (tmp_path / "own_method.py").write_text(
        "from verl_video_tools.methods.direct.method import Direct\n\nclass Own(Direct):\n    name = 'own'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_method", raising=False)
    monkeypatch.setitem(REGISTERED, "own", "own_method:Own")
    return tmp_path


@pytest.mark.slow
def test_the_prompt_of_another_package_s_method_is_written_beside_ours(base: Path, own_method: Path) -> None:
    (own_method / "prompt_synthetic.txt").write_text("Look again.")
    assert run(small(own_method / "demo", "--agent-name", "own", "--agent-name", "framethinker")) == 0
    prompts = own_method / "demo" / "prompts"
    assert (prompts / "own.txt").read_text() == "Look again."
    assert (prompts / "framethinker.txt").is_file()


def test_a_method_without_such_a_prompt_is_refused_before_any_video(
    base: Path, own_method: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(small(own_method / "demo", "--agent-name", "own")) == 2
    assert "own has no prompt for a tiny model: put one into" in capfd.readouterr().err.replace("\n", " ")
    assert not list((own_method / "demo").glob("videos/*.mp4"))
