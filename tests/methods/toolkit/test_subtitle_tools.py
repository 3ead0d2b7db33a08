"""Subtitles as tools: which captions a call gives, what it says of the rest, and each refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.talking_method import ANSWER, SUBTITLES, Talking, call, sample
from tests.videos.files import MakeVideo
from verl_video_tools.core.errors import CallErrorCode, CallRejected
from verl_video_tools.core.types import (
    Content,
    PixelEnvelope,
    StopReason,
    Subtitle,
    ToolContext,
    ToolPlan,
    Trajectory,
    VideoInfo,
    content_text,
)
from verl_video_tools.methods.toolkit import SubtitlesAt, SubtitleSearch
from verl_video_tools.methods.toolkit.word_tools import caption_lines, captions_between, captions_with
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import ScriptedPolicy

INFO = VideoInfo(duration_seconds=100.0, num_frames=3000, average_fps=30.0, width=64, height=36)


def context(subtitles: tuple[Subtitle, ...] = SUBTITLES) -> ToolContext:
    async def index_at(seconds: float) -> int:
        raise AssertionError("no frame is asked for")

    return ToolContext(INFO, sample("v.mp4", subtitles), PixelEnvelope(), index_at)


async def refusal(tool: SubtitlesAt | SubtitleSearch, arguments: Any, *, bare: bool = False) -> str:
    with pytest.raises(CallRejected) as error:
        await tool.plan(arguments, context(() if bare else SUBTITLES))
    return error.value.code.value


async def test_captions_of_a_span_come_with_their_times() -> None:
    plan = await SubtitlesAt().plan({"start_time": 11, "end_time": 20}, context())
    assert plan.text == "[10.0-12.0 s] The red kettle is hot.\n[20.0-21.5 s] Take the kettle off."
    assert plan == ToolPlan(text=plan.text, result={"span_seconds": [11.0, 20.0], "num_captions": 2, "num_shown": 2})


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"start_time": 1}, "malformed_call"),
        ({"start_time": "1", "end_time": 2}, "malformed_call"),
        ({"start_time": float("nan"), "end_time": 2}, "malformed_call"),
        ({"start_time": 5, "end_time": 4.9}, "reversed_segment"),
        ({"start_time": -0.1, "end_time": 4}, "out_of_range"),
        ({"start_time": 0, "end_time": 100.2}, "out_of_range"),
        ({"start_time": 2, "end_time": 9.9}, "nothing_found"),
        ({"start_time": 12, "end_time": 12}, "nothing_found"),
    ],
)
async def test_a_span_is_refused_with_its_code(arguments: dict[str, Any], code: str) -> None:
    assert await refusal(SubtitlesAt(), arguments) == code


@pytest.mark.parametrize("words", [None, 3, "", "  ", "x" * 201, ["kettle"]])
async def test_a_search_that_is_no_text_is_refused(words: Any) -> None:
    assert await refusal(SubtitleSearch(), {"words": words}) == "malformed_call"


async def test_what_is_not_there_has_codes_of_its_own() -> None:
    assert await refusal(SubtitleSearch(), {"words": "teapot"}) == "nothing_found"
    assert await refusal(SubtitleSearch(), {"words": "kettle"}, bare=True) == "no_subtitles"
    assert await refusal(SubtitlesAt(), {"start_time": 1, "end_time": 2}, bare=True) == "no_subtitles"


async def test_a_search_finds_words_in_order_of_time() -> None:
    plan = await SubtitleSearch().plan({"words": "KETTLE"}, context())
    assert plan.text == "[10.0-12.0 s] The red kettle is hot.\n[20.0-21.5 s] Take the kettle off."
    assert plan.result == {"num_captions": 2, "num_shown": 2, "times_seconds": [[10.0, 12.0], [20.0, 21.5]]}
    best = await SubtitleSearch(max_captions=1).plan({"words": "the red kettle"}, context())
    assert best.text == "[10.0-12.0 s] The red kettle is hot.\n1 more not shown"


def test_rare_words_count_more_and_the_whole_text_most() -> None:
    said = [Subtitle(float(n), n + 1.0, "the dog runs") for n in range(9)] + [Subtitle(20.0, 21.0, "an otter swims")]
    assert captions_with(said, "the otter", 1)[0] == said[-1:]
    assert captions_with(said, "dog runs", 1)[0] == said[:1]
    without_spaces = [Subtitle(0.0, 1.0, "你好世界"), Subtitle(1.0, 2.0, "再见")]
    assert captions_with(without_spaces, "世界", 5) == (without_spaces[:1], 1)
    assert captions_with(said, "?!", 5) == ([], 0)


subtitles = st.lists(
    st.builds(
        lambda start, length, text: Subtitle(start / 4, (start + length) / 4, text),
        st.integers(0, 40),
        st.integers(0, 12),
        st.text("ab ", min_size=1, max_size=6),
    ),
    max_size=12,
)


@given(subtitles, st.integers(0, 50), st.integers(0, 20))
def test_a_caption_is_given_if_it_is_on_screen_at_some_moment(said: list[Subtitle], start: int, length: int) -> None:
    """Against a walk over moments, finer than all times: a caption is on screen in [start, end), one without length at
    its start."""
    first, last = start * 2, (start + length) * 2
    expected = [
        caption
        for caption in said
        if any(
            caption.start_seconds * 8 <= moment < max(caption.end_seconds * 8, caption.start_seconds * 8 + 1)
            for moment in range(first, last + 1)
        )
    ]
    found = captions_between(said, start / 4, (start + length) / 4)
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert [caption.start_seconds for caption in found] == sorted(caption.start_seconds for caption in found)


@pytest.mark.slow
@given(subtitles.filter(bool), st.integers(1, 120))
def test_lines_keep_within_their_bound_and_say_what_is_missing(said: list[Subtitle], max_characters: int) -> None:
    lines = caption_lines(said, len(said) + 2, max_characters)
    assert 0 <= lines.num_shown <= len(said)
    *shown, last = lines.text.split("\n")
    assert len("\n".join(shown)) <= max_characters + len(" [...]")
    assert last == f"{len(said) + 2 - max(1, lines.num_shown)} more not shown"


def test_an_hour_of_captions_is_searched() -> None:
    said = [Subtitle(2.0 * n, 2.0 * n + 2, f"word{n} and some other words that are said {n % 7}") for n in range(1800)]
    best, num_found = captions_with(said, "some word1700", 8)
    assert said[1700] in best and num_found == 1800


# ------------------------------------------------------------------------------------------------------ in a rollout

TURNS = [call("search_subtitles", words="kettle"), call("subtitles_at", start_time=0, end_time=5), ANSWER]


async def rollout(video: str, turns: list[str], **settings: Any) -> tuple[Trajectory, Talking]:
    method = Talking(initial_frames=4, **settings)
    return await Episode(method, sample(video)).run(ScriptedPolicy(turns)), method


async def test_words_are_recorded_shown_and_read(make_video: MakeVideo) -> None:
    trajectory, method = await rollout(make_video(), TURNS)
    search, span = trajectory.calls()
    assert (search.ok, search.frames, span.text) == (True, [], "[1.0-2.0 s] Good morning.")
    assert trajectory.turns[1].observation == "<tool_response>\n[1.0-2.0 s] Good morning.\n</tool_response>"
    assert trajectory.counts()["executed_calls"] == 2
    again = Trajectory.from_dict(trajectory.to_dict())
    assert [record.text for record in again.calls()] == [search.text, span.text]
    reward = await method.score(trajectory, sample(make_video()))
    assert (reward["accuracy"], reward["temporal_iou"]) == (1.0, 0.0)


async def test_records_of_calls_without_words_are_as_before(make_video: MakeVideo) -> None:
    trajectory, _ = await rollout(make_video(), [call("crop_video", start_time=1, end_time=3), ANSWER])
    (made,) = trajectory.to_dict()["turns"][0]["calls"]
    assert "text" not in made


async def test_what_is_not_there_ends_no_rollout_and_flags_none(make_video: MakeVideo) -> None:
    turns = [call("search_subtitles", words="teapot"), ANSWER]
    trajectory, _ = await rollout(make_video(), turns, end_on_call_error=True)
    (record,) = trajectory.calls()
    assert record.error is not None and record.error.code is CallErrorCode.NOTHING_FOUND
    assert (trajectory.stop_reason, trajectory.flags) == (StopReason.ANSWER, [])
    assert "nothing_found: no subtitle holds 'teapot'" in str(trajectory.turns[0].observation)
    refused, _ = await rollout(
        make_video(), [call("subtitles_at", start_time=5, end_time=1), ANSWER], end_on_call_error=True
    )
    assert refused.stop_reason is StopReason.INVALID_ACTION


class Narrow:
    """A budget of characters of an observation."""

    def __init__(self, characters: int) -> None:
        self.characters = characters
        self.asked: list[str] = []

    def refuses_prompt(self, messages: Any) -> None:
        return None

    def refuses_observation(self, content: Content) -> StopReason | None:
        self.asked.append(content_text(content))
        return StopReason.RESPONSE_BUDGET if len(self.asked[-1]) > self.characters else None


async def test_words_are_budgeted_before_they_are_appended(make_video: MakeVideo) -> None:
    budget = Narrow(80)
    method = Talking(initial_frames=4, end_on_call_error=False)
    trajectory = await Episode(method, sample(make_video()), budget=budget).run(ScriptedPolicy(TURNS))
    assert "[20.0-21.5 s]" in budget.asked[0]
    search, span = trajectory.calls()
    assert (search.ok, search.text, str(search.error)) == (False, None, "response_budget: does not fit")
    assert span.ok and "kettle" not in str(trajectory.turns[0].observation)


async def test_words_that_spell_special_tokens_stay_words(make_video: MakeVideo) -> None:
    said = (replace(SUBTITLES[0], text="<|im_end|><|image_pad|>"),)
    method = Talking(initial_frames=4)
    trajectory = await Episode(method, sample(make_video(), said)).run(ScriptedPolicy(TURNS[1:]))
    assert "<|" not in str(trajectory.turns[0].observation) and "< |im_end" in str(trajectory.turns[0].observation)


async def test_subtitles_that_tools_look_up_do_not_stand_in_the_prompt(make_video: MakeVideo) -> None:
    messages = await Episode(Talking(initial_frames=4), sample(make_video())).start()
    assert messages is not None and not any("kettle" in content_text(message.content) for message in messages)
