"""The real `VideoAgentLoop` with a scripted inference server: no Ray, no vLLM, real processor, tokenizer and videos."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, AgentLoopWorker, DictConfigWrap
from verl.utils import hf_processor, hf_tokenizer
from verl.workers.rollout.replica import TokenOutput

from examples.tiny_models.tiny_model import (
    ARCHITECTURES,
    Architecture,
    make_model,
    make_processor,
    make_tokenizer,
    save,
)
from tests.released_models import ReleasedModel, make_released_model
from tests.videos.files import write_video
from verl_video_tools.core.types import Trajectory
from verl_video_tools.synthetic import FAMILIES
from verl_video_tools.verl_plugin.agent_loop import VideoAgentLoop
from verl_video_tools.verl_plugin.settings import unpack_record

LARGE_PIXELS = {"min_pixels": 66_000, "max_pixels": 100_000}
"""A run's `data.mm_processor_kwargs`: frames of more pixels than the tiny models' processors leave as they are (50,176
and 65,536), so that a processor that is not given them makes other tensors."""

QUESTION = "What is shown at 0:03?\nA. red circle\nB. blue square\nC. green cross\nD. red square"


Vocabulary = Literal["home-made", "released", "released, thinking"]
"""Of the tiny models, of Qwen2.5-VL and Qwen3-VL Instruct, of Qwen3-VL Thinking."""
_RELEASED: dict[tuple[Vocabulary, Architecture], ReleasedModel] = {
    ("released", "qwen2_5_vl"): "qwen2_5_vl",
    ("released", "qwen3_vl"): "qwen3_vl",
    ("released, thinking", "qwen3_vl"): "qwen3_vl_thinking",
}
MODELS: list[tuple[Vocabulary, Architecture]] = [
    *(("home-made", family) for family in ARCHITECTURES),
    *(("released", family) for family in FAMILIES),
]
"""Of a test with every model that there is: values of the fixture `vocabulary`, and families."""
_current: Vocabulary = "home-made"


@contextmanager
def using_vocabulary(vocabulary: Vocabulary) -> Iterator[None]:
    """Within it, folders, tokenizers and processors of this module are those of `vocabulary`."""
    global _current
    before, _current = _current, vocabulary
    try:
        yield
    finally:
        _current = before


def model_dir(family: Architecture = "qwen2_5_vl") -> str:
    """Folder of a model with tokenizer and processor; removed when the process ends.

    The tiny model is randomly initialised. Where the vocabulary is a released one, the folder has no weights.
    """
    return _model_dir(_current, family)


@cache
def _model_dir(vocabulary: Vocabulary, family: Architecture) -> str:
    folder = tempfile.TemporaryDirectory(prefix="tiny_model_")
    _KEPT_FOLDERS.append(folder)
    if vocabulary == "home-made":
        made = make_tokenizer()
        save(make_model(made, family=family), make_processor(made, family), folder.name)
    else:
        make_released_model(_RELEASED[vocabulary, family], Path(folder.name))
    return folder.name


_KEPT_FOLDERS: list[Any] = []


def tokenizer(family: Architecture = "qwen2_5_vl") -> Any:
    """As verl's workers load it."""
    return _tokenizer(model_dir(family))


def processor(family: Architecture = "qwen2_5_vl") -> Any:
    """As verl's workers load it, with the model's `get_rope_index` bound to it."""
    return _processor(model_dir(family))


# A released vocabulary takes a second and a hundred MB: once for a process.
_tokenizer, _processor = cache(hf_tokenizer), cache(hf_processor)


def open_reasoning(monkeypatch: pytest.MonkeyPatch, family: Architecture = "qwen2_5_vl") -> None:
    """Let the chat template open the reasoning after its header of a turn, as those of thinking models do."""
    loaded = processor(family)
    for each in (tokenizer(family), loaded, loaded.tokenizer):
        opening = "{%- if add_generation_prompt -%}{{- '<think>\\n' -}}{%- endif -%}"
        monkeypatch.setattr(each, "chat_template", each.chat_template + opening)


