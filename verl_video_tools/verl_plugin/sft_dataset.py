"""Training sequences for verl's SFT trainer, made by the same code that makes them in a rollout.

A row of `vvt data export-sft` holds what an expert wrote, turn by turn, without tokens or pictures. Here its turns go
through a real `Episode` (frames are decoded, actions executed) and a `TokenStream`, so prompts, observations,
labels, pixel sizes and token boundaries equal those of reinforcement learning, by construction.

    data.custom_cls.path=pkg://verl_video_tools.verl_plugin.sft_dataset data.custom_cls.name=TrajectorySFTDataset
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow.parquet as pq
import torch
from omegaconf import DictConfig
from torch.utils.data import DataLoader, Dataset

from verl_video_tools.core.bounded_cache import BoundedCache
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.method import method_of_rollout
from verl_video_tools.core.prompts import other_prompt, prompt_digest
from verl_video_tools.core.reasoning import opens_reasoning, with_reasoning
from verl_video_tools.core.sample import row_name
from verl_video_tools.core.types import Message, Method, Sample, StopReason, Trajectory, append
from verl_video_tools.data.picture_rows import is_picture_row, picture_messages, weights_of_turns
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import AssistantTurn
from verl_video_tools.rollout.tokens import RolloutTokens, TokenStream
from verl_video_tools.services.retrieval import recorded_retriever
from verl_video_tools.services.tool_model import recorded_tool_model
from verl_video_tools.verl_plugin.images import HeldPixelValues, image_grids_N3, position_ids_4L
from verl_video_tools.verl_plugin.model_tokens import RunModel, run_model
from verl_video_tools.verl_plugin.settings import plain_dict

logger = logging.getLogger(__name__)

DEFAULT_CACHE_MIB = 1024


class TrajectorySFTDataset(Dataset):
    """Scripted trajectories as token sequences; the loss is on what the assistant writes, `<|im_end|>` included.

    A row is one sequence, or several under a context policy that begins new ones: an item of the data set is a
    sequence. To know how many there are, such rows are all tokenised once before training.

    A row with a column `turn_weights` weighs the loss of each turn's tokens by its number: 0 for mistakes that later
    turns correct. verl's loss is the mean over a batch's tokens by these weights. Calls that find frames by text show
    those of the column `retrieved_frames` (`recorded_answers`): no encoder is asked again. Tools make their
    pictures again, and a warning names a row whose recorded ones (`picture_digests`) differ. Rows of recorded
    rollouts name the fields of the method that were their own (`settings`: `core.method.rollout_fields` alone, so that
    no row names code or a file) and the frames that were shown first (`initial_frames`): others are an error. Rows that
    were recorded under another system prompt (`prompt_digest`) are counted in a warning. A row may be about pictures
    instead of a video (`picture_rows`).

    A column `reasoning` (a text or null per turn) has the native reasoning before each turn; it is trained on, and not
    read as part of the turn. Where the model's chat template opens a reasoning, the turn goes on from there.

    Options, all under `data`:
        pad_mode: must be `no_padding`.
        max_length: tokens of the longest sequence allowed.
        truncation: `error` (default) raises on a longer one and names its row; `skip` leaves such rows out and counts
            them, which tokenises every row once before training. Nothing is ever cut.
        video_tools.<method>.<field>: fields of the method's config, to be the same as in reinforcement learning.
        mm_processor_kwargs: pixel limits, to be the same as in reinforcement learning.
        trajectory_cache_mib: memory for tokenised rows and their pictures, per process (default 1024).

    Args:
        parquet_files: one path or several.
        max_samples: read only so many rows; -1 reads all.

    Raises:
        UsageError: an option or the model does not fit.
        RowError: a row lacks its columns, sets what only the user's configuration may set, or (with
            `truncation=skip`) no row is short enough.
    """

    def __init__(
        self,
        parquet_files: str | Sequence[str],
        tokenizer: Any,
        config: DictConfig | Mapping[str, Any] | None,
        processor: Any = None,
        max_samples: int = -1,
    ) -> None:
        options = plain_dict(config) if isinstance(config, DictConfig) else dict(config or {})
        if processor is None:
            raise UsageError("the model has no multimodal processor; it cannot read frames")
        if options.get("pad_mode", "no_padding") != "no_padding":
            raise UsageError(f"data.pad_mode must be no_padding, got {options['pad_mode']!r}")
        truncation = options.get("truncation", "error")
        if truncation not in ("error", "skip"):
            raise UsageError(
                f"data.truncation must be error or skip, got {truncation!r}: a cut sequence would lose the pictures "
                "that its placeholders stand for"
            )
        self.max_length = int(options.get("max_length", 1024))
        self.model = run_model(
            tokenizer,
            processor,
            processor.config.model_type,
            options.get("mm_processor_kwargs"),
            options.get("apply_chat_template_kwargs"),
        )
        self._num_workers = int(options.get("num_workers", 0))
        self._method_fields: Mapping[str, Mapping[str, Any]] = options.get("video_tools") or {}
        self._methods: dict[tuple[str, str], Method] = {}
        cache_bytes = int(options.get("trajectory_cache_mib", DEFAULT_CACHE_MIB)) << 20
        self._cache: BoundedCache[int, list[TokenStream]] = BoundedCache(cache_bytes, _num_bytes)
        self.rows = _read_rows([parquet_files] if isinstance(parquet_files, str) else parquet_files, max_samples)
        for row in self.rows:
            self._method(row)  # a mistake in the options or in a row should show before training starts
            _check_weights(row)
        self._warn_of_other_prompts()
        self._skips_long = truncation == "skip"
        batch_size = int(options.get("train_batch_size", 1))
        if (self._skips_long or len(self.rows) < batch_size) and len(self) < batch_size:
            # verl leaves incomplete batches out, and then divides by the number of the others.
            raise UsageError(
                f"{parquet_files}: {len(self)} rows do not fill one batch of {batch_size}; "
                "give more rows, or lower data.train_batch_size"
            )

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One sequence of L tokens, as verl's collator takes it for `pad_mode=no_padding`.

        Returns:
            `input_ids` (L,) and `position_ids` (4, L), both int64, `loss_mask` (L,), float32, and
            `multi_modal_inputs` (`images`, a `LazyPixelValues`; `image_grid_thw`).

        Raises:
            RowError: names the row; its turns do not replay, or the sequence is longer than `max_length`.
        """
        number, place = self._items[index]
        model, row, sequences = self.model, self.rows[number], self.sequences(number)
        stream = sequences[place]
        ids = stream.ids
        if len(ids) > self.max_length:
            raise RowError(
                f"{_where(row)}: {len(ids)} tokens, but data.max_length={self.max_length}; raise it, or "
                "leave such rows out with data.truncation=skip"
            )
        loss_mask = torch.tensor([0] * len(stream.prompt_ids) + stream.response_mask, dtype=torch.float32)
        lengths = torch.tensor([len(turn) for turn in stream.sampled_turns])
        first = sum(len(earlier.sampled_turns) for earlier in sequences[:place])
        weights = torch.tensor(weights_of_turns(row)[first : first + len(lengths)], dtype=torch.float32)
        loss_mask[loss_mask.bool()] = weights.repeat_interleave(lengths)
        inputs: dict[str, Any] = {}
        if stream.images:
            image_processor = model.processor.image_processor
            grids_N3 = image_grids_N3(image_processor, [image.record for image in stream.images])
            # A loader's worker sends 8-bit images; the trainer's process makes the tensors, sixteen times as large.
            pixel_values = HeldPixelValues(stream.images, image_processor, model.pixel_options, torch.float32)
            inputs = {"pixel_values": pixel_values, "image_grid_thw": grids_N3}
        return {
            "input_ids": torch.tensor(ids, dtype=torch.long),
            "loss_mask": loss_mask,
            "position_ids": position_ids_4L(model.processor, model.image_token_id, ids, inputs),
            "multi_modal_inputs": inputs,
        }

    def sequences(self, number: int) -> list[TokenStream]:
        """Tokens, mask and pictures of one row, from the cache where possible."""
        if (sequences := self._cache.get(number)) is None:
            sequences = asyncio.run(self._encode(self.rows[number]))
            self._cache.put(number, sequences)
        return sequences

    # -------------------------------------------------------------------------------------------------------- internals

    @cached_property
    def _items(self) -> list[tuple[int, int]]:
        """Number of the row, and of the sequence in it."""
        if self._skips_long or any(self._method(row).context_policy() is not append for row in self.rows):
            return self._counted_items()
        return [(number, 0) for number in range(len(self.rows))]

    async def _encode(self, row: Mapping[str, Any]) -> list[TokenStream]:
        method = self._method(row)
        if is_picture_row(row):
            return await self._encode_pictures(row, method)
        retriever = recorded_retriever(row.get("retrieved_frames") or ())
        tool_model = recorded_tool_model(json.loads(row.get("model_calls") or "[]"))
        episode = Episode(method, Sample.from_row(row), self.model.envelope, retriever=retriever, tool_model=tool_model)
        num_turns, reasoning = len(row["turns"]), row.get("reasoning") or [None] * len(row["turns"])
        script = PackedScript(self.model, method, zip(row["turns"], reasoning, strict=True))
        trajectory = await episode.run(script)
        if not trajectory.turns:
            raise RowError(f"{_where(row)}: {trajectory.error}")
        _check_initial_frames(row, trajectory)
        _compare_pictures(row, trajectory)
        if trajectory.flags:  # what the policy is not to blame for must not be learnt from, either
            raise RowError(f"{_where(row)}: a call failed: {_last_error(trajectory)}")
        # A script that is used up ends in an observation nobody answers; with turns left some were never taken.
        is_used_up = trajectory.stop_reason is StopReason.SCRIPT_EXHAUSTED
        if is_used_up or len(trajectory.turns) < num_turns:
            reason = "turns used up without an answer" if is_used_up else trajectory.stop_reason
            raise RowError(
                f"{_where(row)}: its {num_turns} turns do not replay (after turn {len(trajectory.turns)}: {reason}); "
                f"were they exported with the same fields of the method (video_tools.{row['agent_name']})?"
            )
        return self._checked(script)

    async def _encode_pictures(self, row: Mapping[str, Any], method: Method) -> list[TokenStream]:
        try:
            messages = picture_messages(row, method, self.model.envelope)
        except RowError as error:
            raise RowError(f"{_where(row)}: {error}") from error
        script = PackedScript(self.model, method, [(row["turns"][0], None)])
        await script.turn(messages)
        return self._checked(script)

    def _checked(self, script: PackedScript) -> list[TokenStream]:
        for stream in script.tokens.sequences:
            self.model.check(stream)
        return script.tokens.sequences

    def _method(self, row: Mapping[str, Any]) -> Method:
        """The method of a row, with the fields (JSON) that were its rollout's own."""
        name, settings = row["agent_name"], row.get("settings") or "{}"
        if (name, settings) not in self._methods:
            method = get_method(name, **self._method_fields.get(name, {}))
            try:
                method = method_of_rollout(method, _rollout_fields(settings))
            except UsageError as error:
                raise RowError(f"{_where(row)}: {error}") from error
            self._methods[name, settings] = method
        return self._methods[name, settings]

    def _warn_of_other_prompts(self) -> None:
        recorded = Counter(
            other_prompt(row["prompt_digest"], prompt_digest(self._method(row).prompt_file))
            for row in self.rows
            if "prompt_digest" in row
        )
        for difference, count in recorded.items():
            if difference is not None:
                logger.warning("%d of %d rows: %s", count, len(self.rows), difference)

    def _lengths(self) -> list[list[int]]:
        """Tokens of each row's sequences. With worker processes it is they who decode: this process has to stay without
        decode threads until the trainer forks its own workers, since threads do not survive a fork."""
        return list(DataLoader(_Lengths(self), batch_size=None, num_workers=self._num_workers))

    def _counted_items(self) -> list[tuple[int, int]]:
        """Of all rows, or of those that are short enough."""
        lengths = self._lengths()
        long = [number for number, of_row in enumerate(lengths) if self._skips_long and max(of_row) > self.max_length]
        if long:
            self._tell_of_long_rows(long, lengths)
        left_out = set(long)
        kept = [number for number in range(len(lengths)) if number not in left_out]
        return [(number, place) for number in kept for place in range(len(lengths[number]))]

    def _tell_of_long_rows(self, long: Sequence[int], lengths: Sequence[Sequence[int]]) -> None:
        if len(long) == len(self.rows):
            raise RowError(
                f"all {len(long)} rows are longer than data.max_length={self.max_length} tokens "
                f"(the shortest has {min(map(max, lengths))})"
            )
        logger.warning(
            "%d of %d rows are longer than data.max_length=%d tokens and are left out: %s%s",
            len(long),
            len(self.rows),
            self.max_length,
            ", ".join(_where(self.rows[number]) for number in long[:5]),
            " ..." if len(long) > 5 else "",
        )


