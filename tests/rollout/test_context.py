"""Context policies on hand-written messages and token ids."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rollout.test_tokens import END, IMAGE, HandBuilder, ids, letters, picture
from tests.written_package import blocks
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import (
    Content,
    ContextPolicy,
    FrameRecord,
    ImagePart,
    Message,
    StopReason,
    append,
    content_images,
    content_text,
)
from verl_video_tools.methods.toolkit.contexts import DROPPED_MARK, initial_plus_last, last_evidence
from verl_video_tools.rollout.observation import next_context
from verl_video_tools.rollout.tokens import RolloutTokens, TokenBudget, TokenCounter, check_invariants

SYSTEM = Message("system", ("be brief",))
INITIAL_FRAMES = Message("user", ("0s: ", picture(), "5s: ", picture(), "What?"))
TURN = Message("assistant", ("look",))
FIRST, SECOND = (Message("user", (f"{second}s: ", picture())) for second in (1, 2))
REFUSAL = Message("user", ("error: no such time",))

WITHOUT_INITIAL_FRAMES = f"0s: {DROPPED_MARK}5s: {DROPPED_MARK}What?"
WITHOUT_FIRST = f"1s: {DROPPED_MARK}"


def shown(policy: ContextPolicy, *observations: Message) -> list[str]:
    """What the user messages say, the initial frames included."""
    messages = [SYSTEM, INITIAL_FRAMES, *(message for observation in observations for message in (TURN, observation))]
    visible = next_context(policy, messages)
    assert [message.role for message in visible] == [message.role for message in messages]
    assert all(seen is whole for seen, whole in zip(visible, messages, strict=True) if whole in (SYSTEM, TURN, REFUSAL))
    return [content_text(message.content) for message in visible if message.role == "user"]


def whole(*messages: Message) -> list[str]:
    return [content_text(message.content) for message in messages]


@pytest.mark.parametrize("policy", [append, last_evidence, initial_plus_last])
def test_the_first_turn_sees_the_initial_frames(policy: ContextPolicy) -> None:
    assert shown(policy) == whole(INITIAL_FRAMES)


def test_append_shows_everything() -> None:
    assert shown(append, FIRST, REFUSAL, SECOND) == whole(INITIAL_FRAMES, FIRST, REFUSAL, SECOND)


def test_last_evidence_keeps_labels_and_drops_earlier_pictures() -> None:
    assert shown(last_evidence, FIRST) == [WITHOUT_INITIAL_FRAMES, *whole(FIRST)]
    assert shown(last_evidence, FIRST, SECOND) == [WITHOUT_INITIAL_FRAMES, WITHOUT_FIRST, *whole(SECOND)]


def test_initial_plus_last_keeps_the_initial_frames_as_well() -> None:
    assert shown(initial_plus_last, FIRST) == whole(INITIAL_FRAMES, FIRST)
    assert shown(initial_plus_last, FIRST, SECOND) == [*whole(INITIAL_FRAMES), WITHOUT_FIRST, *whole(SECOND)]


@pytest.mark.parametrize("policy", [last_evidence, initial_plus_last])
def test_an_observation_without_pictures_leaves_the_evidence_before_it(policy: ContextPolicy) -> None:
    assert shown(policy, REFUSAL) == whole(INITIAL_FRAMES, REFUSAL)
    assert shown(policy, FIRST, REFUSAL) == [*shown(policy, FIRST), *whole(REFUSAL)]


# -------------------------------------------------------------------------------------------------- a sequence per turn


class MarkingBuilder(HandBuilder):
    """Token d, written p, for each mark of a dropped picture."""

    def build_initial_tokens(self, messages: list[dict]) -> list[int]:
        return super().build_initial_tokens(messages) + ids("p") * marks(messages)

    def _observation(self, messages: list[dict]) -> list[int]:
        built = super()._observation(messages)
        return built[:-2] + ids("o") * marks(messages) + built[-2:]


def marks(messages: list[dict]) -> int:
    return sum(item.get("text", "").count(DROPPED_MARK) for message in messages for item in message["content"])


def tokens(policy: ContextPolicy) -> RolloutTokens:
    return RolloutTokens(TokenCounter(MarkingBuilder(), IMAGE, factor=1), END, policy)


def example(policy: ContextPolicy) -> RolloutTokens:
    """One initial picture; a turn that ends, two pictures; a turn that was cut, one picture; the answer."""
    rollout = tokens(policy)
    rollout.start([Message("user", ("look", picture()))])
    add_turn(rollout, ids("aaE"), [-0.1, -0.2, -0.3])
    rollout.append_observation((picture(), picture()))
    add_turn(rollout, ids("aa"), [-0.4, -0.5])
    rollout.append_observation((picture(),))
    add_turn(rollout, ids("aE"), [-0.6, -0.7])
    return rollout


def add_turn(rollout: RolloutTokens, turn_ids: list[int], logprobs: list[float]) -> None:
    rollout.current.append_turn(turn_ids, logprobs)
    rollout.end_turn("seen")


def test_golden_layout_of_last_evidence() -> None:
    sequences = example(last_evidence).sequences
    prompts = ["ppIIp", "ppp aaE noIIooIIogg", "ppp aaE noogg aa EnoIIogg"]
    assert [letters(stream.prompt_ids) for stream in sequences] == [text.replace(" ", "") for text in prompts]
    assert [letters(stream.response_ids) for stream in sequences] == ["aaE", "aa", "aE"]
    assert [stream.response_mask for stream in sequences] == [[1, 1, 1], [1, 1], [1, 1]]
    assert [stream.response_logprobs for stream in sequences] == [[-0.1, -0.2, -0.3], [-0.4, -0.5], [-0.6, -0.7]]
    assert [len(stream.images) for stream in sequences] == [1, 2, 1]
    for stream in sequences:
        check_invariants(stream, IMAGE, [2] * len(stream.images))


def test_a_sequence_goes_on_where_the_context_only_grows() -> None:
    """The second turn sees all that the first one did, and the third one does not."""
    first, second = example(initial_plus_last).sequences
    assert letters(first.prompt_ids) == "ppIIp" and letters(first.response_ids) == "aaE" + "noIIooIIogg" + "aa"
    assert first.response_mask == [1] * 3 + [0] * 11 + [1] * 2 and first.turn_spans == [(0, 3), (14, 16)]
    assert letters(second.prompt_ids) == "ppIIp" + "aaE" + "noogg" + "aa" + "EnoIIogg"
    assert letters(second.response_ids) == "aE" and len(second.images) == 2
    for stream in (first, second):
        check_invariants(stream, IMAGE, [2] * len(stream.images))


def test_append_is_one_sequence() -> None:
    (stream,) = example(append).sequences
    assert letters(stream.ids) == "ppIIp" + "aaE" + "noIIooIIogg" + "aa" + "EnoIIogg" + "aE"


def test_sequences_do_not_change_once_they_are_finished() -> None:
    rollout = example(last_evidence)
    before = [stream.ids for stream in rollout.sequences]
    rollout.append_observation((picture(),))
    assert [stream.ids for stream in rollout.sequences[:3]] == before and len(rollout.sequences) == 4


@pytest.mark.parametrize("policy", [last_evidence, initial_plus_last])
@pytest.mark.parametrize("content", [(picture(), picture()), ("words",)])
def test_lengths_are_known_before_a_pixel_is(policy: ContextPolicy, content: Content) -> None:
    rollout = example(policy)
    planned = tuple(ImagePart(part.record) if isinstance(part, ImagePart) else part for part in content)
    lengths = rollout.lengths_with(planned)
    rollout.append_observation(content)
    assert lengths.prompt_tokens == len(rollout.current.prompt_ids)
    assert 0 <= lengths.response_tokens - len(rollout.current.response_ids) <= 1  # the last turn may lack its end
    assert lengths.images == len(rollout.current.images)


def test_budget_holds_for_each_sequence() -> None:
    rollout = example(last_evidence)
    content = (picture(), picture())
    needed = rollout.lengths_with(content).prompt_tokens
    budget = TokenBudget(rollout, prompt_length=needed, response_length=3, max_images=2)
    assert budget.refuses_observation(content) is None
    assert budget.refuses_observation((*content, picture())) is StopReason.PROMPT_BUDGET
    assert TokenBudget(rollout, needed - 1, 3).refuses_observation(content) is StopReason.PROMPT_BUDGET
    assert TokenBudget(rollout, needed, 3, max_images=1).refuses_observation(content) is StopReason.IMAGE_BUDGET
    assert budget.tokens_left() == 1  # the answer's two are taken
    rollout.append_observation(content)
    assert budget.tokens_left() == 3


# ------------------------------------------------------------------------------------------------ a method's own policy


MEMORY = "so far: "


def remembering(dialogue: Sequence[Message]) -> list[Message]:
    """The prompt with what the last turn said as text, and the last observation."""
    *_, turn, observation = dialogue
    return [dialogue[0], Message("user", (MEMORY, *turn.content, *observation.content))]


def test_what_a_turn_wrote_may_be_the_next_ones_text() -> None:
    seen = next_context(remembering, [INITIAL_FRAMES, Message("assistant", ("a <|im_end|> b",)), FIRST])
    assert seen[0] is INITIAL_FRAMES
    assert seen[1].content[:2] == (MEMORY, "a < |im_end|> b")  # what a user message spells is text
    assert content_images(seen[1].content) == content_images(FIRST.content)


def test_the_example_of_the_page() -> None:
    (text,) = [block.text for block in blocks() if block.language == "python" and block.file is None]
    made: dict[str, Any] = {"__name__": __name__}
    exec(text, made)
    turn = Message("assistant", ("<think>dark</think><tool_call>{}</tool_call>",))
    seen = next_context(made["LongVTWithNotes"]().context_policy(), [SYSTEM, INITIAL_FRAMES, turn, FIRST])
    assert seen[:2] == [SYSTEM, INITIAL_FRAMES] and content_text(seen[2].content) == "You thought: dark\n1s: <image>"


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (lambda dialogue: [*dialogue[:1], Message("user", (picture(),))], "an image that is none of its frames"),
        (lambda dialogue: dialogue[1:], r"\['assistant', 'user'\]; return those of a prompt"),
        (lambda dialogue: dialogue[:-1], r"\['user', 'assistant'\]; return"),
        (lambda dialogue: [], r"returned messages of \[\]"),
    ],
)
def test_a_context_that_no_sequence_can_show_is_refused(policy: ContextPolicy, message: str) -> None:
    foreign = Message("user", (ImagePart(FrameRecord(7, 7.0, 2, 1)),))
    with pytest.raises(UsageError, match=message):
        next_context(policy, [foreign, TURN, REFUSAL])


class TextBuilder:
    """Each character is a token; `<` opens a message, `>` closes it, and an image is two `#` between brackets."""

    tokenizer = SimpleNamespace(encode=lambda text, add_special_tokens: [*map(ord, text)])

    def build_initial_tokens(self, messages: list[dict]) -> list[int]:
        texts = ("".join(item.get("text", "[#]") for item in message["content"]) for message in messages)
        return [*map(ord, "".join(f"<{text}>" for text in texts) + "<")]

    def merge_context_tokens(self, previous: list[dict], updated: list[dict], runtime: list[int]) -> Any:
        return SimpleNamespace(token_ids=[*runtime, ord("\n"), *self.build_initial_tokens(updated)])

    def tokenize_context_incremental_messages(self, previous: list[dict], updated: list[dict]) -> list[int]:
        return self.build_initial_tokens(updated)


class RandomPolicy:
    """After each turn one of: all, less, fewer images, or what the turns wrote as text or as a turn. It depends on the
    dialogue alone, and keeps what it returned last."""

    def __init__(self, choices: list[tuple[int, int]]) -> None:
        self.choices = choices

    def __call__(self, dialogue: Sequence[Message]) -> Sequence[Message]:
        self.dialogue, num_turns = dialogue, len(dialogue) // 2
        kind, place = self.choices[num_turns % len(self.choices)]
        rest = dialogue[1 + 2 * min(place, num_turns - 1) :]
        memory = "".join(content_text(message.content).upper() for message in dialogue if message.role == "assistant")
        contexts: list[Sequence[Message]] = [
            dialogue,
            [dialogue[0], *rest],
            last_evidence(dialogue),
            initial_plus_last(dialogue),
            [Message("user", (memory, *content_images(dialogue[0].content))), *rest],
            [dialogue[0], Message("assistant", (memory,)), dialogue[-1]],
        ]
        self.returned = contexts[kind]
        return self.returned


def text_of(context: Sequence[Message], sampled: dict[int, str]) -> str:
    """The tokens of a context as letters, written here from its messages alone."""
    text = ""
    for message, following in zip_longest(context, context[1:]):
        content = content_text(message.content).replace("<image>", "[##]")
        if message.role == "assistant":
            text += sampled.get(id(message), content).removesuffix(">") + ">\n"
        else:
            text += f"<{content}>" + ("<" if following is None or following.role == "assistant" else "")
    return text


turn_texts = st.from_regex("[a-f]{1,4}>?", fullmatch=True)
observations = st.lists(st.sampled_from(["x", "yy", picture()]), min_size=1, max_size=3).map(tuple)


@given(
    choices=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=5),
    steps=st.lists(st.tuples(turn_texts, observations), min_size=1, max_size=5),
)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_sequences_are_what_the_policy_returned(
    choices: list[tuple[int, int]], steps: list[tuple[str, Content]]
) -> None:
    """Encoded anew, whatever it returns; and every sampled token is trained on once."""
    policy = RandomPolicy(choices)
    rollout = RolloutTokens(TokenCounter(TextBuilder(), ord("#"), factor=1), ord(">"), policy)
    rollout.start([Message("user", ("0s", picture(), "what"))])
    turns: list[str] = []
    for turn, content in steps:
        rollout.current.append_turn([*map(ord, turn)], None)
        rollout.end_turn(turn.removesuffix(">"))
        turns.append(turn)
        lengths = rollout.lengths_with(content)
        rollout.append_observation(content)
        written = (message for message in policy.dialogue if message.role == "assistant")
        sampled = {id(message): text for message, text in zip(written, turns, strict=True)}
        assert "".join(map(chr, rollout.current.ids)) == text_of(policy.returned, sampled)
        shown = [image for message in policy.returned for image in content_images(message.content)]
        assert [image.record for image in rollout.current.images] == [image.record for image in shown]
        assert lengths.images == len(shown) and lengths.prompt_tokens == len(rollout.current.prompt_ids)
        assert lengths.response_tokens >= len(rollout.current.response_ids)
    for stream in rollout.sequences:
        check_invariants(stream, ord("#"), [2] * len(stream.images))
    trained = [
        chr(token)
        for stream in rollout.sequences
        for token, keep in zip(stream.response_ids, stream.response_mask, strict=True)
        if keep
    ]
    assert "".join(trained) == "".join(turns)
