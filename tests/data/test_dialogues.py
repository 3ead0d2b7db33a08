"""`vvt data convert --turns` of the forks' dialogues: learnt and replayed where the video is known, else texts."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.format_cases import SAMPLES
from tests.data.row_files import read_rows
from tests.verl_plugin.harness import processor, tokenizer
from tests.videos.files import write_video
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.data.formats import BenchmarkFiles, get_source
from verl_video_tools.data.formats import read_rows as format_rows
from verl_video_tools.data.formats.dialogues import LongVTParquet, located
from verl_video_tools.data.rows import make_row, write_rows
from verl_video_tools.data.validate import validate_file
from verl_video_tools.records.records import read_records
from verl_video_tools.verl_plugin.sft_dataset import TrajectorySFTDataset


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The videos of the samples: 80 frames, 8 seconds."""
    folder = tmp_path_factory.mktemp("media")
    for name in ("coop.mp4", "market.mp4", "forge.mp4"):
        write_video(folder / name, num_frames=80, fps=10)
    return folder


def convert(source: Path, target: Path, source_format: str, media: Path, *options: str) -> int:
    method = source_format.split("-")[0]
    command = ["data", "convert", str(source), str(target), "--from", source_format, "--method", method, "--turns"]
    return run([*command, "--videos", str(media), *options])


def learnt(path: Path) -> list[str]:
    """What the loss of each row is on, turn for turn."""
    options = {"max_length": 16384, "video_tools": {read_rows(path)[0]["agent_name"]: {}}}
    dataset = TrajectorySFTDataset(str(path), tokenizer(), options, processor())
    items = [dataset[index] for index in range(len(dataset))]
    return [tokenizer().decode(item["input_ids"][item["loss_mask"].bool()]) for item in items]


def said(turns: Sequence[str], end: str = "<|im_end|>") -> str:
    return "".join(f"{turn}{end}" for turn in turns)


