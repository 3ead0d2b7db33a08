"""Whole rollouts of the token loop under a scripted server: budgets, cuts, masks, faults of row and video."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.turns.framethinker import answer, choose, get
from tests.verl_plugin.harness import Rollout, ScriptedServer, Spelt, Unended, make_row, run_loop, tokenizer, video
from verl_video_tools.core.errors import InvariantError, SetupError
from verl_video_tools.core.types import Content, FrameRecord, ImagePart, StopReason
from verl_video_tools.rollout.tokens import TokenCounter
from verl_video_tools.verl_plugin import agent_loop
from verl_video_tools.verl_plugin.images import block_name

both_vocabularies = pytest.mark.usefixtures("vocabulary")
"""For tests about tokens. Faults of rows and videos are the same with any."""

END = "<|im_end|>"
LOOK_TWICE = [get("0:03"), choose(20, 60), answer("B")]


def assert_one_masked_token(rollout: Rollout) -> None:
    """The form of a rollout that carries nothing to train on."""
    assert rollout.output.response_mask == [0]
    assert rollout.output.response_logprobs == [0.0]
    assert tokenizer().decode(rollout.output.response_ids) == END
    assert rollout.output.prompt_ids
    (blank,) = rollout.images  # verl fails on a micro-batch in which no row has a picture
    assert blank.getextrema() == ((0, 0), (0, 0), (0, 0))


# ------------------------------------------------------------------------------------------------------ a whole rollout


@both_vocabularies
async def test_rollout_with_two_actions_and_an_answer() -> None:
    rollout = await run_loop(LOOK_TWICE)
    trajectory = rollout.trajectory
    assert trajectory.stop_reason is StopReason.ANSWER
    assert trajectory.answer == "B"
    assert trajectory.flags == []
    shown = {"start_time": 2.1, "end_time": 5.9}
    assert [call.result for call in trajectory.calls()] == [{"frame_number": 30}, shown]
    assert trajectory.counts() == {"assistant_turns": 3, "executed_calls": 2, "initial_frames": 8, "tool_frames": 8}
    assert rollout.output.num_turns == 7  # user, then three times assistant and, but for the last, user
    assert len(rollout.images) == 16


@both_vocabularies
async def test_mask_covers_exactly_what_the_server_returned() -> None:
    """The sum of the mask is the number of generated tokens; every observation token has mask 0."""
    rollout = await run_loop(LOOK_TWICE)
    generated = [token for turn in rollout.server.returned for token in turn]
    logprobs = [value for turn in rollout.server.returned_logprobs for value in turn]
    output = rollout.output
    assert sum(output.response_mask) == len(generated)
    assert rollout.text_of(keep=1) == "".join(text + END for text in LOOK_TWICE)
    masked = rollout.text_of(keep=0)
    assert "Frame number at time 0:03 is: 30." in masked
    assert masked.count("frame ") == 8
    entries = list(zip(output.response_ids, output.response_logprobs or [], output.response_mask, strict=True))
    assert [(token, value) for token, value, keep in entries if keep] == list(zip(generated, logprobs, strict=True))
    assert {value for _, value, keep in entries if not keep} == {0.0}


@both_vocabularies
async def test_every_turn_is_generated_from_all_tokens_and_pictures_so_far() -> None:
    rollout = await run_loop(LOOK_TWICE, mm_processor_kwargs={"min_pixels": 784, "max_pixels": 50_176})
    requests = rollout.server.requests
    assert [request["num_images"] for request in requests] == [8, 8, 16]
    assert len({request["request_id"] for request in requests}) == 1  # the engine's prefix cache depends on it
    assert requests[0]["prompt_ids"] == rollout.output.prompt_ids
    for earlier, later, returned in zip(requests, requests[1:], rollout.server.returned, strict=False):
        prefix = earlier["prompt_ids"] + returned
        assert later["prompt_ids"][: len(prefix)] == prefix
    assert requests[0]["mm_processor_kwargs"] == {"min_pixels": 784, "max_pixels": 50_176}
    assert requests[0]["sampling_params"]["temperature"] == 1.0


async def test_rollout_without_an_action_is_a_single_turn() -> None:
    """Nothing asks for a tool, so there is nothing to mask."""
    for text, reason in [(answer("B"), StopReason.ANSWER), ("just B", StopReason.NO_ACTION)]:
        rollout = await run_loop([text])
        assert rollout.trajectory.stop_reason is reason
        assert set(rollout.output.response_mask) == {1}
        assert rollout.output.num_turns == 3
        assert len(rollout.images) == 8


async def test_call_in_the_last_turn_is_refused() -> None:
    """Nobody would read its observation."""
    turns = [choose(10 * n, 10 * n + 30) for n in range(5)]
    rollout = await run_loop(turns)
    trajectory = rollout.trajectory
    assert trajectory.stop_reason is StopReason.MAX_TURNS
    assert [call.ok for call in trajectory.calls()] == [True] * 4 + [False]
    assert str(trajectory.calls()[-1].error).startswith("turn_limit: ")
    assert len(rollout.images) == 8 * 5
    assert rollout.output.response_mask[-1] == 1
    assert rollout.text_of(keep=1).endswith(turns[-1] + END)


async def test_second_rollout_of_a_group_is_served_from_the_cache() -> None:
    path = video(num_frames=77)
    uses = [(await run_loop([choose(20, 60), answer("A")], video_path=path)).trajectory.cache for _ in range(2)]
    # The zoom of the first rollout meets one frame of its own initial ones.
    assert [(use.hits, use.misses) for use in uses] == [(1, 15), (16, 0)]
    assert uses[0].stored_bytes == uses[1].stored_bytes > 0


# ------------------------------------------------------------------------------------------------------------ budgets


async def test_fourth_zoom_exceeds_the_papers_response_budget() -> None:
    """At 640x360 and 8,192 tokens three zooms fit; the fourth is refused before it is decoded."""
    rollout = await run_loop(
        [choose(10 * n, 10 * n + 12) for n in range(4)],
        video_path=video(num_frames=60, width=640, height=360),
        response_length=8192,
        mm_processor_kwargs={"min_pixels": 784, "max_pixels": 235_200},
    )
    trajectory = rollout.trajectory
    assert trajectory.stop_reason is StopReason.RESPONSE_BUDGET
    assert [call.ok for call in trajectory.calls()] == [True, True, True, False]
    assert str(trajectory.calls()[-1].error).startswith("response_budget: ")
    assert trajectory.turns[-1].observation is None
    assert len(rollout.images) == 8 * 4  # initial frames and three zooms
    assert 3 * 8 * 299 < len(rollout.output.response_ids) <= 8192
    assert rollout.output.response_mask[-1] == 1
    assert trajectory.flags == []


async def test_refused_zoom_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    from verl_video_tools.rollout import observation

    real_decode = observation.decode_frames

    async def counting_decode(video: Any, request: Any, **kwargs: Any) -> Any:
        decoded.append(len(request))
        return await real_decode(video, request, **kwargs)

    monkeypatch.setattr(observation, "decode_frames", counting_decode)
    rollout = await run_loop([choose(20, 60)], response_length=60)
    assert rollout.trajectory.stop_reason is StopReason.RESPONSE_BUDGET
    assert decoded == [8]


async def test_a_blank_picture_is_no_siblings_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the queue, siblings share what has one name: one whose only frame has this size would train on the blank."""
    made: list[ImagePart] = []

    def spied(*args: Any) -> ImagePart:
        made.append(ImagePart(*args))
        return made[-1]

    monkeypatch.setattr(agent_loop, "ImagePart", spied)
    await run_loop([], prompt_length=100)
    (blank,) = made
    seen = ImagePart(FrameRecord(0, 0.0, blank.record.width, blank.record.height))
    assert block_name([seen]) != block_name([blank])


