"""MVBench (arXiv 2311.17005): 4000 multiple-choice questions of 20 tasks on short videos.

Format: the folder `json` with a file per task, such as `action_sequence.json`, lists of `video`, `question`,
`candidates`, `answer` (the text of one) and, where the question is about a part of the video, `start` and `end`.
Videos lie in a folder per source, such as `clevrer/video_validation`. Questions about a part need the cut videos
(revision `video` of the data set OpenGVLab/MVBench): here they lie in `star/Charades_segment`,
`sta/sta_video_segment` and `tvqa/video_fps3_hq_segment`.
Read from lmms_eval/tasks/mvbench of github.com/EvolvingLMMs-Lab/lmms-eval and loaders of the files in other public
repositories.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from verl_video_tools.data.formats import Benchmark, BenchmarkFiles, GradedItem
from verl_video_tools.data.formats.entries import Entry, ReadEntry, Row, benchmark_row, required
from verl_video_tools.data.formats.fields import (
    ANNOTATION_FILE,
    find_first_video,
    letter_of,
    listed_options,
    read_folder,
    told_with_file,
)
from verl_video_tools.data.formats.means import mean_of_groups

VIDEO_FOLDERS = {
    "action_sequence": "star/Charades_segment",
    "action_prediction": "star/Charades_segment",
    "action_antonym": "ssv2_video_mp4",
    "fine_grained_action": "Moments_in_Time_Raw/videos",
    "unexpected_action": "FunQA_test/test",
    "object_existence": "clevrer/video_validation",
    "object_interaction": "star/Charades_segment",
    "object_shuffle": "perception/videos",
    "moving_direction": "clevrer/video_validation",
    "action_localization": "sta/sta_video_segment",
    "scene_transition": "scene_qa/video",
    "action_count": "perception/videos",
    "moving_count": "clevrer/video_validation",
    "moving_attribute": "clevrer/video_validation",
    "state_change": "perception/videos",
    "fine_grained_pose": "nturgbd_convert",
    "character_order": "perception/videos",
    "egocentric_navigation": "vlnqa",
    "episodic_reasoning": "tvqa/video_fps3_hq_segment",
    "counterfactual_inference": "clevrer/video_validation",
}
"""Where the videos of each task lie."""


class MVBench(Benchmark):
    """See the module."""

    name: ClassVar[str] = "mvbench"
    groupings: ClassVar[tuple[str, ...]] = ("task",)

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The questions of all tasks that the folder has a file of."""
        return read_folder(annotations, tuple(VIDEO_FOLDERS))

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        with told_with_file(entry):
            task, number = entry[ANNOTATION_FILE]
            options = listed_options(required(entry, "candidates"), "candidates")
            video = f"{VIDEO_FOLDERS[task]}/{required(entry, 'video')}"
            return benchmark_row(
                self.name,
                index=f"{task}_{number}",
                split="test",
                video_path=find_first_video(files.videos, (f"data0613/{video}", video)),
                question=str(required(entry, "question")),
                options=options,
                truth=letter_of(required(entry, "answer"), options, "answer"),
                groups={"task": task},
            )

    def metrics(self, items: Sequence[GradedItem]) -> dict[str, float]:
        """`task_mean`: the mean of the tasks' accuracies, which MVBench ranks by."""
        return {"task_mean": mean_of_groups(items, "task")}
