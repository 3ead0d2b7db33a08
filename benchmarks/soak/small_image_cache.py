"""Puts a small cache in the place of the images that a training process has fetched last; see `small_caches`."""

from verl_video_tools.verl_plugin import images

CACHE_BYTES = 2_000_000
"""Images of some steps of a soak."""

images._cache.capacity_bytes = CACHE_BYTES
