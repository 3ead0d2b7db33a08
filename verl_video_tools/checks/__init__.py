"""Whether a method keeps what loops, records and training rely on (`vvt check-method`, docs/check-method.md).

`run.check_method` asks every property of a method; `pytest_plugin.method_tests` makes a test of each.
"""