def test_framethinkers_dialogues(media: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = SAMPLES / "framethinker_sft" / "SFT.json", tmp_path / "rows.parquet"
    records = tmp_path / "records.jsonl"
    assert convert(source, target, "framethinker-sft", media, f"--replay={records}") == 0
    told = capsys.readouterr()
    assert "rows.parquet: 2 rows, 2 skipped" in told.out
    assert "row 2: no video: looked for SFT/yard in" in told.err and "row 3: " in told.err
    direct, trace = read_rows(target)
    assert (direct["template"], trace["template"], len(trace["turns"])) == ("reasoning", "trace", 3)
    assert trace["turns"][2] == "<think>The  shows a hen.</think>\n<action>output answer: A</action>"
    assert {row["extra_info"]["video_path"] for row in (direct, trace)} == {str(media / "coop.mp4")}
    assert learnt(target) == [said(direct["turns"]), said(trace["turns"])]
    assert not [report for report in validate_file(target) if report.problems]

    replayed = list(read_records(records))
    assert [line["extra_info"]["question_id"] for line in replayed] == ["0", "1"]
    calls = replayed[1]["trajectory"].calls()
    assert [call.ok for call in calls] == [True, True]
    assert [turn.text for turn in replayed[1]["trajectory"].turns] == trace["turns"]
    assert replayed[0]["reward"]["accuracy"] > 0


def test_what_does_not_replay_is_left_out(media: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its grammar is right, but the call leads out of the video, or the video cannot be read."""
    good, trace = json.loads((SAMPLES / "framethinker_sft" / "SFT.json").read_text())[:2]
    text = json.dumps(trace).replace("frames between 30 and 50", "frames between 500 and 900")
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    (tmp_path / "coop.mp4").symlink_to(media / "coop.mp4")
    source, target = tmp_path / "SFT.json", tmp_path / "rows.parquet"
    source.write_text(json.dumps([json.loads(text), good, {**good, "video": "broken.mp4"}]))
    assert convert(source, target, "framethinker-sft", tmp_path) == 0
    assert len(read_rows(target)) == 3, "grammar and file are all that is looked at"
    options = ("--overwrite", f"--replay={tmp_path / 'records.jsonl'}")
    assert convert(source, target, "framethinker-sft", tmp_path, *options) == 0
    assert [row["extra_info"]["question_id"] for row in read_rows(target)] == ["1"]
    told = capsys.readouterr().err
    assert "row 0: a call does not replay: out_of_range" in told and "row 2: it does not replay" in told


def rl_rows(media: Path, folder: Path) -> Path:
    """The file that VideoZoomer's reinforcement learning takes, as rows."""
    questions = [
        {
            "problem": "<image>Which hand waves?\nA. The left one\nB. The right one",
            "solution": "B",
            "videos": ["market.mp4"],
        },
        {"problem": "<image>What is  sold?", "solution": "Fish and bread", "videos": ["market.mp4"]},
    ]
    (folder / "rl.json").write_text(json.dumps(questions))
    command = ["data", "convert", str(folder / "rl.json"), str(folder / "rl.parquet"), "--from", "videozoomer-json"]
    assert run([*command, "--videos", str(media)]) == 0
    return folder / "rl.parquet"


def test_videozoomers_dialogues_find_their_videos_by_the_question(media: Path, tmp_path: Path) -> None:
    source, target = SAMPLES / "videozoomer_sft" / "sft.json", tmp_path / "rows.parquet"
    options = (f"--questions={rl_rows(media, tmp_path)}", f"--replay={tmp_path / 'r.jsonl'}")
    assert convert(source, target, "videozoomer-sft", media, *options) == 0
    trace, told, own = read_rows(target)
    assert {row["extra_info"]["video_path"] for row in (trace, told, own)} == {str(media / "market.mp4")}
    assert told["reward_model"]["ground_truth"] == own["reward_model"]["ground_truth"] == "Fish and bread"
    assert trace["extra_info"]["options"] == ["The left one", "The right one"]
    zoom, answer = trace["turns"]
    assert learnt(target)[0] == f"{zoom}{answer}<|im_end|>", "no end of message follows its stop string"


def longvt_dialogue(question: str, call: Mapping[str, Any], answer: str, video: str = "") -> dict[str, Any]:
    """As the published files have it: the tool's reply is said by the user."""

    def part(text: str | None, **media: Any) -> dict[str, Any]:
        return {"type": "text", "text": text, "image_url": None, "video_url": None, **media}

    told = f" Think first, call **crop_video** if needed, then answer.{video}"
    reply = [part("<tool_response>The tool executed successfully."), part(None, image_url={"url": "forge_1_3_0.jpg"})]
    tool = json.dumps({"name": "crop_video", "arguments": call})
    called = f"<think>Near the end, <image>.</think>\n<tool_call>{tool}</tool_call>"
    return {
        "id": question,
        "messages": [
            {"role": "system", "content": [part("Tools.")]},
            {"role": "user", "content": [part(f"<video>{question}{told}")]},
            {"role": "assistant", "content": [part(called)]},
            {"role": "user", "content": reply},
            {"role": "assistant", "content": [part(f"<think>So.</think>\n<answer>{answer}</answer>")]},
        ],
    }


def test_longvts_traces_whose_video_is_only_told(media: Path, tmp_path: Path) -> None:
    """In the instructions, or by the call. Rows of reinforcement learning know truth and segment."""
    told = " The Video path for this video is: forge.mp4"
    entries = [
        longvt_dialogue("Who enters?", {"start_time": 1.0, "end_time": 3.5}, "A boy", told),
        longvt_dialogue("Who leaves?", {"video_path": "/x/forge.mp4", "start_time": 1.0, "end_time": 3.5}, "A dog"),
        longvt_dialogue("Who stays?", {"start_time": 1.0, "end_time": 3.5}, "A cat"),
    ]
    source, target = tmp_path / "rft.parquet", tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(entries), source)
    known = [make_row("who  enters?", "A tall boy", media / "forge.mp4", video_segment_seconds=(1, 3))]
    write_rows(known, tmp_path / "rl.parquet")
    options = (f"--questions={tmp_path / 'rl.parquet'}", f"--replay={tmp_path / 'r.jsonl'}")
    assert convert(source, target, "longvt-parquet", media, *options) == 0
    enters, leaves = read_rows(target)
    assert (enters["reward_model"]["ground_truth"], enters["extra_info"]["video_segment"]) == ("A tall boy", [1.0, 3.0])
    assert (leaves["reward_model"]["ground_truth"], leaves["extra_info"]["video_segment"]) == ("A dog", None)
    assert learnt(target) == [said(row["turns"]) for row in (enters, leaves)]
    assert "<image>" not in enters["turns"][0]


CROP = {"name": "crop_video", "arguments": {"start_time": 1.0, "end_time": 3.5}}
THOUGHT, ANSWER = "<think>There.</think>", "<think>So.</think>\n<answer>B</answer>"
TURNS = [f"{THOUGHT}\n<tool_call>\n{json.dumps(CROP)}\n</tool_call>", ANSWER]
OPTIONS = "Who enters?\nA. a girl\nB. a boy"


def sharegpt(*call: dict[str, Any], answer: str = ANSWER, **fields: Any) -> dict[str, Any]:
    said = [{"from": "human", "value": f"<video>\n{OPTIONS}"}, *call, {"from": "gpt", "value": answer}]
    return {"conversations": said, "videos": ["forge.mp4"], **fields}


def openai(call: dict[str, Any], **fields: Any) -> dict[str, Any]:
    video = {"type": "video_url", "video_url": {"url": "file:///x/forge.mp4"}}
    asked = {"role": "user", "content": [video, *text_part(OPTIONS)]}
    reply = {"role": "tool", "content": text_part("frames"), "tool_call_id": "1"}
    answered = {"role": "assistant", "content": text_part(ANSWER), "tool_calls": None}
    return {"messages": [{"role": "system", "content": text_part("Crop.")}, asked, call, reply, answered], **fields}


ABOUT_AN_IMAGE = [{"from": "human", "value": "<image>\nWho enters?"}, {"from": "gpt", "value": ANSWER}]


def text_part(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


CALL = {"role": "assistant", "content": text_part(THOUGHT)}
OBSERVATION = {"from": "observation", "value": "<image>frames"}
SPELLINGS = {
    "function_call": sharegpt(
        {"from": "gpt", "value": THOUGHT}, {"from": "function_call", "value": json.dumps(CROP)}, OBSERVATION
    ),
    "thought_and_list": sharegpt({"from": "function_call", "value": f"{THOUGHT}\n{json.dumps([CROP])}"}, OBSERVATION),
    "tags": sharegpt({"from": "gpt", "value": TURNS[0]}, {"from": "tool", "value": "frames"}),
    "tags_in_a_function_call": sharegpt({"from": "function_call", "value": TURNS[0]}, OBSERVATION),
    "user_replies": sharegpt(
        {"from": "gpt", "value": TURNS[0]}, {"from": "human", "value": "<tool_response><image></tool_response>"}
    ),
    "tool_calls": openai({**CALL, "tool_calls": [{"type": "function", "function": CROP}]}),
    "arguments_as_text": openai(
        {**CALL, "tool_calls": [{"id": "1", "function": {**CROP, "arguments": json.dumps(CROP["arguments"])}}]}
    ),
    "verls_videos": {**sharegpt({"from": "gpt", "value": TURNS[0]}, OBSERVATION), "videos": [{"video": "forge.mp4"}]},
}


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".parquet"])
def test_dialogues_of_other_trainers(suffix: str, media: Path, tmp_path: Path) -> None:
    source, target = tmp_path / f"d{suffix}", tmp_path / "rows.parquet"
    for spelling, entry in SPELLINGS.items():
        if suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist([entry]), source)
        else:
            source.write_text(json.dumps([entry] if suffix == ".json" else entry))
        command = ["data", "convert", str(source), str(target), "--from", "messages", "--method", "longvt"]
        command += ["--videos", str(media), "--overwrite"]
        assert run(command) == 0, spelling
        (row,) = read_rows(target)
        assert "turns" not in row and row["reward_model"]["ground_truth"] == "B"
        assert row["extra_info"]["question"] == OPTIONS and row["extra_info"]["options"] == ["a girl", "a boy"]
        assert run([*command, "--turns"]) == 0, spelling
        (taught,) = read_rows(target)
        assert (taught["turns"], taught["turn_weights"], taught["template"]) == (TURNS, None, "trace"), spelling
        assert taught["extra_info"]["video_path"] == str(media / "forge.mp4")
        assert not [report for report in validate_file(target) if report.problems]
    assert learnt(target) == [said(TURNS)]


