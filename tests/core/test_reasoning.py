"""Native reasoning is told from each method's own thought, whatever either of them names."""

from __future__ import annotations

from random import Random

import pytest

from verl_video_tools.core.reasoning import (
    ParsedCompletion,
    lacks_opening,
    opens_reasoning,
    split_reasoning,
    split_thought,
    with_reasoning,
    without_reasoning,
)
from verl_video_tools.methods import get_method

CALL = '<tool_call>{"name": "crop_video", "arguments": {"start_time": 1, "end_time": 2}}</tool_call>'
TURNS = {
    "framethinker": "<think>so, 1 and 20</think><action>choose frames between 1 and 20</action>",
    "videozoomer": '<think>so</think><video_zoom>{"segment": [1, 2], "fps": 2}</video_zoom>',
    "longvt": f"<think>so</think>\n{CALL}",
    "framemind": "<think>so</think><tool_call>FrameAt(3)</tool_call><turn_sum>what</turn_sum>",
    "videobrain": '<thinking>so</thinking><tool_call>{"name": "uniform_sample", "arguments": {"start_frame": 0, '
    '"end_frame": 9}}</tool_call>',
    "direct": "<answer>B</answer>",
}
"""A turn to the letter of each method."""
OWN_TAGS = {"videobrain": "thinking"}

REASONINGS = (
    "The first frames do not show it.",
    "",
    "I have to call <tool_call>{}</tool_call> or <video_zoom> now, or <action>output answer: A</action>",
    'So <tool_call>{"name": "crop_video", "arguments": {"start_time": 7, "end_time": 8}}</tool_call>, no, wait.',
    "The form is <think>...</think><action>output answer: A</action><answer>A</answer>, so be it.",
    "I begin with <think> and then <answer>A</answer>.",
)


def shapes(reasoning: str, turn: str) -> list[tuple[str, str | None]]:
    """Text and field of a reply in the three shapes."""
    return [
        (f"<think>\n{reasoning}\n</think>\n\n{turn}", None),
        (f"{reasoning}\n</think>\n\n{turn}", None),
        (turn, reasoning or None),
    ]


@pytest.mark.parametrize(
    ("method", "compat"),
    [
        *((method, "strict") for method in TURNS),
        *((method, "reference") for method in TURNS if method not in ("direct", "framemind")),
    ],
)
def test_reasoning_before_a_turn_is_taken_away(method: str, compat: str) -> None:
    configured = get_method(method, compat=compat)
    turn = TURNS[method]
    assert configured.parse(turn).well_formed
    for reasoning in REASONINGS:
        for text, field in shapes(reasoning, turn):
            assert split_reasoning(text, configured, reasoning=field) == ParsedCompletion(turn, reasoning or None), (
                text,
                field,
            )


@pytest.mark.parametrize("method", [name for name in TURNS if name != "direct"])
@pytest.mark.parametrize("reasoning", REASONINGS[:4])
def test_reasoning_before_a_turn_without_a_thought_is_its_thought(method: str, reasoning: str) -> None:
    configured, tag = get_method(method), OWN_TAGS.get(method, "think")
    action = TURNS[method].partition(f"</{tag}>")[2].lstrip()
    expected = configured.parse(TURNS[method])
    for number, (text, field) in enumerate(shapes(reasoning, action)):
        said = split_reasoning(text, configured, reasoning=field)
        if not reasoning and field is None and number == 2:
            continue  # nothing came with the turn
        parsed = configured.parse(said.text)
        assert (parsed.calls, parsed.answer, said.reasoning) == (expected.calls, expected.answer, None), number
        assert said.text.startswith(f"<{tag}>") and "</think>" not in said.text.replace(f"</{tag}>", "", 1)
        assert parsed.well_formed == (bool(reasoning) or tag == "think")
    # A turn whose thought names no tag is left as it is.
    if tag == "think":
        assert split_reasoning(TURNS[method], configured) == ParsedCompletion(TURNS[method])


AS_WRITTEN = [
    "{turn}",
    "\n{turn}\n",
    "Let me see. {turn}",
    "{turn}{turn}",
    "so",
    "",
    "<action>output answer: B</action>",
    "<think>never ends <answer>B</answer>",
    "<think>a</think><action>choose frames between 1 and 20</action><think>b</think><action>x</action>",
    "<think>a</think><action>x</action><think>b</think><think>c</think><action>output answer: B</action>",
]


