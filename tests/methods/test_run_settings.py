"""The file that a run leaves of its methods, and that evaluation, chat and replay read."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from verl_video_tools.config import config_path
from verl_video_tools.core.errors import UsageError
from verl_video_tools.methods import METHOD_NAMES, get_method
from verl_video_tools.methods.run_settings import (
    NAME,
    copy_run_settings,
    read_run,
    read_run_settings,
    with_run_settings,
    write_run_settings,
)

PIXELS = {"min_pixels": 784, "max_pixels": 50_176}
SOURCE = ("owner/model", ["train.parquet"])


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_a_method_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Look: {question}" if name == "direct" else "Look.")
    method = get_method(name, max_turn_tokens=77, prompt_file=str(prompt))
    run, model = tmp_path / "run", tmp_path / "model"
    model.mkdir()
    write_run_settings(run, [method], PIXELS, None, *SOURCE)
    prompt.unlink()
    copy_run_settings(run, model)
    settings = read_run_settings(model, name)
    assert (settings.min_pixels, settings.max_pixels) == (784, 50_176)
    fields = dict(settings.fields)
    assert Path(fields.pop("prompt_file")).parent.parent == model
    assert get_method(name, **fields) == get_method(name, max_turn_tokens=77)


def test_what_a_user_changes_wins_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    method = get_method("longvt", initial_frames=256, call_frames=64)
    write_run_settings(tmp_path, [method], PIXELS, None, *SOURCE)
    given = {"video_tools.longvt.initial_frames": 32, "fps": 2.0}  # as for a run, or alone
    fields = with_run_settings(str(tmp_path), "longvt", given)
    assert fields == {"initial_frames": 32, "call_frames": 64, "fps": 2.0}
    assert capsys.readouterr().err == (
        f"longvt as in {tmp_path / NAME}: initial_frames, call_frames; changed here: initial_frames=32, fps=2.0\n"
    )


def test_a_folder_without_the_file_or_the_method_says_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert with_run_settings(tmp_path, "longvt", {"fps": 2.0}) == {"fps": 2.0}
    assert with_run_settings(None, "longvt", {}) == {}
    write_run_settings(tmp_path, [get_method("framemind")], {}, {"base_url": "http://h/v1"}, *SOURCE)
    assert with_run_settings(tmp_path, "longvt", {}) == {}
    assert capsys.readouterr().err == ""
    assert OmegaConf.load(tmp_path / NAME).judge.base_url == "http://h/v1"


def test_without_a_run_tools_are_listed_as_the_model_knows_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template = config_path("hermes-template").read_text("utf-8").replace("These tools", "Your tools")
    (tmp_path / "chat_template.jinja").write_text(template)
    section = with_run_settings(tmp_path, "longvt", {"fps": 2.0})["tools_section"]
    assert "Your tools" in section
    assert capsys.readouterr().err == f"longvt: tools are listed as in the chat template of {tmp_path}\n"
    assert with_run_settings(tmp_path, "longvt", {"tools_section": None}) == {"tools_section": None}
    assert with_run_settings(tmp_path, "framethinker", {}) == {}
    write_run_settings(tmp_path, [get_method("longvt")], {}, None, *SOURCE)  # trained with ours
    assert with_run_settings(tmp_path, "longvt", {}) == {}


def test_a_damaged_template_is_left_to_what_loads_the_model(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": ')
    assert with_run_settings(tmp_path, "longvt", {}) == {}
    (tmp_path / "tokenizer_config.json").write_bytes(b'{"chat_template": "\xff"}')
    assert with_run_settings(tmp_path, "longvt", {}) == {}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"methods:\n  longvt: {a: 1\nrows: x", ", line 3, column 5; copy the file anew"),
        (b"methods: \xff", "can't decode byte 0xff"),
        (b"", "has no fields below 'methods'"),
        (b"- methods", "has no fields below 'methods'"),
        (b"methods: {longvt: {}}", "has no fields below 'mm_processor_kwargs'"),
        (b"methods: {longvt: 7}\nmm_processor_kwargs: {}", "has 7 in the place of the fields of longvt"),
    ],
)
def test_a_damaged_file_is_one_line_with_its_name(content: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(UsageError) as raised:
        read_run_settings(tmp_path, "longvt")
    assert str(tmp_path / NAME) in str(raised.value) and told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_exported_model_names_no_folder_of_the_machine(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for base, public in {"/home/somebody/base/": "base", "owner/model": "owner/model"}.items():
        write_run_settings(tmp_path / "run", [get_method("longvt")], {}, None, base, ["/data/a.parquet", "b.parquet"])
        copy_run_settings(tmp_path / "run", model)
        exported = read_run(model)
        assert (exported["base_model"], exported["rows"]) == (public, ["a.parquet", "b.parquet"])
        assert read_run(tmp_path / "run") == {
            **exported,
            "base_model": base,
            "rows": ["/data/a.parquet", "b.parquet"],
        }
