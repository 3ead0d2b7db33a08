"""Write questions about single moments of long videos, each with the segment that answers it, as rows for LongVT.

The pipeline follows LongVT (arXiv 2511.20785, section 3.1). It cuts a video into parts. A model describes each part,
writes questions from the descriptions, and checks each question against them. Last, the same model or another one
scores the answer by the frames of the segment alone.

    python examples/haystack/haystack.py VIDEOS rows.parquet --base-url http://localhost:8000/v1

VVT_API_KEY is the key of the endpoints. Finished videos are kept in rows.jsonl, and the same command continues there.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import json
import math
import os
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from openai import AsyncOpenAI
from PIL import Image

from verl_video_tools.core.errors import VideoError
from verl_video_tools.data.rows import make_row, write_rows
from verl_video_tools.video import FrameRequest, Video, decode_frames, fit_box, fit_pixels, open_video

Result = TypeVar("Result")
Part = tuple[float, float]  # start and end in seconds
Question = dict[str, Any]

# "Code" is the published pipeline of LongVT.
SCAN_FPS = 4.0
CUT_DIFFERENCE = 27.0  # mean over pixels and colours, of 255
MIN_PART_SECONDS, MAX_PART_SECONDS = 10.0, 60.0  # paper: shorter scenes are merged
CAPTION_FPS, CHECK_FPS = 1.0, 2.0  # code: 4 and 2
MAX_FRAMES, FRAME_PIXELS = 32, 200_704  # of one request, and of one frame
PARTS_PER_REQUEST = 15  # code
QUESTIONS_PER_REQUEST = 3
MAX_SEGMENT_SECONDS = 300.0  # code
MAX_SEGMENT_SHARE = 0.2  # keeps a crop of the whole video below the paper's IoU of 0.3
MIN_SCORE = 0.85  # code
ATTEMPTS = 3  # at a usable reply
DEADLINE_SECONDS = 60.0
SUFFIXES = {".avi", ".m4v", ".mkv", ".mov", ".mp4", ".ts", ".webm"}

CAPTION = """You see frames from one part of a long video, each after its time in seconds. Describe the part for
somebody who cannot see it: people and objects, how they look, where they are, what they do, what changes, and text that
can be read. Use plain sentences, at most 150 words. Do not mention frames."""
QUESTIONS = f"""You write questions about a long video. You get descriptions of consecutive parts, each after its number
and its times. The viewer has the whole video and must search for the moment that answers the question. Write up to
{QUESTIONS_PER_REQUEST} questions. Each asks for something that is visible at one moment, and only one moment fits. Its
answer is a few words, is not yes or no, and cannot be guessed. It names no time, part or description.
Reply with a JSON list only. first_part and last_part are the numbers of the parts that show the answer:
[{{"question": "What is in the red bag?", "answer": "a small drum", "first_part": 3, "last_part": 3}}]
Reply [] if nothing is worth a question."""
TEXT_CHECK = """You get descriptions of consecutive parts of a long video, a question and its answer. Score 1 if the
question can be understood without the descriptions, the descriptions support this answer and no other, and common
knowledge does not suffice. Otherwise score 0.
Reply with one JSON object only: {"score": 0, "reason": "two people wear red"}"""
FRAME_CHECK = """You see frames from one part of a video, each after its time in seconds, then a question and an answer.
Judge by the frames alone, from 0 to 1, whether the answer is correct and complete and whether these frames suffice.
Reply with one JSON object only: {"score": 0.4, "reason": "the cup is blue"}"""

GUESSES = {"", "yes", "no", "true", "false", "none", "nothing", "unknown", "not visible"}
TELLS_TIME = re.compile(r"\b\d{1,2}:\d{2}\b|\b\d+(\.\d+)?[ -]?(s|secs?|seconds?|minutes?)\b", re.IGNORECASE)
TELLS_SOURCE = re.compile(r"\b(frames?|captions?|descriptions?|segments?|timestamps?|part \d+)\b", re.IGNORECASE)


class Model:
    """A model behind an OpenAI-compatible endpoint; `name` None takes the first that the endpoint serves."""

    def __init__(self, client: AsyncOpenAI, name: str | None) -> None:
        self.client, self.name = client, name

    async def ask(self, instructions: str, content: Any, read: Callable[[str], Result]) -> Result | None:
        """What `read` makes of the reply; None if the model has given no usable reply in ATTEMPTS."""
        if self.name is None:
            self.name = (await self.client.models.list()).data[0].id
        messages: list[Any] = [{"role": "system", "content": instructions}, {"role": "user", "content": content}]
        for _ in range(ATTEMPTS):
            reply = await self.client.chat.completions.create(model=self.name, messages=messages)
            text = (reply.choices[0].message.content or "").rpartition("</think>")[2]
            try:
                return read(text)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                advice = f"That cannot be used ({error!r}). Reply again in the form asked for."
                messages += [{"role": "assistant", "content": text}, {"role": "user", "content": advice}]
        return None


def read_questions(reply: str, num_parts: int) -> list[Question]:
    questions: list[Question] = json.loads(reply[reply.index("[") : reply.rindex("]") + 1])
    for item in questions:
        f"{item['question']} {item['answer']}".encode()  # raises for half a surrogate pair, which cannot be stored
        item["first_part"], item["last_part"] = int(item["first_part"]), int(item["last_part"])
        if not 1 <= item["first_part"] <= item["last_part"] <= num_parts:
            raise ValueError(f"parts are numbered from 1 to {num_parts}")
    return questions[:QUESTIONS_PER_REQUEST]


def read_score(reply: str) -> float:
    score = float(json.loads(reply[reply.index("{") : reply.rindex("}") + 1])["score"])
    if not 0 <= score <= 1:
        raise ValueError("score must lie between 0 and 1")
    return score


def is_easy(question: str, answer: str) -> bool:
    """Whether the answer can be guessed or is in the question, or the question tells where to look."""
    if words(answer) in GUESSES or f" {words(answer)} " in f" {words(question)} ":
        return True
    return bool(TELLS_TIME.search(question) or TELLS_SOURCE.search(f"{question} {answer}"))


def words(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", text.casefold()))


async def find_cuts(video: Video) -> list[float]:
    """Times in seconds at which another scene begins."""
    width, height = fit_box(video.info.width, video.info.height, 160, 90)
    seconds = np.arange(0.0, video.info.duration_seconds, 1 / SCAN_FPS)
    cuts: list[float] = []
    last = None
    for chunk in np.array_split(seconds, math.ceil(len(seconds) / 64)):
        batch = await decode_frames(video, FrameRequest(width, height, seconds=tuple(chunk)), DEADLINE_SECONDS)
        for time, frame in zip(chunk.tolist(), batch.frames_THWC.astype(np.int16), strict=True):
            if last is not None and np.abs(frame - last).mean() > CUT_DIFFERENCE:
                cuts.append(time)
            last = frame
    return cuts


def make_parts(cuts: Sequence[float], duration_seconds: float) -> list[Part]:
    """Scenes as parts that cover the video: short neighbours are joined, then long scenes are divided evenly."""
    edges = [0.0]
    for cut in cuts:
        if min(cut - edges[-1], duration_seconds - cut) >= MIN_PART_SECONDS:
            edges.append(cut)
    parts: list[Part] = []
    for start, end in pairwise([*edges, duration_seconds]):
        parts += pairwise(np.linspace(start, end, math.ceil((end - start) / MAX_PART_SECONDS) + 1).tolist())
    return parts


async def frames_of(video: Video, part: Part, fps: float) -> list[Any]:
    """Frames of a part as the content of a message, each after its time."""
    start, end = part
    count = min(MAX_FRAMES, max(1, round((end - start) * fps)))
    seconds = tuple(start + (number + 0.5) * (end - start) / count for number in range(count))
    width, height = fit_pixels(video.info.width, video.info.height, FRAME_PIXELS)
    batch = await decode_frames(video, FrameRequest(width, height, seconds=seconds), DEADLINE_SECONDS)
    content: list[Any] = []
    for time, frame in zip(batch.timestamps_seconds, batch.frames_THWC, strict=True):
        buffer = io.BytesIO()
        Image.fromarray(frame).save(buffer, "JPEG", quality=90)
        url = f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
        content += [{"type": "text", "text": f"{time:.1f} s:"}, {"type": "image_url", "image_url": {"url": url}}]
    return content


async def write_questions(video: Video, parts: Sequence[Part], writer: Model, checker: Model) -> list[Question]:
    """Checked questions about consecutive parts of a video."""

    async def describe(part: Part) -> str | None:
        return await writer.ask(CAPTION, await frames_of(video, part, CAPTION_FPS), str.strip)

    async def passes(item: Question) -> bool:
        asked = f"Question: {item['question']}\nAnswer: {item['answer']}"
        if (await writer.ask(TEXT_CHECK, f"{descriptions}\n\n{asked}", read_score) or 0.0) < MIN_SCORE:
            return False
        content = [*await frames_of(video, item["segment"], CHECK_FPS), {"type": "text", "text": asked}]
        return (await checker.ask(FRAME_CHECK, content, read_score) or 0.0) >= MIN_SCORE

    captions = await asyncio.gather(*map(describe, parts))
    described = [(*part, caption) for part, caption in zip(parts, captions, strict=True) if caption]
    if not described:
        return []
    lines = [f"{n}. {start:.1f} to {end:.1f} s: {text}" for n, (start, end, text) in enumerate(described, start=1)]
    descriptions = "\n\n".join(lines)
    written = await writer.ask(QUESTIONS, descriptions, lambda reply: read_questions(reply, len(described))) or []
    longest = min(MAX_SEGMENT_SECONDS, MAX_SEGMENT_SHARE * video.info.duration_seconds)
    candidates = []
    for item in written:
        question, answer = str(item["question"]), str(item["answer"])
        start, end = described[item["first_part"] - 1][0], described[item["last_part"] - 1][1]
        if end - start <= longest and not is_easy(question, answer):
            candidates.append({"question": question, "answer": answer, "segment": (start, end)})
    passed = await asyncio.gather(*map(passes, candidates))
    return [item for item, keep in zip(candidates, passed, strict=True) if keep]


async def questions_about(path: Path, min_seconds: float, writer: Model, checker: Model) -> list[Question]:
    """Checked questions about one video, each asked once; none about a video shorter than `min_seconds`."""
    video = await open_video(path, DEADLINE_SECONDS)
    if video.info.duration_seconds < min_seconds:
        return []
    parts = make_parts(await find_cuts(video), video.info.duration_seconds)
    found: dict[str, Question] = {}
    for first in range(0, len(parts), PARTS_PER_REQUEST):
        for item in await write_questions(video, parts[first : first + PARTS_PER_REQUEST], writer, checker):
            found.setdefault(words(item["question"]), item)
    return list(found.values())


async def run(options: argparse.Namespace) -> None:
    log = options.out.with_suffix(".jsonl")
    done = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    key = os.environ.get("VVT_API_KEY", "EMPTY")
    async with (
        AsyncOpenAI(base_url=options.base_url, api_key=key, max_retries=5) as writing,
        AsyncOpenAI(base_url=options.check_url or options.base_url, api_key=key, max_retries=5) as checking,
    ):
        writer = Model(writing, options.model)
        checker = Model(checking, options.check_model or (None if options.check_url else options.model))
        for path in sorted(path for path in options.videos.rglob("*") if path.suffix.lower() in SUFFIXES):
            if str(path) in {record["video"] for record in done}:
                continue
            try:
                found = await questions_about(path, options.min_seconds, writer, checker)
            except VideoError as error:
                print(f"skipped: {error}")
                continue
            done.append({"video": str(path), "questions": found})
            with log.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
            print(f"{path}: {len(found)} questions")
    asked = [(record["video"], item) for record in done for item in record["questions"]]
    if not asked:
        raise SystemExit("no question passed the checks, or all videos are shorter than --min-seconds")
    fixed: dict[str, Any] = {"question_type": "open", "method": "longvt", "data_source": "haystack"}
    rows = [
        make_row(item["question"], item["answer"], video, video_segment_seconds=item["segment"], index=index, **fixed)
        for index, (video, item) in enumerate(asked)
    ]
    print(f"{options.out}: {write_rows(rows, options.out, overwrite=True)} rows")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write questions about single moments of long videos.")
    parser.add_argument("videos", type=Path, help="folder of videos")
    parser.add_argument("out", type=Path, help="file of rows to write, .parquet")
    parser.add_argument("--base-url", required=True, help="endpoint of the model that writes")
    parser.add_argument("--model", help="its name; default: the first that the endpoint serves")
    parser.add_argument("--check-url", help="endpoint of the model that checks by frames; default: --base-url")
    parser.add_argument("--check-model", help="its name")
    parser.add_argument("--min-seconds", type=float, default=512.0, help="shorter videos are left out")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
