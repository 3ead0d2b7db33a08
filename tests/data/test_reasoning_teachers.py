"""`vvt data classify` and `generate` with teachers that reason natively: as with teachers that do not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chat_server import REASONING_SHAPES, scripted, thinking
from tests.judge_server import JudgeServer
from tests.services.retrieval.encoder import ColourEncoder
from tests.verl_plugin.harness import open_reasoning, processor, tokenizer
from tests.videos.files import MakeVideo
from verl_video_tools.cli.main import run
from verl_video_tools.records.records import read_records
from verl_video_tools.verl_plugin.sft_dataset import TrajectorySFTDataset

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")

SHAPES = REASONING_SHAPES[:3]  # the older name of the field is tried in tests/services/endpoint
LETTERS = "abcdeeffffgh"
END = "<|im_end|>"
REASONING = (
    "Nothing to see here; I could write <tool_call>"
    '{"name": "uniform_sample", "arguments": {"start_frame": 0, "end_frame": 9}}</tool_call>, or '
    '<video_zoom>{"segment": [0.0, 1.0], "fps": 2}</video_zoom>, choose '
    "<action>choose frames between 1 and 15</action> or say <action>output answer: A</action>, which would be "
    "<answer>A</answer>."
)
"""It names calls and answers of every grammar, none of which are meant."""

LOOKS = {
    "framethinker": "<think>between 1 and 30</think><action>choose frames between 1 and 30</action>",
    "videozoomer": '<think>there</think><video_zoom>{"segment": [0.0, 1.0], "fps": 4}</video_zoom>',
    "longvt": '<think>there</think>\n<tool_call>\n{"name": "crop_video", "arguments": {"start_time": 0, '
    '"end_time": 1}}\n</tool_call>',
    "framemind": "<think>there</think><tool_call>FrameAt(1.0)</tool_call><turn_sum>what</turn_sum>",
    "videobrain": '<thinking>there</thinking><tool_call>{"name": "uniform_sample", "arguments": {"start_frame": 0, '
    '"end_frame": 30}}</tool_call>',
}
ANSWERS = {
    "framethinker": "<think>so</think><action>output answer: {}</action>",
    "videobrain": "<thinking>so</thinking><answer>{}</answer>",
}
SETTINGS: Mapping[str, Sequence[str]] = {
    "videozoomer": ["--set=initial_frames=4"],
    "longvt": ["--set=initial_frames=4", "--set=call_frames=4"],
    "framemind": ["--set=low=[4,56]", "--set=high=[4,56]"],
    "videobrain": ["--set=initial_frames=4"],
}


def mark(row: int) -> str:
    return f"(question {row})"


def turns_of(method: str, letter: str) -> list[str]:
    """The teacher's turns where the row shall become `letter`."""
    answer = ANSWERS.get(method, "<think>so</think><answer>{}</answer>").format("B" if letter in "abef" else "A")
    return [*([LOOKS[method]] if letter in "bdfh" else []), answer]