@lru_cache(maxsize=8)
def video(num_frames: int = 200, fps: int = 10, width: int = 96, height: int = 64) -> str:
    """A small H.264 file; one per size and process."""
    folder = tempfile.TemporaryDirectory(prefix="videos_")
    _KEPT_FOLDERS.append(folder)
    path = Path(folder.name) / "video.mp4"
    return str(write_video(path, num_frames=num_frames, fps=fps, width=width, height=height))


@dataclass(frozen=True)
class Unended:
    """A turn that the engine ends without an end-of-turn token, as after a stop string."""

    text: str


@dataclass(frozen=True)
class Spelt:
    """A turn in which special tokens are written letter by letter, as a policy can that must not sample them."""

    text: str


@dataclass
class ScriptedServer:
    """Stands for verl's `LLMServerClient`: returns the scripted turns as token ids with distinct log-probabilities.

    Like a real engine it never returns more than `max_tokens`, and cuts a turn there without an end token.
    """

    turns: Sequence[str | Unended | Spelt]
    family: Architecture = "qwen2_5_vl"
    global_steps: Sequence[int] | None = None
    cached_tokens: Sequence[int | None] | None = None
    """Of each turn's prompt, found in the prefix cache; None stands for an aborted request, which is not counted."""
    extra_logprobs: int = 0
    """Log-probabilities returned beyond the tokens: a fault to be caught."""
    stop_reasons: Sequence[str | None] | None = None
    """Of each turn."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    returned: list[list[int]] = field(default_factory=list)
    returned_logprobs: list[list[float]] = field(default_factory=list)

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        image_data: list[Any] | None = None,
        video_data: list[Any] | None = None,
        audio_data: list[Any] | None = None,
        mm_processor_kwargs: dict[str, Any] | None = None,
    ) -> TokenOutput:
        number = len(self.requests)
        assert number < len(self.turns), f"the loop asked for turn {number + 1}, the script has {len(self.turns)}"
        self.requests.append(
            {
                "request_id": request_id,
                "prompt_ids": list(prompt_ids),
                "sampling_params": sampling_params,
                "num_images": len(image_data or []),
                "mm_processor_kwargs": mm_processor_kwargs,
            }
        )
        turn = self.turns[number]
        text = turn if isinstance(turn, str) else turn.text
        encoder = tokenizer(self.family)
        ids = encoder.encode(text, add_special_tokens=False, split_special_tokens=isinstance(turn, Spelt))
        if not isinstance(turn, Unended):
            ids = [*ids, encoder.convert_tokens_to_ids("<|im_end|>")]
        ids = ids[: sampling_params["max_tokens"]]
        first = sum(map(len, self.returned))
        logprobs = [-0.001 * (first + i + 1) for i in range(len(ids) + self.extra_logprobs)]
        self.returned.append(ids)
        self.returned_logprobs.append(logprobs[: len(ids)])
        told: dict[str, Any] = {} if self.global_steps is None else {"global_steps": self.global_steps[number]}
        if self.cached_tokens is not None:
            told["num_cached_tokens"] = self.cached_tokens[number]
        reason = None if self.stop_reasons is None else self.stop_reasons[number]
        return TokenOutput(token_ids=ids, log_probs=logprobs, stop_reason=reason, extra_fields=told)


@dataclass
class Rollout:
    """What came out of one run of the loop, and what the server saw and returned."""

    outputs: list[AgentLoopOutput]
    """One for each training sequence."""
    server: ScriptedServer
    family: Architecture = "qwen2_5_vl"
    mm_processor_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def output(self) -> AgentLoopOutput:
        """The only sequence."""
        (output,) = self.outputs
        return output

    @property
    def sequences(self) -> list[Rollout]:
        """Each sequence as if it were the only one."""
        return [replace(self, outputs=[output]) for output in self.outputs]

    @property
    def trajectory(self) -> Trajectory:
        return unpack_record(self.outputs[-1].extra_fields)

    @property
    def ids(self) -> list[int]:
        return self.output.prompt_ids + self.output.response_ids

    @property
    def images(self) -> list[Any]:
        return (self.output.multi_modal_data or {}).get("images", [])

    def text_of(self, keep: int) -> str:
        """Response tokens whose mask is `keep`, as text."""
        pairs = zip(self.output.response_ids, self.output.response_mask, strict=True)
        return tokenizer(self.family).decode([token for token, mask in pairs if mask == keep])

    def training_tensors(self) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Multimodal inputs and position ids (4, L), computed by verl's own code as after a real rollout."""
        kwargs = dict(self.mm_processor_kwargs)
        loaded = {"processor": processor(self.family), "tokenizer": tokenizer(self.family)}
        worker = SimpleNamespace(**loaded, mm_processor_kwargs=kwargs)
        worker._get_mm_processor_kwargs = partial(AgentLoopWorker._get_mm_processor_kwargs, worker)
        input_ids_1L = torch.tensor([self.ids])
        inputs = AgentLoopWorker._compute_multi_modal_inputs(worker, self.output, input_ids_1L)
        positions_14L = AgentLoopWorker._compute_position_ids(
            worker, input_ids_1L, torch.ones_like(input_ids_1L), inputs
        )
        return inputs, positions_14L[0]


