"""How the rollouts of a file are made, written down beside them: it goes on with the same only.

What does not change a rollout is left out: addresses, keys, limits of time and load.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.files import write_json
from verl_video_tools.core.prompts import prompt_digest, templates_digest
from verl_video_tools.core.types import Method
from verl_video_tools.methods.direct.method import FRAMES_PER_PATCH
from verl_video_tools.rollout.chat_policy import PolicyConfig
from verl_video_tools.services.chat import VIDEO_JPEG_QUALITY
from verl_video_tools.services.judge import JudgeConfig, LLMJudge
from verl_video_tools.services.tool_model import EndpointToolModel, ToolModelConfig

logger = logging.getLogger(__name__)

_PLACES = {
    "served.model": "served.digest",
    "config.prompt_file": "prompt_digest",
    "config.templates_file": "templates_digest",
    "config.file": "provenance.digest",
    "provenance.file": "provenance.digest",
    "judge.prompt_file": "judge.prompt_digest",
}
"""Leaves of the protocol that name a file or folder, and those that hold a digest of its content."""


async def generation_settings(
    method: Method,
    policy: PolicyConfig,
    *,
    seed: int | None,
    judge: JudgeConfig | None,
    tool_model: ToolModelConfig | None,
) -> dict[str, Any]:
    """What rollouts and their verdicts depend on, beside questions and model.

    Raises:
        UsageError: a prompt cannot be read.
        EndpointError: the judge or the tool model is not named, and cannot be asked for its name.
    """
    return {
        "config": asdict(method),
        "prompt_digest": prompt_digest(method.prompt_file),
        "templates_digest": templates_digest(method.templates_file),
        **({} if (parts := method.provenance()) is None else {"provenance": parts}),
        "context": method.context_policy().__name__,
        "sampling": {**policy.sampling(), "seed": seed},
        "pictures": _pictures(policy, method),
        "judge": None if judge is None else await _judge(judge),
        **({} if tool_model is None else {"tool_model": await _tool_model(tool_model)}),
    }


def record_protocol(
    path: Path, protocol: Mapping[str, Any], *, has_rollouts: bool, otherwise: str, advice: str
) -> dict[str, Any]:
    """Write a protocol down, or compare it with the one that is.

    A protocol without rollouts claims nothing: it is what a start leaves behind that failed for want of a judge, a
    retriever or a server.

    Args:
        otherwise, advice: what a message about another protocol begins and ends with.

    Returns:
        The protocol as it stands there; of a model or a prompt that has been moved since, it names the first place.

    Raises:
        UsageError: another one stands there, or it cannot be written.
    """
    plain: dict[str, Any] = json.loads(json.dumps(protocol))
    try:
        if not has_rollouts or not path.exists():
            if has_rollouts:
                logger.warning("%s is missing: the rollouts beside it count as made as these options say", path)
            write_json(path, plain)
            return plain
        earlier: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"{path} is no protocol of rollouts: {error}") from error
    changes = [
        f"{name} was {_short(old)} and is now {_short(new)}"
        for name, (old, new) in _differences(earlier, plain).items()
        if not _is_moved(name, earlier, plain)
    ]
    if changes:
        raise UsageError(f"{otherwise}: {'; '.join(changes)}. {advice}")
    return earlier


# ----------------------------------------------------------------------------------------------------------- internals


async def _judge(config: JudgeConfig) -> dict[str, Any]:
    """What its verdicts depend on."""
    named = ("profile", "temperature", "max_tokens", "prompt_file")
    described = await _with_name(LLMJudge(config), config, named)
    return {**described, "prompt_digest": prompt_digest(config.prompt_file)}


async def _tool_model(config: ToolModelConfig) -> dict[str, Any]:
    """What its replies depend on, and how many there may be."""
    return await _with_name(EndpointToolModel(config), config, ("max_tokens", "calls_per_rollout"))


async def _with_name(
    client: LLMJudge | EndpointToolModel, config: JudgeConfig | ToolModelConfig, named: Sequence[str]
) -> dict[str, Any]:
    async with client:
        model = config.model or (await client.served_models())[0]
    return {"model": model, **{name: getattr(config, name) for name in named}}


def _pictures(policy: PolicyConfig, method: Method) -> dict[str, Any]:
    has_processor = policy.envelope.factor > 1
    encoding = "PNG" if policy.jpeg_quality is None else f"JPEG {policy.jpeg_quality}"
    of_video: dict[str, Any] = {}
    if method.initial_frames_as_video:
        encoding = f"JPEG {policy.jpeg_quality or VIDEO_JPEG_QUALITY}, as a video"
        of_video["frames_per_patch"] = FRAMES_PER_PATCH
    return {
        "encoding": encoding,
        **of_video,
        "sizes": asdict(policy.envelope) if has_processor else "as the method asks; the server fits them",
        "video_backend": os.environ.get("VVT_VIDEO_BACKEND") or "pyav",
    }


def _is_moved(name: str, earlier: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether only the place of something differs, whose content is the same."""
    content = _PLACES.get(name)
    return content is not None and (digest := _at(earlier, content)) is not None and digest == _at(now, content)


def _at(protocol: Any, name: str) -> Any:
    """The leaf of a dotted name; None where there is none."""
    for key in name.split("."):
        protocol = protocol.get(key) if isinstance(protocol, dict) else None
    return protocol


def _differences(old: Any, new: Any, name: str = "") -> dict[str, tuple[Any, Any]]:
    """Leaves that differ, by dotted name."""
    if isinstance(old, dict) and isinstance(new, dict):
        differences: dict[str, tuple[Any, Any]] = {}
        for key in sorted(old.keys() | new.keys()):
            differences |= _differences(old.get(key), new.get(key), f"{name}.{key}" if name else key)
        return differences
    return {} if old == new else {name: (old, new)}


def _short(value: Any) -> str:
    return f"{json.dumps(value, ensure_ascii=False):.100}"