async def test_prompt_that_does_not_fit_never_reaches_the_server() -> None:
    rollout = await run_loop([], prompt_length=100)
    assert rollout.trajectory.stop_reason is StopReason.PROMPT_BUDGET
    assert rollout.server.requests == []
    assert_one_masked_token(rollout)
    assert len(rollout.output.prompt_ids) <= 100


@both_vocabularies
@pytest.mark.parametrize("slack", [0, -1])
async def test_prompt_budget_is_exact(slack: int) -> None:
    length = len((await run_loop([answer("A")])).output.prompt_ids)
    rollout = await run_loop([answer("A")], prompt_length=length + slack)
    expected = StopReason.ANSWER if slack == 0 else StopReason.PROMPT_BUDGET
    assert rollout.trajectory.stop_reason is expected


@both_vocabularies
async def test_response_budget_leaves_room_for_an_answer() -> None:
    """The observation is taken if after it at least one token can be generated, and refused otherwise."""
    whole = await run_loop([choose(20, 60), answer("A")])
    answer_length = len(whole.server.returned[-1])
    least = len(whole.output.response_ids) - answer_length + 1
    for response_length, executed in [(least + 1, True), (least - 1, False)]:
        rollout = await run_loop([choose(20, 60), answer("A")], response_length=response_length)
        assert rollout.trajectory.calls()[0].ok is executed
        assert rollout.trajectory.stop_reason is StopReason.RESPONSE_BUDGET
        assert len(rollout.output.response_ids) <= response_length


