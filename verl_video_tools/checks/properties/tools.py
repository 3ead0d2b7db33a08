"""Properties of a method's tools: what they plan, and what they refuse."""

from __future__ import annotations

import inspect
import json
import re

from verl_video_tools.checks import probes
from verl_video_tools.checks.outcome import NotApplicable, fail
from verl_video_tools.checks.properties.prompts import size_fault
from verl_video_tools.checks.registry import holds
from verl_video_tools.checks.requests import places_of, request_fault, within
from verl_video_tools.checks.subject import Subject
from verl_video_tools.checks.world import QWEN, VIDEOS, with_other_truth
from verl_video_tools.core.errors import FAILURE_CODES, CallErrorCode, CallRejected
from verl_video_tools.core.types import PixelEnvelope, ToolPlan

_CODE = re.compile(r"`([a-z_]+)`")
_UNKNOWN = "no_such_tool"
_FRAME_SECONDS = 0.25
"""A little more than a frame of the video lasts."""


@holds("tools")
def tools_of_any_video(subject: Subject) -> None:
    """`tools` gives each tool under its own name, for any video, because a call is looked up by that name."""
    for what, info in VIDEOS.items():
        try:
            tools = dict(subject.method.tools(info))
        except Exception as error:
            raise fail(f"tools raises for {what}", error, "make tools from the config alone") from error
        for name, tool in tools.items():
            if getattr(tool, "name", None) != name:
                raise fail(
                    f"the tool under {name!r} calls itself", getattr(tool, "name", None), "write {tool.name: tool}"
                )


@holds("tools", requires=("tools_of_any_video",))
def unknown_tools_are_refused(subject: Subject) -> None:
    """A name that no tool has finds none, because such a call is recorded as `unknown_tool` and not carried out."""
    if (found := subject.method.tools(subject.info).get(_UNKNOWN)) is not None:
        raise fail(f"tools(...).get({_UNKNOWN!r})", found, "return a plain dict of the tools that there are")


def _tools(subject: Subject) -> None:
    if not subject.tool_names:
        raise NotApplicable("the method has no tools")


@holds("tools", requires=("a_valid_call_of_each_tool_is_found",))
def tools_refuse_by_code(subject: Subject) -> None:
    """Bad arguments are refused with CallRejected and a text, because any other error ends the policy's rollout."""
    _tools(subject)
    for probe in probes.bad_probes(subject):
        if probe.error is not None and not probes.may_be_raised(probe.error):
            raise fail(
                f"{probe.says()} raises", probe.error, "check each argument, and raise CallRejected"
            ) from probe.error
        if isinstance(probe.error, CallRejected):
            if probe.error.code not in set(CallErrorCode) or probe.error.code in FAILURE_CODES:
                raise fail(
                    f"{probe.says()} is refused with",
                    probe.error.code,
                    "choose a code of CallErrorCode that blames the call",
                )
            if not probe.error.message.strip():
                raise fail(
                    f"{probe.says()} is refused without a word",
                    probe.error.message,
                    "say what was wrong and what is accepted",
                )
        elif probe.error is None and not isinstance(probe.plan, ToolPlan):
            raise fail(f"{probe.says()} plans", probe.plan, "return a ToolPlan")


@holds("tools", requires=("tools_refuse_by_code",))
def refusals_are_documented(subject: Subject) -> None:
    """Each code that a tool refuses with stands in the docstring of its `plan`, because metrics show these codes."""
    _tools(subject)
    for name, codes in probes.raised(probes.bad_probes(subject)).items():
        documented = _documented(subject, name)
        if missing := sorted(codes - documented):
            raise fail(
                f"codes of {name} that the docstring of its `plan` does not name", missing, "name them under Raises"
            )


@holds("tools", requires=("refusals_are_documented", "plans_open_no_video"))
def documented_refusals_are_reached(subject: Subject) -> None:
    """Each code in the docstring of `plan` is raised by some call, because a check that never fires checks nothing."""
    _tools(subject)
    for name, tool in subject.method.tools(subject.info).items():
        unreached = _documented(subject, name)
        for variant in probes.variants(tool):
            unreached -= probes.raised(probes.bad_probes(subject, {name: variant})).get(name, set())
            if not unreached:
                break
        if unreached:
            told = f"codes in the docstring of {name}'s `plan` that no call got"
            raise fail(told, sorted(unreached), "mend the check, or take them out")


