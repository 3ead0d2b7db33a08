"""Is a judge reachable, is its model served, and does it tell a right answer from a wrong one?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from verl_video_tools.core.errors import JudgeError
from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.services.judge import make_judge
from verl_video_tools.services.judge.config import JudgeConfig

_QUESTION = "Which animal crosses the road, and when?"
_TRUTH = "a brown dog, after the lorry has passed"
_KNOWN_ANSWERS = {
    AnswerLabel.CORRECT: "A brown dog, once the lorry has passed.",
    AnswerLabel.INCORRECT: "No animal crosses the road at any time.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `fault` says what is wrong, and is empty where nothing is."""

    name: str
    found: str = ""
    fault: str = ""


async def examine_judge(config: JudgeConfig) -> list[Finding]:
    """Everything that can be asked of the judge at `config.base_url`; stops at the first thing that makes the rest
    pointless. Verdicts are neither read from a cache nor kept."""
    async with make_judge(replace(config, cache_dir=None)) as judge:
        try:
            models = await judge.served_models()
        except JudgeError as error:
            return [Finding("endpoint", fault=str(error))]
        findings = [Finding("endpoint", found=", ".join(config.base_urls))]
        if config.model is not None and config.model not in models:
            return [*findings, Finding("model", fault=f"{config.model!r} is not served; served are {models!r}")]
        findings.append(Finding("model", found=config.model or models[0]))
        for wanted, answer in _KNOWN_ANSWERS.items():
            name = f"known {wanted.value} answer"
            try:
                label = await judge.judge(_QUESTION, _TRUTH, answer)
            except JudgeError as error:
                findings.append(Finding(name, fault=str(error)))
                continue
            fault = "" if label is wanted else f"was called {label.value}: this model cannot judge with this prompt"
            findings.append(Finding(name, label.value, fault))
        return findings
