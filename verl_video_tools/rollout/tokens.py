"""Token ids, loss mask and log-probabilities of a rollout, by verl's own Continuous Token builder, and their budget.

    ids   p p p p p | a a a a E | n o o o o o g g | a a a E
    mask      -     | 1 1 1 1 1 | 0 0 0 0 0 0 0 0 | 1 1 1 1
          prompt      sampled     observation       sampled

p prompt, a sampled, E sampled end of turn, n newline that closes the turn, o observation (images expanded to
placeholder runs), g header of the next assistant turn. A turn that ends without E (stop string, cut) gets one appended
with mask 0. The last token of a sequence is always a sampled one.

A rollout is one such sequence, or several. A token sequence cannot forget. So where a context policy shows a turn
something else than the sequence so far and an observation, a new sequence begins: its prompt is all that this turn
sees.

    append          p p I I p | a a a E n o I I o g | a a E
    last_evidence   p p I I p | a a a E
                    p p d p a a a E n o I I o g | a a E

I is an image, d the mark of a dropped one. Sampled tokens enter later prompts as they were sampled; only a turn whose
text the context policy has changed is encoded anew. The same classes build training sequences for SFT, so that both are
equal by construction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from PIL import Image

from verl_video_tools.core.errors import InvariantError
from verl_video_tools.core.types import (
    Content,
    ContextPolicy,
    ImagePart,
    Message,
    PixelEnvelope,
    RolloutLimits,
    StopReason,
    append,
    content_images,
    content_text,
)
from verl_video_tools.rollout.observation import is_same_message, next_context, prompt_length
from verl_video_tools.video import image_tokens


class TokenBuilder(Protocol):
    """The part of verl's `ContinuousTokenBuilder` that is used here."""

    tokenizer: Any

    def build_initial_tokens(self, messages: list[dict], *, images: list[Any] | None = None) -> list[int]: ...

    def merge_context_tokens(
        self, previous_messages: list[dict], updated_messages: list[dict], runtime_token_ids: list[int]
    ) -> Any: ...

    def tokenize_context_incremental_messages(
        self, previous_messages: list[dict], updated_messages: list[dict]
    ) -> list[int]: ...


def to_chat_message(message: Message) -> dict[str, Any]:
    """A message in the form that chat templates and verl's builder read. Images have their places, without pixels."""
    items = [{"type": "text", "text": part} if isinstance(part, str) else {"type": "image"} for part in message.content]
    return {"role": message.role, "content": items}


@dataclass
class TokenStream:
    """One sequence as tokens. Grows by `start`, then alternately `append_turn` and `append_observation`."""

    counter: TokenCounter
    prompt_ids: list[int] = field(default_factory=list)
    response_ids: list[int] = field(default_factory=list)
    response_mask: list[int] = field(default_factory=list)
    response_logprobs: list[float] = field(default_factory=list)
    images: list[ImagePart] = field(default_factory=list)
    sampled_turns: list[list[int]] = field(default_factory=list)
    """What the server returned, turn by turn: the mask is checked against it."""
    turn_spans: list[tuple[int, int]] = field(default_factory=list)
    """Of these turns: where each begins in the response, and where it has ended."""

    @property
    def ids(self) -> list[int]:
        return self.prompt_ids + self.response_ids

    @property
    def pil_images(self) -> list[Image.Image]:
        return pil_images(self.images)

    def start(self, messages: Sequence[Message]) -> None:
        self.images = [image for message in messages for image in content_images(message.content)]
        for image in self.images:
            pixels_of(image)
        self.prompt_ids = self.counter.encode_prompt(messages)

    def append_turn(self, token_ids: Sequence[int], logprobs: Sequence[float] | None) -> None:
        """Append what the policy sampled. `logprobs` may be None where nothing was sampled (SFT)."""
        self.sampled_turns.append(list(token_ids))
        self.turn_spans.append((len(self.response_ids), len(self.response_ids) + len(token_ids)))
        self.response_ids += token_ids
        self.response_mask += [1] * len(token_ids)
        self.response_logprobs += logprobs if logprobs is not None else [0.0] * len(token_ids)

    def append_observation(self, content: Content, end_of_turn_id: int) -> None:
        """Append a user message and the header of the next assistant turn, all with mask 0."""
        if self.response_ids and self.response_ids[-1] != end_of_turn_id:
            self.append_context([end_of_turn_id])
        images = content_images(content)
        for image in images:
            pixels_of(image)
        self.append_context(self.counter.encode_observation(self.ids, content))
        self.images += images

    def append_context(self, token_ids: Sequence[int]) -> None:
        """Append tokens that are not trained on, with mask 0."""
        self.response_ids += token_ids
        self.response_mask += [0] * len(token_ids)
        self.response_logprobs += [0.0] * len(token_ids)


