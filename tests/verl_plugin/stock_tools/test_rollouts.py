"""Our tools in verl's own tool loop, whole rollouts of the real `ToolAgentLoop`.

No Ray and no vLLM: a scripted server plays the policy, all else is real.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap, ToolListWrap
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
from verl.tools.base_tool import BaseTool
from verl.tools.tool_registry import load_all_tools
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

from examples.tiny_models.tiny_model import make_processor, make_tokenizer
from tests.turns.tagged import tool_call
from tests.verl_plugin.stock_tools.shown import INITIAL_FRAMES, ZOOM, numbers
from verl_video_tools.config import config_path
from verl_video_tools.core.types import Method
from verl_video_tools.data.stock_rows import to_tool_agent_row
from verl_video_tools.methods import get_method


@pytest.fixture(scope="module")
def packaged_tools() -> list[BaseTool]:
    """The packaged YAML, read by verl's own loader."""
    return load_all_tools(str(config_path("tools")), None)


@pytest.fixture(scope="module")
def processor() -> Any:
    return make_processor(make_tokenizer())


def test_the_packaged_file_gives_verl_every_tool_with_flat_parameters(packaged_tools: list[BaseTool]) -> None:
    schemas = [tool.tool_schema.model_dump(exclude_unset=True, exclude_none=True) for tool in packaged_tools]
    parameters = {schema["function"]["name"]: schema["function"]["parameters"] for schema in schemas}
    assert {
        name: {key: value["type"] for key, value in fields["properties"].items()} for name, fields in parameters.items()
    } == {
        "choose_frames": {"start_frame": "integer", "end_frame": "integer"},
        "get_frame_number": {"time": "string"},
        "video_zoom": {"segment": "array", "fps": "number"},
        "crop_video": {"video_path": "string", "start_time": "number", "end_time": "number"},
        "FrameAt": {"t": "number"},
        "VideoClip": {"t_start": "number", "t_end": "number"},
        "uniform_sample": {"start_frame": "number", "end_frame": "number"},
        "clip_sample": {"start_frame": "number", "end_frame": "number", "prompt": "string"},
    }
    assert {name: fields["required"] for name, fields in parameters.items()} == {
        "choose_frames": ["start_frame", "end_frame"],
        "get_frame_number": ["time"],
        "video_zoom": ["segment", "fps"],
        "crop_video": ["start_time", "end_time"],
        "FrameAt": ["t"],
        "VideoClip": ["t_start", "t_end"],
        "uniform_sample": ["start_frame", "end_frame"],
        "clip_sample": ["start_frame", "end_frame", "prompt"],
    }


class ScriptedServer:
    """Plays the policy: one text after the other, as token ids that end the turn."""

    def __init__(self, tokenizer: Any, turns: list[str]) -> None:
        self.sampled = [tokenizer.encode(f"{turn}<|im_end|>", add_special_tokens=False) for turn in turns]
        self.num_images: list[int] = []
        """Pictures that came with each request."""

    async def generate(self, *, image_data: list[Any] | None, **kwargs: Any) -> TokenOutput:
        token_ids = self.sampled[len(self.num_images)]
        self.num_images.append(len(image_data or []))
        return TokenOutput(token_ids=token_ids, log_probs=[-0.5] * len(token_ids), extra_fields={"global_steps": 3})


@dataclass
class Rollout:
    output: AgentLoopOutput
    server: ScriptedServer
    text: str
    """The whole conversation as the model reads it, one mark per picture."""


def loop_config() -> DictConfig:
    """verl's own defaults, with what docs/stock-tool-loop.md sets."""
    import verl.trainer.config

    folder = Path(next(iter(verl.trainer.config.__path__)))
    rollout = OmegaConf.load(folder / "rollout" / "rollout.yaml")
    data = {"max_prompt_length": 1024, "max_response_length": 2048}
    config = OmegaConf.create({"data": data, "actor_rollout_ref": {"rollout": rollout}})
    config.actor_rollout_ref.rollout.multi_turn.max_assistant_turns = 5
    config.actor_rollout_ref.rollout.multi_turn.max_tool_response_length = 2048
    return config


