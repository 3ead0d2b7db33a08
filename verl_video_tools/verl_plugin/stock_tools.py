"""The methods' tools as verl `BaseTool`s, for verl's own tool loop (`agent_name: tool_agent`).

Name the classes in a tool YAML (`vvt path tools` prints one). A tool's `config` takes the fields of its method, as
`video_tools.<method>` does for our own loop. The video is bound by the row, in
``extra_info.tools_kwargs[<tool>]["create_kwargs"]["video_path"]``; what the model writes never names a file.

This is the outermost layer, so it may know methods: it asks the method for its tools, and runs the same `Tool.plan`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar
from uuid import uuid4

from PIL import Image
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse
from verl.utils.rollout_trace import rollout_trace_op

from verl_video_tools.core.config import checked_fields, require
from verl_video_tools.core.errors import (
    CallErrorCode,
    CallRejected,
    DeadlineError,
    RetrievalError,
    ToolModelError,
    UsageError,
    VideoError,
)
from verl_video_tools.core.method import Method
from verl_video_tools.core.types import (
    FrameRecord,
    FrameRequest,
    ImagePart,
    PixelEnvelope,
    Retriever,
    Sample,
    Subtitle,
    Tool,
    ToolContext,
    ToolModel,
    VideoInfo,
)
from verl_video_tools.methods import get_method
from verl_video_tools.methods.toolkit import Zoom
from verl_video_tools.methods.toolkit.calls import format_box
from verl_video_tools.methods.toolkit.grammar import tool_schema
from verl_video_tools.rollout.observation import escape_text
from verl_video_tools.services.tool_model import RecordingToolModel, Spent, ToolModelConfig, connected
from verl_video_tools.video import Video, decode_frames, index_at, open_video

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Observation:
    """What the model gets to see: a text, and the images that verl puts before it."""

    text: str
    images: tuple[Image.Image, ...] = ()


class VideoTool(BaseTool):
    """A tool of a method, behind verl's tool interface.

    verl keeps one object per worker for all rollouts, and calls `create`, `execute` and `release` for every single
    call; so the object holds nothing but the videos of the calls now under way.

    Args:
        config: `type: native`, which verl wants, and fields of the method; `tool_model`, for tools that ask a model,
            has those of `services.tool_model.ToolModelConfig`.
        tool_schema: replaces the tool's own descriptions; the tool and its parameters keep their names.

    Raises:
        UsageError: the method has no such field, the value does not fit it, or `tool_schema` renames the tool.
    """

    method_name: ClassVar[str]
    tool_name: ClassVar[str]

    def __init__(self, config: Mapping[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None) -> None:
        fields = {name: value for name, value in config.items() if name not in ("type", "tool_model")}
        self._tool_model_fields: Mapping[str, Any] = config.get("tool_model") or {}
        self._configure(fields)
        self._bound: dict[str, Mapping[str, Any]] = {}
        if tool_schema is not None and tool_schema.function.name != self.tool_name:
            raise UsageError(f"tool_schema must be called {self.tool_name!r}, got {tool_schema.function.name!r}")
        super().__init__(dict(config), tool_schema or self._own_schema())

    def _configure(self, fields: Mapping[str, Any]) -> None:
        """Set what plans the calls on a video, how it is described, and the time that a call may take."""
        method = get_method(self.method_name, **fields)
        self._tool = next(tool for tool in method.tool_descriptions if tool.name == self.tool_name)
        self._planner: Callable[[VideoInfo], Tool] = lambda info: method.tools(info)[self.tool_name]
        self._deadline_seconds = method.tool_deadline_seconds

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        """Bind the row's video to the call, and its subtitles for tools that look them up;
        ``create_kwargs={"video_path": str, "subtitles"?: list}``, the latter as in `extra_info`."""
        instance_id = instance_id or uuid4().hex
        self._bound[instance_id] = kwargs.get("create_kwargs") or {}
        return instance_id, ToolResponse()

    @rollout_trace_op
    async def execute(self, instance_id: str, parameters: Any, **kwargs: Any) -> tuple[ToolResponse, float, dict]:
        """Carry out one call. Never raises: a call that fails is answered with ``"<code>: <message>"``.

        Returns:
            The response; the tool reward, always 0.0; and ``{"ok": bool, "error": str | None, "num_frames": int,
            "latency_ms": float}``, which verl's loop throws away.
        """
        started = time.perf_counter()
        error: CallRejected | None = None
        try:
            observation = await self._observe(self._bound.get(instance_id, {}), parameters)
        except CallRejected as rejection:
            error = rejection
        except DeadlineError as failure:
            logger.warning("%s: %s", self.name, failure)
            seconds = self._deadline_seconds
            error = CallRejected(CallErrorCode.DEADLINE, f"the frames were not ready within {seconds:g} s")
        except RetrievalError as failure:
            logger.warning("%s: %s", self.name, failure)
            error = CallRejected(CallErrorCode.RETRIEVAL_ERROR, "frames could not be searched")
        except ToolModelError as failure:
            logger.warning("%s: %s", self.name, failure)
            error = CallRejected(CallErrorCode.MODEL_ERROR, "the model of this tool could not be asked")
        except VideoError as failure:
            logger.warning("%s: %s", self.name, failure)
            # The model reads this: no path, since a file's name may give the answer away.
            error = CallRejected(CallErrorCode.VIDEO_ERROR, "the video cannot be read")
        except Exception:  # a bug must not cost the rollout, but must be seen
            logger.exception("%s failed on %r", self.name, parameters)
            error = CallRejected(CallErrorCode.VIDEO_ERROR, "the tool failed unexpectedly")
        if error is not None:
            observation = _Observation(str(error))
        metrics = {
            "ok": error is None,
            "error": error.code.value if error is not None else None,
            "num_frames": len(observation.images),
            "latency_ms": (time.perf_counter() - started) * 1e3,
        }
        # verl takes an absent list of images, but no None.
        images = {"image": list(observation.images)} if observation.images else {}
        # Errors repeat what the policy wrote, and verl's loop tokenises the text as it stands.
        return ToolResponse(text=escape_text(observation.text), **images), 0.0, metrics

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """Forget the call."""
        self._bound.pop(instance_id, None)

    def render(self, arguments: Mapping[str, Any], result: Mapping[str, Any], frames: Sequence[FrameRecord]) -> str:
        """The text of a call that was carried out; its images stand before it."""
        if self._tool.result_text is not None:
            return self._tool.result_text(arguments, result)
        return "Shown above, in order: " + ", ".join(self._tool.frame_label.format(frame=frame) for frame in frames)

    async def _observe(self, bound: Mapping[str, Any], parameters: Any) -> _Observation:
        video_path = bound.get("video_path")
        if not isinstance(parameters, Mapping):
            raise CallRejected(CallErrorCode.MALFORMED_CALL, f"arguments must be a JSON object, got {parameters!r:.80}")
        if not video_path:
            logger.error("%s: the row has no extra_info.tools_kwargs.%s.create_kwargs.video_path", self.name, self.name)
            raise CallRejected(CallErrorCode.VIDEO_ERROR, "no video belongs to this question")
        deadline_seconds = self._deadline_seconds
        video = await open_video(video_path, deadline_seconds=deadline_seconds)
        # A planner of ours looks at the video alone; the question stays with verl's loop. Sizes are the method's own:
        # verl gives a tool no processor to ask, so the processor resizes to its multiples.
        subtitles = tuple(map(Subtitle.from_row, bound.get("subtitles") or ()))
        sample = Sample("", "", video_path, "open", subtitles=subtitles)
        context = ToolContext(
            video.info,
            sample,
            PixelEnvelope(),
            partial(index_at, video, deadline_seconds),
            self._retriever(),
            decode=partial(_decode, video, deadline_seconds),
            model=self._tool_model(),
        )
        plan = await self._planner(video.info).plan(parameters, context)
        if plan.frames is None:
            return _Observation(self.render(parameters, plan.result, ()) if plan.text is None else plan.text)
        batch = await decode_frames(video, plan.frames, deadline_seconds=deadline_seconds)
        images = tuple(Image.fromarray(pixels_HWC) for pixels_HWC in batch.frames_THWC)
        shown = self.render(parameters, plan.result, batch.records())
        return _Observation(shown if plan.text is None else f"{shown}\n{plan.text}", images)

    def _retriever(self) -> Retriever | None:
        """What finds frames by text; tools that only look at given places have none."""
        return None

    def _tool_model(self) -> ToolModel | None:
        """What tools may ask. Each call has limits of its own: verl does not say which calls are of one rollout."""
        if not self._tool_model_fields:
            return None
        client = connected(ToolModelConfig.from_fields(self._tool_model_fields))
        return RecordingToolModel(client, Spent(), [])

    def _own_schema(self) -> OpenAIFunctionToolSchema:
        schema = tool_schema(self._tool.name, self._tool.description, self._tool.parameters, self._tool.optional)
        return OpenAIFunctionToolSchema.model_validate(schema)


async def _decode(video: Video, deadline_seconds: float, request: FrameRequest) -> tuple[ImagePart, ...]:
    batch = await decode_frames(video, request, deadline_seconds=deadline_seconds)
    return tuple(map(ImagePart, batch.records(), batch.frames_THWC))


class SearchTool(VideoTool):
    """A tool that finds frames by text.

    The entry `retrieval` of `config` has the fields of `services.retrieval.RetrievalConfig`. The retriever of the node
    is connected to at the first call.
    """

    def __init__(self, config: Mapping[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None) -> None:
        super().__init__({name: value for name, value in config.items() if name != "retrieval"}, tool_schema)
        self._retrieval_fields: Mapping[str, Any] = config.get("retrieval") or {}
        self._connected: Retriever | None = None

    def _retriever(self) -> Retriever | None:
        if self._connected is None and self._retrieval_fields:
            from verl_video_tools.services.config import RetrievalConfig
            from verl_video_tools.verl_plugin.retrieval_actor import connect

            self._connected = connect(RetrievalConfig.from_fields(self._retrieval_fields))
        return self._connected


# ------------------------------------------------------------------------------------------------- tools of the toolkit


@dataclass(frozen=True, kw_only=True)
class _LoopFields:
    """What a method would say of its tools."""

    tool_deadline_seconds: float = Method.tool_deadline_seconds
    """Time that one call may take."""

    def __post_init__(self) -> None:
        require(self, "tool_deadline_seconds", self.tool_deadline_seconds > 0, "above 0")


class ToolkitTool(VideoTool):
    """A tool of the toolkit behind verl's tool interface.

    Its `config` takes the tool's own fields, and `tool_deadline_seconds`.

    Raises:
        UsageError: the tool has no such field, or the value does not fit it.
    """

    tool_class: ClassVar[type[Zoom]]

    def _configure(self, fields: Mapping[str, Any]) -> None:
        own = {name: value for name, value in fields.items() if name != "tool_deadline_seconds"}
        loop = {name: value for name, value in fields.items() if name == "tool_deadline_seconds"}
        tool = self.tool_class(**checked_fields(self.tool_class, own))
        self._tool = tool.description
        self._planner = lambda info: tool
        self._deadline_seconds = _LoopFields(**checked_fields(_LoopFields, loop)).tool_deadline_seconds


class ZoomTool(ToolkitTool):
    """A part of one frame: a picture, then one line with its time and its box, as the model wrote it. verl's loop does
    not tell a tool what was shown, so the frame is named by its time."""

    tool_name = "zoom"
    tool_class = Zoom

    def _configure(self, fields: Mapping[str, Any]) -> None:
        if fields.get("frame_by", "time") != "time":
            raise UsageError(
                f"ZoomTool takes frame_by='time' alone, got {fields['frame_by']!r}: verl's loop tells no more"
            )
        super()._configure(fields)

    def render(self, arguments: Mapping[str, Any], result: Mapping[str, Any], frames: Sequence[FrameRecord]) -> str:
        return f"Shown above: {frames[0].timestamp_seconds:.2f} s, part {format_box(arguments['box'])}"
