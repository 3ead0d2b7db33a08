"""What a released FrameThinker or VideoBrain reads with `compat="reference"`, letter by letter.

Sentences that the specification quotes are the packaged ones. Where ours stand in the place of others, which are not
ours to ship, a templates file restores theirs; here it holds sentences of the same form.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.methods.doubles import ScoringRetriever
from tests.videos.files import MakeVideo
from verl_video_tools.core.types import FrameRecord, ImagePart, Sample, VideoInfo, content_text
from verl_video_tools.data.sft import execute
from verl_video_tools.methods import get_method

QUESTION = "What happens at 0:34?\nA. a goal\nB. a foul"
SAMPLE = Sample(QUESTION, "B", "v.mp4", "mc")
INFO = VideoInfo(100.1, 3000, 30_000 / 1001, 1280, 720)
LOOK = (0, 428, 856, 1285, 1713, 2142, 2570, 2999)


def images(indices: Sequence[int]) -> list[ImagePart]:
    return [ImagePart(FrameRecord(index, index / 30, 640, 360)) for index in indices]


def user_message(method: str, indices: Sequence[int], **fields: Any) -> str:
    configured = get_method(method, compat="reference", **fields)
    _, user = configured.prompt(SAMPLE, INFO, images(indices))
    return content_text(user.content)


def system_message(method: str, **fields: Any) -> str:
    return content_text(get_method(method, compat="reference", **fields).prompt(SAMPLE, INFO, ())[0].content)


def templates(tmp_path: Path, text: str) -> str:
    path = tmp_path / "templates.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


async def observations(method: str, video: str, turns: Sequence[str], **fields: Any) -> list[str | None]:
    configured = get_method(method, compat="reference", **fields)
    sample = Sample(QUESTION, "B", video, "mc")
    trajectory = await execute(configured, sample, turns, ScoringRetriever())
    return [turn.observation for turn in trajectory.turns]


# --------------------------------------------------------------------------------------------------------- FrameThinker


def framethinker(action: str) -> str:
    return f"<think>so</think><action>{action}</action>"


async def test_framethinker_in_training(make_video: MakeVideo) -> None:
    """Question with its options, blank line, one line per frame; frames and numbers without another word."""
    lines = "\n".join(f"frame {index}: <image>" for index in LOOK)
    assert user_message("framethinker", LOOK) == f"{QUESTION}\n\n{lines}"
    turns = ["get frame number at time 0:34", "choose frames between 100 and 200", "choose frames between 3 and 1"]
    assert await observations("framethinker", make_video(), list(map(framethinker, turns))) == [
        "Frame number at time 0:34 is: 1020.",
        "\n".join(f"frame {index}: <image>" for index in (101, 115, 129, 143, 157, 171, 185, 199)),
        None,  # no error is ever read
    ]


EVALUATION = '''
user = """{question}
{frames}"""
frame = "frame {index}:{image}"
between_frames = ""
answer_only = "Only answer."
'''


async def test_framethinker_in_its_own_evaluation(make_video: MakeVideo, tmp_path: Path) -> None:
    """Its script has neither blank line nor line breaks, and a system prompt of its own for the last attempt."""
    path = templates(tmp_path, EVALUATION)
    joined = "".join(f"frame {index}:<image>" for index in LOOK)
    assert user_message("framethinker", LOOK, templates_file=path) == f"{QUESTION}\n{joined}"
    (shown,) = await observations(
        "framethinker", make_video(), [framethinker("choose frames between 100 and 200")], templates_file=path
    )
    assert shown == "".join(f"frame {index}:<image>" for index in (101, 115, 129, 143, 157, 171, 185, 199))
    assert system_message("framethinker", templates_file=path, answer_only=True) == "Only answer."


def test_the_page_has_the_file_of_the_evaluation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "methods" / "framethinker.md").read_text(encoding="utf-8")
    assert EVALUATION.strip().replace('answer_only = "Only answer."', "").strip() in page


# ----------------------------------------------------------------------------------------------------------- VideoBrain

FORM = "<thinking>...</thinking><tool_call>...</tool_call> or <thinking>...</thinking><answer>...</answer>"
LAST_FORM = "<thinking>...</thinking><answer>...</answer>"
PUBLISHED_FORM = f'''
user = """Q: {{question}}

# Facts:
- Frames: {{num_frames}}
- Rate: {{fps}}

# Form:
Write {FORM}
{{frames}}"""
observation = """Write {FORM}

Sampled:

Change the range or the prompt.
{{frames}}"""
observation_last = """Write {LAST_FORM}

Sampled:

No call is left.
{{frames}}"""
'''
"""The form of the published messages: question, facts, form, frames; and a prefix of several lines, then frames."""


def videobrain(start: int, prompt: str | None = None) -> str:
    arguments = f'"start_frame": {start}, "end_frame": {start + 400}'
    if prompt is None:
        call = f'{{"name": "uniform_sample", "arguments": {{{arguments}}}}}'
    else:
        call = f'{{"name": "clip_sample", "arguments": {{{arguments}, "prompt": "{prompt}"}}}}'
    return f"<thinking>so</thinking><tool_call>{call}</tool_call>"


async def test_videobrain_in_training(make_video: MakeVideo, tmp_path: Path) -> None:
    path = templates(tmp_path, PUBLISHED_FORM)
    lines = "\n".join(f"frame {index}: <image>" for index in LOOK)
    facts = "# Facts:\n- Frames: 3000\n- Rate: 29.97002997002997"  # all digits, as the published formatting gives them
    expected = f"Q: {QUESTION}\n\n{facts}\n\n# Form:\nWrite {FORM}\n{lines}"
    assert user_message("videobrain", LOOK, templates_file=path) == expected

    turns = [videobrain(0), videobrain(400, "a dog"), *(videobrain(start) for start in (800, 1200, 1600))]
    answer = "<thinking>so</thinking><answer>B</answer>"
    read = await observations("videobrain", make_video(), [*turns, answer], templates_file=path)
    sampled = "\n".join(f"frame {index}: <image>" for index in (0, 57, 114, 171, 228, 285, 342, 399))
    assert read[0] == f"Write {FORM}\n\nSampled:\n\nChange the range or the prompt.\n{sampled}"
    assert read[1] is not None and read[1].count("<image>") == 4
    assert [str(text).startswith(f"Write {FORM}\n") for text in read] == [True] * 4 + [False] * 2
    assert str(read[4]).startswith(f"Write {LAST_FORM}\n\nSampled:\n\nNo call is left.\nframe 1600: <image>\n")

    method = get_method("videobrain", compat="reference", templates_file=path)
    sample = Sample(QUESTION, "B", make_video(), "mc", extra_info={"classification": "f"})
    trajectory = await execute(method, sample, [*turns, answer], ScoringRetriever())
    reward = await method.score(trajectory, sample)  # tags in the observations are nobody's tags
    assert reward["score"] == 1.55


def test_prompts_of_a_user_are_taken_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "system.txt"
    path.write_text('Call {"name": "<function-name>", "arguments": { /* params */ }}; {call_frames} frames.\n')
    expected = 'Call {"name": "<function-name>", "arguments": { /* params */ }}; 8 frames.'
    for method in ("framethinker", "videobrain"):
        assert system_message(method, prompt_file=str(path)) == expected