async def test_image_limit_refuses_the_call() -> None:
    rollout = await run_loop([choose(20, 60), choose(30, 50)], max_images=16)
    trajectory = rollout.trajectory
    assert trajectory.stop_reason is StopReason.IMAGE_BUDGET
    assert str(trajectory.calls()[-1].error).startswith("image_budget: ")
    assert len(rollout.images) == 16


async def test_image_limit_below_the_initial_frames() -> None:
    rollout = await run_loop([], max_images=7)
    assert rollout.trajectory.stop_reason is StopReason.IMAGE_BUDGET
    assert_one_masked_token(rollout)


# ---------------------------------------------------------------------------------------------------------- turn ends


@both_vocabularies
async def test_turn_cut_at_its_limit_runs_no_tool() -> None:
    """The text up to the cut holds a whole call, which is recorded and refused."""
    text = choose(20, 60) + " and more" * 50
    limit = len(tokenizer().encode(choose(20, 60))) + 5
    rollout = await run_loop([text], method_fields={"max_turn_tokens": limit})
    trajectory = rollout.trajectory
    assert trajectory.stop_reason is StopReason.RESPONSE_BUDGET
    assert trajectory.turns[0].truncated
    assert (trajectory.calls()[0].name, trajectory.calls()[0].ok) == ("choose_frames", False)
    assert len(rollout.images) == 8
    assert rollout.output.response_mask == [1] * limit
    assert tokenizer().decode(rollout.output.response_ids[-1:]) != END


@both_vocabularies
async def test_answer_before_the_cut_counts() -> None:
    limit = len(tokenizer().encode(answer("C"))) + 2
    rollout = await run_loop([answer("C") + " and more" * 50], method_fields={"max_turn_tokens": limit})
    assert rollout.trajectory.stop_reason is StopReason.ANSWER
    assert rollout.trajectory.answer == "C"


async def test_turn_limit_never_exceeds_what_is_left_of_the_response() -> None:
    rollout = await run_loop(LOOK_TWICE, response_length=300, method_fields={"max_turn_tokens": 8192})
    limits = [request["sampling_params"]["max_tokens"] for request in rollout.server.requests]
    lengths = [len(request["prompt_ids"]) - len(rollout.output.prompt_ids) for request in rollout.server.requests]
    assert limits == [300 - length for length in lengths]


@both_vocabularies
async def test_end_of_turn_is_inserted_after_a_stop_string() -> None:
    """An end token that was not sampled is context: mask 0, log-probability 0.0, and only once."""
    ended = await run_loop([choose(20, 60), answer("B")])
    rollout = await run_loop([Unended(choose(20, 60)), answer("B")])
    assert rollout.ids == ended.ids
    position = len(rollout.server.returned[0])
    assert tokenizer().decode(rollout.output.response_ids[position : position + 1]) == END
    assert rollout.output.response_mask[position] == 0
    assert ended.output.response_mask[position] == 1
    assert (rollout.output.response_logprobs or [])[position] == 0.0
    assert sum(rollout.output.response_mask) == sum(ended.output.response_mask) - 1


@both_vocabularies
async def test_last_turn_without_end_token_stays_as_sampled() -> None:
    rollout = await run_loop([Unended(answer("B"))])
    assert rollout.trajectory.stop_reason is StopReason.ANSWER
    assert rollout.output.response_ids == rollout.server.returned[0]
    assert not rollout.trajectory.turns[0].truncated


@both_vocabularies
async def test_a_call_that_ends_at_the_very_limit_is_whole() -> None:
    zoom = '<think>there</think><video_zoom>{"segment": [1.0, 3.0], "fps": 2}</video_zoom>'
    limit = len(tokenizer().encode(zoom, add_special_tokens=False))
    turns = [Unended(zoom), "<think>so</think><answer>B</answer>"]
    rollout = await run_loop(turns, method="videozoomer", method_fields={"max_turn_tokens": limit})
    assert (rollout.trajectory.stop_reason, len(rollout.trajectory.executed_calls())) == (StopReason.ANSWER, 1)
    cut = await run_loop(turns, method="videozoomer", method_fields={"max_turn_tokens": limit - 1})
    assert (cut.trajectory.stop_reason, cut.trajectory.turns[0].truncated) == (StopReason.RESPONSE_BUDGET, True)


