"""A pytest plugin: files go out to pytest-xdist's workers in an order that leaves none alone with a long one.

xdist by itself begins with the files that have the most tests; those that take longest are often one test or two. With
its option `--no-loadscope-reorder`, files with a test marked `slow` or `long` go first, then those with the most tests.
"""

from __future__ import annotations

from collections import Counter

import pytest


@pytest.hookimpl(trylast=True)  # after tests were deselected by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("loadscopereorder", True):
        return
    num_tests = Counter(item.path for item in items)
    slow = {item.path for item in items if any(map(item.get_closest_marker, ("slow", "long")))}
    items.sort(key=lambda item: (item.path not in slow, -num_tests[item.path]))  # stable: a file's own order stays
