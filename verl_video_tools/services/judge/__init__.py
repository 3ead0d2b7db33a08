"""A language model as judge of free-form answers, over any OpenAI-compatible endpoint.

config.py   the options of a judge
client.py   `LLMJudge`: bounded, retried, cached requests
breaker.py  `CircuitBreaker`: nobody waits for a judge that is down
verdict.py  how a reply is read, and what an answer may not bring into it
cache.py    verdicts on disk
health.py   is a judge reachable, and can it tell right from wrong?
prompt.txt  the packaged instructions
"""

from verl_video_tools.services.judge.client import JudgeCounters, LLMJudge
from verl_video_tools.services.judge.config import JudgeConfig

__all__ = ["JudgeConfig", "JudgeCounters", "LLMJudge"]
