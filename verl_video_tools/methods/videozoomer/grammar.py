"""VideoZoomer's turn grammar: a `<think>` block, then one request or the answer (paper appendix A).

    <think>...</think><video_zoom>{"segment": [START, END], "fps": RATE}</video_zoom>     seconds, frames per second
    <think>...</think><answer>ANSWER</answer>

A turn that holds a request does not answer, whatever else it says: generation stops at `</video_zoom>`, so an answer
beside it came before the frames that were asked for. Of several answers the last counts. Both rules are those of the
published environment.

`parse_turn` is the strict reading, `parse_turn_reference` that of the published environment; they differ in which JSON
they find. Both take any text and never raise. Frames are labelled alike in initial frames and observations; the
messages around them are templates (`methods.videozoomer.method`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.toolkit.grammar import tag_pairs

VIDEO_ZOOM = "video_zoom"
STOP = f"</{VIDEO_ZOOM}>"

_TAG = re.compile(rf"</?(?:think|{VIDEO_ZOOM}|answer|tool_response)>")
_MAX_OBJECTS = 100
"""Objects that are read to say why a request cannot be: a policy may write any number of them."""
_FORM = '{"segment": [start_seconds, end_seconds], "fps": frames_per_second}'


def parse_turn(text: str) -> vt.ParsedTurn:
    """Read one turn strictly.

    Words around the JSON object of a request, and line breaks in it, do not matter for what is read, only for
    `well_formed`. Two requests in one turn are both refused (`multiple_calls`). A thought is read only if the turn has
    exactly one.
    """
    requests = vt.find_blocks(text, VIDEO_ZOOM)
    if len(requests) > 1:
        error = vt.multiple_calls(len(requests), "requests", "<video_zoom>")
        return vt.ParsedTurn(_thought(text), tuple(_refused(request.inner, error) for request in requests))
    if requests:
        body = requests[0].inner.strip()
        call = _read_object(body[max(0, body.find("{")) : body.rfind("}") + 1] or body)
        is_bare = body.startswith("{") and body.endswith("}")
        well_formed = call.error is None and is_bare and _is_to_the_letter(text, VIDEO_ZOOM)
        return vt.ParsedTurn(_thought(text), (call,), well_formed=well_formed)
    # Of several answers the last that is closed; `find_blocks` would begin it where a thought only names the tag.
    return _answering(text, last_answer(text.rpartition("</answer>")[0]))


def parse_turn_reference(text: str) -> vt.ParsedTurn:
    """Read one turn as the published environment does.

    A turn's requests must hold one JSON object together, on one line and without inner braces. An answer counts also
    where its closing tag is missing.
    """
    requests = vt.find_blocks(text, VIDEO_ZOOM)
    if requests:
        call = _read_request_reference("".join(f"{request.inner}\n" for request in requests))
        return vt.ParsedTurn(
            _thought(text), (call,), well_formed=call.error is None and _is_to_the_letter(text, VIDEO_ZOOM)
        )
    return _answering(text, last_answer(text))


def last_answer(text: str) -> str | None:
    """What stands after the last `<answer>`, up to a closing tag if there is one; None without `<answer>`."""
    _, opening, rest = text.rpartition("<answer>")
    return rest.partition("</answer>")[0].strip() if opening else None


def _answering(text: str, answer: str | None) -> vt.ParsedTurn:
    well_formed = bool(answer) and _is_to_the_letter(text, "answer")
    return vt.ParsedTurn(_thought(text), answer=answer or None, well_formed=well_formed)


def _thought(text: str) -> str | None:
    thoughts = vt.find_blocks(text, "think")
    return vt.first_text(thoughts) if len(thoughts) == 1 else None


def _is_to_the_letter(text: str, action: str) -> bool:
    """One thought at the start, one action at the end, and no further tag, such as a made-up reply, anywhere."""
    text = text.strip()
    encloses = text.startswith("<think>") and text.endswith(f"</{action}>")
    return encloses and _TAG.findall(text) == tag_pairs("think", action)


def _read_object(text: str) -> vt.ToolCall:
    """A request as JSON, whatever its keys: the tool says which it needs."""
    try:
        request = vt.load_object(text)
    except ValueError:
        request = None
    if request is None or not all(map(_is_flat, request.values())):
        return _malformed(text, f"cannot read {text[:80]!r}; write {_FORM}")
    return vt.ToolCall(VIDEO_ZOOM, request)


def _read_request_reference(text: str) -> vt.ToolCall:
    """The one object of a turn's requests. Where there is none or are several, the model reads no reason."""
    objects = _objects_on_one_line(text)
    try:
        requests = [vt.load_object(written) for written in objects[:_MAX_OBJECTS]]
    except (ValueError, RecursionError) as error:
        return _malformed(text, str(error))
    if len(requests) != 1:
        return _malformed(text, "")
    return vt.ToolCall(VIDEO_ZOOM, requests[0])


def _is_flat(value: Any) -> bool:
    return not any(isinstance(item, dict | list) for item in (value if isinstance(value, list) else [value]))


def _malformed(text: str, message: str) -> vt.ToolCall:
    return _refused(text, vt.CallError(vt.CallErrorCode.MALFORMED_CALL, message))