async def roll_out(
    turns: list[str],
    video: Path,
    processor: Any,
    tools: list[BaseTool],
    bound_video: Path | None = None,
    config: DictConfig | None = None,
    method: Method | None = None,
) -> Rollout:
    """The real loop on a converted row. `bound_video` replaces the row's video after conversion."""
    row = await to_tool_agent_row(
        {
            "data_source": "test",
            "agent_name": "framethinker",
            "reward_model": {"style": "rule", "ground_truth": "A"},
            "extra_info": {"question": "What is shown?\nA. this\nB. that", "video_path": str(video), "index": 7},
        },
        method,
    )
    if bound_video is not None:
        row["extra_info"]["tools_kwargs"] = {
            name: {"create_kwargs": {"video_path": str(bound_video)}} for name in row["extra_info"]["tool_selection"]
        }
    # What RLHFDataset.__getitem__ does with a row; the whole dataset is run in test_stock_rows.
    dataset = RLHFDataset.__new__(RLHFDataset)
    dataset.image_key, dataset.video_key, dataset.audio_key, dataset.processor = "images", "videos", "audios", processor
    row["raw_prompt"] = dataset._build_messages(row, key="prompt")

    config = config or loop_config()
    server = ScriptedServer(processor.tokenizer, turns)
    loop = ToolAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=server,
        tokenizer=processor.tokenizer,
        processor=processor,
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(config.data),
        hf_model_type="qwen2_5_vl",
        tools=ToolListWrap(tools),
    )
    output = await loop.run(
        {},
        raw_prompt=row["raw_prompt"],
        extra_info=row["extra_info"],
        tools_kwargs=row["extra_info"]["tools_kwargs"],
    )
    collapsed = [
        token
        for previous, token in zip([None, *output.prompt_ids, *output.response_ids], all_ids(output), strict=False)
        if not token == previous == image_token(processor)
    ]
    return Rollout(output, server, processor.tokenizer.decode(collapsed))


def all_ids(output: AgentLoopOutput) -> list[int]:
    return output.prompt_ids + output.response_ids


def image_token(processor: Any) -> int:
    return processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")


