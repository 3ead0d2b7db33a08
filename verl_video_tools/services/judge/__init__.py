"""A language model as judge of free-form answers, over any OpenAI-compatible endpoint.

config.py   the options of a judge
client.py   `LLMJudge`: bounded, retried, cached requests
verdict.py  how a reply is read, and what an answer may not bring into it
cache.py    verdicts on disk
health.py   is a judge reachable, and can it tell right from wrong?
profiles.py which grades it gives; `prompt*.txt` are the packaged instructions
"""

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.resolve import resolve
from verl_video_tools.services.judge.client import JudgeCounters, LLMJudge
from verl_video_tools.services.judge.config import JudgeConfig

__all__ = ["JudgeConfig", "JudgeCounters", "LLMJudge", "make_judge"]

REGISTERED = {"llm": "verl_video_tools.services.judge.client:LLMJudge"}


def make_judge(config: JudgeConfig) -> LLMJudge:
    """The judge of a config, of the class that its `judge_class` names.

    Raises:
        UsageError: there is no such class, or it is no subclass of `LLMJudge`; else as `LLMJudge`.
    """
    found = resolve(config.judge_class, REGISTERED, "judge_class")
    if not (isinstance(found, type) and issubclass(found, LLMJudge)):
        raise UsageError(f"the judge_class {config.judge_class!r} must be a subclass of LLMJudge, got {found!r:.80}")
    return found(config)
