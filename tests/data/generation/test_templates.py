"""FrameThinker's cold start on real videos: dialogues in five forms, and a model that checks their logic."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chat_server import chat_reply, texts_of
from tests.judge_server import JudgeServer, Reply, completion
from tests.turns.framethinker import answer, choose, get
from tests.videos.files import MakeVideo
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.prompts import file_beside
from verl_video_tools.core.types import CallRecord, Trajectory, Turn
from verl_video_tools.data.dialogue_templates import draw_templates, load_templates
from verl_video_tools.methods.framethinker.method import FrameThinker
from verl_video_tools.records.records import read_records

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")

FORMS = load_templates("framethinker")
NAMES = [form.name for form in FORMS]
BY_NAME = {form.name: form for form in FORMS}


GET = get("0:04")
ANSWER = answer("B")
DIALOGUES = {
    "A": [ANSWER],
    "B": [choose(40, 80), ANSWER],
    "C": [GET, choose(100, 140), ANSWER],
    "D": [choose(40, 120), choose(60, 90), ANSWER],
    "E": [choose(40, 80), choose(100, 140), ANSWER],
    "free": [choose(20, 50), ANSWER],
}
CALLS = {"A": 0, "B": 1, "C": 2, "D": 2, "E": 2, "free": 1}


def obedient(request: dict[str, Any]) -> Reply:
    """Writes the form that it was told."""
    system = texts_of(request["messages"][0])
    told = [name for name in NAMES if BY_NAME[name].instruction and BY_NAME[name].instruction in system]
    (name,) = told or ["free"]
    return chat_reply(DIALOGUES[name][sum(message["role"] == "assistant" for message in request["messages"])])


def always(name: str) -> Callable[[dict[str, Any]], Reply]:
    def reply(request: dict[str, Any]) -> Reply:
        return chat_reply(DIALOGUES[name][sum(message["role"] == "assistant" for message in request["messages"])])

    return reply


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with JudgeServer(reply=obedient) as server:
        yield server


@pytest.fixture
def parquet(tmp_path: Path, make_video: MakeVideo) -> Path:
    path = make_video(num_frames=180)  # at 30 frames per second
    rows = [
        {
            "data_source": "films",
            "agent_name": "framethinker",
            "reward_model": {"style": "rule", "ground_truth": "B"},
            "extra_info": {"question": f"What is it{when}? (question {row})", "video_path": path, "index": row},
        }
        for row, when in enumerate([" at 0:04", ""])
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def with_shares(folder: Path, **shares: float) -> Path:
    """The packaged file with other shares."""
    path = folder / "shares.toml"
    text = file_beside(FrameThinker, "dialogue_templates.toml").read_text()
    for name, share in shares.items():
        old = f"[{name}]\nshare = 1.0\n"
        assert old in text
        text = text.replace(old, f"[{name}]\nshare = {share}\n")
    path.write_text(text)
    return path


def generate(parquet: Path, out: Path, server: JudgeServer, *options: str) -> int:
    command = ["data", "generate", str(parquet), str(out), "--method=framethinker", "--base-url", server.base_url]
    return run([*command, "--templates=framethinker", *options])


# ------------------------------------------------------------------------------------------------------------ templates


@pytest.mark.slow
def test_dialogues_take_the_forms_that_are_chosen_for_them(
    parquet: Path, tmp_path: Path, server: JudgeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    out, sft = tmp_path / "out.jsonl", tmp_path / "sft.parquet"
    assert generate(parquet, out, server, "--samples=12", "--seed=3") == 0
    printed = capsys.readouterr().out
    records = list(read_records(out))
    assert len(records) == 24 and {record["template"] for record in records} == set(NAMES)
    for record in records:
        name, trajectory = record["template"], record["trajectory"]
        assert (record["template_fault"], record["reward"]["ccv"], record["reward"]["acc"]) == (None, 1.0, 1.0)
        assert [turn.text for turn in trajectory.turns] == DIALOGUES[name]
        assert len(trajectory.executed_calls()) == CALLS[name]
        assert name != "C" or "0:04" in trajectory.question
    wanted = Counter(record["template"] for record in records)
    assert (
        "; templates followed " + ", ".join(f"{name}: {wanted[name]} of {wanted[name]}" for name in sorted(wanted))
        in printed
    )

    num_requests = len(server.requests)
    assert generate(parquet, out, server, "--samples=12", "--seed=3") == 0
    assert len(server.requests) == num_requests
    assert run(["data", "export-sft", str(out), str(sft), "--well-formed"]) == 0
    rows = pq.read_table(sft).to_pylist()
    distinct = {(record["template"], record["trajectory"].question) for record in records}
    assert Counter(row["template"] for row in rows) == Counter(name for name, _ in distinct)
    assert all("This dialogue takes" not in json.dumps(row) for row in rows)


def test_a_dialogue_of_another_form_is_counted_and_left_out(
    parquet: Path, tmp_path: Path, server: JudgeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.reply = always("B")
    out, sft = tmp_path / "out.jsonl", tmp_path / "sft.parquet"
    forms = with_shares(tmp_path, C=0, E=0, free=0)
    assert generate(parquet, out, server, "--samples=8", "--seed=0", f"--templates={forms}") == 0
    faults = {record["template"]: record["template_fault"] for record in read_records(out)}
    assert faults == {
        "A": "calls choose_frames instead of none",
        "B": None,
        "D": "calls choose_frames instead of choose_frames, choose_frames",
    }
    counts = Counter(record["template"] for record in read_records(out))
    assert (
        f"; templates followed A: 0 of {counts['A']}, B: {counts['B']} of {counts['B']}, D: 0"
        in capsys.readouterr().out
    )
    assert run(["data", "export-sft", str(out), str(sft)]) == 0
    assert f"other form: {counts['A'] + counts['D']}" in capsys.readouterr().out
    assert {row["template"] for row in pq.read_table(sft).to_pylist()} == {"B"}


@pytest.mark.parametrize(
    ("name", "segments", "fault"),
    [
        ("D", [(40, 120), (60, 90)], None),
        ("D", [(40, 120), (40, 90)], None),
        ("D", [(40, 120), (40, 120)], "segment 40 to 120 is not inside 40 to 120"),
        ("D", [(60, 90), (40, 120)], "segment 40 to 120 is not inside 60 to 90"),
        ("E", [(40, 80), (80, 120)], None),
        ("E", [(80, 120), (10, 30)], None),
        ("E", [(40, 80), (79, 120)], "segment 79 to 120 is not apart 40 to 80"),
        ("B", [(40, 80), (90, 120)], "calls choose_frames, choose_frames instead of choose_frames"),
        ("free", [(40, 80), (40, 80)], None),
    ],
)
def test_segments_lie_as_the_form_says(name: str, segments: list[tuple[int, int]], fault: str | None) -> None:
    calls = [CallRecord("choose_frames", {"start_frame": start, "end_frame": end}, ok=True) for start, end in segments]
    trajectory = Trajectory("framethinker", "q", turns=[Turn("x", calls=[call]) for call in calls])
    assert BY_NAME[name].fault(trajectory) == fault
    calls[0].ok = False
    assert name == "free" or BY_NAME[name].fault(trajectory) == "a call was not carried out: choose_frames"


def test_templates_are_drawn_by_their_shares_and_c_waits_for_a_time(tmp_path: Path) -> None:
    forms = load_templates(str(with_shares(tmp_path, A=3, free=0)))
    timed = Counter(form.name for form in draw_templates(forms, ["What is at 0:34?"] * 7000, seed=1))
    assert timed == {name: pytest.approx(3000 if name == "A" else 1000, abs=150) for name in "ABCDE"}
    mixed = ["What is at 0:34?", "What is it?"] * 210
    drawn = draw_templates(forms, mixed, seed=1)
    assert drawn == draw_templates(forms, mixed, seed=1) != draw_templates(forms, mixed, seed=2)
    assert drawn[:100] == draw_templates(forms, mixed[:100], seed=1), "a file goes on with more rows"
    assert "C" in {form.name for form in drawn} and "free" not in {form.name for form in drawn}
    assert all("0:34" in question for question, form in zip(mixed, drawn, strict=True) if form.name == "C")
    with pytest.raises(UsageError, match="no template with a share suits the question 'What is it"):
        draw_templates([BY_NAME["C"]], ["What is it?"], seed=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[A]\nshare = ", "cannot read templates from .*forms.toml"),
        ("", "has a table for each"),
        ("share = 1", "has a table for each"),
        ("[A]\nshare = -1", "share must be at least 0, got -1"),
        ("[A]\nshare = 1\nsegments = 'inside'", "segments must be left out where there are no two calls"),
        ("[A]\nshare = 1\nturns = 2", "has no field 'turns'"),
        ("[A]\nshare = 1\ncalls = 'choose_frames'", "DialogueTemplate.calls takes"),
    ],
)
def test_a_file_of_templates_that_cannot_be_used_is_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "forms.toml"
    path.write_text(content)
    with pytest.raises(UsageError, match=message):
        load_templates(str(path))


def test_templates_of_a_file_replace_the_packaged_ones(
    parquet: Path, tmp_path: Path, server: JudgeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "forms.toml"
    path.write_text('[glance]\nshare = 1\ncalls = ["choose_frames"]\ninstruction = "Look once."')
    server.reply = always("B")
    out = tmp_path / "out.jsonl"
    assert generate(parquet, out, server, f"--templates={path}") == 0
    assert {(record["template"], record["template_fault"]) for record in read_records(out)} == {("glance", None)}
    assert texts_of(server.requests[0]["messages"][0]).endswith("\n\nLook once.")
    command = ["data", "generate", str(parquet), str(out), "--method=framethinker", "--base-url", server.base_url]
    assert run([*command, "--templates=longvt"]) == 2
    assert "cannot read templates from longvt" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------------------- logic


def checker(verdicts: Mapping[str, str]) -> Callable[[dict[str, Any]], Reply]:
    """Says of each dialogue what is given for a word that stands in it."""

    def reply(request: dict[str, Any]) -> Reply:
        dialogue = json.loads(request["messages"][1]["content"])
        assert set(dialogue) == {"question", "frames_shown_first", "turns"}
        return completion(next(text for word, text in verdicts.items() if word in json.dumps(dialogue)))

    return reply


SOUND = '{"consistent": true, "reason": ""}'
UNSOUND = '<think>{"consistent": true}?</think>```json\n{"consistent": false, "reason": "it looks elsewhere"}\n```'


@pytest.mark.slow
def test_illogical_dialogues_are_counted_named_and_left_out(
    parquet: Path, tmp_path: Path, server: JudgeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    records, out, sft = tmp_path / "out.jsonl", tmp_path / "checked.jsonl", tmp_path / "sft.parquet"
    server.reply = always("B")
    forms = with_shares(tmp_path, **{name: 0 for name in NAMES if name not in ("B", "free")})
    assert generate(parquet, records, server, "--samples=2", f"--templates={forms}") == 0
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    wrong = {**lines[0], "uid": "9", "reward": {**lines[0]["reward"], "acc": 0.0}}
    records.write_text("".join(json.dumps(line) + "\n" for line in [*lines, wrong]))
    command = ["data", "logic", str(records), str(out)]
    capsys.readouterr()
    with JudgeServer(reply=checker({"question 0": UNSOUND, "question 1": "I cannot say."})) as model:
        assert run([*command, "--base-url", model.base_url]) == 0
        told = capsys.readouterr()
        assert "0 dialogues sound, 2 rejected, 2 without a verdict; 1 others not asked about" in told.out
        assert "rejected: step 0, 0, rollout 1: it looks elsewhere" in told.err
        assert "failed: step 0, 1, rollout 0: " in told.err
        reminders = [request for request in model.requests if len(request["messages"]) > 2]
        assert reminders and "That cannot be read" in reminders[0]["messages"][3]["content"]

        model.reply = checker({"question 1": SOUND})
        model.requests.clear()
        assert run([*command, "--base-url", model.base_url]) == 0
        assert len(model.requests) == 2
        assert "2 dialogues sound, 2 rejected, 0 without" in capsys.readouterr().out
        assert run([*command, "--base-url", model.base_url]) == 0 and len(model.requests) == 2

        assert run(["data", "logic", str(records), str(records), "--base-url", model.base_url]) == 2
    verdicts = {(line["uid"], line["session_id"]): line["logic"]["consistent"] for line in read_records(out)}
    assert verdicts == {("0", 0): False, ("0", 1): False, ("1", 0): True, ("1", 1): True}
    assert run(["data", "export-sft", str(out), str(sft)]) == 0
    assert "illogical: 2" in capsys.readouterr().out
    assert [row["extra_info"]["index"] for row in pq.read_table(sft).to_pylist()] == [1]


def test_verdicts_on_other_dialogues_or_of_another_model_are_not_gone_on_with(
    parquet: Path, tmp_path: Path, server: JudgeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records of every `vvt data generate` have the same keys."""
    records, others, out = tmp_path / "out.jsonl", tmp_path / "others.jsonl", tmp_path / "checked.jsonl"
    assert generate(parquet, records, server) == 0
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    for line in lines:
        line["trajectory"]["turns"][-1]["text"] = "<think>something else</think><action>output answer: B</action>"
    others.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with JudgeServer(reply=checker({"question 0": SOUND, "question 1": "I cannot say."})) as model:
        command = ["data", "logic", str(records), str(out), "--base-url", model.base_url]
        assert run(command) == 0
        model.requests.clear()
        assert run([*command, "--model=another"]) == 2
        assert "holds verdicts of" in capsys.readouterr().err
        command[2] = str(others)
        assert run(command) == 2
        assert "holds a verdict on another dialogue as (0, '0', 0)" in capsys.readouterr().err
        assert model.requests == []


def test_the_packaged_instructions_of_the_check_come_first(parquet: Path, tmp_path: Path, server: JudgeServer) -> None:
    records = tmp_path / "out.jsonl"
    assert generate(parquet, records, server) == 0
    with JudgeServer(reply=lambda request: completion(SOUND)) as model:
        assert run(["data", "logic", str(records), str(tmp_path / "a"), "--base-url", model.base_url]) == 0
        (system,) = {request["messages"][0]["content"] for request in model.requests}
    assert system.startswith("You check whether a dialogue")
