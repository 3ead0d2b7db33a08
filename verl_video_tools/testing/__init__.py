"""Tests of a method for its author: `vvt check-method` and its pytest plugin (docs/check-method.md).

`run.check_method` checks every property of a method; `pytest_plugin.method_tests` makes one test per property.
"""
