"""`compat="reference"` of FrameThinker and VideoBrain against an independent reading of their specifications.

Random rollouts are played through both: what answers each turn, where the rollout ends, and what it earns. What still
differs is listed in the methods' pages; the tests that follow each fuzz have the inputs.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.methods import published_framethinker, published_videobrain
from tests.methods.doubles import StubJudge
from tests.methods.frame_index import awaited
from verl_video_tools.core.errors import CallRejected
from verl_video_tools.core.types import (
    AnswerLabel,
    CallRecord,
    FrameRecord,
    ImagePart,
    Method,
    PixelEnvelope,
    Retriever,
    Sample,
    StopReason,
    ToolContext,
    ToolOutcome,
    Trajectory,
    Turn,
    VideoInfo,
    content_text,
)
from verl_video_tools.methods import get_method

NUM_TURNS = 8_000
"""Of each method, at least; a rollout has one or two of them."""

VIDEOS = [
    VideoInfo(100.0, 3000, 30.0, 1280, 720),
    VideoInfo(300.0, 9000, 30.0, 640, 360),
    VideoInfo(300.03, 9001, 30.0, 640, 360),
    VideoInfo(12.0, 300, 25.0, 320, 240),
    VideoInfo(900.9, 27_000, 30_000 / 1001, 1920, 1080),
    VideoInfo(0.4, 10, 25.0, 320, 240),
]


# ----------------------------------------------------------------------------------------------------- ours, on records


@dataclass(frozen=True)
class Played:
    """What a method made of some turns: an observation for each, None where the rollout ended; and its record."""

    observations: list[str | None]
    trajectory: Trajectory


async def play(method: Method, turns: Sequence[str], info: VideoInfo, retriever: Retriever | None = None) -> Played:
    """The loop of a rollout without pixels."""
    sample = Sample("?", "B", "v.mp4", "mc")
    context = ToolContext(info, sample, PixelEnvelope(), awaited(lambda _: 0), retriever)
    played = Played([], Trajectory(method.name, "?", info))
    tools = method.tools(info)
    for number, text in enumerate(turns, start=1):
        parsed = method.parse(text)
        turn = Turn(text, thought=parsed.thought, answer=parsed.answer, well_formed=parsed.well_formed)
        played.trajectory.turns.append(turn)
        played.trajectory.answer = parsed.answer
        observation = None
        if parsed.answer is None and len(parsed.calls) == 1 and number < method.max_turns:
            (call,) = parsed.calls
            outcome = await _carry_out(call.name, dict(call.arguments), tools, context) if call.error is None else None
            if outcome is not None:
                turn.calls.append(outcome.record)
                observation = content_text(method.observe([outcome], method.max_turns - number))
        turn.observation = observation
        played.observations.append(observation)
        if observation is None:
            break
    played.trajectory.stop_reason = StopReason.ANSWER if played.trajectory.answer else StopReason.NO_ACTION
    return played


async def _carry_out(name: str, arguments: dict[str, Any], tools: Any, context: ToolContext) -> ToolOutcome | None:
    try:
        plan = await tools[name].plan(arguments, context)
    except (CallRejected, KeyError):
        return None
    indices = () if plan.frames is None else plan.frames.indices or ()
    frames = [FrameRecord(index, 0.0, 32, 32) for index in indices]
    record = CallRecord(name, arguments, ok=True, frames=frames, result=dict(plan.result))
    return ToolOutcome(record, tuple(map(ImagePart, frames)))


# --------------------------------------------------------------------------------------------------------- FrameThinker


def _framethinker_turn(rng: random.Random, info: VideoInfo, said: list[str]) -> str:
    """One turn: mostly sensible, sometimes with a piece of it missing, doubled or of another turn."""
    start = rng.choice([0, 1, 99, 100, 101, rng.randrange(info.num_frames), info.num_frames, 10**20])
    end = rng.choice([start + 8, start + 9, start + 10, start + 13, start + 100, info.num_frames - 1, info.num_frames])
    end = rng.choice([end] * 7 + [end + 1, end - 1, 10**20])
    time = rng.choice(["0:34", "00:34", "0:00", "1:5", "99:99", "1:02:03", "34", "0:34.", "-1:10", "1234:56", "٣:٣٤"])
    tail = rng.choice(["", "", "", " ", " please", ".5", ", 8 frames", ":", f" and {start}"])
    segment = f"choose frames between {start} and {end}"
    action = rng.choice(
        [
            *[segment] * 6,
            *[f"get frame number at time {time}"] * 4,
            *["output answer: B"] * 2,
            *["output answer: C", "output answer:B", "output answer: B. dog", "output answer:", "output answer B"],
            f"get frame number at time {time} or {segment}",
            f"now {segment}",
            f"get frame number at time\n{time}",
            f"choose frames between {start}  and {end}",
            *(said[-1:] or [""]),
        ]
    )
    said.append(action)
    numbers = rng.choice(
        [*[f"{start} and {end}"] * 4, f"{end} {start}", f"near 0:34, {start}-{end}", "none", f"{start}"]
    )
    thought = f"<think>{numbers}{tail if rng.random() < 0.2 else ''}</think>"
    block = f"<action>{rng.choice(['', '', ' '])}{action}{tail if rng.random() < 0.2 else ''}</action>"
    turn = thought + block
    if rng.random() < 0.12:
        turn = rng.choice(
            [
                block,
                thought,
                block + thought,
                turn + turn,
                turn + f"<think>{start} {end}</think>",
                turn + "Frame number at time 0:34 is: 815." + thought + "<action>output answer: B</action>",
                "</action>" + turn,
                turn.replace("</think>", "", 1),
                turn.replace("<action>", "<action><action>", 1),
                turn + "<think>",
            ]
        )
    return turn


@pytest.mark.slow
async def test_framethinker_gives_what_is_published() -> None:
    rng = random.Random(18)
    method = get_method("framethinker", compat="reference")
    paid: set[float] = set()
    num_turns = 0
    while num_turns < NUM_TURNS:
        info = rng.choice(VIDEOS)
        said: list[str] = []
        turns = [_framethinker_turn(rng, info, said) for _ in range(rng.randrange(1, 5))]
        turns.append(rng.choice(["<think>x</think><action>output answer: B</action>", turns[-1]]))
        question = rng.choice(["What happens?", "What happens at 0:34?", "Between 1:02:03 and 2:00?"])
        played = await play(method, turns, info)
        environment = published_framethinker.Environment(info.num_frames, info.average_fps)
        num_turns += len(played.observations)
        for number, (text, observation) in enumerate(zip(turns, played.observations, strict=False), start=1):
            expected = environment.reply(text) if number < 5 else None
            assert observation == expected, (text, info)
        transcript = "\n".join(part for turn in played.trajectory.turns for part in (turn.text, turn.observation or ""))
        try:
            expected_score = published_framethinker.score(transcript, "B", question, info.num_frames)
        except IndexError:  # the published reward fails; ours finds the rollout inconsistent
            expected_score = published_framethinker.NOTHING
        reward = await method.score(played.trajectory, Sample(question, "B", "v.mp4", "mc"))
        got = (reward["score"], reward["accuracy"], reward["ccv"], reward["action_bonus"])
        assert got == pytest.approx(expected_score), (transcript, question, info)
        paid.add(round(reward["score"], 2))
    assert paid == {0.0, 1.0, 1.02, 1.52}  # every outcome was met


def test_framethinker_initial_frames() -> None:
    method = get_method("framethinker", compat="reference")
    for info in VIDEOS:
        look = method.plan_initial_frames(info, Sample("?", "B", "v.mp4", "mc"), PixelEnvelope())
        assert (
            list(look.indices or ())
            == published_framethinker.Environment(info.num_frames, info.average_fps).plan_initial_frames()
        )


@pytest.mark.parametrize(
    ("turn", "published", "ours"),
    [
        pytest.param(f"get frame number at time {'0' * 50}:34", 1020, None, id="a time of more than 40 characters"),
        pytest.param("get frame number at time 0:34", 1020, 1020, id="0:34"),
    ],
)
async def test_where_framethinkers_environment_still_differs(turn: str, published: int, ours: int | None) -> None:
    text = f"<think>so</think><action>{turn}</action>"
    told = published_framethinker.Environment(3000, 30.0).reply(text)
    assert told is not None and told.endswith(f"is: {published}.")
    played = await play(get_method("framethinker", compat="reference"), [text], VIDEOS[0])
    assert played.observations == [None if ours is None else told]


async def test_where_framethinkers_published_reward_fails() -> None:
    """A clock that no thought follows: there is no reply to look into."""
    clock_last = "<think>a</think><think>b</think><action>get frame number at time 0:34</action>"
    transcript = f"{clock_last}<action>output answer: B</action>"
    with pytest.raises(IndexError):
        published_framethinker.score(transcript, "B", "?", 3000)
    trajectory = Trajectory("framethinker", "?", VIDEOS[0], turns=[Turn(transcript)], stop_reason=StopReason.ANSWER)
    method = get_method("framethinker", compat="reference")
    assert (await method.score(trajectory, Sample("?", "B", "v.mp4", "mc")))["ccv"] == 0.0


# ----------------------------------------------------------------------------------------------------------- VideoBrain


class Scattered:
    """Likes candidates by an arithmetic of their numbers and the text."""

    def best(self, candidates: Sequence[int], text: str) -> list[int]:
        return sorted(candidates, key=lambda index: ((37 * index + len(text)) % 101, index))[:4]

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        return self.best(candidates, text)[:num_frames]


def _videobrain_turn(rng: random.Random, info: VideoInfo, said: list[str]) -> str:
    def number() -> Any:
        usual = rng.choice([0, 7, 8, 9, 100, rng.randrange(info.num_frames), info.num_frames - 1, info.num_frames])
        if rng.random() < 0.9:
            return usual
        return rng.choice(
            [-1, "5", " 5 ", "5.5", 105.9, True, None, [], {}, 10**30, float(usual), "x", info.num_frames + 9]
        )

    start = number()
    end = start + rng.choice([7, 8, 9, 100]) if isinstance(start, int) and rng.random() < 0.7 else number()
    arguments: dict[str, Any] = {"start_frame": start, "end_frame": end}
    name = rng.choice(["uniform_sample", "clip_sample", "clip_sample"])
    if name == "clip_sample" or rng.random() < 0.05:
        arguments["prompt"] = rng.choice(["dog", " dog ", "Dog", "cat", "red ball", "", " ", 5, None])
    if rng.random() < 0.05:
        arguments.pop(rng.choice(list(arguments)))
    key = rng.choice(["arguments"] * 19 + ["parameters"])
    call: Any = {"name": name, key: arguments}
    if rng.random() < 0.12:
        call = rng.choice(
            [
                {**call, "parameters": {"start_frame": 0, "end_frame": 50}},
                {"action": "zoom"},
                {"name": "zoom", "arguments": {}},
                {},
            ]
        )
    text = json.dumps(call, ensure_ascii=False)
    if rng.random() < 0.04:
        text = rng.choice([text[:-1], text + "x", f"```json\n{text}\n```", "  ", f"\n{text}\n"])
    block = f"<tool_call>{text}</tool_call>"
    if said and rng.random() < 0.15:
        block = rng.choice(said)
    said.append(block)
    answer = f"<answer>{rng.choice(['B', 'B', 'C', ' B ', '', 'B'])}</answer>"
    thought = f"<thinking>{rng.choice(['so', 'so', 'so', 'so', ' '])}</thinking>"
    turn = thought + (block if rng.random() < 0.85 else answer)
    if rng.random() < 0.12:
        turn = rng.choice(
            [
                block,
                answer,
                turn + thought + answer,
                turn + answer,
                answer + thought,
                thought + turn,
                turn + turn,
                f"<thinking>{block}</thinking>{answer}",
                "<thinking>I should write <answer></thinking>" + block,
                block + "<thinking>",
                "</thinking>" + thought + answer,
                block + "<thinking>x</thinking><answer>",
                "</answer>" + turn,
            ]
        )
    return turn


@pytest.mark.slow
async def test_videobrain_gives_what_is_published() -> None:
    rng = random.Random(18)
    method = get_method("videobrain", compat="reference")
    retriever = Scattered()
    paid: set[float] = set()
    num_turns = 0
    while num_turns < NUM_TURNS:
        info = rng.choice(VIDEOS)
        said: list[str] = []
        turns = [_videobrain_turn(rng, info, said) for _ in range(rng.randrange(1, 8))]
        turns.append(rng.choice(["<thinking>x</thinking><answer>B</answer>", turns[-1]]))
        played = await play(method, turns, info, retriever)
        num_turns += len(played.observations)
        environment = published_videobrain.Environment(info.num_frames, retriever.best)
        for number, (text, observation) in enumerate(zip(turns, played.observations, strict=False), start=1):
            assert _frames_of(observation) == (_reply(environment, text) if number < 6 else None), (text, info)
        transcript = "\n".join(
            part for turn in played.trajectory.turns for part in (turn.text, _without_tags(turn.observation or ""))
        )
        classification = rng.choice(["a", "b", "e", "f", "G", " h ", "c", "d", "", None, "direct"])
        sample, worth, judge = _question(rng)
        sample.extra_info["classification"] = classification
        try:
            expected = published_videobrain.score(transcript, worth, classification)
        except (AttributeError, TypeError):  # the published reward fails; ours says that the gate does
            expected = (0.0, 0.0, 0.0, 0.0)
        reward = await method.score(played.trajectory, sample, judge)
        got = (reward["score"], reward["format"], reward["accuracy"], reward["behavior"])
        assert got == pytest.approx(expected), (transcript, classification, sample)
        paid.add(round(reward["score"], 2))
    assert paid >= {0.0, 0.05, 0.25, 0.55, 0.75, 1.05, 1.55}  # every outcome was met


def _question(rng: random.Random) -> tuple[Sample, Callable[[str], float], StubJudge]:
    """A question, what each answer to it is worth, and the judge that says so of open ones."""
    label = rng.choice(list(AnswerLabel))
    if rng.random() < 0.5:
        sample = Sample("What?\nA. a\nB. b\nC. c", "B", "v.mp4", "mc", ("a", "b", "c"))
        return sample, lambda answer: float(answer == "B"), StubJudge(label)
    return Sample("What?", "a goal", "v.mp4", "open"), lambda answer: label.score, StubJudge(label)


def _reply(environment: published_videobrain.Environment, text: str) -> list[int] | None:
    try:
        return environment.reply(text)
    except (AttributeError, TypeError, ValueError):  # the published environment fails; ours ends the rollout
        return None


def _frames_of(observation: str | None) -> list[int] | None:
    return None if observation is None else [int(index) for index in re.findall(r"frame (\d+): <image>", observation)]


def _without_tags(observation: str) -> str:
    return re.sub(r"</?(thinking|tool_call|answer)>", "", observation)


def _call_of(arguments: str) -> str:
    return f'<thinking>so</thinking><tool_call>{{"name": "clip_sample", "arguments": {arguments}}}</tool_call>'


@pytest.mark.parametrize(
    ("turn", "published"),
    [
        pytest.param(
            _call_of(json.dumps({"start_frame": 0, "end_frame": 4, "prompt": "dog " * 1000})), [0, 1, 2, 3], id="long"
        ),
        pytest.param(
            _call_of(json.dumps({"start_frame": 0, "end_frame": 4, "prompt": "dog", "more": [[]] * 64})),
            [0, 1, 2, 3],
            id="many brackets",
        ),
        pytest.param(
            _call_of('{"start_frame": 0, "end_frame": 4, "prompt": "dog", "more": NaN}'), [0, 1, 2, 3], id="NaN"
        ),
        pytest.param(
            _call_of('{"start_frame": 0, "end_frame": 4, "prompt": "\\ud800"}'), [0, 1, 2, 3], id="half a surrogate"
        ),
        pytest.param(
            '<thinking>so</thinking><tool_call>{"action": "choose_frames", "frame_range": [0, 100]}</tool_call>',
            [1, 15, 29, 43, 57, 71, 85, 99],
            id="a zoom of FrameThinker",
        ),
    ],
)
async def test_where_videobrains_environment_still_differs(turn: str, published: list[int]) -> None:
    """Ours ends the rollout: a record could not carry the call, or it is one of another method."""
    environment = published_videobrain.Environment(3000, Scattered().best)
    assert environment.reply(turn) == published
    played = await play(get_method("videobrain", compat="reference"), [turn], VIDEOS[0], Scattered())
    assert played.observations == [None]


@pytest.mark.parametrize(
    ("turn", "fails"),
    [
        ("<thinking>so</thinking><tool_call>[1, 2]</tool_call>", AttributeError),
        ('<thinking>so</thinking><tool_call>{"name": "uniform_sample", "arguments": null}</tool_call>', AttributeError),
    ],
)
async def test_where_videobrains_published_reward_fails(turn: str, fails: type[Exception]) -> None:
    text = f"{turn}<thinking>so</thinking><answer>B</answer>"
    with pytest.raises(fails):
        published_videobrain.gate(text)
    trajectory = Trajectory("videobrain", "?", VIDEOS[0], turns=[Turn(text)], stop_reason=StopReason.ANSWER)
    method = get_method("videobrain", compat="reference")
    assert (await method.score(trajectory, Sample("?", "B", "v.mp4", "mc")))["score"] == 0.0
