"""Answers that are segments: what is read, and that no text keeps a reward worker busy."""

import pytest

from verl_video_tools.core.numbers import clock_seconds
from verl_video_tools.core.truths import segment_of
from verl_video_tools.grading.segments import grade_segment, read_segment


@pytest.mark.parametrize(
    ("answer", "segment"),
    [
        ("[2.5, 7]", (2.5, 7.0)),
        ("from  0:02\tto\n0:07", (2.0, 7.0)),
        ("2.5s  -  7 seconds", (2.5, 7.0)),
        ("**[ .5 , 1:00:01.5 ]**", (0.5, 3601.5)),
        ("version 1.2.5 - 7", (2.5, 7.0)),
        ("Start time: 5.2 seconds. End time: 10.1 seconds.", (5.2, 10.1)),
        ("Start time: 5.2 seconds\nEnd time: 10.1 seconds", (5.2, 10.1)),
        ("The event starts at 00:00:05 and ends at 00:00:10.", (5.0, 10.0)),
        ("It begins at 0:02 when a man comes in, and it stops at 1:07.5", (2.0, 67.5)),
        ('{"start": .5, "end": 7}', (0.5, 7.0)),
        ("The start time for this event is 0 seconds, and the end time is 12 seconds.", (0.0, 12.0)),
        ("From 5.2 to 10.1 seconds; the clip lasts from 0 to 30.", (5.2, 10.1)),
        ("starts at 5 s and ends at 7 s, while the whole video runs from 0 to 30", (5.0, 7.0)),
        ("First 1 to 2; no, it starts at 5 and ends at 7.", (5.0, 7.0)),
        ("It starts at 1 and ends at 2. No: 5 to 7.", (5.0, 7.0)),
        ("The action lasts from 5 to 7 seconds.", (5.0, 7.0)),
        ("The clip lasts from 0 to 30.", (0.0, 30.0)),
        ("The clip shows it from 5 to 7.", (5.0, 7.0)),
        ("It ends at 7 and starts at 5.", None),
        ("from 2 minutes 10 seconds to 2 minutes 30 seconds", (130.0, 150.0)),
        ("[2m10s, 2m30s]", (130.0, 150.0)),
        ("from 1.5 to 2.5 minutes", (90.0, 150.0)),
        ("[10, 20] minutes", (600.0, 1200.0)),
        ("It happens from 10 to 20 minutes.", (600.0, 1200.0)),
        ("between 1 minute and 2 minutes", (60.0, 120.0)),
        ("from 50 seconds to 1 min 5 s", (50.0, 65.0)),
        ("1 hour 2 minutes to 1h3m4.5s", (3720.0, 3784.5)),
        ("Start time: 2 minutes. End time: 2 minutes and 10 seconds.", (120.0, 130.0)),
        ("10 to 20 m", (10.0, 20.0)),  # metres, or who knows
        ("from 2:30 to 3:10 minutes", (150.0, 190.0)),
        ("2.5s \u2192 7s", (2.5, 7.0)),
        ("0:02 --> 0:07", (2.0, 7.0)),
        ("00:00:12,500 --> 00:00:14,000", (12.5, 14.0)),  # as subtitles have it
        ("[00:10,120]", (10.0, 120.0)),
        ("从2.5秒到7秒", (2.5, 7.0)),
        ("1分20秒至1分35秒", (80.0, 95.0)),
        ("1分20秒から1分35秒まで", (80.0, 95.0)),
        ("1분 20초부터 1분 35초까지", (80.0, 95.0)),
        ("from about 2.5 seconds to about 7 seconds", (2.5, 7.0)),
        ("between ~2.5s and ~7s", (2.5, 7.0)),
        ("[~2.5, ~7]", (2.5, 7.0)),
        ("2.5s ~7s", (2.5, 7.0)),
        ("from 2.5s through 7s", (2.5, 7.0)),
        ("between the 2.5-second mark and the 7 second mark", (2.5, 7.0)),
        ("from second 2.5 to second 7", (2.5, 7.0)),
        ("It starts at 2.5s and lasts until 7s.", (2.5, 7.0)),
        ("[t=2.50s] to [t=7.00s]", (2.5, 7.0)),  # FrameMind's own labels
        ("from t = 2.5s to t = 7.0s", (2.5, 7.0)),
        ("The clip lasts from 0 to 30. The door opens from about 2.5 to about 7 seconds.", (2.5, 7.0)),
        ("from 2.5 to 7 (about 4.5 seconds)", (2.5, 7.0)),
        ("the first 2 of the 7", None),
        ("1234567890 - 7", None),  # no time has ten digits
        ("7 - 1234567890", None),
        (f"[0:01, 1:{'9' * 5000}]", None),
        (f"{'9' * 5000}:00 - 3", (0.0, 3.0)),
        ("[1, 2:99999999999999999999999999]", None),
        ('["2.5", "7.0"]', (2.5, 7.0)),
        ('["00:02.5", "00:07.0"]', (2.5, 7.0)),
        ('{"timestamp": ["2.5", "7.0"]}', (2.5, 7.0)),
        ('"0:02" to "0:07"', (2.0, 7.0)),
        ("\u201c2.5\u201d\u2013\u201c7.0\u201d", (2.5, 7.0)),
        ("from <2.5 seconds> to <7.0 seconds>", (2.5, 7.0)),
        ("<2.5> -> <7.0>", (2.5, 7.0)),
        ("from 1'30\" to 1'45\"", None),  # minutes and seconds, no quotes
        ('{"time_start": 2.5, "time_end": 7}', (2.5, 7.0)),
        ('{"start_time_1": 2.5, "end_time_1": 7}', (2.5, 7.0)),
        ("_2.5s_ to __7s__", (2.5, 7.0)),
        ("2.5s (start) - 7.0s (end)", (2.5, 7.0)),
        ("times (start) 2.5 (end) 7", (2.5, 7.0)),
        ("frames 402 to 843", None),
        ("between frames [402, 843]", None),
        ("frames 402-843, which is 13.4 s to 28.1 s", (13.4, 28.1)),
        ("frames 13 s to 28 s", (13.0, 28.0)),
        ("the frames 0:13 - 0:28", (13.0, 28.0)),
        ("13,4 - 28,1", (13.4, 28.1)),
        ("from 13,4 s to 28,1 s", (13.4, 28.1)),
        ("1,200 to 1,500", (1200.0, 1500.0)),
        ("[2,7]", (2.0, 7.0)),
    ],
)
def test_what_is_read(answer: str, segment: tuple[float, float] | None) -> None:
    assert read_segment(answer) == segment


