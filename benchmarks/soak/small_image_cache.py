"""Puts a small cache in the place of the images that a training process has fetched last; see `small_caches`."""

from verl_video_tools.verl_plugin import pixel_values

CACHE_BYTES = 2_000_000
"""Images of some steps of a soak."""

pixel_values._cache = pixel_values._BlockCache(CACHE_BYTES)
