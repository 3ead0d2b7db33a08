"""Our tools in verl's own tool loop: each tool alone, then whole rollouts of the real `ToolAgentLoop`.

No Ray and no vLLM: a scripted server plays the policy, all else is real (verl's loop, tool loader and dataset, the tiny
processor, H.264 files). The pictures carry their frame number, so a wrong frame is seen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap, ToolListWrap
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse
from verl.tools.tool_registry import load_all_tools
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

from examples.tiny_models.tiny_model import make_processor, make_tokenizer
from tests.turns.tagged import tool_call
from tests.videos.files import read_number, write_video
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import Method
from verl_video_tools.data.stock_rows import to_tool_agent_row
from verl_video_tools.methods import get_method
from verl_video_tools.tools.stock import (
    ChooseFramesTool,
    ClipSampleTool,
    FrameAtTool,
    GetFrameNumberTool,
    UniformSampleTool,
    VideoClipTool,
    VideoZoomTool,
)
from verl_video_tools.verl_plugin import stock_tools as stock
from verl_video_tools.verl_plugin.config import config_path

NUM_FRAMES = 300
ZOOM = [101, 115, 129, 143, 157, 171, 185, 199]
"""What choose_frames(100, 200) shows with 8 frames."""
FIRST_LOOK = [0, 42, 85, 128, 170, 213, 256, 299]


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 frames at 30 per second: 10 s."""
    return write_video(tmp_path_factory.mktemp("videos") / "clip.mp4", num_frames=NUM_FRAMES, fps=30)


@pytest.fixture(scope="module")
def slow_video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same frames at 10 per second: 30 s."""
    return write_video(tmp_path_factory.mktemp("videos") / "slow.mp4", num_frames=NUM_FRAMES, fps=10)


async def call(tool: BaseTool, arguments: Any, video: Path | str | None) -> tuple[ToolResponse, float, dict[str, Any]]:
    """One call as verl's loop makes it."""
    create_kwargs = {} if video is None else {"video_path": str(video)}
    instance_id, _ = await tool.create(create_kwargs=create_kwargs)
    try:
        return await tool.execute(instance_id, arguments, agent_data=None)
    finally:
        await tool.release(instance_id)


def numbers(images: list[Any] | None) -> list[int]:
    return [read_number(np.asarray(image)) for image in images or []]


# --- single tools


async def test_choose_frames_shows_the_frames_and_lists_them_in_order(video: Path) -> None:
    tool = ChooseFramesTool(config={"type": "native"})
    response, reward, metrics = await call(tool, {"start_frame": 100, "end_frame": 200}, video)
    assert numbers(response.image) == ZOOM
    assert {image.size for image in response.image} == {(96, 64)}
    assert response.text == "Shown above, in order: " + ", ".join(
        f"frame {index} ({index / 30:.2f} s)" for index in ZOOM
    )
    assert reward == 0.0
    assert metrics == {"ok": True, "error": None, "num_frames": 8, "latency_ms": pytest.approx(0, abs=30_000)}


async def test_get_frame_number_answers_in_a_sentence(video: Path) -> None:
    tool = GetFrameNumberTool(config={"type": "native"})
    response, reward, metrics = await call(tool, {"time": "0:05"}, video)
    assert response.text == "Frame number at time 0:05 is: 150."
    assert response.image is None
    assert (reward, metrics["ok"], metrics["num_frames"]) == (0.0, True, 0)


async def test_video_zoom_shows_the_frames_and_lists_their_times(video: Path) -> None:
    tool = VideoZoomTool(config={"type": "native", "call_frames": 4})
    response, _, metrics = await call(tool, {"segment": [4, 6], "fps": 2}, video)
    assert numbers(response.image) == [120, 140, 160, 180]
    assert response.text == "Shown above, in order: 4.00 s, 4.67 s, 5.33 s, 6.00 s"
    assert metrics["ok"] is True
    response, _, _ = await call(tool, {"segment": [4, 6], "fps": 3}, video)
    assert response.text == (
        "too_many_frames: 3 fps over [4, 6] are 6 frames; a zoom shows at most 4: shorten the segment or lower fps"
    )


