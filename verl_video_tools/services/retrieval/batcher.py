"""Texts of concurrent queries, encoded together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import numpy.typing as npt

EncodeTexts = Callable[[list[str]], Awaitable[npt.NDArray[np.float32]]]


class TextBatcher:
    """Gathers texts that are asked for at the same time, and those that come while a batch is under way.

    For one event loop.

    Args:
        encode: embeddings (N, D) of N texts.
        max_texts: largest batch.
        max_wait_seconds: how long a batch waits for more texts.
    """

    def __init__(self, encode: EncodeTexts, max_texts: int, max_wait_seconds: float) -> None:
        self._encode = encode
        self._max_texts = max_texts
        self._max_wait_seconds = max_wait_seconds
        self._waiting: dict[str, list[asyncio.Future[npt.NDArray[np.float32]]]] = {}
        self._worker: asyncio.Task[None] | None = None
        self.num_queries = 0
        """Texts asked for, in all batches."""
        self.num_batches = 0

    async def embedding(self, text: str) -> npt.NDArray[np.float32]:
        """Embedding of one text, shape (D,). The same text, asked for twice in a batch, is encoded once.

        Raises:
            what `encode` raises, for every text of its batch.
        """
        future: asyncio.Future[npt.NDArray[np.float32]] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(text, []).append(future)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        while self._waiting:
            if len(self._waiting) < self._max_texts:
                await asyncio.sleep(self._max_wait_seconds)
            batch = {text: self._waiting.pop(text) for text in list(self._waiting)[: self._max_texts]}
            # Whoever gave up meanwhile has cancelled their future.
            asked = {text: [future for future in futures if not future.done()] for text, futures in batch.items()}
            asked = {text: futures for text, futures in asked.items() if futures}
            if asked:
                await self._answer(asked)

    async def _answer(self, asked: dict[str, list[asyncio.Future[npt.NDArray[np.float32]]]]) -> None:
        self.num_batches += 1
        self.num_queries += sum(map(len, asked.values()))
        try:
            embeddings_ND = await self._encode(list(asked))
        except Exception as error:
            for future in (future for futures in asked.values() for future in futures if not future.done()):
                future.set_exception(error)
            return
        for embedding_D, futures in zip(embeddings_ND, asked.values(), strict=True):
            for future in futures:
                if not future.done():
                    future.set_result(embedding_D)
