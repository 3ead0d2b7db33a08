"""The training sequences of one rollout under a context policy, one for all turns or one for each, and their budget.

A token sequence cannot forget an image. So a policy under which later turns see fewer images than earlier ones gives
each turn a sequence of its own: its prompt is all that the turn sees, its response the turn alone.

    append          p p I I p | a a a E n o I I o g | a a E
    last_evidence   p p I I p | a a a E
                    p p d p a a a E n o I I o g | a a E

Letters as in `tokens`, I an image, d the mark of a dropped one. Sampled tokens enter later prompts as they were
sampled, never encoded anew from text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from verl_video_tools.core.types import Content, ContextPolicy, Message, RolloutLimits, StopReason, content_images
from verl_video_tools.rollout.observation import visible_messages
from verl_video_tools.rollout.tokens import TokenCounter, TokenStream


def rollout_tokens(policy: ContextPolicy, counter: TokenCounter, end_of_turn_id: int) -> RolloutTokens:
    """Empty sequences for a rollout under `policy`."""
    if policy == "append":
        return RolloutTokens(counter, end_of_turn_id)
    return SequencePerTurn(counter, end_of_turn_id, policy)


@dataclass
class RolloutTokens:
    """All turns and observations of a rollout in one training sequence. Grows like a `TokenStream`."""

    counter: TokenCounter
    end_of_turn_id: int
    current: TokenStream = field(init=False)
    """The sequence that the next turn is sampled from, and appended to."""

    def __post_init__(self) -> None:
        self.current = TokenStream(self.counter)

    @property
    def sequences(self) -> list[TokenStream]:
        """What is trained on, in order of turns."""
        return [self.current]

    def append(self, messages: Sequence[Message]) -> None:
        """Append what `Policy.turn` is given: the prompt, and from then on observations."""
        if self.current.prompt_ids:
            self.append_observation(messages[0].content)
        else:
            self.start(messages)

    def start(self, messages: Sequence[Message]) -> None:
        self.current.start(messages)

    def append_observation(self, content: Content) -> None:
        """Make `current` what the next turn is sampled from."""
        self.current.append_observation(content, self.end_of_turn_id)

    def lengths_with(self, content: Content) -> RolloutLimits:
        """What `append_observation` would make of `current`, at most. Images may come without pixels."""
        stream = self.current
        # Two more: the end of the turn, if it lacks one, and the newline after it.
        return RolloutLimits(
            prompt_tokens=len(stream.prompt_ids),
            response_tokens=len(stream.response_ids) + 2 + self.counter.observation(content),
            images=len(stream.images) + len(content_images(content)),
        )


@dataclass
class SequencePerTurn(RolloutTokens):
    """A sequence for each turn, with the images that `policy` leaves it."""

    policy: ContextPolicy
    _finished: list[TokenStream] = field(default_factory=list)
    _prompt: list[Message] = field(default_factory=list)
    _observations: list[Message] = field(default_factory=list)

    @property
    def sequences(self) -> list[TokenStream]:
        return [*self._finished, self.current]

    def start(self, messages: Sequence[Message]) -> None:
        self._prompt = list(messages)
        self.current.start(messages)

    def append_observation(self, content: Content) -> None:
        self._finished.append(self.current)
        self._observations.append(Message("user", content))
        prompt, observations = self._visible(self._observations)
        seen = TokenStream(self.counter)
        seen.start(prompt)
        for turn_ids, observation in zip(self._turns(), observations, strict=True):
            seen.append_context(turn_ids)
            seen.append_observation(observation.content, self.end_of_turn_id)
        self.current = TokenStream(self.counter, prompt_ids=seen.ids, images=seen.images)

    def lengths_with(self, content: Content) -> RolloutLimits:
        prompt, observations = self._visible([*self._observations, Message("user", content)])
        turns = [*self._turns(), self.current.response_ids]
        num_tokens = self.counter.prompt(prompt)
        for turn_ids, observation in zip(turns, observations, strict=True):
            num_boundary = 1 if turn_ids[-1:] == [self.end_of_turn_id] else 2  # end of the turn, newline after it
            num_tokens += len(turn_ids) + num_boundary + self.counter.observation(observation.content)
        images = [image for message in (*prompt, *observations) for image in content_images(message.content)]
        return RolloutLimits(prompt_tokens=num_tokens, response_tokens=0, images=len(images))

    def _turns(self) -> list[list[int]]:
        return [stream.response_ids for stream in self._finished]

    def _visible(self, observations: Sequence[Message]) -> tuple[list[Message], list[Message]]:
        visible = visible_messages(self.policy, [*self._prompt, *observations])
        return visible[: len(self._prompt)], visible[len(self._prompt) :]


@dataclass(frozen=True)
class TokenBudget:
    """The `BudgetCheck` of a token-level rollout: exact token counts, before a pixel is decoded.

    Args:
        prompt_length: tokens that verl reserves for the prompt of a sequence.
        response_length: tokens for everything after it: sampled turns, and observations between them.
        max_images: images per sequence that the inference engine takes; None if it has no limit.
    """

    tokens: RolloutTokens
    prompt_length: int
    response_length: int
    max_images: int | None = None

    def refuses_prompt(self, messages: Sequence[Message]) -> StopReason | None:
        num_images = sum(len(content_images(message.content)) for message in messages)
        return self._refuses(RolloutLimits(self.tokens.counter.prompt(messages), 0, num_images))

    def refuses_observation(self, content: Content) -> StopReason | None:
        return self._refuses(self.tokens.lengths_with(content))

    def tokens_left(self) -> int:
        return self.response_length - len(self.tokens.current.response_ids)

    def tokens_detached(self, messages: Sequence[Message]) -> int:
        """Tokens that the reply to a request of its own may take, which no sequence holds; 0 if it does not fit."""
        num_images = sum(len(content_images(message.content)) for message in messages)
        if self.max_images is not None and num_images > self.max_images:
            return 0
        left = self.prompt_length + self.response_length - self.tokens.counter.prompt(messages)
        return max(0, min(left, self.response_length))

    def _refuses(self, lengths: RolloutLimits) -> StopReason | None:
        if lengths.prompt_tokens > self.prompt_length:
            return StopReason.PROMPT_BUDGET
        if lengths.response_tokens + 1 > self.response_length:  # one to answer with
            return StopReason.RESPONSE_BUDGET
        if self.max_images is not None and lengths.images > self.max_images:
            return StopReason.IMAGE_BUDGET
        return None
