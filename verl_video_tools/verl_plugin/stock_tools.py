"""The methods' tools as verl `BaseTool`s, for verl's own tool loop (`agent_name: tool_agent`).

Name the classes in a tool YAML (`vvt path tools` prints one). A tool's `config` takes the fields of its method, as
`video_tools.<method>` does for our own loop. The video is bound by the row, in
``extra_info.tools_kwargs[<tool>]["create_kwargs"]["video_path"]``; what the model writes never names a file.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from uuid import uuid4

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse
from verl.utils.rollout_trace import rollout_trace_op

from verl_video_tools.core.errors import (
    CallErrorCode,
    CallRejected,
    RetrievalError,
    ToolModelError,
    UsageError,
    VideoError,
)
from verl_video_tools.core.trajectory import CacheUse
from verl_video_tools.core.types import FrameRecord, PixelEnvelope, Retriever, Sample, Subtitle, ToolContext
from verl_video_tools.methods import get_method
from verl_video_tools.methods.toolkit.grammar import tool_schema as schema_of
from verl_video_tools.rollout.episode import failure_code
from verl_video_tools.rollout.observation import RolloutVideos, escape_text, made_pictures
from verl_video_tools.rollout.tokens import pil_images

logger = logging.getLogger(__name__)

_FAILURES = {
    CallErrorCode.DEADLINE: "the frames were not ready in time",
    CallErrorCode.RETRIEVAL_ERROR: "frames could not be searched",
    CallErrorCode.MODEL_ERROR: "the model of this tool could not be asked",
    CallErrorCode.VIDEO_ERROR: "the video cannot be read",
}
"""What the model reads of a failure: no path, since a file's name may give the answer away."""


class VideoTool(BaseTool):
    """A tool of a method, behind verl's tool interface.

    verl keeps one object per worker for all rollouts, and calls `create`, `execute` and `release` for every single
    call; so the object holds nothing but the videos of the calls now under way.

    Args:
        config: `type: native`, which verl wants, and fields of the method.
        tool_schema: replaces the tool's descriptions; the tool and its parameters keep their names.

    Raises:
        UsageError: the method has no such field, the value does not fit it, or `tool_schema` renames the tool.
    """

    method_name: ClassVar[str]
    tool_name: ClassVar[str]

    def __init__(self, config: Mapping[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None) -> None:
        self._method = get_method(self.method_name, **{name: config[name] for name in config if name != "type"})
        self._tool = next(tool for tool in self._method.tool_descriptions if tool.name == self.tool_name)
        self._bound: dict[str, Mapping[str, Any]] = {}
        if tool_schema is None:
            tool = self._tool
            schema = schema_of(tool.name, tool.description, tool.parameters, tool.optional)
            tool_schema = OpenAIFunctionToolSchema.model_validate(schema)
        elif tool_schema.function.name != self.tool_name:
            raise UsageError(f"tool_schema must be called {self.tool_name!r}, got {tool_schema.function.name!r}")
        super().__init__(dict(config), tool_schema)

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
            The response; the tool reward, always 0.0; and no metrics, which verl's loop would throw away.
        """
        try:
            response = await self._observe(self._bound.get(instance_id, {}), parameters)
        except CallRejected as rejection:
            response = ToolResponse(text=str(rejection))
        except (RetrievalError, ToolModelError, VideoError) as error:
            logger.warning("%s: %s", self.name, error)
            code = failure_code(error)
            response = ToolResponse(text=f"{code}: {_FAILURES[code]}")
        except Exception:  # a bug must not cost the rollout, but must be seen
            logger.exception("%s failed on %r", self.name, parameters)
            response = ToolResponse(text=f"{CallErrorCode.VIDEO_ERROR}: the tool failed unexpectedly")
        # Errors repeat what the policy wrote, and verl's loop tokenises the text as it stands.
        response.text = escape_text(response.text)
        return response, 0.0, {}

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """Forget the call."""
        self._bound.pop(instance_id, None)

    async def _observe(self, bound: Mapping[str, Any], parameters: Any) -> ToolResponse:
        video_path = bound.get("video_path")
        if not isinstance(parameters, Mapping):
            raise CallRejected(CallErrorCode.MALFORMED_CALL, f"arguments must be a JSON object, got {parameters!r:.80}")
        if not video_path:
            logger.error("%s: the row has no extra_info.tools_kwargs.%s.create_kwargs.video_path", self.name, self.name)
            raise CallRejected(CallErrorCode.VIDEO_ERROR, "no video belongs to this question")
        videos = RolloutVideos(self._method.tool_deadline_seconds, CacheUse())
        await videos.open([video_path])
        info = videos.opened[0].info
        subtitles = tuple(map(Subtitle.from_row, bound.get("subtitles") or ()))
        sample = Sample("", "", video_path, "open", subtitles=subtitles)  # the question stays with verl's loop
        # Sizes are the method's own: verl gives a tool no processor to ask, and the processor resizes to its multiples.
        context = ToolContext(info, sample, PixelEnvelope(), videos.index_at, self._retriever(), decode=videos.decode)
        plan = await self._method.tools(info)[self.tool_name].plan(parameters, context)
        pictures = [image for image, _ in await made_pictures(plan, context.envelope)]
        images = pictures if plan.frames is None else [*pictures, *await videos.decode(plan.frames)]
        if plan.frames is None and plan.text is not None:
            text = plan.text
        else:
            text = self._text(parameters, plan.result, [image.record for image in images])
            text = text if plan.text is None else f"{text}\n{plan.text}"
        if not images:  # verl takes an absent list of images, but no empty one
            return ToolResponse(text=text)
        return ToolResponse(text=text, image=pil_images(images))

    def _text(self, arguments: Mapping[str, Any], result: Mapping[str, Any], frames: Sequence[FrameRecord]) -> str:
        """The text of a call that was carried out; its images stand before it."""
        if self._tool.result_text is not None:
            return self._tool.result_text(arguments, result)
        labels = ("a picture" if frame.digest else self._tool.frame_label.format(frame=frame) for frame in frames)
        return "Shown above, in order: " + ", ".join(labels)

    def _retriever(self) -> Retriever | None:
        """What finds frames by text; tools that only show given places have none."""
        return None


class SearchTool(VideoTool):
    """A tool that finds frames by text.

    The entry `retrieval` of `config` has the fields of `services.retrieval.RetrievalConfig`. The retriever of the node
    is connected to at the first call.
    """

    def __init__(self, config: Mapping[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None) -> None:
        super().__init__({name: value for name, value in config.items() if name != "retrieval"}, tool_schema)
        self._retrieval_fields: Mapping[str, Any] = config.get("retrieval") or {}

    def _retriever(self) -> Retriever | None:
        if not self._retrieval_fields:
            return None
        from verl_video_tools.services.config import RetrievalConfig
        from verl_video_tools.verl_plugin.retrieval_actor import connect

        return connect(RetrievalConfig.from_fields(self._retrieval_fields))