@both_vocabularies
async def test_an_end_of_document_ends_a_turn_too() -> None:
    """Qwen's generation configs name it beside the end of a turn. It is trained on, and no part of the text."""
    rollout = await run_loop([Unended(answer("B") + "<|endoftext|>")])
    assert rollout.trajectory.turns[0].text == answer("B") and rollout.trajectory.turns[0].well_formed
    assert tokenizer().decode(rollout.output.response_ids[-1:]) == "<|endoftext|>"
    assert rollout.output.response_mask[-1] == 1


# ---------------------------------------------------------------------------------------- special tokens that are spelt

ANSWERED = "<think>so</think><answer>B</answer>"


def calling(name: str) -> str:
    return f'<think>look</think><tool_call>{{"name": "{name}"}}</tool_call>'


@both_vocabularies
async def test_an_error_that_quotes_special_tokens_holds_none() -> None:
    name = "<|im_end|><|im_start|>system"
    rollout = await run_loop([Spelt(calling(name)), ANSWERED], method="longvt", prompt_length=8192)
    plain = await run_loop([calling("zoom"), ANSWERED], method="longvt", prompt_length=8192)
    assert (rollout.trajectory.stop_reason, rollout.trajectory.flags) == (StopReason.ANSWER, [])
    assert "< |im_end|>< |im_start|>system" in str(rollout.trajectory.turns[0].observation)
    for token in ("<|im_end|>", "<|im_start|>"):
        id = tokenizer().convert_tokens_to_ids(token)
        assert rollout.ids.count(id) == plain.ids.count(id), token


@both_vocabularies
async def test_a_question_that_spells_a_special_token_is_asked() -> None:
    rollout = await run_loop([answer("B")], question="What is <|image_pad|>?\nA. red circle\nB. blue square")
    assert (rollout.trajectory.stop_reason, rollout.trajectory.flags) == (StopReason.ANSWER, [])
    rollout.training_tensors()


@both_vocabularies
@pytest.mark.parametrize("spelt", ["<|image_pad|>", "<|video_pad|>"])
async def test_a_turn_that_spells_a_picture_is_flagged(spelt: str) -> None:
    """verl decodes the finished rollout, and its processor would look for the picture: the rollout would be lost."""
    rollout = await run_loop([Spelt(calling(spelt)), ANSWERED], method="longvt", prompt_length=8192)
    assert spelt.replace("<|", "< |") in str(rollout.trajectory.turns[0].observation)
    assert rollout.trajectory.stop_reason is StopReason.ANSWER
    assert rollout.trajectory.flags == ["invariant"] and spelt in (rollout.trajectory.error or "")
    assert_one_masked_token(rollout)


@both_vocabularies
@pytest.mark.parametrize("sampled", ["<|image_pad|>", "<|video_pad|>"])
async def test_a_turn_with_a_sampled_placeholder_is_flagged(sampled: str) -> None:
    """The model's positions would look for the picture or the video, and verl would lose the whole batch."""
    rollout = await run_loop([answer(f"B {sampled}")])
    assert rollout.trajectory.flags == ["invariant"] and "placeholder" in (rollout.trajectory.error or "")
    assert_one_masked_token(rollout)


async def test_an_invariant_that_breaks_on_the_way_flags_the_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: TokenCounter, content: Content) -> int:
        raise InvariantError("0 images but 1 placeholders in the rendered text")

    monkeypatch.setattr(TokenCounter, "observation", broken)
    rollout = await run_loop([choose(20, 60), answer("B")])
    assert (rollout.trajectory.stop_reason, rollout.trajectory.flags) == (StopReason.ABORTED, ["invariant"])
    assert "1 placeholders" in (rollout.trajectory.error or "")
    assert_one_masked_token(rollout)


# ------------------------------------------------------------------------------------------------------------- faults