def test_loss_on_chosen_messages(media: Path, tmp_path: Path) -> None:
    """As OpenAI and ms-swift write it; what the loss is not on is shown all the same."""
    source, target = tmp_path / "d.jsonl", tmp_path / "rows.parquet"
    call = {"from": "gpt", "value": TURNS[0]}
    entries = [sharegpt({**call, "weight": 0}, OBSERVATION), sharegpt({**call, "loss": False}, OBSERVATION)]
    source.write_text("\n".join(map(json.dumps, entries)))
    assert convert(source, target, "messages", media, "--method", "longvt") == 0
    assert [row["turn_weights"] for row in read_rows(target)] == [[0.0, 1.0]] * 2
    assert learnt(target) == [said(TURNS[1:])] * 2


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (sharegpt({"from": "narrator", "value": "x"}), "message 1 has the role 'narrator'; these are read: system, "),
        (sharegpt({"from": "function_call", "value": "crop it"}), "the message of a call holds no JSON: 'crop it'"),
        (sharegpt(answer=TURNS[0]), "the last turn does not answer: "),
        (sharegpt({"from": "gpt", "value": "A boy."}, {"from": "human", "value": "And who leaves?"}),
         "the user asks again after 'A boy.'; a row holds one question"),
        (sharegpt(videos=["forge.mp4", "coop.mp4"]), "it names several videos, ['forge.mp4', 'coop.mp4']"),
        (sharegpt(videos=[]), "no video: the dialogue names none"),
        ({"conversations": ABOUT_AN_IMAGE, "images": ["1.jpg"]}, "it shows images and no video, and a row is about a"),
        (sharegpt(videos=["lost.mp4"]), "no video: looked for lost.mp4"),
        (sharegpt({"from": "gpt", "value": TURNS[0], "weight": -1}, OBSERVATION), "turn_weights must hold a number"),
        (sharegpt(answer="<think>So.</think> A boy"), "turn 0 must answer in the strict grammar of longvt"),
        ({"videos": ["forge.mp4"]}, "the field 'messages' is missing; there are: number, videos"),
    ],
)  # fmt: skip
def test_a_message_that_cannot_be_read_is_named(
    entry: dict[str, Any], reason: str, media: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "d.json"
    source.write_text(json.dumps([sharegpt(), entry]))
    assert convert(source, tmp_path / "rows.parquet", "messages", media, "--method", "longvt") == 0
    assert f"d.json: row 1: {reason}" in capsys.readouterr().err


def test_a_table_of_dialogues_names_its_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "d.json").write_text(json.dumps([sharegpt()]))
    assert run(["data", "convert", str(tmp_path / "d.json"), str(tmp_path / "x.parquet"), "--from", "table"]) == 2
    assert "holds dialogues (conversations); read them with --from messages" in capsys.readouterr().err


