"""Config groups: fields of the methods, services and options of the trainers, each with its default."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from omegaconf import OmegaConf
from safetensors.torch import save_file

pytest.importorskip("verl", reason="the groups complete verl's configuration")

from verl_video_tools import config
from verl_video_tools.core.config import checked_fields
from verl_video_tools.core.errors import UsageError
from verl_video_tools.launch.plan import known_models
from verl_video_tools.methods import METHOD_NAMES, get_method
from verl_video_tools.methods.run_settings import model_tools_section, write_run_settings
from verl_video_tools.methods.toolkit.grammar import section_of_template
from verl_video_tools.services.config import JudgeConfig
from verl_video_tools.services.retrieval import RetrievalConfig
from verl_video_tools.services.tool_model import ToolModelConfig
from verl_video_tools.verl_plugin.checkpoints import LAST_CHECKPOINT
from verl_video_tools.verl_plugin.run_checks import Kind, check_family, compose_run
from verl_video_tools.verl_plugin.settings import TrainerOptions, configured_methods

GROUPS = Path(config.__file__).parent / "video_tools"


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_a_file_has_each_field_of_its_method_with_the_default(method: str) -> None:
    path = GROUPS / "fields" / f"{method}.yaml"
    values = OmegaConf.to_container(OmegaConf.load(path))
    method_config = get_method(method)
    assert isinstance(values, dict)
    if method == "compose":
        assert list(values) == ["file"]  # the others follow from that file
    else:
        assert list(values) == [field.name for field in fields(method_config)]
    assert get_method(method, **values) == method_config


def test_services_and_trainer_options_are_listed_with_their_defaults() -> None:
    values: Any = OmegaConf.to_container(OmegaConf.load(GROUPS / "services.yaml"))
    classes = {
        "judge": JudgeConfig,
        "retrieval": RetrievalConfig,
        "tool_model": ToolModelConfig,
        "trainer": TrainerOptions,
    }
    assert list(values) == list(classes)
    assert values["retrieval"].pop("model") is None  # none is the default of a run, not of the class
    for name, options in classes.items():
        listed = [field.name for field in fields(options) if (name, field.name) != ("retrieval", "model")]
        assert list(values[name]) == listed
        assert options(**checked_fields(options, values[name])) == options()


def test_a_run_configures_its_methods() -> None:
    run = compose_run("grpo", ["+video_tools=mixed_grpo", "video_tools.longvt.initial_frames=64"])
    configured = {method.name: method for method in configured_methods(run.actor_rollout_ref.rollout)}
    assert set(configured) == {"framethinker", "videozoomer", "longvt", "videobrain", "framemind"}
    assert configured["longvt"] == get_method("longvt", initial_frames=64)
    assert configured["framemind"] == get_method("framemind")


@pytest.mark.parametrize("group", sorted(path.stem for path in (GROUPS / "model").glob("*.yaml")))
def test_a_group_of_a_family_makes_a_run_that_is_not_refused(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoConfig

    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    family, _, stage = group.rpartition("_")
    program: Literal["grpo", "sft"] = "grpo" if stage == "grpo" else "sft"
    config = compose_run(program, [f"+video_tools=longvt_{program}", f"+video_tools/model={group}"])
    model = config.actor_rollout_ref.model if program == "grpo" else config.model
    assert "only parts" in check_family(AutoConfig.for_model(family), model)
    (published,) = [entry for entry in known_models().values() if entry["hub_name"] == model.path]
    assert published["config"]["model_type"] == family


def test_a_field_that_a_method_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match=r"video_tools\.longvt\.inital_frames"):
        compose_run("grpo", ["+video_tools=longvt_grpo", "video_tools.longvt.inital_frames=64"])


@pytest.mark.parametrize(
    ("vocabulary", "dtype", "megabytes"), [(151_936, "fp32", 149), (151_936, "bf16", 75), (1000, "fp32", 16)]
)
def test_weights_fit_into_the_buffer_that_sends_them(
    tmp_path: Path, vocabulary: int, dtype: str, megabytes: int
) -> None:
    save_file(
        {"norm": torch.zeros(8), "embed_tokens": torch.zeros(vocabulary, 256, dtype=torch.int8)},
        tmp_path / "w.safetensors",
    )
    options = [f"actor_rollout_ref.model.path={tmp_path}", f"actor_rollout_ref.actor.fsdp_config.model_dtype={dtype}"]
    run = compose_run("grpo", ["+video_tools=longvt_grpo", "+video_tools/machine=cpu_grpo", *options])
    assert run.actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes == megabytes


def test_the_buffer_for_weights_of_a_model_that_is_not_here_is_verls(tmp_path: Path) -> None:
    options = [f"actor_rollout_ref.model.path={tmp_path / 'later'}"]
    run = compose_run("grpo", ["+video_tools=longvt_grpo", "+video_tools/machine=cpu_grpo", *options])
    verls = compose_run("grpo", []).actor_rollout_ref.rollout
    assert run.actor_rollout_ref.rollout.checkpoint_engine == verls.checkpoint_engine


@pytest.mark.parametrize(
    ("program", "group", "method"),
    [
        ("grpo", "longvt_grpo", "longvt"),
        ("sft", "longvt_sft", "longvt"),
        ("sft", "longvt_rft", "longvt"),
        ("grpo", "mixed_grpo", "longvt"),
        ("sft", "mixed_sft", "longvt"),
        ("grpo", "compose_grpo", "compose"),
        ("sft", "compose_sft", "compose"),
    ],
)
def test_tools_are_listed_as_in_the_models_template(program: Kind, group: str, method: str, tmp_path: Path) -> None:
    template = config.config_path("hermes-template").read_text("utf-8").replace("These tools", "Your tools")
    (tmp_path / "chat_template.jinja").write_text(template)
    model = "actor_rollout_ref.model.path" if program == "grpo" else "model.path"
    options = [f"+video_tools={group}", f"{model}={tmp_path}"]
    options += ["video_tools.rft.records_dir=r"] if group.endswith("rft") else []
    run = compose_run(program, options).video_tools[method]
    assert get_method(method, **run).tools_section == section_of_template(template) is not None
    run = compose_run(program, [*options, f"video_tools.{method}.tools_section=null"]).video_tools[method]
    assert run.tools_section is None
    model_tools_section.cache_clear()
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    assert compose_run(program, options).video_tools[method].tools_section is None


@pytest.mark.parametrize("program", ["grpo", "sft"])
def test_tools_are_listed_as_the_tokenizer_of_its_own_does(program: Kind, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "tokenizer").mkdir()
    template = config.config_path("hermes-template").read_text("utf-8")
    (tmp_path / "model" / "chat_template.jinja").write_text("{{ messages }}")
    (tmp_path / "tokenizer" / "chat_template.jinja").write_text(template)
    model = "actor_rollout_ref.model" if program == "grpo" else "model"
    options = [f"{model}.path={tmp_path / 'model'}", f"{model}.tokenizer_path={tmp_path / 'tokenizer'}"]
    run = compose_run(program, [f"+video_tools=longvt_{program}", *options])
    assert run.video_tools.longvt.tools_section == section_of_template(template)


@pytest.mark.parametrize("words", [None, "Call: {schemas}"])
@pytest.mark.parametrize(("program", "group"), [("grpo", "longvt_grpo"), ("sft", "longvt_rft"), ("sft", "mixed_sft")])
def test_a_trained_model_and_a_run_that_goes_on_keep_their_words(
    program: Kind, group: str, words: str | None, tmp_path: Path
) -> None:
    model, run = tmp_path / "model", tmp_path / "run"
    model.mkdir()
    template = config.config_path("hermes-template").read_text("utf-8")
    (model / "chat_template.jinja").write_text(template)
    key = "actor_rollout_ref.model.path" if program == "grpo" else "model.path"
    options = [f"+video_tools={group}", f"{key}={model}", f"trainer.default_local_dir={run}"]
    options += ["video_tools.rft.records_dir=r"] if group.endswith("rft") else []

    def section() -> str | None:
        found: str | None = compose_run(program, options).video_tools.longvt.tools_section
        return found

    def trained(folder: Path, method: str, **fields: str | None) -> None:
        write_run_settings(folder, [get_method(method, **fields)], {}, None, "owner/model", [])

    trained(model, "framethinker")
    assert section() == section_of_template(template), "a run of another method says nothing of this one"
    trained(model, "longvt", tools_section=words)
    assert section() == words
    trained(run, "longvt", tools_section="Of the run: {schemas}")
    assert section() == words, "a run without a checkpoint starts anew"
    (run / LAST_CHECKPOINT).write_text("8")
    assert section() == "Of the run: {schemas}"
    options.append("video_tools.longvt.tools_section=null")
    assert section() is None
