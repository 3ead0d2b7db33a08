"""The steps, one after the other for all videos; what the folder holds already is not made again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from verl_video_tools.core.types import Content, FrameRecord, FrameRequest, ImagePart
from verl_video_tools.data.append import Progress, no_progress
from verl_video_tools.data.haystack.checks import fault, words
from verl_video_tools.data.haystack.config import HaystackConfig, claim
from verl_video_tools.data.haystack.log import Record, digest, run_step
from verl_video_tools.data.haystack.models import Models, read_caption, read_questions, read_verdict
from verl_video_tools.data.haystack.scenes import Part, find_cuts, join_scenes
from verl_video_tools.services.endpoint import EndpointClient
from verl_video_tools.video import decode_frames, fit_pixels, open_video

STEPS = ("scenes", "captions", "questions", "text checks", "visual checks")
DEADLINE_SECONDS = 60.0
"""For opening a video, and for decoding the frames of one request, each."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A question that was written, with the segment that answers it."""

    video: str
    question: str
    answer: str
    start_seconds: float
    end_seconds: float
    group: str
    """Key of the group of captions that it was written from."""

    @property
    def key(self) -> str:
        return digest(asdict(self))


@dataclass
class Outcome:
    """What became of the videos.

    Attributes:
        dropped: candidates by reason.
        failures: items that failed, with their reasons, by step that asks a model.
    """

    kept: list[Candidate] = field(default_factory=list)
    num_written: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    failures: dict[str, list[str]] = field(default_factory=dict)


async def find_parts(
    videos: Sequence[Path], folder: Path, config: HaystackConfig, jobs: int, retry_failed: bool, progress: Progress
) -> dict[str, Record]:
    """The first step: `parts` of each video by path, with its `width`, `height` and `duration_seconds`. Asks no model.

    Args:
        jobs: videos that are scanned at a time.
    """
    scans = {str(path): partial(asyncio.to_thread, _scan, path, config) for path in videos}
    return await run_step(folder / "scenes.jsonl", scans, jobs, retry_failed, progress)


def short_videos(scenes: Mapping[str, Record], config: HaystackConfig) -> dict[str, float]:
    """Seconds of each video that is too short to be asked about, by path."""
    lengths = {video: scene["duration_seconds"] for video, scene in scenes.items() if "error" not in scene}
    return {video: seconds for video, seconds in lengths.items() if seconds < config.min_video_seconds}


async def make_questions(
    scenes: Mapping[str, Record],
    folder: Path,
    config: HaystackConfig,
    models: Models,
    *,
    concurrency: int,
    retry_failed: bool = False,
    progress: Sequence[Progress] = (no_progress,) * 4,
) -> Outcome:
    """All steps that ask models, from what `find_parts` found; of short videos (`short_videos`) nothing is asked.

    Args:
        concurrency: items under way at a time.
        retry_failed: make again what is recorded as failed.
        progress: one for each step after the first.

    Raises:
        UsageError: a file of the folder cannot be read or written, or was made with other models.
        EndpointError: an endpoint cannot be reached, at first or any more; what is recorded holds.
    """
    outcome = Outcome()

    async def step(number: int, role: str, wanted: Mapping[str, Any]) -> dict[str, Record]:
        """Records of what did not fail. The model of the role is asked only for what the file does not hold yet."""
        path = folder / f"{STEPS[number].replace(' ', '_')}.jsonl"
        model: EndpointClient = getattr(models, role)

        async def claim_for_model() -> None:
            async with model.exchange() as exchange:
                claim(folder, {role: await exchange.model()})

        records = await run_step(
            path, wanted, concurrency, retry_failed, progress[number - 1], model.check_reachable, claim_for_model
        )
        if errors := failures(records):
            outcome.failures[STEPS[number]] = errors
        return {key: record for key, record in records.items() if "error" not in record}

    short = short_videos(scenes, config)
    parts = {
        video: [(start, end) for start, end in scene.get("parts", [])]
        for video, scene in scenes.items()
        if video not in short
    }
    captions = await step(
        1,
        "captioner",
        {
            _part_key(video, part): partial(_caption, video, part, config, models)
            for video in parts
            for part in parts[video]
        },
    )

    groups = _grouped(parts, captions, config.captions_per_request)
    written = await step(2, "writer", {key: partial(_write, group, config, models) for key, group in groups.items()})
    candidates = [
        Candidate(group=key, **question) for key, record in written.items() for question in record["questions"]
    ]
    outcome.num_written = len(candidates)
    candidates = _after_rules(candidates, scenes, config, outcome)

    texts = {key: numbered(group) for key, group in groups.items()}
    read = await step(
        3,
        "writer",
        {item.key: partial(_check_text, item, texts[item.group], config, models) for item in candidates},
    )
    candidates = _passed(candidates, read, 1.0, "the check by text", outcome)

    seen = await step(4, "checker", {item.key: partial(_check_sight, item, config, models) for item in candidates})
    outcome.kept = _passed(candidates, seen, config.min_score, "the check by sight", outcome)
    return outcome


def numbered(group: Sequence[Record]) -> str:
    """Captions as a model reads them, each after its number from 1 and its times."""
    return "\n\n".join(
        f"{number}. {caption['start_seconds']:.1f} to {caption['end_seconds']:.1f} s: {caption['caption']}"
        for number, caption in enumerate(group, start=1)
    )