@pytest.mark.parametrize(
    ("answer", "is_right"), [("[0, 5]", True), ("[5, 10]", True), ("[0, 4.99]", False), ("[0, 20]", True), ("", False)]
)
def test_an_overlap_of_a_half_is_right(answer: str, is_right: bool) -> None:
    assert grade_segment(answer, "[0, 10]") is is_right


@pytest.mark.parametrize(
    ("truth", "expected"),
    [
        ("[2.5, 7]", (2.5, 7.0)),
        ("[0, 0.5]", (0.0, 0.5)),
        ('["2.5", "7"]', (2.5, 7.0)),
        ("[5, 5]", None),  # no answer can overlap it
        ("[7, 2.5]", None),
        ("[1, 2, 3]", None),
        ("[1, NaN]", None),
        ("[-Infinity, 1]", None),
        ('{"1": 0, "2": 0}', None),
        ("from 1 to 2", None),
    ],
)
def test_a_truth_is_a_list_of_two_ends(truth: str, expected: tuple[float, float] | None) -> None:
    assert segment_of(truth) == expected


@pytest.mark.parametrize("text", ["9" * 5000 + ":00", "0:" + "9" * 5000, "9" * 5000])
def test_a_clock_of_thousands_of_digits_is_none(text: str) -> None:
    """Python refuses to read them."""
    assert clock_seconds(text) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        "9",
        "1.",
        "1:",
        "1:1",
        " ",
        "1 ",
        "1\n \n",
        "1 s",
        "[",
        "[1",
        "[1 ",
        "1,",
        "1 to ",
        "*",
        "start ",
        "start 1",
        "start 1 end ",
        "1 minute ",
        "1 to 2 minutes ",
        "1h",
        "start_",
        "start_1",
        '"1',
        "<1 ",
        "1 (start) ",
        "1,2 ",
        "1,2 - ",
        "frames, ",
        "frames 1 - ",
    ],
)
def test_the_end_of_a_long_answer_is_read(piece: str) -> None:
    """Where patterns read it from each place to its end, 300,000 characters take hours. What they do within cannot be
    counted: there the limit of a test ends this one."""
    answer = piece * (300_000 // len(piece))
    assert read_segment(f"{answer} [1, 2]") == (1.0, 2.0)
    assert grade_segment(f"1{answer}x from 1 to 2", "[1, 2]")