@pytest.mark.parametrize("method", list(TURNS))
def test_turns_of_a_model_without_reasoning_stay_as_they_are(method: str) -> None:
    for text in AS_WRITTEN:
        turn = text.format(turn=TURNS[method])
        if method not in ("direct", "videobrain") or "</think>" not in turn:
            assert split_reasoning(turn, get_method(method)) == ParsedCompletion(turn)


@pytest.mark.parametrize("method", list(TURNS))
def test_reasoning_that_was_cut_says_nothing(method: str) -> None:
    configured, named = get_method(method), f"I could write {TURNS[method].rpartition('</think>')[2]} here,"
    assert split_reasoning(f"<think>{named}", configured, cut=True) == ParsedCompletion("", named)
    assert split_reasoning(named, configured, opened=True, cut=True) == ParsedCompletion("", named)
    assert split_reasoning("", configured, reasoning=named, cut=True) == ParsedCompletion("", named)
    assert split_reasoning(named, configured, cut=True) == ParsedCompletion(named)


def test_what_only_looks_like_several_turns_is_not_mended() -> None:
    """A made-up reply between two actions must not be read as reasoning before the second."""
    method = get_method("framethinker")
    text = "<think>a</think><action>choose frames between 1 and 20</action>frame 2<think>b</think><action>x</action>"
    assert split_reasoning(text, method) == ParsedCompletion(text)
    assert len(method.parse(text).calls) == 2


@pytest.mark.parametrize("method", list(TURNS))
@pytest.mark.parametrize("reasoning", [None, "It is hidden."])
def test_a_training_turn_is_what_is_taken_apart_again(method: str, reasoning: str | None) -> None:
    configured, turn = get_method(method), TURNS[method]
    for opened in (False, True):
        text = with_reasoning(turn, reasoning, opened=opened)
        assert split_reasoning(text, configured, opened=opened) == ParsedCompletion(turn, reasoning)
        assert opened != text.startswith("<think>") or (reasoning is None and not turn.startswith("<think>"))


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in TURNS if name not in ("direct", "framemind")])
def test_a_turn_to_the_letter_is_never_changed(method: str) -> None:
    """Made of anything; but for FrameMind's, whose grammar lets a turn begin with two thoughts."""
    configured, random, num_whole = get_method(method), Random(5), 0
    tag = OWN_TAGS.get(method, "think")
    action = TURNS[method].partition(f"</{tag}>")[2]
    parts = ("<think>", "</think>", "<thinking>", "</thinking>", "<answer>", "</answer>", action, "so ", CALL, "\n")
    for _ in range(2_000):
        inner, around = ("".join(random.choices(parts, k=random.randint(0, 3))) for _ in range(2))
        text = f"<{tag}>{inner}</{tag}>{around}{action}"
        if configured.parse(text).well_formed:
            num_whole += 1
            assert split_reasoning(text, configured) == ParsedCompletion(text)
    assert num_whole > 50


def test_templates_and_replies_that_open_a_reasoning() -> None:
    assert opens_reasoning("<|im_start|>assistant\n<think>\n") and not opens_reasoning("<|im_start|>assistant\n")
    assert not opens_reasoning("<think>\n\n</think>\n\n")
    assert lacks_opening("so</think>B") and not lacks_opening("<think>so</think>B") and not lacks_opening("B")


def test_replies_without_a_grammar() -> None:
    assert split_thought("<think>a</think> b") == ("a", "b")
    assert split_thought("a</thinking>b", ("think", "thinking")) == ("a", "b")
    assert (without_reasoning("a</think>b"), without_reasoning("<think>a"), without_reasoning("b")) == ("b", "", "b")


@pytest.mark.slow
@pytest.mark.parametrize("method", list(TURNS))
def test_long_texts_of_tags_end_before_the_timeout(method: str) -> None:
    """A tenth of a second each; a search from every tag to every other would take hours."""
    for tag in ("<think>", "</think>", "<think></think>", "<think>a</think><answer>B</answer>"):
        split_reasoning(tag * (400_000 // len(tag)), get_method(method))