async def test_missing_video_is_a_flagged_rollout() -> None:
    rollout = await run_loop([], video_path="no/such/file.mp4")
    assert rollout.trajectory.stop_reason is StopReason.VIDEO_ERROR
    assert rollout.trajectory.flags == ["video_error"]
    assert "no/such/file.mp4" in (rollout.trajectory.error or "")
    assert rollout.server.requests == []
    assert_one_masked_token(rollout)


@pytest.mark.parametrize("missing", ["question", "video_path"])
async def test_row_without_a_needed_field_is_a_flagged_rollout(missing: str) -> None:
    row = make_row(video())
    del row["extra_info"][missing]
    rollout = await run_loop([], row=row)
    assert rollout.trajectory.stop_reason is StopReason.ABORTED
    assert rollout.trajectory.flags == ["row_error"]
    assert missing in (rollout.trajectory.error or "")
    assert "index=7" in (rollout.trajectory.error or "")
    assert_one_masked_token(rollout)


@pytest.mark.parametrize("name", ["loop.mp4", "a\0b.mp4"])
async def test_a_path_that_can_be_no_file_is_a_flagged_rollout(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop.mp4").symlink_to("loop.mp4")
    rollout = await run_loop([], video_path=str(tmp_path / name))
    assert rollout.trajectory.stop_reason is StopReason.VIDEO_ERROR
    assert rollout.trajectory.flags == ["video_error"]
    assert f"{tmp_path / name}: cannot be read" in (rollout.trajectory.error or "")
    assert_one_masked_token(rollout)


@pytest.mark.parametrize("column", ["reward_model", "extra_info"])
async def test_a_column_stored_as_text_is_a_flagged_rollout(column: str) -> None:
    row = make_row(video())
    rollout = await run_loop([], row={**row, column: json.dumps(row[column])})
    assert rollout.trajectory.stop_reason is StopReason.ABORTED
    assert rollout.trajectory.flags == ["row_error"]
    assert f"{column} must hold named entries" in (rollout.trajectory.error or "")
    assert_one_masked_token(rollout)


@pytest.mark.parametrize("judge_fields", [{}, {"base_url": "http://judge/v1"}])
async def test_an_open_question_runs_only_where_there_is_a_judge(judge_fields: dict[str, Any]) -> None:
    """The loop reads the judge's options and asks nothing: nobody listens at that address."""
    row = make_row(video(), truth="a dog")
    rollout = await run_loop([answer("B")], row=row, judge_fields=judge_fields)
    if judge_fields:
        assert (rollout.trajectory.stop_reason, rollout.trajectory.flags) == (StopReason.ANSWER, [])
    else:
        assert rollout.trajectory.flags == ["row_error"]
        assert "needs a judge" in (rollout.trajectory.error or "")


async def test_broken_invariant_is_a_flagged_rollout() -> None:
    rollout = await run_loop([], server=ScriptedServer([answer("B")], extra_logprobs=1))
    assert rollout.trajectory.flags == ["invariant"]
    assert "log-probabilities" in (rollout.trajectory.error or "")
    assert_one_masked_token(rollout)


async def test_model_without_processor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.verl_plugin.harness.processor", lambda family: None)
    monkeypatch.setattr("verl.experimental.agent_loop.agent_loop.create_continuous_token_builder", lambda *a, **k: None)
    with pytest.raises(SetupError, match="processor"):
        await run_loop([answer("B")])


# ----------------------------------------------------------------------------------------------------- policy versions


async def test_policy_versions_span_all_turns() -> None:
    """Whatever their order: servers get a new policy one after the other."""
    rollout = await run_loop([], server=ScriptedServer(LOOK_TWICE, global_steps=[5, 7, 6]))
    assert rollout.output.extra_fields["min_global_steps"] == 5
    assert rollout.output.extra_fields["max_global_steps"] == 7


async def test_rollout_that_never_reached_the_server_has_no_policy_version() -> None:
    rollout = await run_loop([], video_path="no/such/file.mp4")
    assert rollout.output.extra_fields["min_global_steps"] == -1
    assert rollout.output.extra_fields["max_global_steps"] == -1


# -------------------------------------------------------------------------------------------------------- prefix cache


@pytest.mark.parametrize("first", [48, 0, None])
async def test_cached_tokens_are_those_of_the_first_prompt(first: int | None) -> None:
    """Later prompts repeat the rollout's own tokens, which says nothing of what a group shares."""
    rollout = await run_loop([], server=ScriptedServer(LOOK_TWICE, cached_tokens=[first, 500, 600]))
    assert rollout.output.extra_fields["num_cached_tokens"] == first
