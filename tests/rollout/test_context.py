"""Context policies on hand-written messages and token ids."""

from __future__ import annotations

import pytest

from tests.rollout.test_tokens import END, IMAGE, HandBuilder, ids, letters, picture
from verl_video_tools.core.types import Content, ContextPolicy, ImagePart, Message, StopReason, content_text
from verl_video_tools.rollout.observation import DROPPED_MARK, visible_messages
from verl_video_tools.rollout.tokens import RolloutTokens, TokenBudget, TokenCounter, check_invariants, rollout_tokens

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
    visible = visible_messages(policy, messages)
    assert [message.role for message in visible] == [message.role for message in messages]
    assert all(seen is whole for seen, whole in zip(visible, messages, strict=True) if whole in (SYSTEM, TURN, REFUSAL))
    return [content_text(message.content) for message in visible if message.role == "user"]


def whole(*messages: Message) -> list[str]:
    return [content_text(message.content) for message in messages]


@pytest.mark.parametrize("policy", ["append", "last_evidence", "initial_plus_last"])
def test_the_first_turn_sees_the_initial_frames(policy: ContextPolicy) -> None:
    assert shown(policy) == whole(INITIAL_FRAMES)


def test_append_shows_everything() -> None:
    assert shown("append", FIRST, REFUSAL, SECOND) == whole(INITIAL_FRAMES, FIRST, REFUSAL, SECOND)


def test_last_evidence_keeps_labels_and_drops_earlier_pictures() -> None:
    assert shown("last_evidence", FIRST) == [WITHOUT_INITIAL_FRAMES, *whole(FIRST)]
    assert shown("last_evidence", FIRST, SECOND) == [WITHOUT_INITIAL_FRAMES, WITHOUT_FIRST, *whole(SECOND)]


def test_initial_plus_last_keeps_the_initial_frames_as_well() -> None:
    assert shown("initial_plus_last", FIRST) == whole(INITIAL_FRAMES, FIRST)
    assert shown("initial_plus_last", FIRST, SECOND) == [*whole(INITIAL_FRAMES), WITHOUT_FIRST, *whole(SECOND)]


@pytest.mark.parametrize("policy", ["last_evidence", "initial_plus_last"])
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
    return rollout_tokens(policy, TokenCounter(MarkingBuilder(), IMAGE, factor=1), END)


def example(policy: ContextPolicy) -> RolloutTokens:
    """One initial picture; a turn that ends, two pictures; a turn that was cut, one picture; the answer."""
    rollout = tokens(policy)
    rollout.start([Message("user", ("look", picture()))])
    rollout.current.append_turn(ids("aaE"), [-0.1, -0.2, -0.3])
    rollout.append_observation((picture(), picture()))
    rollout.current.append_turn(ids("aa"), [-0.4, -0.5])
    rollout.append_observation((picture(),))
    rollout.current.append_turn(ids("aE"), [-0.6, -0.7])
    return rollout


@pytest.mark.parametrize(
    ("policy", "prompts", "num_images"),
    [
        (
            "last_evidence",
            ["ppIIp", "ppp aaE noIIooIIogg", "ppp aaE noogg aa EnoIIogg"],
            [1, 2, 1],
        ),
        ("initial_plus_last", ["ppIIp", "ppIIp aaE noIIooIIogg", "ppIIp aaE noogg aa EnoIIogg"], [1, 3, 2]),
    ],
)
def test_golden_layout(policy: ContextPolicy, prompts: list[str], num_images: list[int]) -> None:
    sequences = example(policy).sequences
    assert [letters(stream.prompt_ids) for stream in sequences] == [text.replace(" ", "") for text in prompts]
    assert [letters(stream.response_ids) for stream in sequences] == ["aaE", "aa", "aE"]
    assert [stream.response_mask for stream in sequences] == [[1, 1, 1], [1, 1], [1, 1]]
    assert [stream.response_logprobs for stream in sequences] == [[-0.1, -0.2, -0.3], [-0.4, -0.5], [-0.6, -0.7]]
    assert [len(stream.images) for stream in sequences] == num_images
    for stream in sequences:
        check_invariants(stream, IMAGE, [2] * len(stream.images))


def test_append_is_one_sequence() -> None:
    (stream,) = example("append").sequences
    assert letters(stream.ids) == "ppIIp" + "aaE" + "noIIooIIogg" + "aa" + "EnoIIogg" + "aE"


def test_sequences_do_not_change_once_they_are_finished() -> None:
    rollout = example("last_evidence")
    before = [stream.ids for stream in rollout.sequences]
    rollout.append_observation((picture(),))
    assert [stream.ids for stream in rollout.sequences[:3]] == before


@pytest.mark.parametrize("policy", ["last_evidence", "initial_plus_last"])
@pytest.mark.parametrize("content", [(picture(), picture()), ("words",)])
def test_lengths_are_known_before_a_pixel_is(policy: ContextPolicy, content: Content) -> None:
    rollout = example(policy)
    planned = tuple(ImagePart(part.record) if isinstance(part, ImagePart) else part for part in content)
    lengths = rollout.lengths_with(planned)
    rollout.append_observation(content)
    assert lengths.prompt_tokens == len(rollout.current.prompt_ids)
    assert lengths.response_tokens == 0
    assert lengths.images == len(rollout.current.images)


def test_budget_holds_for_each_sequence() -> None:
    rollout = example("last_evidence")
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