def _documented(subject: Subject, name: str) -> set[str]:
    tool = subject.method.tools(subject.info)[name]
    named = set(_CODE.findall(inspect.getdoc(type(tool).plan) or ""))
    return named & {str(code) for code in CallErrorCode} - {str(code) for code in FAILURE_CODES}


@holds("tools", requires=("a_valid_call_of_each_tool_is_found", "tools_refuse_by_code"))
def plans_open_no_video(subject: Subject) -> None:
    """A call is planned from the video's facts alone, because budgets are asked before a pixel is decoded."""
    _tools(subject)
    for name in subject.tool_names:
        tool = subject.method.tools(subject.info)[name]
        for arguments in probes.valid_arguments(subject, name):
            probe = probes.plan(subject, tool, name, arguments)
            if probe.error is not None:
                raise fail(
                    f"{probe.says()}, carried out before, fails without the file", probe.error, "plan from context.info"
                )


@holds("tools", requires=("plans_open_no_video",))
def plans_are_repeatable(subject: Subject) -> None:
    """The same call plans the same, because a record is replayed to the same frames."""
    _tools(subject)
    for probe in probes.valid_probes(subject):
        tool = subject.method.tools(subject.info)[probe.tool]
        if (again := probes.plan(subject, tool, probe.tool, dict(probe.given))).plan != probe.plan:
            raise fail(
                f"{probe.says()} planned {probe.plan!r:.160}, and then", again.plan or again.error, "draw nothing"
            )


@holds("tools", requires=("plans_are_repeatable",))
def plans_do_not_read_the_truth(subject: Subject) -> None:
    """A call plans the same whatever the truth of the row and its place, because the model would be led there."""
    _tools(subject)
    changed = with_other_truth(subject.sample)
    for name, tool in subject.method.tools(subject.info).items():
        calls = [(tool, name, arguments) for arguments in probes.valid_arguments(subject, name)]
        planned, other = (probes.plan_all(subject, calls, sample=each) for each in (subject.sample, changed))
        for before, after in zip(planned, other, strict=True):
            if before.plan != after.plan:
                told = f"{before.says()} planned {before.plan!r:.160}, and with another truth"
                raise fail(told, after.plan or after.error, "plan from the arguments and context.info")


@holds("tools", requires=("plans_are_repeatable",))
def plans_lie_in_the_video(subject: Subject) -> None:
    """Frames of a call are within the video and in order, because a policy reads them as a stretch of time."""
    _tools(subject)
    for what, info in {"the video": subject.info, **VIDEOS}.items():
        for probe in probes.valid_probes(subject, info):
            if probe.plan is not None and (fault := request_fault(probe.plan.frames, info)):
                raise fail(
                    f"{probe.says()} of {what}: {fault}", probe.plan.frames, "refuse the call (`out_of_range`), or sort"
                )


@holds("tools", requires=("plans_lie_in_the_video", "plans_do_not_read_the_truth"))
def plans_show_the_stretch_asked_for(subject: Subject) -> None:
    """Frames of a call over a stretch lie within it, in seconds or in frames, because the model reads them as that."""
    _tools(subject)
    asked = 0
    for probe in probes.valid_probes(subject):
        stretch = probes.stretch_of(probe.given)
        if stretch is None or stretch[0] > stretch[1] or probe.plan is None or probe.plan.frames is None:
            continue
        asked += 1
        seconds, indices = places_of(probe.plan.frames, subject.info)
        if not any(within(places, stretch, slack) for places, slack in ((seconds, _FRAME_SECONDS), (indices, 1.0))):
            shown = f"{seconds[0]:g} to {seconds[-1]:g} s, frames {indices[0]:g} to {indices[-1]:g}"
            raise fail(
                f"{probe.says()} shows frames outside the stretch", shown, "plan from the arguments and context.info"
            )
    if not asked:
        raise NotApplicable("no call names where a stretch starts and ends")