def pil_images(images: Sequence[ImagePart]) -> list[Image.Image]:
    """Images as verl's processors and servers take them: copies."""
    return [Image.fromarray(pixels_of(image)) for image in images]


def pixels_of(image: ImagePart) -> np.ndarray:
    """uint8, shape (height, width, 3). Raises InvariantError: the image was only planned."""
    if image.pixels_HWC is None:
        raise InvariantError("an image without pixels reached the model")
    return image.pixels_HWC


@dataclass(frozen=True)
class TokenCounter:
    """Messages as token ids, and their lengths, from the sizes of their images alone.

    The model's processor would make the same ids, but only by making the tensors of all images as well: seconds for
    some hundred frames. The template is rendered by the builder without images, with one placeholder for each, and
    each placeholder is repeated as often as the image's size asks for.
    """

    builder: TokenBuilder
    image_token_id: int
    factor: int
    """Sides of images are multiples of it (`PixelEnvelope.factor`)."""

    def prompt(self, messages: Sequence[Message]) -> int:
        ids = self.builder.build_initial_tokens([to_chat_message(message) for message in messages])
        images = [image for message in messages for image in content_images(message.content)]
        return len(ids) + sum(count - 1 for count in self._tokens_per_image(ids, images))

    def observation(self, content: Content) -> int:
        """A user message and the header of the next assistant turn."""
        message = to_chat_message(Message("user", content))
        ids = self.builder.tokenize_context_incremental_messages([], [message])
        return len(ids) + sum(count - 1 for count in self._tokens_per_image(ids, content_images(content)))

    def encode_prompt(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the messages that start a sequence, with the header of the first assistant turn."""
        ids = self.builder.build_initial_tokens([to_chat_message(message) for message in messages])
        return self._expanded(ids, [image for message in messages for image in content_images(message.content)])

    def encode_observation(self, ids: Sequence[int], content: Content) -> list[int]:
        """Ids to append to `ids` for a user message and the header of the next assistant turn.

        Raises:
            InvariantError: the builder would change tokens that are there already.
        """
        before = list(ids)
        message = to_chat_message(Message("user", content))
        merged = self.builder.merge_context_tokens([], [message], before)
        if merged.token_ids[: len(before)] != before:
            raise InvariantError("the token builder changed tokens that were already generated")
        return self._expanded(merged.token_ids[len(before) :], content_images(content))

    def _tokens_per_image(self, ids: Sequence[int], images: Sequence[ImagePart]) -> list[int]:
        if (placeholders := list(ids).count(self.image_token_id)) != len(images):
            raise InvariantError(f"{len(images)} images but {placeholders} placeholders in the rendered text")
        return [image_tokens(image.record.width, image.record.height, self.factor) for image in images]

    def _expanded(self, ids: Sequence[int], images: Sequence[ImagePart]) -> list[int]:
        """`ids`, which hold one placeholder per image, with each expanded."""
        counts = iter(self._tokens_per_image(ids, images))
        expanded: list[int] = []
        for token in ids:
            if token == self.image_token_id:
                expanded += [token] * next(counts)
            else:
                expanded.append(token)
        return expanded


@dataclass(frozen=True)
class ModelTokens:
    """How a model encodes messages, outside a training run.

    Attributes:
        tokenizer: its text tokenizer.
        counter: lengths of messages, by verl's builder for the model.
        envelope: sizes of images that its processor leaves untouched.
    """

    tokenizer: Any
    counter: TokenCounter
    envelope: PixelEnvelope

    @property
    def end_of_turn_id(self) -> int:
        token_id: int = self.tokenizer.convert_tokens_to_ids("<|im_end|>")
        return token_id


# ---------------------------------------------------------------------------------------------------- whole rollouts


@dataclass
class RolloutTokens:
    """The turns and observations of a rollout in its training sequences, in the contexts that `policy` gives them."""

    counter: TokenCounter
    end_of_turn_id: int
    policy: ContextPolicy = append
    current: TokenStream = field(init=False)
    """The sequence that the next turn is sampled from, and appended to."""
    _finished: list[TokenStream] = field(default_factory=list)
    _dialogue: list[Message] = field(default_factory=list)
    _seen: list[Message] = field(default_factory=list)
    """What `current` holds."""
    _turn_ids: dict[int, list[int]] = field(default_factory=dict)
    """Of turns in the dialogue, by the identity of their messages: two turns may have the same text."""

    def __post_init__(self) -> None:
        self.current = TokenStream(self.counter)

    @property
    def sequences(self) -> list[TokenStream]:
        """What is trained on, in order of turns."""
        return [*self._finished, self.current]

    def append(self, messages: Sequence[Message]) -> None:
        """Append what `Policy.turn` is given: the prompt, and from then on observations."""
        if self.current.prompt_ids:
            self.append_observation(messages[0].content)
        else:
            self.start(messages)

    def start(self, messages: Sequence[Message]) -> None:
        self._dialogue, self._seen = list(messages), list(messages)
        self.current.start(messages)

    def end_turn(self, text: str) -> None:
        """Add the turn that was just appended to `current` to the dialogue.

        Args:
            text: what context policies read of it.
        """
        turn = Message("assistant", (text,))
        self._turn_ids[id(turn)] = self.current.sampled_turns[-1]
        self._dialogue.append(turn)
        self._seen.append(turn)

    def append_observation(self, content: Content) -> None:
        """Make `current` what the next turn is sampled from."""
        seen = self._next_context(content)
        if self._goes_on(seen):
            self.current.append_observation(seen[-1].content, self.end_of_turn_id)
        else:
            self._finished.append(self.current)
            self.current = self._new_sequence(seen)
        self._dialogue.append(Message("user", content))
        self._seen = seen

    def lengths_with(self, content: Content) -> RolloutLimits:
        """What `append_observation` would make of `current`, at most. Images may come without pixels."""
        stream, seen = self.current, self._next_context(content)
        if self._goes_on(seen):
            content = seen[-1].content  # which the policy may have changed
            # Two more: the end of the turn, if it lacks one, and the newline after it.
            return RolloutLimits(
                prompt_tokens=len(stream.prompt_ids),
                response_tokens=len(stream.response_ids) + 2 + self.counter.observation(content),
                images=len(stream.images) + len(content_images(content)),
            )
        prompt, turns = self._parts(seen)
        num_tokens = self.counter.prompt(prompt)
        for turn_ids, answer in turns:
            num_boundary = 1 if turn_ids[-1:] == [self.end_of_turn_id] else 2  # end of the turn, newline after it
            num_tokens += len(turn_ids) + num_boundary + self.counter.observation(answer)
        num_images = sum(len(content_images(message.content)) for message in seen)
        return RolloutLimits(num_tokens, response_tokens=0, images=num_images)

    def _next_context(self, content: Content) -> list[Message]:
        return next_context(self.policy, [*self._dialogue, Message("user", content)])

    def _goes_on(self, seen: Sequence[Message]) -> bool:
        """Whether a context only adds a message to what `current` holds."""
        return len(seen) == len(self._seen) + 1 and all(map(is_same_message, self._seen, seen))

    def _new_sequence(self, seen: Sequence[Message]) -> TokenStream:
        """A sequence whose prompt is this context."""
        prompt, turns = self._parts(seen)
        stream = TokenStream(self.counter)
        stream.start(prompt)
        for turn_ids, answer in turns:
            stream.append_context(turn_ids)
            stream.append_observation(answer, self.end_of_turn_id)
        return TokenStream(self.counter, prompt_ids=stream.ids, images=stream.images)

    def _parts(self, seen: Sequence[Message]) -> tuple[Sequence[Message], list[tuple[list[int], Content]]]:
        """The prompt of a context, and its turns with what answers each."""
        start = prompt_length(seen)
        turns = zip(seen[start::2], seen[start + 1 :: 2], strict=True)
        return seen[:start], [(self._ids_of(turn), answer.content) for turn, answer in turns]

    def _ids_of(self, turn: Message) -> list[int]:
        """As they were sampled; of a turn that the policy has changed, its text encoded."""
        if (sampled := self._turn_ids.get(id(turn))) is not None:
            return sampled
        encoded = self.counter.builder.tokenizer.encode(content_text(turn.content), add_special_tokens=False)
        return [*encoded, self.end_of_turn_id]


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


# -------------------------------------------------------------------------------------------------------- invariants


def check_invariants(
    stream: TokenStream, image_token_id: int, tokens_per_image: Sequence[int], video_token_id: int | None = None
) -> None:
    """Assert what must hold between a finished sequence's tokens, mask, log-probabilities and images.

    Args:
        tokens_per_image: placeholder tokens of each image, in order, as the model's own processor counts them.
        video_token_id: placeholder token of videos, if the model has one. No sequence holds videos, but a policy may
            sample their token, and the model's positions would look for the video.

    Raises:
        InvariantError: names the invariant and both values.
    """
    num_tokens = len(stream.response_ids)
    if not num_tokens == len(stream.response_mask) == len(stream.response_logprobs):
        raise InvariantError(
            f"lengths differ: {num_tokens} response ids, {len(stream.response_mask)} mask entries, "
            f"{len(stream.response_logprobs)} log-probabilities"
        )
    masked = [token for token, keep in zip(stream.response_ids, stream.response_mask, strict=True) if keep]
    sampled = [token for turn in stream.sampled_turns for token in turn]
    if masked != sampled:
        raise InvariantError(
            f"the loss mask covers {len(masked)} tokens, the server returned {len(sampled)}; they must be the same ones"
        )
    runs = placeholder_runs(stream.ids, image_token_id)
    if runs != list(tokens_per_image):
        raise InvariantError(f"placeholder runs {runs} differ from the processor's token counts {tokens_per_image}")
    if video_token_id is not None and (num_videos := stream.ids.count(video_token_id)):
        raise InvariantError(f"{num_videos} placeholders of videos in a sequence that holds none: the policy made them")


def processor_token_counts(
    image_processor: Any, images: Sequence[ImagePart], mm_processor_kwargs: Mapping[str, Any] | None
) -> list[int]:
    """Placeholder tokens of each image, counted by the model's own image processor."""
    options = dict(mm_processor_kwargs or {})
    return [
        image_processor.get_number_of_image_patches(image.record.height, image.record.width, options)
        // image_processor.merge_size**2
        for image in images
    ]


def placeholder_runs(ids: Sequence[int], image_token_id: int) -> list[int]:
    """Lengths of the runs of `image_token_id`, in order."""
    is_placeholder = np.asarray(ids, dtype=np.int64) == image_token_id
    edges = np.diff(is_placeholder, prepend=False, append=False).nonzero()[0]
    runs: list[int] = (edges[1::2] - edges[::2]).tolist()
    return runs
