"""EgoSchema (arXiv 2308.09126): 5031 multiple-choice questions on first-person videos of three minutes.

Format: `questions.json`, a list of `q_uid`, `question`, "option 0" to "option 4"; `subset_answers.json` beside it, an
object with the number of the right option, from 0, of the 500 questions whose answers are published, by `q_uid`. Or
the records of lmms-eval: `question_idx`, `question`, `option` (each with its letter), `video_idx`, `answer` (a number,
of the subset only). Videos `<q_uid>.mp4`. All are asked; what was answered is handed in as an object with a number for
each `q_uid`. Read from README.md and validate.py of github.com/egoschema/EgoSchema and lmms_eval/tasks/egoschema of
github.com/EvolvingLMMs-Lab/lmms-eval; the names of the fields of `questions.json` second-hand, from loaders in public
repositories.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.data.formats.entries import Entry, ReadEntry, load_json, read_entries, required
from verl_video_tools.data.formats.fields import listed_options
from verl_video_tools.data.formats.mapped import MappedBenchmark
from verl_video_tools.data.formats.submissions import Prediction, Submission, json_submission

ANSWERS_FILE = "subset_answers.json"


class EgoSchema(MappedBenchmark):
    """See the module."""

    name = "egoschema"
    published_extractor = "lmms-eval/egoschema"
    index = "{q_uid|video_idx}"
    answer_form = "number"
    videos = ("{q_uid|video_idx}",)
    has_hidden_truths = True
    submits_known_truths = True

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The questions, with the `answer` of those that have a published one."""
        beside = annotations.with_name(ANSWERS_FILE)
        answers = load_json(beside) if beside.exists() else {}
        if not isinstance(answers, Mapping):
            raise UsageError(f"cannot read the answers from {beside}: expected an object with a number per question")
        for entry in read_entries(annotations):
            if isinstance(entry, Mapping) and entry.get("q_uid") in answers:
                yield {**entry, "answer": answers[entry["q_uid"]]}
            else:
                yield entry

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """The options, where each has a field."""
        if "option" in entry:
            return {"options": listed_options(entry["option"], "option")}
        return {"options": [str(required(entry, f"option {number}")) for number in range(5)]}

    def submission(self, predictions: Sequence[Prediction]) -> Submission:
        """The number of each option by `q_uid`; a question without a readable answer is left out."""
        return json_submission(
            "submission.json", {each.question_id: each.number for each in predictions if each.number is not None}
        )
