"""Tests; a package, so that installed packages that ship a `tests` of their own do not hide it from Ray workers."""
