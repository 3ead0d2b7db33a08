"""Digests of weights, to be compared between processes that do not share them."""

from __future__ import annotations

import hashlib

import torch


def digest(weight: torch.Tensor) -> str:
    """Of the values in float32; equal for equal weights, whoever holds them."""
    return hashlib.sha256(weight.detach().float().contiguous().cpu().numpy().tobytes()).hexdigest()
