"""TempCompass: options, yes and no, and captions, each read by a rule of its own.

Source: `tempcompass_process_results_multi_choice`, `extract_pred` and `eval_rule` of
lmms_eval/tasks/tempcompass/utils.py, after eval_*.py of github.com/llyx97/TempCompass. What these cannot read they pass
on to a language model, unless the authors' scripts get `--disable_llm`; here it is wrong, as without one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verl_video_tools.core.types import Sample
from verl_video_tools.data.extractors import Extractor, Reading
from verl_video_tools.data.extractors.choices import letter_extractor, letters_of

_FOUR = "ABCD"
_CAPTION_WORDS = ("Sentence", "Option", "Caption")


def option_letter_at_start(answer: str, options: Sequence[str]) -> str | None:
    """A letter from A to D alone, or before a period or a closing bracket at the very beginning."""
    is_letter = answer[:1] != "" and answer[:1] in _FOUR and answer[1:2] in ("", ".", ")")
    return answer[0] if is_letter else None


def yes_or_no(answer: str, options: Sequence[str]) -> str | None:
    """The letter of the option, yes or no, that the answer's beginning has, also within a word such as ``nothing``."""
    said = answer.lower()
    found = "yes" if said.startswith("yes") else "no" if said.startswith("no") else None
    return None if found is None else letters_of(options)[list(options).index(found)]


def caption_letter(answer: str, options: Sequence[str]) -> str | None:
    """A caption's label, its text, or both, and no more: ``Caption A``, ``A.``, ``2``. The label counts first.

    Our questions show captions after letters. Published ones name them "Caption A", "Sentence A" or "Option 1", and
    take the label of the question alone; here each is taken.
    """
    letters = letters_of(options)
    for number, (letter, caption) in reversed(list(enumerate(zip(letters, options, strict=True), start=1))):
        named = {f"{word} {mark}" for word in _CAPTION_WORDS for mark in (letter, str(number))}
        labels = {letter, str(number), *named}
        if answer in labels or answer.replace(".", "") in labels or answer in {f"{name}: {caption}" for name in named}:
            return letter
    behind_bracket = answer.split(") ")[1] if ") " in answer else None
    found = [letter for letter, caption in zip(letters, options, strict=True) if caption in (answer, behind_bracket)]
    return found[-1] if found else None


_RULE = (
    "by task: a letter from A to D at the very beginning, alone or before . or ); yes or no at the beginning; a "
    "caption's label or text and no more"
)
_TASKS: Mapping[str, Extractor] = {
    "multi-choice": letter_extractor(option_letter_at_start, _RULE),
    "yes_no": letter_extractor(yes_or_no, _RULE),
    "caption_matching": letter_extractor(caption_letter, _RULE),
}


def _reading(answer: str, sample: Sample) -> Reading | None:
    extractor = _TASKS.get(str((sample.extra_info.get("groups") or {}).get("task")))
    return None if extractor is None else extractor.read(answer, sample)


TEMP_COMPASS = Extractor(_reading, _RULE)
