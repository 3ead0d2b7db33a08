"""A bounded cache holds what a list ordered by use would hold."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from verl_video_tools.core.bounded_cache import BoundedCache


@given(
    st.integers(0, 12),
    st.lists(st.tuples(st.booleans(), st.sampled_from("abcd"), st.integers(0, 6)), max_size=30),
)
def test_the_values_used_last_are_kept(capacity: int, steps: list[tuple[bool, str, int]]) -> None:
    cache: BoundedCache[str, int] = BoundedCache(capacity, lambda value: value)
    by_use: list[tuple[str, int]] = []  # the one used last stands last; a value is its own size
    for puts, key, value in steps:
        present = dict(by_use).get(key)
        if not puts:
            assert cache.get(key) == present
            if present is not None:
                by_use.remove((key, present))
                by_use.append((key, present))
            continue
        cache.put(key, value)
        if present is None and value <= capacity:
            by_use.append((key, value))
            while sum(size for _, size in by_use) > capacity:
                del by_use[0]
        assert cache.stored_bytes == sum(size for _, size in by_use)
    for key in "abcd":
        assert cache.get(key) == dict(by_use).get(key)


def test_a_copy_for_another_process_is_empty() -> None:
    cache: BoundedCache[str, str] = BoundedCache(12, len)
    cache.put("a", "text")
    copy = pickle.loads(pickle.dumps(cache))
    assert (copy.capacity_bytes, copy.stored_bytes, copy.get("a")) == (12, 0, None)
    copy.put("a", "other")
    assert copy.get("a") == "other" and cache.get("a") == "text"
