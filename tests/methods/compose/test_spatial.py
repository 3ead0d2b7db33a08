"""The packaged composition `spatial`: small frames, few tokens, and a reward that a zoom is part of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from verl_video_tools.core.types import PixelEnvelope, Sample
from verl_video_tools.data.sft import scripted_oracle
from verl_video_tools.data.synthetic_rows import load_rows, make_demo, question_from_row
from verl_video_tools.methods import get_method
from verl_video_tools.methods.compose import Compose
from verl_video_tools.methods.toolkit.oracle import synthetic_fields, video_info
from verl_video_tools.replay import replay
from verl_video_tools.rollout.cost import max_cost_call
from verl_video_tools.synthetic import base_model_dir
from verl_video_tools.synthetic.spatial import spatial_questions, spatial_spec
from verl_video_tools.video.resize import image_tokens

SETTINGS = {**synthetic_fields(Compose), "file": "spatial"}
FACTOR = 28
END_OF_TURN_TOKENS = 2


@pytest.fixture(scope="module")
def method() -> Compose:
    made = get_method("compose", **SETTINGS)
    assert isinstance(made, Compose)
    return made


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = make_demo(tmp_path_factory.mktemp("spatial"), 1, 1, agent_names=["compose"], num_processes=1, spatial=True)
    return load_rows(folder / "train.parquet")


def play(row: dict[str, Any], turns: list[str]) -> dict[str, Any]:
    extra, truth = row["extra_info"], row["reward_model"]["ground_truth"]
    base = str(base_model_dir())
    return replay("compose", extra["video_path"], extra["question"], truth, turns, extra, SETTINGS, processor=base)


def test_the_expert_earns_everything_within_the_budgets_of_the_tiny_model(
    method: Compose, rows: list[dict[str, Any]]
) -> None:
    expert = scripted_oracle(method, answers_in_words=True)
    for row in rows:
        result = play(row, list(expert.script(*question_from_row(row)).turns))
        assert result["stop_reason"] == "answer"
        assert result["reward"] == pytest.approx({"score": 1.3, "accuracy": 1.0, "format": 0.1, "tool": 0.2})
        calls = [call for turn in result["turns"] for call in turn["calls"]]
        assert [call["name"] for call in calls] == ["crop_video", "zoom"]
        sizes = [{(frame["width"], frame["height"]) for frame in call["frames"]} for call in calls]
        assert sizes == [{(28, 28)}, {(56, 56)}]
        assert {(frame["width"], frame["height"]) for frame in result["initial_frames"]} == {(28, 28)}


def test_who_guesses_right_is_paid_less_and_who_zooms_in_vain_no_more(rows: list[dict[str, Any]]) -> None:
    row = rows[0]
    _, question = question_from_row(row)
    wrong = next(letter for letter in question.options if letter != question.answer)
    call = '{"name": "zoom", "arguments": {"time": 0, "box": [0, 0, 16, 16]}}'
    zoom = f"<think>0.0s</think>\n<tool_call>\n{call}\n</tool_call>"

    def score(letter: str, *calls: str) -> float:
        answer = f"<think>nothing</think>\n<answer>{letter}</answer>"
        reward: dict[str, float] = play(row, [*calls, answer])["reward"]
        return reward["score"]

    assert score(question.answer) == pytest.approx(1.1)
    assert score(question.answer, zoom) == pytest.approx(1.3)
    assert score(wrong) == score(wrong, zoom) == pytest.approx(0.1)


def test_every_turn_and_the_longest_rollout_of_the_expert_fit(method: Compose) -> None:
    tokenizer = AutoTokenizer.from_pretrained(base_model_dir())
    expert = scripted_oracle(method, answers_in_words=True)

    def tokens(text: str) -> int:
        return len(tokenizer.encode(text))

    assert method.max_turn_tokens == 96
    longest = 0
    for spec in map(spatial_spec, range(100)):
        for question in spatial_questions(spec, 4, seed=0):
            turns = [tokens(turn) + END_OF_TURN_TOKENS for turn in expert.script(spec, question).turns]
            assert max(turns) <= method.max_turn_tokens
            longest = max(longest, sum(turns))
    info, envelope, sample = video_info(spec), PixelEnvelope(FACTOR, FACTOR**2, 50_176), Sample("", "", "", "mc")
    frame = tokens("299.5s <|vision_start|><|vision_end|>\n")
    around = tokens("\n<|im_start|>user\n<tool_response>\n\n</tool_response><|im_end|>\n<|im_start|>assistant\n")
    first = method.plan_initial_frames(info, sample, envelope)
    assert image_tokens(first.width, first.height, FACTOR) == 1 and len(first) == 8
    call = max_cost_call(method, info, envelope)
    assert call is not None and len(call) == 8 and image_tokens(call.width, call.height, FACTOR) == 1
    limits = method.recipe_budget
    asked = tokens(Path(SETTINGS["prompt_file"]).read_text()) + max(
        tokens(question.text) for question in spatial_questions(spec, 50, seed=1)
    )
    assert asked + 8 * (frame + 1) + 3 * around <= limits.prompt_tokens
    zoomed = tokens("299.50 s, part [566, 566, 582, 582] <|vision_start|><|vision_end|>") + 4
    crops = method.max_turns - 2
    assert longest + crops * (8 * (frame + 1) + around) + zoomed + around <= limits.response_tokens
    assert 8 + (method.max_turns - 1) * 8 <= limits.images