def _rollout_fields(settings: str) -> Mapping[str, Any]:
    """The column `settings`. Raises UsageError for anything but a JSON object."""
    try:
        values = json.loads(settings)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise UsageError(f"the column settings must hold a JSON object of fields, got {settings!r:.100}")
    return values


def _check_initial_frames(row: Mapping[str, Any], replayed: Trajectory) -> None:
    """Turns must not be trained on other frames than those that they were written about.

    Raises:
        RowError: the row names other frames.
    """
    recorded = json.loads(row.get("initial_frames") or "null")
    if recorded is not None and (difference := replayed.initial_frames_difference(recorded)) is not None:
        raise RowError(
            f"{_where(row)}: {difference}; give video_tools.{row['agent_name']} the fields that it was recorded with, "
            "or leave out the column initial_frames to train on these turns anyway"
        )


def _compare_pictures(row: Mapping[str, Any], replayed: Trajectory) -> None:
    """Warn where tools make other pictures than those that the turns were written about, such as after an update of a
    library that they use."""
    recorded, made = json.loads(row.get("picture_digests") or "[]"), replayed.picture_digests()
    if recorded and recorded != made:
        num_equal = sum(before == now for before, now in zip(recorded, made, strict=False))
        logger.warning(
            "%s: %d of the %d pictures that tools made in its rollout are other ones now; the recorded ones are in its "
            "record",
            _where(row),
            len(recorded) - num_equal,
            len(recorded),
        )