async def test_framemind_shows_frames_and_lists_their_times(video: Path) -> None:
    response, _, metrics = await call(FrameAtTool(config={"type": "native"}), {"t": 4.99}, video)
    assert (numbers(response.image), response.text) == ([150], "Shown above, in order: 5.00 s")
    assert [image.size for image in response.image or []] == [(448, 448)] and metrics["ok"] is True
    clip = VideoClipTool(config={"type": "native", "min_call_frames": 3, "call_frames": 3})
    response, _, _ = await call(clip, {"t_start": 2, "t_end": 4}, video)
    assert (numbers(response.image), response.text) == ([60, 90, 120], "Shown above, in order: 2.00 s, 3.00 s, 4.00 s")


async def test_uniform_sample_shows_the_frames_and_lists_them(video: Path) -> None:
    response, _, _ = await call(UniformSampleTool(config={"type": "native"}), {"start_frame": 0, "end_frame": 8}, video)
    assert numbers(response.image) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert response.text.startswith("Shown above, in order: frame 0 (0.00 s), frame 1 (0.03 s), ")


async def test_clip_sample_asks_the_retriever_of_its_config(video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class LastFirst:
        async def best_frames(
            self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
        ) -> list[int]:
            assert (video_path, text) == (str(video), "dog")
            return list(candidates)[::-1][:num_frames]

    tool = ClipSampleTool(config={"type": "native", "clip_frames": 2, "retrieval": {"model": "encoder"}})
    monkeypatch.setattr(tool, "_connected", LastFirst())
    response, _, _ = await call(tool, {"start_frame": 100, "end_frame": 200, "prompt": "dog"}, video)
    assert numbers(response.image) == [198, 199]
    assert response.text == "Shown above, in order: frame 198 (6.60 s), frame 199 (6.63 s)"


async def test_clip_sample_without_a_retriever_says_so(video: Path, caplog: pytest.LogCaptureFixture) -> None:
    tool = ClipSampleTool(config={"type": "native"})
    response, _, metrics = await call(tool, {"start_frame": 100, "end_frame": 200, "prompt": "dog"}, video)
    assert response.text == "retrieval_error: frames could not be searched"
    assert (response.image, metrics["error"]) == (None, "retrieval_error")
    assert "no retriever is set up" in caplog.text


@pytest.mark.parametrize(
    ("tool_class", "arguments", "error"),
    [
        (FrameAtTool, {"t": 11}, "out_of_range: t=11 is outside the video, from 0 to 10.00 seconds"),
        (VideoClipTool, {"t_start": 5, "t_end": 4}, "reversed_segment: "),
        (UniformSampleTool, {"start_frame": 0, "end_frame": 7}, "segment_too_short: "),
        (ClipSampleTool, {"start_frame": 0, "end_frame": 7}, "malformed_call: prompt"),
        (ChooseFramesTool, {"start_frame": 200, "end_frame": 100}, "reversed_segment: "),
        (ChooseFramesTool, {"start_frame": 100, "end_frame": 301}, "out_of_range: "),
        (ChooseFramesTool, {"start_frame": 100, "end_frame": 108}, "segment_too_short: "),
        (ChooseFramesTool, {"start_frame": 100}, "malformed_call: end_frame"),
        (ChooseFramesTool, {"start_frame": "100", "end_frame": 200}, "malformed_call: start_frame"),
        (ChooseFramesTool, [100, 200], "malformed_call: arguments must be a JSON object, got [100, 200]"),
        (ChooseFramesTool, "100-200", "malformed_call: "),
        (GetFrameNumberTool, {"time": "0:11"}, "out_of_range: "),
        (GetFrameNumberTool, {"time": "5 s"}, "malformed_call: "),
        (GetFrameNumberTool, {"time": 5}, "malformed_call: "),
        (GetFrameNumberTool, {}, "malformed_call: "),
        (VideoZoomTool, {"segment": [4, 2], "fps": 2}, "reversed_segment: "),
        (VideoZoomTool, {"segment": [4, 12], "fps": 1}, "out_of_range: segment [4, 12] leaves the video, which lasts"),
        (VideoZoomTool, {"segment": [0, 10], "fps": 2}, "too_many_frames: 2 fps over [0, 10] are 20 frames; a zoom"),
        (VideoZoomTool, {"segment": 4, "fps": 2}, "malformed_call: segment"),
        (VideoZoomTool, {"segment": [2, 4]}, "malformed_call: fps"),
    ],
)
async def test_a_refused_call_is_answered_with_its_error(
    tool_class: type[BaseTool], arguments: Any, error: str, video: Path
) -> None:
    response, reward, metrics = await call(tool_class(config={"type": "native"}), arguments, video)
    assert response.text.startswith(error)
    assert response.image is None
    assert (reward, metrics["ok"], metrics["error"]) == (0.0, False, error.partition(":")[0])


async def test_the_model_cannot_name_the_video(video: Path, slow_video: Path) -> None:
    arguments = {"start_frame": 100, "end_frame": 200, "video_path": str(slow_video)}
    response, _, _ = await call(ChooseFramesTool(config={"type": "native"}), arguments, video)
    assert "frame 101 (3.37 s)" in response.text, "3.37 s is the time in the bound video, 10.10 s in the other"


@pytest.mark.parametrize("tool_class", [ChooseFramesTool, GetFrameNumberTool])
async def test_a_missing_video_is_an_error_text_without_its_path(
    tool_class: type[BaseTool], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    missing = tmp_path / "answer_is_b.mp4"
    response, reward, metrics = await call(tool_class(config={"type": "native"}), {}, missing)
    assert response.text == "video_error: the video cannot be read"
    assert (reward, metrics["error"]) == (0.0, "video_error")
    assert str(missing) in caplog.text, "who runs the training needs the path"


async def test_a_row_without_a_video_and_a_released_call_are_error_texts(
    video: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tool = GetFrameNumberTool(config={"type": "native"})
    response, _, _ = await call(tool, {"time": "0:05"}, None)
    assert response.text == "video_error: no video belongs to this question"
    assert "tools_kwargs.get_frame_number.create_kwargs.video_path" in caplog.text

    instance_id, _ = await tool.create(create_kwargs={"video_path": str(video)})
    await tool.release(instance_id)
    response, _, _ = await tool.execute(instance_id, {"time": "0:05"})
    assert response.text == "video_error: no video belongs to this question"


async def test_a_missed_deadline_is_an_error_text(video: Path) -> None:
    tool = ChooseFramesTool(config={"type": "native", "tool_deadline_seconds": 1e-6})
    response, _, metrics = await call(tool, {"start_frame": 100, "end_frame": 200}, video)
    assert response.text == "deadline: the frames were not ready within 1e-06 s"
    assert metrics["error"] == "deadline"


async def test_a_bug_is_logged_and_does_not_reach_the_loop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(stock, "open_video", broken)
    response, _, metrics = await call(GetFrameNumberTool(config={"type": "native"}), {"time": "0:05"}, "clip.mp4")
    assert response.text == "video_error: the tool failed unexpectedly"
    assert metrics["ok"] is False
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "planted" in caplog.text


async def test_config_takes_the_fields_of_the_method(video: Path) -> None:
    tool = ChooseFramesTool(config={"type": "native", "initial_frames": 3, "call_frames": 3, "box": [48, 48]})
    response, _, _ = await call(tool, {"start_frame": 100, "end_frame": 200}, video)
    assert numbers(response.image) == [101, 150, 199]
    assert {image.size for image in response.image} == {(48, 32)}
    with pytest.raises(UsageError, match="num_frame'"):
        ChooseFramesTool(config={"type": "native", "num_frame": 3})


def test_a_schema_of_the_users_own_may_not_rename_the_tool() -> None:
    function: dict[str, Any] = {
        "name": "choose_frames",
        "description": "Own words.",
        "parameters": {"type": "object", "properties": {"start_frame": {"type": "integer"}}, "required": []},
    }
    own = OpenAIFunctionToolSchema.model_validate({"type": "function", "function": function})
    assert ChooseFramesTool({"type": "native"}, own).tool_schema.function.description == "Own words."
    renamed = OpenAIFunctionToolSchema.model_validate({"type": "function", "function": {**function, "name": "zoom"}})
    with pytest.raises(UsageError, match="'choose_frames', got 'zoom'"):
        ChooseFramesTool({"type": "native"}, renamed)


# --- whole rollouts


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
    assert numbers(rollout.output.multi_modal_data["images"]) == FIRST_LOOK + ZOOM
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
    assert numbers(rollout.output.multi_modal_data["images"]) == FIRST_LOOK + ZOOM
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
    assert numbers(rollout.output.multi_modal_data["images"]) == FIRST_LOOK
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