def assert_tokens_fit_images(rollout: Rollout, processor: Any) -> None:
    """Mask 1 exactly on what was sampled, and each picture's run of placeholders as long as its tokens."""
    output, server = rollout.output, rollout.server
    assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs)
    kept = [token for token, mask in zip(output.response_ids, output.response_mask, strict=True) if mask]
    assert kept == [token for turn in server.sampled[: len(server.num_images)] for token in turn]
    runs, previous = [], None
    for token in all_ids(output):
        if token == image_token(processor):
            runs = [*runs[:-1], runs[-1] + 1] if token == previous else [*runs, 1]
        previous = token
    grids = processor.image_processor(images=output.multi_modal_data["images"])["image_grid_thw"]
    assert runs == [int(grid.prod()) // 4 for grid in grids]


ANSWER = "<answer>A</answer>"


@pytest.fixture
def play(processor: Any, packaged_tools: list[BaseTool], video: Path) -> Iterator[Any]:
    return partial(roll_out, video=video, processor=processor, tools=packaged_tools)


async def test_a_rollout_gets_the_frames_that_it_asked_for(play: Any, processor: Any) -> None:
    rollout = await play(
        [
            tool_call("get_frame_number", time="0:05"),
            tool_call("choose_frames", start_frame=100, end_frame=200),
            ANSWER,
        ]
    )
    assert numbers(rollout.output.multi_modal_data["images"]) == INITIAL_FRAMES + ZOOM
    assert rollout.server.num_images == [8, 8, 16], "the zoom's pictures reach the server with the next request"
    assert_tokens_fit_images(rollout, processor)
    assert "\nframe 42: <|vision_start|><|image_pad|><|vision_end|>\nframe 85: " in rollout.text
    assert "<|im_start|>tool\nFrame number at time 0:05 is: 150.<|im_end|>" in rollout.text
    zoom = "<|vision_start|><|image_pad|><|vision_end|>" * 8 + "Shown above, in order: frame 101 (3.37 s), frame 115"
    assert f"<|im_start|>tool\n{zoom}" in rollout.text
    assert rollout.output.extra_fields["tool_rewards"] == [0.0, 0.0]
    assert rollout.output.num_turns == 3 + 2 + 1


async def test_a_refused_call_is_read_by_the_model_and_the_loop_goes_on(play: Any, processor: Any) -> None:
    rollout = await play(
        [
            tool_call("choose_frames", start_frame=100, end_frame=5000),
            tool_call("choose_frames", start_frame=100, end_frame=200),
            ANSWER,
        ]
    )
    assert "<|im_start|>tool\nout_of_range: segment 100 to 5000 is outside the video; " in rollout.text
    assert numbers(rollout.output.multi_modal_data["images"]) == INITIAL_FRAMES + ZOOM
    assert rollout.server.num_images == [8, 8, 16]
    assert_tokens_fit_images(rollout, processor)
    assert rollout.text.endswith(f"{ANSWER}<|im_end|>")


async def test_a_special_token_in_an_argument_stays_a_text(play: Any, processor: Any) -> None:
    """An error repeats the argument, which spelt whole would be a picture that is not there, or end the message."""
    spelt = "<|image_pad|><|im_end|>"
    calls = [tool_call("get_frame_number", time=spelt), tool_call("choose_frames", start_frame=spelt, end_frame=9)]
    # Sampled letter by letter; the JSON's escapes stand for that here.
    rollout = await play([*(text.replace("<|", "\\u003c|") for text in calls), ANSWER])
    output = rollout.output
    observations = [id for id, mask in zip(output.response_ids, output.response_mask, strict=True) if not mask]
    read = processor.tokenizer.decode(observations)
    assert read.count("< |image_pad|>< |im_end|>") == 2 and image_token(processor) not in observations
    assert read.count("<|im_end|>") == read.count("<|im_start|>tool") == 2
    assert_tokens_fit_images(rollout, processor)
    assert rollout.text.endswith(f"{ANSWER}<|im_end|>")


async def test_a_video_that_vanished_is_an_error_text_in_the_rollout(play: Any, processor: Any, tmp_path: Path) -> None:
    gone = tmp_path / "gone.mp4"
    rollout = await play([tool_call("choose_frames", start_frame=100, end_frame=200), ANSWER], bound_video=gone)
    assert "<|im_start|>tool\nvideo_error: the video cannot be read<|im_end|>" in rollout.text
    assert str(gone) not in rollout.text
    assert numbers(rollout.output.multi_modal_data["images"]) == INITIAL_FRAMES
    assert_tokens_fit_images(rollout, processor)
    assert rollout.text.endswith(f"{ANSWER}<|im_end|>")


async def test_rollouts_side_by_side_keep_their_own_videos(play: Any, slow_video: Path) -> None:
    turns = [tool_call("choose_frames", start_frame=100, end_frame=200), ANSWER]
    fast, slow = await asyncio.gather(play(turns), play(turns, video=slow_video))
    assert "frame 101 (3.37 s)" in fast.text
    assert "frame 101 (10.10 s)" in slow.text


async def test_verls_default_cuts_the_middle_out_of_a_long_list(play: Any) -> None:
    """The limit that docs/stock-tool-loop.md tells to raise."""
    config = loop_config()
    config.actor_rollout_ref.rollout.multi_turn.max_tool_response_length = 128
    turns = [tool_call("choose_frames", start_frame=100, end_frame=200), ANSWER]
    assert "...(truncated)..." in (await play(turns, config=config)).text
    assert "(truncated)" not in (await play(turns)).text


async def test_longvts_crop(play: Any, processor: Any, video: Path) -> None:
    """On 10 seconds at 30 frames per second; verl's Hermes parser reads the call, in the form that our prompt asks."""
    named = tool_call("crop_video", start_time=2, end_time=6, video_path=str(video))
    turns = [named, tool_call("crop_video", start_time=8, end_time=60), ANSWER]
    rollout = await play(turns, method=get_method("longvt", initial_frames=4, max_pixels=3136))
    pictures = rollout.output.multi_modal_data["images"]
    assert numbers(pictures) == [0, 100, 199, 299, 60, 100, 140, 180]
    assert "3.3s <|vision_start|>" in rollout.text
    assert "Shown above, in order: 2.0 s, 3.3 s, 4.7 s, 6.0 s<|im_end|>" in rollout.text
    assert "<|im_start|>tool\nout_of_range: end_time 60 is after the end of the video" in rollout.text
    assert_tokens_fit_images(rollout, processor)