class _Lengths(Dataset):
    """Lengths of the sequences of a data set's rows."""

    def __init__(self, dataset: TrajectorySFTDataset) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset.rows)

    def __getitem__(self, number: int) -> list[int]:
        return [len(stream.ids) for stream in self._dataset.sequences(number)]


def _num_bytes(sequences: Sequence[TokenStream]) -> int:
    shown = {id(image.pixels_HWC): image.pixels_HWC for stream in sequences for image in stream.images}
    pixels = sum(array.nbytes for array in shown.values() if array is not None)
    # pointers and floats of the lists
    return pixels + sum(64 * len(stream.response_ids) + 8 * len(stream.prompt_ids) for stream in sequences)


def _read_rows(paths: Sequence[str], max_samples: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in paths:
        table = pq.read_table(path)
        if missing := {"turns", "agent_name", "extra_info", "reward_model"} - set(table.column_names):
            raise RowError(
                f"{path} lacks the columns {', '.join(sorted(missing))}; write it with `vvt data export-sft`"
            )
        if "first_trained_turn" in table.column_names:  # ignoring it would train on mistakes
            raise RowError(
                f"{path} has the column first_trained_turn, which turn_weights replaces; write the file again"
            )
        rows += table.to_pylist()
    if not rows:
        raise RowError(f"no rows in {', '.join(map(str, paths))}")
    return rows[:max_samples] if max_samples > 0 else rows


def _check_weights(row: Mapping[str, Any]) -> None:
    try:
        weights_of_turns(row)
    except RowError as error:
        raise RowError(f"{_where(row)}: {error}") from error


def _last_error(trajectory: Trajectory) -> str | None:
    return trajectory.error or next((str(call.error) for call in reversed(trajectory.calls()) if call.error), None)


def _where(row: Mapping[str, Any]) -> str:
    return row_name(row.get("extra_info") or {})


# -------------------------------------------------------------------------------------------------------------- packing


_TAIL_TOKENS = 8
"""Of a prompt, enough for the tag of a reasoning that its end may open."""


class PackedScript:
    """A policy that writes recorded turns, and packs them with what it is shown into a training sequence.

    Args:
        method: a turn that ends with one of its stop strings has no end-of-turn token.
        turns: texts, each with the native reasoning before it.
    """

    def __init__(self, model: RunModel, method: Method, turns: Iterable[tuple[str, str | None]]) -> None:
        self.tokens = RolloutTokens(model.counter, model.end_of_turn_id, method.context_policy())
        self._tokenizer = model.tokenizer
        self._stop = method.stop
        self._turns = iter(turns)

    async def turn(self, messages: Sequence[Message]) -> AssistantTurn | None:
        self.tokens.append(messages)
        text, reasoning = next(self._turns, (None, None))
        if text is None:
            return None
        self._append(text, reasoning)
        return AssistantTurn(text)

    def _append(self, text: str, reasoning: str | None) -> None:
        """A turn as the policy should sample it: its end token is learned, unless a stop string ends it.

        Args:
            reasoning: goes on where the chat template has opened one.
        """
        stream = self.tokens.current
        opened = opens_reasoning(self._tokenizer.decode(stream.ids[-_TAIL_TOKENS:], skip_special_tokens=False))
        whole = with_reasoning(text, reasoning, opened=opened)
        ids = list(self._tokenizer.encode(whole, add_special_tokens=False))
        if not whole.endswith(self._stop):
            ids.append(self.tokens.end_of_turn_id)
        stream.append_turn(ids, None)
        self.tokens.end_turn(text)