def _refused(text: str, error: vt.CallError) -> vt.ToolCall:
    return vt.ToolCall(VIDEO_ZOOM, {"request": text}, error)


def _objects_on_one_line(text: str) -> list[str]:
    """What the regular expression ``\\{.*?\\}`` finds, in linear time."""
    objects = []
    for line in text.split("\n"):
        start = line.find("{")
        while start >= 0 and (stop := line.find("}", start)) >= 0:
            objects.append(line[start : stop + 1])
            start = line.find("{", stop)
    return objects


# ---------------------------------------------------------------------------------------------------------- rendering


def labelled_frames(images: Sequence[vt.ImagePart]) -> vt.Content:
    """Each frame after its label: its place among these frames and its presentation time in the whole video.

    The label's form is the published one, `<frame0_time342.00s>`, so that released checkpoints can read it.
    """
    return vt.joined(
        (f"<frame{position}_time{image.record.timestamp_seconds:.2f}s>", image) for position, image in enumerate(images)
    )


# ------------------------------------------------------------------------------------------------ the published scoring
# Only `compat="reference"` uses it. It reads the assistant's turns as text, and pays for a request as soon as its tag
# is written, whether or not frames were shown. The method's page shows the inputs.

_OPENING, _CLOSING = f"<{VIDEO_ZOOM}>", f"</{VIDEO_ZOOM}>"
_LETTER = re.compile(r"([A-Z])\.")
_BOXED = "\\boxed{"


@dataclass(frozen=True, slots=True)
class Findings:
    """What a rollout is paid for: by its record, or (reference) by the text of its turns.

    Attributes:
        answer: in the text what stands after the last `<answer>`, from the start where there is none, up to a closing
            tag.
        well_formed: every turn follows the grammar and no call was refused; in the text every turn but the last asks
            for a zoom, and the last one answers.
        num_calls: calls that were executed; in the text turns that hold a request, failed ones too, up to the first
            malformed turn.
        zoomed: a call earned the bonus: one that showed two different frames; in the text any.
    """

    answer: str | None
    well_formed: bool
    num_calls: int
    zoomed: bool


def read_turns(turns: Sequence[str], max_frames: int) -> Findings:
    """Read the assistant's turns as the published scoring does.

    Args:
        max_frames: frames per call that a well-formed request may ask for.
    """
    text = " ".join(turns)
    *zooming, last = turns or [""]
    num_calls = 0 if zooming else int(_asks(last))
    well_formed = True
    for turn in zooming:
        num_calls += _asks(turn)
        well_formed = _zooms(turn.strip(), max_frames)
        if not well_formed:
            break
    return Findings(
        answer=text.rpartition("<answer>")[2].partition("</answer>")[0].strip(),
        well_formed=well_formed and _answers(last if zooming else last.strip()),
        num_calls=num_calls,
        zoomed=num_calls > 0,
    )


def grade_letter_reference(answer: str, truth: str) -> bool:
    """Whether the published rule finds the letter `truth` (case-sensitive) in an answer.

    The answer is the letter, has it in ``\\boxed{}``, or its last capital before a full stop is the letter. So ``B. x``
    is right for B, but ``(B)``, ``B)`` and ``b`` are not, and neither is ``B. Visit the U.S.``.
    """
    truth = truth.strip().removesuffix(".")
    letters = _LETTER.findall(answer)
    return answer == truth or _boxed(answer) == truth or (bool(letters) and letters[-1] == truth)


def _boxed(text: str) -> str | None:
    """Content of the last ``\\boxed{}``, inner braces balanced."""
    _, opening, rest = text.rpartition(_BOXED)
    depth = 1
    for position, character in enumerate(rest if opening else ""):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[:position].strip()
    return None


def _asks(turn: str) -> bool:
    """Whether a request's closing tag stands anywhere after its opening one."""
    return _CLOSING in turn.partition(_OPENING)[2]


def _answers(turn: str) -> bool:
    """``^<think>.*</think>.*<answer>.*</answer>$``, one answer, no request."""
    body = turn.removesuffix("\n")  # a dollar sign also matches before one last line break
    return (
        body.endswith("</answer>")
        and _in_order(body, "<think>", "</think>", "<answer>", "</answer>")
        and turn.count("<answer>") == turn.count("</answer>") == 1
        and _OPENING not in turn
    )


def _zooms(turn: str, max_frames: int) -> bool:
    """``^<think>.*</think>.*<video_zoom>.*</video_zoom>``, one request within the limit, no answer."""
    if not (
        _in_order(turn, "<think>", "</think>", _OPENING, _CLOSING)
        and turn.count(_OPENING) == turn.count(_CLOSING) == 1
        and "<answer>" not in turn
        and "</answer>" not in turn
    ):
        return False
    try:
        request = json.loads(vt.find_blocks(turn, VIDEO_ZOOM)[0].inner)
        start, end = request["segment"][:2]
        return int(float(request["fps"]) * (float(end) - float(start))) <= max_frames
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return False


def _in_order(turn: str, first: str, *tags: str) -> bool:
    """Whether the turn starts with the first tag, and the others follow one after the other."""
    position = len(first) if turn.startswith(first) else -1
    for tag in tags:
        position = turn.find(tag, position) if position >= 0 else -1
        position += len(tag) if position >= 0 else 0
    return position >= 0
