"""MVBench (arXiv 2311.17005): 4000 multiple-choice questions of 20 tasks on short videos.

Format: the folder `json` with a file per task, such as `action_sequence.json`, lists of `video`, `question`,
`candidates`, `answer` (the text of one) and, where the question is about a part of the video, `start` and `end`.
Videos lie in a folder per source, such as `clevrer/video_validation`. Questions about a part need the cut videos
(revision `video` of the data set OpenGVLab/MVBench): here they lie in `star/Charades_segment`,
`sta/sta_video_segment` and `tvqa/video_fps3_hq_segment`. MVBench ranks by the mean of the tasks' accuracies.
Read from lmms_eval/tasks/mvbench of github.com/EvolvingLMMs-Lab/lmms-eval and loaders of the files in other public
repositories.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.data.formats.entries import ANNOTATION_FILE, Entry, ReadEntry, read_folder
from verl_video_tools.data.formats.mapped import MappedBenchmark

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


class MVBench(MappedBenchmark):
    """See the module."""

    name = "mvbench"
    groupings = ("task",)
    group_mean = ("task_mean", "task")
    index = "{place}"
    options = "candidates"
    answer_form = "text"
    videos = ("data0613/{folder}/{video}", "{folder}/{video}")

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The questions of all tasks that the folder has a file of."""
        return read_folder(annotations, tuple(VIDEO_FOLDERS))

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """The `task`, the `folder` of its videos, and the question's `place` in its file."""
        task, number = entry[ANNOTATION_FILE]
        return {"task": task, "folder": VIDEO_FOLDERS[task], "place": f"{task}_{number}"}