def test_a_dialogue_that_cannot_be_read_costs_itself(
    media: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = json.loads((SAMPLES / "longvt_parquet" / "longvt_sft.json").read_text())
    broken = {**good[0], "messages": [{"role": "assistant", "content": "x", "tool_calls": [7]}]}
    source = tmp_path / "sft.json"
    source.write_text(json.dumps([broken, "text", good[3], good[2]]))
    assert convert(source, tmp_path / "rows.parquet", "longvt-parquet", media) == 0
    told = capsys.readouterr()
    assert "rows.parquet: 1 rows, 3 skipped" in told.out
    assert "row 0: the entry is not in the format of longvt-parquet" in told.err


@pytest.mark.timeout(60)
def test_one_question_about_many_videos_is_found(tmp_path: Path) -> None:
    """A search through all rows with the same question would take 160 seconds, beyond the timeout, instead of one."""
    rows = [make_row("Describe it.", "a dog", f"v{number}.mp4") for number in range(6_000)]
    write_rows(rows, tmp_path / "rl.parquet")
    files = BenchmarkFiles(annotations=tmp_path, videos=None, questions=tmp_path / "rl.parquet")
    for number in range(6_000):
        found = located({"question": "Describe it.", "options": []}, [f"/x/v{number}.mp4"], files)
        assert found["video_path"].name == f"v{number}.mp4"


def test_questions_that_several_rows_ask(tmp_path: Path) -> None:
    rows = [make_row("Who?", "A boy", tmp_path / f"{name}.mp4") for name in ("a", "b", "b")]
    write_rows(rows, tmp_path / "rl.parquet")
    files = BenchmarkFiles(annotations=tmp_path, videos=None, questions=tmp_path / "rl.parquet")
    asked = {"question": "who? ", "options": []}
    assert located(asked, ["/x/b.mp4"], files)["video_path"] == tmp_path / "b.mp4"
    with pytest.raises(RowError, match="its question is in none of the rows"):
        located({"question": "Why?", "options": []}, [], files)
    with pytest.raises(RowError, match=r"several rows ask its question, about a\.mp4, b\.mp4"):
        located(asked, ["c.mp4"], files)
    pq.write_table(pa.table({"x": [1]}), tmp_path / "none.parquet")
    with pytest.raises(UsageError, match="holds no rows about videos"):
        located(asked, [], BenchmarkFiles(annotations=tmp_path, videos=None, questions=tmp_path / "none.parquet"))


def test_questions_alone_are_not_replayed(media: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = SAMPLES / "framethinker_sft" / "SFT.json"
    command = ["data", "convert", str(source), str(tmp_path / "x.parquet"), "--from", "framethinker-sft"]
    assert run([*command, "--videos", str(media), "--replay", "r.jsonl"]) == 2
    assert "only dialogues are replayed" in capsys.readouterr().err


def test_no_file_of_theirs_is_overwritten(media: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, records = SAMPLES / "framethinker_sft" / "SFT.json", tmp_path / "records.jsonl"
    records.write_text("mine")
    assert convert(source, tmp_path / "rows.parquet", "framethinker-sft", media, f"--replay={records}") == 2
    assert f"{records} exists; name another file" in capsys.readouterr().err and records.read_text() == "mine"


@pytest.mark.slow
def test_the_commands_of_the_page(media: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/cold-start.md, Published traces: all of them, on the samples under the names of the page."""
    page = (Path(__file__).parents[2] / "docs" / "cold-start.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^## Published traces\n.*?^```bash\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    rl_rows(media, tmp_path)
    (tmp_path / "rl.parquet").unlink()
    (tmp_path / "videos").symlink_to(media)
    for sample in ("framethinker_sft/SFT.json", "videozoomer_sft/sft.json"):
        (tmp_path / Path(sample).name).symlink_to(SAMPLES / sample)
    told = " The video path for this video is: forge.mp4"
    entries = [longvt_dialogue("Who enters?", {"start_time": 1.0, "end_time": 3.5}, "A boy", told)]
    pq.write_table(pa.Table.from_pylist(entries), tmp_path / "longvt_rft_selftrace_15k3.parquet")
    asked = {"question": "Who enters?", "answer": "A boy", "video_segment": [1.0, 3.0], "index": 7, "split": "train"}
    row = {"data_source": "selfqa", "videos": [{"video": "file:///x/forge.mp4"}], "extra_info": asked}
    row["reward_model"] = {"ground_truth": "A boy"}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "longvt_rl_selfqa_1k6.parquet")
    monkeypatch.chdir(tmp_path)
    commands = block.replace("\\\n", " ").splitlines()
    assert len(commands) == 6
    for command in commands:
        assert run(shlex.split(command)[1:]) == 0, command
    assert read_rows(Path("longvt.parquet"))[0]["extra_info"]["video_segment"] == [1.0, 3.0]
    assert len(read_rows(Path("videozoomer.parquet"))) == 3
    assert "What happens at 0:04?" in Path("framethinker.html").read_text(encoding="utf-8")


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=12)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=8,
)
SAID = st.sampled_from(
    [
        "Who?\nA: x\nB: y\nframe 0: <image>",
        "<think>t</think><action>output answer: B</action>",
        "<think>t</think><answer>\\boxed{B}</answer>",
        "frame 99999999999: <image>\n<frame0_time1..5s><image>",
    ]
)
CONTENT = st.one_of(SAID, JSON, st.lists(st.one_of(st.fixed_dictionaries({"text": SAID}), JSON), max_size=2))
MESSAGE = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": CONTENT}),
    st.fixed_dictionaries(
        {"from": st.sampled_from(["human", "gpt", "function_call", "observation"]), "value": CONTENT},
        optional={"weight": JSON, "loss": JSON, "tool_calls": JSON},
    ),
    JSON,
)
FIELDS = {
    "messages": st.one_of(st.lists(MESSAGE, max_size=4), JSON),
    "conversations": st.one_of(st.lists(MESSAGE, max_size=4), JSON),
    "videos": JSON,
    "images": st.one_of(st.lists(st.one_of(st.text(max_size=8), JSON), max_size=2), JSON),
    "video": st.one_of(st.just("v.mp4"), JSON),
    "id": JSON,
}


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from(sorted(FIELDS)), st.just(None), max_size=7).flatmap(
        lambda names: st.fixed_dictionaries({name: FIELDS[name] for name in names})
    ),
    st.sampled_from(["framethinker-sft", "videozoomer-sft", "longvt-parquet", "messages"]),
)
def test_any_entry_is_read_or_told(entry: dict[str, Any], name: str) -> None:
    """Nothing that others wrote ends in anything but rows, texts and messages."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "v.mp4").touch()
        (Path(folder) / "d.json").write_text(json.dumps([entry]))
        files = BenchmarkFiles(annotations=Path(folder) / "d.json", videos=Path(folder))
        source = get_source(name)
        for taught in (False, True):
            for _, row in format_rows(source, files, with_responses=taught):
                assert isinstance(row, RowError) or row["extra_info"]["question"]


@pytest.mark.parametrize("name", ["AO8RW_0.0_6.9.mp4", "folder.v2/abc.mp4", "my video.webm"])
@pytest.mark.parametrize("place", ["told", "called"])
def test_videos_with_points_and_spaces_in_their_names_are_found(name: str, place: str, tmp_path: Path) -> None:
    """Clips are named by their seconds; calls may stand apart from the text, as the chat template takes them."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    asked = "What does he do?\nA. runs\nB. walks\nThink first."
    call = {"function": {"name": "crop_video", "arguments": json.dumps({"video_path": str(path), "start_time": 1})}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": "<think>a</think>", "tool_calls": [call]},
        {"role": "tool", "content": "..."},
        {"role": "assistant", "content": "<think>b</think>\n<answer>B</answer>"},
    ]
    if place == "told":
        messages[0]["content"] += f" The video path for this video is {path}."
        del messages[1:3]
    files = BenchmarkFiles(annotations=tmp_path / "x.parquet", videos=tmp_path)
    row = LongVTParquet().sft_row({"id": "1", "messages": messages}, files)
    assert row["extra_info"]["video_path"] == str(path)
    assert "video_path" not in row["turns"][0]