@holds("tools", requires=("plans_are_repeatable",))
def plans_fit_the_processor(subject: Subject) -> None:
    """Frames of a call have sizes that the processor leaves untouched, because a frame resized twice is another one."""
    _tools(subject)
    for what, info in {"the video": subject.info, "an upright phone video": VIDEOS["an upright phone video"]}.items():
        for probe in probes.valid_probes(subject, info, QWEN):
            frames = None if probe.plan is None else probe.plan.frames
            if frames is not None and (fault := size_fault(frames.width, frames.height)):
                raise fail(
                    f"{probe.says()} of {what}: {fault}", (frames.width, frames.height), "use `toolkit.frame_size`"
                )


@holds("tools", requires=("plans_are_repeatable",))
def plans_can_be_recorded(subject: Subject) -> None:
    """`ToolPlan.result` is JSON and the arguments stay as they were, because both go into the record."""
    _tools(subject)
    for probe in probes.valid_probes(subject):
        assert probe.plan is not None
        try:
            json.dumps(dict(probe.plan.result), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise fail(
                f"the result of {probe.says()} is no JSON ({error})", probe.plan.result, "keep numbers and texts"
            ) from error
        if repr(dict(probe.arguments)) != repr(dict(probe.given)):
            raise fail(f"{probe.says()} changed its arguments to", dict(probe.arguments), "work on a copy")


@holds("tools", requires=("plans_lie_in_the_video",))
def no_call_costs_more_than_max_cost_call(subject: Subject) -> None:
    """No call shows more pixels than `max_cost_call`, because `vvt budget` and `vvt plan` reserve for that one."""
    _tools(subject)
    for what, info in {"the video": subject.info, **VIDEOS}.items():
        most = subject.method.max_cost_call(info, subject.sample, QWEN)
        if most is None:
            raise NotApplicable("max_cost_call does not say")
        for probe in probes.valid_probes(subject, info, QWEN):
            frames = None if probe.plan is None else probe.plan.frames
            if frames is not None and len(frames) * frames.width * frames.height > len(most) * most.width * most.height:
                shown = (len(frames), frames.width, frames.height)
                raise fail(
                    f"{probe.says()} of {what} (frames, width, height) exceeds {(len(most), most.width, most.height)}",
                    shown,
                    "mend max_cost_call",
                )


@holds("tools", requires=("plans_open_no_video",))
def descriptions_are_what_tools_accept(subject: Subject) -> None:
    """A described tool exists, and takes and needs the arguments described, because models read the description."""
    descriptions = subject.method.tool_descriptions
    if not descriptions:
        raise NotApplicable("the method describes no tools for verl's own loop")
    tools = subject.method.tools(subject.info)
    names = {each.name for each in descriptions}
    if unknown := sorted(set(subject.method.tool_agent_tools) - names):
        raise fail("`tool_agent_tools` that are not described", unknown, "describe them in `tool_descriptions`")
    for each in descriptions:
        if each.name not in tools and each.name in subject.defaults.tools(subject.info):
            continue  # left out by a field of this config
        if each.name not in tools:
            raise fail(
                "a tool that is described, and that the method has not", each.name, "take it out, or add the tool"
            )
        for valid in probes.valid_arguments(subject, each.name):
            if unknown := sorted(set(valid) - set(each.parameters)):
                raise fail(f"arguments that {each.name} takes, and that are not described", unknown, "describe them")
            for parameter in each.parameters:
                less = {key: value for key, value in valid.items() if key != parameter}
                refused = isinstance(probes.plan(subject, tools[each.name], each.name, less).error, CallRejected)
                if refused == (parameter in each.optional):
                    told = "optional and refused" if refused else "needed and not missed"
                    raise fail(
                        f"{each.name} without {parameter}, which is described as {told}", less, "mend `optional`"
                    )


@holds("tools", requires=("a_valid_call_of_each_tool_is_found",))
def envelope_is_no_matter_of_refusal(subject: Subject) -> None:
    """A call that is carried out without a processor is carried out with one, because replay shows what runs do."""
    _tools(subject)
    for name in subject.tool_names:
        tool = subject.method.tools(subject.info)[name]
        for arguments in probes.valid_arguments(subject, name):
            with_one, without = (
                probes.plan(subject, tool, name, arguments, None, each) for each in (QWEN, PixelEnvelope())
            )
            if (with_one.error is None) != (without.error is None):
                raise fail(
                    f"{with_one.says()} with a processor's sizes",
                    with_one.error or without.error,
                    "fit sizes by `toolkit.frame_size`",
                )