def shown_seconds(part: Part, fps: float, max_frames: int) -> tuple[float, ...]:
    """Times within a part, spread evenly, each in the middle of its stretch: none belongs to a neighbouring part."""
    start, end = part
    count = min(max_frames, max(1, round((end - start) * fps)))
    return tuple(start + (number + 0.5) * (end - start) / count for number in range(count))


# --------------------------------------------------------------------------------------------------------------- items


def _part_key(video: str, part: Part) -> str:
    return f"{video}#{part[0]:.3f}-{part[1]:.3f}"


def _grouped(parts: Mapping[str, Sequence[Part]], captions: Mapping[str, Record], size: int) -> dict[str, list[Record]]:
    """The captions of up to `size` consecutive parts of a video, by a key that differs where any of them does.

    A part whose caption failed leaves a gap in its group, so that its caption, once made, changes no other group.
    """
    chunks = [
        [captions[key] for part in members[first : first + size] if (key := _part_key(video, part)) in captions]
        for video, members in parts.items()
        for first in range(0, len(members), size)
    ]
    return {digest(group): group for group in chunks if group}


def _scan(path: Path, config: HaystackConfig) -> Record:
    cuts, info = find_cuts(path, config.scan_fps, config.cut_threshold, DEADLINE_SECONDS)
    parts = join_scenes(cuts, info.duration_seconds, config.min_part_seconds, config.max_part_seconds)
    facts = {"duration_seconds": info.duration_seconds, "width": info.width, "height": info.height}
    return {**facts, "num_scenes": len(cuts) + 1, "parts": parts}


async def _caption(video: str, part: Part, config: HaystackConfig, models: Models) -> Record:
    frames = await _frames(video, part, config.caption_fps, config)
    text = await models.ask(models.captioner, "caption.txt", frames, config.max_caption_tokens, read_caption)
    return {"video": video, "start_seconds": part[0], "end_seconds": part[1], "caption": text}


async def _write(group: Sequence[Record], config: HaystackConfig, models: Models) -> Record:
    count = config.questions_per_request
    found = await models.ask(
        models.writer,
        "questions.txt",
        (numbered(group),),
        count * config.max_question_tokens,
        partial(read_questions, num_parts=len(group)),
        num_questions=count,
    )
    return {
        "questions": [
            {
                "video": group[0]["video"],
                "question": item["question"],
                "answer": item["answer"],
                "start_seconds": group[item["first_part"] - 1]["start_seconds"],
                "end_seconds": group[item["last_part"] - 1]["end_seconds"],
            }
            for item in found[:count]
        ]
    }


async def _check_text(item: Candidate, captions: str, config: HaystackConfig, models: Models) -> Record:
    content = (f"{captions}{_asked(item)}",)
    read = partial(read_verdict, field="keep")
    verdict = await models.ask(models.writer, "text_check.txt", content, config.max_verdict_tokens, read)
    return {**asdict(item), **verdict}


async def _check_sight(item: Candidate, config: HaystackConfig, models: Models) -> Record:
    frames = await _frames(item.video, (item.start_seconds, item.end_seconds), config.check_fps, config)
    content = (*frames, _asked(item))
    read = partial(read_verdict, field="score")
    verdict = await models.ask(models.checker, "visual_check.txt", content, config.max_verdict_tokens, read)
    return {**asdict(item), **verdict}


def _asked(item: Candidate) -> str:
    return f"\n\nQuestion: {item.question}\nAnswer: {item.answer}"


async def _frames(path: str, part: Part, fps: float, config: HaystackConfig) -> Content:
    """Frames of a part, each after its time."""
    video = await open_video(path, DEADLINE_SECONDS)
    width, height = fit_pixels(video.info.width, video.info.height, config.frame_pixels)
    request = FrameRequest(width=width, height=height, seconds=shown_seconds(part, fps, config.max_frames))
    batch = await decode_frames(video, request, DEADLINE_SECONDS)
    content: list[str | ImagePart] = []
    for index, seconds, pixels_HWC in zip(batch.indices, batch.timestamps_seconds, batch.frames_THWC, strict=True):
        record = FrameRecord(int(index), float(seconds), width, height)
        content += [f"\n{seconds:.1f} s: ", ImagePart(record, pixels_HWC)]
    return tuple(content)


# -------------------------------------------------------------------------------------------------------------- counts


def _after_rules(
    candidates: Sequence[Candidate], scenes: Mapping[str, Record], config: HaystackConfig, outcome: Outcome
) -> list[Candidate]:
    left, asked = [], set[tuple[str, str]]()
    for item in candidates:
        reason = fault(item.question, item.answer)
        if reason is None:
            video_seconds = scenes[item.video]["duration_seconds"]
            reason = config.evidence_fault(item.end_seconds - item.start_seconds, video_seconds)
        if reason is None and (item.video, words(item.question)) in asked:
            reason = "it was asked before"
        asked.add((item.video, words(item.question)))
        if reason is None:
            left.append(item)
        else:
            outcome.dropped[reason] += 1
    return left


def _passed(
    candidates: Sequence[Candidate], verdicts: Mapping[str, Record], min_score: float, check: str, outcome: Outcome
) -> list[Candidate]:
    """Those with a verdict of at least `min_score`; one whose check failed is neither kept nor counted as dropped."""
    for item in candidates:
        if item.key in verdicts and verdicts[item.key]["score"] < min_score:
            outcome.dropped[check] += 1
    return [item for item in candidates if item.key in verdicts and verdicts[item.key]["score"] >= min_score]


def failures(records: Mapping[str, Record]) -> list[str]:
    """Items that failed, with their reasons."""
    return [f"{key}: {record['error']}" for key, record in records.items() if "error" in record]
