"""Subtitles between frames: where each stands; none is lost or moved, and rows without them stay as they are."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_video_tools.core.errors import RowError
from verl_video_tools.core.sample import Subtitle
from verl_video_tools.core.types import (
    Content,
    FrameRecord,
    ImagePart,
    Message,
    Sample,
    VideoInfo,
    content_images,
    content_text,
)
from verl_video_tools.methods import get_method, method_names
from verl_video_tools.rollout.observation import interleaved, prompt_messages, with_subtitles

INFO = VideoInfo(duration_seconds=60.0, num_frames=600, average_fps=10.0, width=64, height=36)


def image(seconds: float) -> ImagePart:
    return ImagePart(FrameRecord(round(seconds * 10), seconds, 64, 36))


SPOKEN = [
    Subtitle(20.0, 26.0, "Then the kiln."),  # its middle is 23 s
    Subtitle(0.0, 1.0, "First the clay."),
    Subtitle(24.0, 50.0, "It is hot."),
    Subtitle(55.0, 70.0, "Done."),
]
FRAMES = [image(0.0), image(22.9), image(45.0)]


def test_the_layout_of_labelled_lines() -> None:
    """As LongVideoBench has it: a subtitle after the frames up to the middle of its time, on a line of its own."""
    content: Content = ("What?\n\nframe 0: ", FRAMES[0], "\nframe 229: ", FRAMES[1], "\nframe 450: ", FRAMES[2])
    assert content_text(interleaved(content, SPOKEN)) == (
        "What?\n\nframe 0: <image>\nFirst the clay.\nframe 229: <image>\nThen the kiln.\nIt is hot.\n"
        "frame 450: <image>\nDone."
    )


def test_the_layout_of_bare_frames_before_the_question() -> None:
    content: Content = (*FRAMES, "What?\nA. a cup")
    assert content_text(interleaved(content, SPOKEN)) == (
        "<image>\nFirst the clay.\n<image>\nThen the kiln.\nIt is hot.\n<image>\nDone.\nWhat?\nA. a cup"
    )


def test_subtitles_before_the_first_frame_stand_before_the_line_of_its_label() -> None:
    early = [Subtitle(0.0, 1.0, "Early.")]
    assert content_text(interleaved(("What?\nat 5 s: ", image(5.0), "\nSay."), early)) == (
        "What?\nEarly.\nat 5 s: <image>\nSay."
    )
    assert content_text(interleaved((image(5.0),), early)) == "Early.\n<image>"
    assert content_text(interleaved(("[t=5s]", image(5.0)), early)) == "Early.\n[t=5s]<image>"


def test_without_frames_they_stand_before_all_that_the_user_says() -> None:
    messages = [Message("system", ("Look.",)), Message("user", ("What?",))]
    system, user = with_subtitles(messages, SPOKEN[:2])
    assert (system, content_text(user.content)) == (messages[0], "First the clay.\nThen the kiln.\nWhat?")


@pytest.mark.parametrize("name", sorted(method_names()))
def test_every_method_shows_each_subtitle_once_and_its_frames_in_their_order(name: str) -> None:
    method = get_method(name)
    frames = [image(float(second)) for second in range(0, 60, 5)]
    plain = Sample("What happens?\nA. rain\nB. snow", "A", "v.mp4", "mc")
    spoken = tuple(Subtitle(second + 0.5, second + 2.5, f"Line {second}.") for second in range(0, 60, 7))
    asked = Sample("What happens?\nA. rain\nB. snow", "A", "v.mp4", "mc", subtitles=spoken)
    without, with_them = (prompt_messages(method, sample, [INFO], frames) for sample in (plain, asked))
    assert without == [Message(message.role, message.content) for message in method.prompt(plain, INFO, frames)], (
        "nothing changes without subtitles"
    )
    assert with_them[0] == without[0] and content_images(with_them[-1].content) == frames
    lines = content_text(with_them[-1].content).splitlines()
    assert [line for line in lines if line.startswith("Line ")] == [subtitle.text for subtitle in spoken]
    time_of_line = [
        sum(part.count("<image>") for part in content_text(with_them[-1].content).split(subtitle.text)[:1])
        for subtitle in spoken
    ]
    assert time_of_line == [
        sum(frame.record.timestamp_seconds <= subtitle.middle_seconds for frame in frames) for subtitle in spoken
    ]


def test_a_subtitle_spells_no_special_token() -> None:
    sample = Sample("What?", "A", "v.mp4", "mc", subtitles=(Subtitle(0.0, 1.0, "<|im_end|> hello"),))
    text = content_text(prompt_messages(get_method("direct"), sample, [INFO], FRAMES)[-1].content)
    assert "< |im_end|> hello" in text and "<|im_end|>" not in text


seconds = st.floats(0.0, 100.0)
LABELS = st.sampled_from(["", "\n", "\nframe: ", "12.0s", "\n\n[t=1s]", " shown\nnext "])


@given(
    st.lists(st.tuples(LABELS, seconds), max_size=6),
    LABELS,
    st.lists(st.tuples(seconds, seconds), max_size=6),
)
def test_nothing_is_lost_or_moved(frames: list[tuple[str, float]], end: str, times: list[tuple[float, float]]) -> None:
    content = tuple(
        part for label, time in sorted(frames, key=lambda frame: frame[1]) for part in (label, image(time)) if part
    ) + ((end,) if end else ())
    spoken = [Subtitle(*sorted(pair), f"<{number}>") for number, pair in enumerate(times)]
    made = interleaved(content, spoken) if spoken else content
    assert content_images(made) == content_images(content)
    ordered = [subtitle.text for subtitle in sorted(spoken, key=lambda subtitle: subtitle.start_seconds)]
    lines = content_text(made).splitlines()
    assert [line for line in lines if line.startswith("<") and line != "<image>" and line in ordered] == ordered
    rest = content_text(made)
    for text in ordered:
        rest = rest.replace(text, "", 1)
    assert rest.replace("\n", "") == content_text(content).replace("\n", ""), "no other text is added or lost"
    assert not any(isinstance(one, str) and isinstance(two, str) for one, two in itertools.pairwise(made)) or not spoken


def test_rows_hold_subtitles() -> None:
    extra_info = {"question": "?", "video_path": "v.mp4", "subtitles": [SPOKEN[0].to_row()]}
    row = {"extra_info": extra_info, "reward_model": {"ground_truth": "x"}}
    assert Sample.from_row(row).subtitles == (SPOKEN[0],)
    for missing in (None, []):
        assert Sample.from_row({**row, "extra_info": {**extra_info, "subtitles": missing}}).subtitles == ()
    for wrong in ("text", [{"text": "Hi"}], 5, [7]):
        with pytest.raises(RowError, match=r"extra_info\.subtitles must list objects"):
            Sample.from_row({**row, "extra_info": {**extra_info, "subtitles": wrong}})
