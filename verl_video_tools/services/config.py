"""The options of judges, retrieval and the tools' model. Import-light: every process of a run reads them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from verl_video_tools.core.config import checked_fields, require

if TYPE_CHECKING:
    from verl_video_tools.core.services import ModelLimits


@dataclass(frozen=True, kw_only=True)
class EndpointConfig:
    """The address of a model, and the limits of requests to it.

    Raises:
        UsageError: a value outside its range.
    """

    API_KEY_ENV: ClassVar[str] = "VVT_API_KEY"
    """Environment variable with the key; without it, no key is sent. The key is not a field, because verl prints the
    configuration of a run."""

    base_url: str | tuple[str, ...] | None = None
    """Address of an OpenAI-compatible endpoint, such as http://host:8000/v1, or a list of addresses that serve the same
    model."""
    model: str | None = None
    """Name of the served model. None: the first model that the endpoint lists."""
    concurrency: int = 32
    """Number of requests at the same time, over all addresses."""
    deadline_seconds: float = 600.0
    """Seconds that one reply may take with all its attempts. The time in our own queue does not count."""

    def __post_init__(self) -> None:
        are_urls = all(url.startswith(("http://", "https://")) for url in self.base_urls)
        require(self, "base_url", are_urls, "an address that starts with http:// or https://")
        require(self, "base_url", len(set(self.base_urls)) == len(self.base_urls), "addresses that differ")
        require(self, "concurrency", self.concurrency >= 1, "at least 1")
        require(self, "deadline_seconds", self.deadline_seconds > 0, "above 0")

    @property
    def base_urls(self) -> tuple[str, ...]:
        """The addresses; empty if none is given."""
        if self.base_url is None:
            return ()
        return (self.base_url,) if isinstance(self.base_url, str) else self.base_url

    def share(self, num_workers: int) -> Self:
        """The configuration of one of `num_workers` workers, which share the number of requests at the same time."""
        return replace(self, concurrency=math.ceil(self.concurrency / num_workers))


@dataclass(frozen=True, kw_only=True)
class JudgeConfig(EndpointConfig):
    """The address of the judge, and how it judges. Its key is in the environment variable VVT_JUDGE_API_KEY.

    Raises:
        UsageError: a value outside its range.
    """

    API_KEY_ENV: ClassVar[str] = "VVT_JUDGE_API_KEY"

    base_url: str | tuple[str, ...] | None = None
    """Address of an OpenAI-compatible endpoint, such as http://host:8000/v1, or a list of addresses that serve the same
    model. None: verl's own reward-model server."""
    concurrency: int = 32
    """Number of requests at the same time. In training it holds for the whole run; verl's `reward.num_workers` share
    it."""
    deadline_seconds: float = 60.0
    """Seconds that one judgement may take with all its attempts. The time in our own queue does not count."""
    profile: Literal["graded", "longvt", "videosiah"] = "graded"
    """Instructions and labels of the judge (`services.verdict`)."""
    temperature: float = 0.0
    """Sampling temperature. LongVT's reward uses 0.3."""
    max_tokens: int | None = 1024
    """Largest number of tokens of a reply, thoughts included. None: the limit of the server."""
    cache_dir: str | None = None
    """Folder for verdicts, which processes and machines may share. A verdict is used again if question, truth, answer,
    instructions, model and temperature are the same."""
    prompt_file: str | None = None
    """Path of a file with instructions that replace those of the profile."""
    on_failure: Literal["flag", "stop"] = "flag"
    """What happens in training if a judgement fails: `flag` excludes the rollout, `stop` ends the run."""
    max_steps_without_verdict: int = 3
    """The run ends after this many training steps in a row that asked the judge and got no verdict."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "temperature", self.temperature >= 0, "at least 0")
        require(self, "max_tokens", self.max_tokens is None or self.max_tokens >= 1, "at least 1, or None")
        require(self, "max_steps_without_verdict", self.max_steps_without_verdict >= 1, "at least 1")


@dataclass(frozen=True, kw_only=True)
class ToolModelConfig(EndpointConfig):
    """The address of the model that tools ask, and how often a rollout may ask it. Its key is in the environment
    variable VVT_TOOL_MODEL_API_KEY.

    Raises:
        UsageError: a value outside its range.
    """

    API_KEY_ENV: ClassVar[str] = "VVT_TOOL_MODEL_API_KEY"

    concurrency: int = 32
    """Number of requests at the same time. In training it holds for the whole run, and verl's agent loop workers share
    it."""
    deadline_seconds: float = 60.0
    """Seconds that one reply may take with all its attempts. The time in our own queue does not count. The deadline of
    the tool (`tool_deadline_seconds`) applies, too."""
    max_tokens: int = 512
    """Largest number of tokens of a reply, reasoning included. A longer reply is cut and ends with `[...]`."""
    calls_per_rollout: int = 8
    """Largest number of questions per rollout. Further questions are refused (`model_budget`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("max_tokens", "calls_per_rollout"):
            require(self, name, getattr(self, name) >= 1, "at least 1")

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> ToolModelConfig:
        """The options as a configuration file or a command line gives them.

        Raises:
            UsageError: an unknown field, a wrong value, or no address.
        """
        config = cls(**checked_fields(cls, fields))
        require(config, "base_url", config.base_url is not None, "the address of the tools' model")
        return config

    @property
    def limits(self) -> ModelLimits:
        """What one rollout may ask."""
        from verl_video_tools.core.services import ModelLimits

        return ModelLimits(self.calls_per_rollout)


@dataclass(frozen=True, kw_only=True)
class RetrievalConfig:
    """The encoder that compares frames with texts, and the device on which it runs.

    Raises:
        UsageError: a value outside its range.
    """

    backend: Literal["transformers", "open_clip"] = "transformers"
    """`transformers` (CLIP, SigLIP and SigLIP2 of fixed resolution), or `open_clip` (extra `retrieval`)."""
    model: str = "google/siglip2-base-patch16-224"
    """Folder, or name on the Hugging Face hub. For `open_clip` also one of its own names, such as ViT-B-16-SigLIP2, or
    `local-dir:/path`."""
    pretrained: str | None = None
    """Weights of a model that `open_clip` knows by name, such as `webli`."""
    num_gpus: float = 0.0
    """Share of a GPU for the actor of a node; 0: it uses the CPU. The GPU must not be in verl's pool, or every query
    would reach its deadline."""
    num_threads: int | None = None
    """CPU threads of the encoder. None: OMP_NUM_THREADS, which Ray sets to 1 for an actor if it is not set."""

    def __post_init__(self) -> None:
        require(self, "model", bool(self.model), "a folder or a name")
        has_tag = self.pretrained is not None
        require(self, "pretrained", not has_tag or self.backend == "open_clip", "None unless the backend is open_clip")
        require(self, "num_gpus", 0.0 <= self.num_gpus <= 1.0, "0 to 1")
        require(self, "num_threads", self.num_threads is None or self.num_threads >= 1, "at least 1, or None")

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> RetrievalConfig:
        """The options as a configuration file or a command line gives them.

        Raises:
            UsageError: an unknown field or a wrong value.
        """
        return cls(**checked_fields(cls, fields))

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that differ where any option does."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]
