"""What a group would bring to the tutorial, made from the synthetic world: videos, a table of questions, dialogues.

Usage: python examples/tutorial/make_data.py my_data [--videos 10] [--questions-per-video 4] [--expert-videos 96]

    my_data/videos/*.mp4        short videos, about a minute each
    my_data/questions.csv       open questions about some of them, with the answer and the seconds that show it
    my_data/expert.parquet      dialogues about the other videos, in the form in which LongVT's are published
"""

from __future__ import annotations

import argparse
import csv
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_video_tools.data.sft import export_sft
from verl_video_tools.data.synthetic_rows import load_rows, make_demo
from verl_video_tools.methods import method_class
from verl_video_tools.methods.toolkit.oracle import synthetic_fields

METHOD = "longvt"
QUESTIONS_PER_EXPERT_VIDEO = 10
IMPERFECTION = 0.1
"""How often the expert looks at a wrong place or guesses: something is left to reinforcement learning."""
INSTRUCTIONS = "Think first, call crop_video where you need to see more, and answer in tags."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder to make")
    parser.add_argument("--videos", type=int, default=10, help="that the table asks about")
    parser.add_argument("--questions-per-video", type=int, default=4)
    parser.add_argument("--expert-videos", type=int, default=96)
    options = parser.parse_args()
    out = options.out.resolve()
    with tempfile.TemporaryDirectory() as temporary:
        demo = make_demo(
            temporary,
            num_train_videos=options.expert_videos,
            num_test_videos=options.videos,
            questions_per_video=options.questions_per_video,
            agent_names=[METHOD],
            open_ended=True,
        )
        (out / "videos").mkdir(parents=True, exist_ok=True)
        for video in (demo / "videos").iterdir():
            shutil.move(video, out / "videos" / video.name)
        (demo / "videos").rmdir()
        (demo / "videos").symlink_to(out / "videos")  # where the expert opens them
        questions = load_rows(demo / "test.parquet")
        dialogues = list(expert_dialogues(demo))
    write_table(questions, out / "questions.csv")
    pq.write_table(pa.Table.from_pylist(dialogues), out / "expert.parquet")
    print(
        f"{len(questions)} questions in {out / 'questions.csv'}, {len(dialogues)} dialogues in {out / 'expert.parquet'}"
    )


def write_table(rows: list[dict[str, Any]], path: Path) -> None:
    """Only what anybody's table has: a question, its answer, the video, and where the answer is seen."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["question", "answer", "video", "start", "end"])
        for row in rows:
            extra = row["extra_info"]
            start, end = (round(second, 2) for second in extra["video_segment"])
            video = f"videos/{Path(extra['video_path']).name}"
            writer.writerow([extra["question"], row["reward_model"]["ground_truth"], video, start, end])


def expert_dialogues(demo: Path) -> Iterator[dict[str, Any]]:
    """Right rollouts of the scripted expert, as messages: its calls in the text, and the tool's replies in words."""
    turns = demo / "turns.parquet"
    export_sft(
        demo / "train.parquet",
        turns,
        questions_per_video=QUESTIONS_PER_EXPERT_VIDEO,
        imperfection=IMPERFECTION,
        settings=synthetic_fields(method_class(METHOD)),
    )
    for number, row in enumerate(load_rows(turns)):
        yield {"id": str(number), "messages": list(messages(row))}


def messages(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    extra = row["extra_info"]
    video = {"type": "video_url", "video_url": {"url": f"videos/{Path(extra['video_path']).name}"}}
    yield {"role": "user", "content": [video, _text(f"{extra['question']}\n{INSTRUCTIONS}")]}
    for number, turn in enumerate(row["turns"]):
        if number:
            yield {"role": "tool", "content": [_text("The frames of the segment.")]}
        yield {"role": "assistant", "content": [_text(turn)]}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


if __name__ == "__main__":
    main()