@pytest.fixture
def parquet(tmp_path: Path, make_video: MakeVideo) -> Path:
    path = make_video(num_frames=60)
    rows = [
        {
            "data_source": "films",
            "agent_name": "videobrain",
            "prompt": [{"role": "user", "content": "What is it?"}],
            "reward_model": {"style": "rule", "ground_truth": "B"},
            "extra_info": {"question": f"What is it? {mark(row)}", "video_path": path, "index": row},
        }
        for row in range(len(LETTERS))
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl_video_tools.services.encoders.load_encoder", lambda config: ColourEncoder())


@contextmanager
def teachers(speaks: Callable[..., Any]) -> Iterator[dict[str, JudgeServer]]:
    """The same model without native reasoning, and with it in each shape."""
    replies = {"": speaks, **{shape: thinking(speaks, shape, REASONING) for shape in SHAPES}}
    servers = {shape: JudgeServer(reply=reply) for shape, reply in replies.items()}
    for server in servers.values():
        server.__enter__()
    try:
        yield servers
    finally:
        for server in servers.values():
            server.kill()


def retrieval_of(method: str) -> list[str]:
    return ["--retrieval=model=unused"] if method == "videobrain" else []


def said(records: Path) -> dict[tuple[str, int], tuple[Any, ...]]:
    """What was recorded of each rollout but for its reasoning: turns, calls, reward, label."""
    return {
        (line["uid"], line["session_id"]): (
            [(turn.text, turn.thought, turn.answer, turn.well_formed) for turn in line["trajectory"].turns],
            [(call.name, call.arguments, call.ok) for call in line["trajectory"].calls()],
            line["trajectory"].stop_reason,
            line["trajectory"].flags,
            line["reward"],
            line["answer_label"],
        )
        for line in read_records(records)
    }


def by_index(path: Path) -> list[dict[str, Any]]:
    """Rows in the order of the questions: rollouts are recorded as they finish."""
    return sorted(pq.read_table(path).to_pylist(), key=lambda row: int(row["extra_info"]["index"]))


def reasonings(records: Path) -> set[str | None]:
    return {turn.reasoning for line in read_records(records) for turn in line["trajectory"].turns}


@pytest.mark.long
@pytest.mark.parametrize("method", list(LOOKS))
def test_classes_rows_and_training_data_are_those_of_a_teacher_without_reasoning(
    method: str, parquet: Path, tmp_path: Path
) -> None:
    letters = list(enumerate(LETTERS))
    base_speaks = scripted(
        {mark(row): ["<answer>{}</answer>".format("AB"[letter in "abcd"])] for row, letter in letters}
    )
    speaks = scripted({mark(row): turns_of(method, letter) for row, letter in letters})
    with teachers(speaks) as asked, teachers(base_speaks) as base_models:
        for shape in asked:
            out = tmp_path / (shape or "plain")
            urls = ["--base-model-url", base_models[shape].base_url, "--teacher-url", asked[shape].base_url]
            options = [f"--method={method}", "--sft-share=0.5", *SETTINGS.get(method, [])]
            assert run(["data", "classify", str(parquet), str(out), *urls, *options, *retrieval_of(method)]) == 0
    plain = tmp_path / "plain"
    report = json.loads((plain / "report.json").read_text())
    assert "".join(report["letters"][str(row)] for row in range(len(LETTERS))) == LETTERS
    sft = pq.read_table(plain / "sft.parquet").to_pylist()
    assert len(sft) == 3 and all(row["turns"][-1] == turns_of(method, "e")[-1] for row in sft)
    for shape in SHAPES:
        out = tmp_path / shape
        for name in ("sft.parquet", "rl.parquet"):
            assert pq.read_table(out / name).to_pylist() == pq.read_table(plain / name).to_pylist()
        assert json.loads((out / "report.json").read_text()) == report
        for name in ("teacher.jsonl", "base.jsonl"):
            assert said(out / name) == said(plain / name)
        assert reasonings(out / "teacher.jsonl") == {REASONING}


@pytest.mark.long
@pytest.mark.parametrize("method", list(LOOKS))
def test_rollouts_and_corrections_are_those_of_a_teacher_without_reasoning(
    method: str, parquet: Path, tmp_path: Path
) -> None:
    pq.write_table(pq.read_table(parquet).slice(0, 3), parquet)
    wrong = scripted({mark(row): turns_of(method, "h") for row in range(len(LETTERS))})
    # The base model's turn is there already; then the expert looks again elsewhere, and answers.
    other_look = LOOKS[method].replace("30", "40").replace("1.0", "1.5").replace('"end_time": 1', '"end_time": 1.5')
    right = scripted({mark(row): [other_look, turns_of(method, "e")[0]] for row in range(len(LETTERS))}, num_given=1)
    options = [*SETTINGS.get(method, []), *retrieval_of(method)]
    with teachers(wrong) as own, teachers(right) as experts:
        for shape in own:
            folder = tmp_path / (shape or "plain")
            files = {name: str(folder / name) for name in ("own.jsonl", "corrected.jsonl", "sft.parquet")}
            generate = ["data", "generate", str(parquet), files["own.jsonl"], f"--method={method}"]
            assert run([*generate, "--base-url", own[shape].base_url, *options]) == 0
            reflect = ["data", "generate", files["own.jsonl"], files["corrected.jsonl"], "--reflect"]
            assert run([*reflect, "--base-url", experts[shape].base_url, *options]) == 0
            assert run(["data", "export-sft", files["corrected.jsonl"], files["sft.parquet"], "--well-formed"]) == 0
    plain = tmp_path / "plain"
    rows = by_index(plain / "sft.parquet")
    assert len(rows) == 3 and all(len(row["turns"]) == 3 for row in rows)
    for shape in SHAPES:
        assert by_index(tmp_path / shape / "sft.parquet") == rows
        for name in ("own.jsonl", "corrected.jsonl"):
            assert said(tmp_path / shape / name) == said(plain / name)


@pytest.mark.long
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_reasoning_is_trained_on_only_where_it_is_kept(
    parquet: Path, tmp_path: Path, keep: bool, opened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a student that reasons natively, whether its chat template opens the reasoning or not."""
    speaks = scripted({mark(row): turns_of("framethinker", "f") for row in range(len(LETTERS))})
    records, sft = str(tmp_path / "out.jsonl"), str(tmp_path / "sft.parquet")
    with teachers(speaks) as asked:
        command = ["data", "generate", str(parquet), records, "--method=framethinker"]
        assert run([*command, "--base-url", asked["a field"].base_url]) == 0
    assert run(["data", "export-sft", records, sft, *(["--keep-reasoning"] if keep else [])]) == 0
    if opened:
        open_reasoning(monkeypatch)
    item = TrajectorySFTDataset(sft, tokenizer(), {"max_length": 8192}, processor())[0]
    trained = tokenizer().decode(item["input_ids"][item["loss_mask"].bool()])
    turns = [f"<think>\n{REASONING}\n</think>\n\n{turn}" if keep else turn for turn in turns_of("framethinker", "f")]
    if opened:
        turns = [turn.removeprefix("<think>").removeprefix("\n") for turn in turns]
    assert trained == "".join(turn + END for turn in turns)
    whole = tokenizer().decode(item["input_ids"])
    assert whole.count("<|im_start|>assistant\n<think>") == 2 and "<think>\n<think>" not in whole
