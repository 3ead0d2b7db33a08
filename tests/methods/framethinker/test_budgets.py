"""FrameThinker's token budgets in replay: what zooms take of the response, and a turn that is cut."""

from pathlib import Path

import pytest

from tests.methods.framethinker.scripted import ANSWER, QUESTION, size
from tests.turns.framethinker import choose
from tests.videos.files import MakeVideo
from verl_video_tools.core.errors import UsageError
from verl_video_tools.replay import replay


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a real Qwen2.5-VL processor that takes pictures up to 1280 tokens."""
    from examples.tiny_models.tiny_model import make_processor, make_tokenizer

    folder = tmp_path_factory.mktemp("processor")
    made = make_processor(make_tokenizer())
    made.image_processor.size = {"shortest_edge": 28 * 28, "longest_edge": 1280 * 28 * 28}
    made.save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    return str(folder)


def test_the_fourth_zoom_exceeds_the_response_budget(make_video: MakeVideo, processor: str) -> None:
    """644x364 pixels are 299 tokens: three zooms of 8 frames fit into 8192 tokens, a fourth does not."""
    turns = [*(choose(10 * number, 10 * number + 50) for number in range(1, 5)), ANSWER]
    result = replay("framethinker", make_video(300, width=640, height=360), QUESTION, "B", turns, processor=processor)
    assert {size(frame) for frame in result["initial_frames"]} == {(644, 364)}
    assert (result["stop_reason"], len(result["turns"])) == ("response_budget", 4)
    refused = result["turns"][-1]
    assert refused["calls"][0]["error"].startswith("response_budget: ")
    assert (refused["calls"][0]["frames"], refused["observation"]) == ([], None)
    assert (result["counts"]["executed_calls"], result["reward"]["score"]) == (3, 0.0)


def test_three_zooms_fit(make_video: MakeVideo, processor: str) -> None:
    turns = [*(choose(10 * number, 10 * number + 50) for number in range(1, 4)), ANSWER]
    result = replay("framethinker", make_video(300, width=640, height=360), QUESTION, "B", turns, processor=processor)
    assert (result["stop_reason"], result["reward"]["score"]) == ("answer", pytest.approx(1.02))


def test_a_turn_cut_at_its_limit_runs_no_tool(make_video: MakeVideo, processor: str) -> None:
    rambling = choose(100, 200) + " and so on" * 100
    settings = {"max_turn_tokens": 150}
    result = replay("framethinker", make_video(), QUESTION, "B", [rambling], settings=settings, processor=processor)
    (turn,) = result["turns"]
    assert rambling.startswith(turn["text"]) and len(turn["text"]) < len(rambling)
    assert (turn["calls"][0]["ok"], result["stop_reason"], result["reward"]["score"]) == (False, "response_budget", 0.0)


def test_missing_processor_is_named(make_video: MakeVideo, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"model '.*nothing' is no folder here"):
        replay("framethinker", make_video(), QUESTION, "B", [ANSWER], processor=str(tmp_path / "nothing"))