async def run_loop(
    turns: Sequence[str | Unended | Spelt],
    *,
    video_path: str | None = None,
    row: Mapping[str, Any] | None = None,
    question: str = QUESTION,
    prompt_length: int = 4096,
    response_length: int = 4096,
    max_images: int | None = None,
    mm_processor_kwargs: Mapping[str, Any] | None = None,
    method: str = "framethinker",
    method_fields: Mapping[str, Any] | None = None,
    judge_fields: Mapping[str, Any] | None = None,
    retrieval_fields: Mapping[str, Any] | None = None,
    rollout_options: Mapping[str, Any] | None = None,
    sampling_params: Mapping[str, Any] | None = None,
    server: ScriptedServer | None = None,
    family: Architecture = "qwen2_5_vl",
) -> Rollout:
    """One rollout of `method` with a model of `family` whose policy says `turns`."""
    server = server or ScriptedServer(turns, family)
    rollout_config: dict[str, Any] = {
        "prompt_length": prompt_length,
        "response_length": response_length,
        "calculate_log_probs": True,
        "custom": {
            "video_tools": {
                method: dict(method_fields or {}),
                "judge": dict(judge_fields or {}),
                "retrieval": dict(retrieval_fields or {}),
                "max_images": max_images,
            }
        },
        **(rollout_options or {}),
    }
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"rollout": rollout_config, "model": {"path": model_dir(family)}},
            "data": {"mm_processor_kwargs": dict(mm_processor_kwargs or {})},
        }
    )
    loop = VideoAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=server,
        tokenizer=tokenizer(family),
        processor=processor(family),
        dataset_cls=None,
        data_config=DictConfigWrap(config.data),
        hf_model_type=family,
        method=method,
    )
    row = row if row is not None else make_row(video_path or video(), question)
    result = await loop.run({"temperature": 1.0, "logprobs": True, **(sampling_params or {})}, **row)
    outputs = result if isinstance(result, list) else [result]
    return Rollout(outputs, server, family, dict(mm_processor_kwargs or {}))


def make_row(video_path: str, question: str = QUESTION, truth: str = "B") -> dict[str, Any]:
    """A row with the further arguments that verl's V1 worker hands to a loop."""
    return {
        "data_source": "test",
        "ability": "video",
        "prompt": [{"role": "user", "content": question}],
        "raw_prompt": [{"role": "user", "content": question}],
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"question": question, "video_path": video_path, "index": 7, "split": "test"},
        "uid": "u",
        "session_id": 0,
        "global_steps": 1,
        "index": 7,
    }
