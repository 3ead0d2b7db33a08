"""Write docs/check-method.md from the properties: python docs/make_check_method.py."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from verl_video_tools.checks.properties import PROPERTIES

PAGE = Path(__file__).parent / "check-method.md"

_HEAD = """# Check a method

`vvt check-method` tests the properties that loops, records, evaluation and training need from a method: its prompt,
grammar, tools and reward on a synthetic video of 95 seconds, without a model, GPU or network.

```bash
vvt check-method longvt              # a name
vvt check-method my_module:MyMethod  # or a Python path
vvt check-method --all               # every method that is installed
vvt check-method my_method --json > findings.json
```

It prints a line per property: `pass`, `fail` (with fault, value and what to do), or `not applicable` (the method has no
such part, or a required property fails). Inputs never change. Exit codes: 1 if a property fails, 2 for
bad usage.

`--set FIELD=VALUE` checks another value, `--processor FOLDER` takes sizes and tokens from a model's processor
(default: as Qwen2.5-VL); `vvt check-method --help` lists all options. With `compat=reference` a method may fail
where the published code breaks a property.

## Turns to check with

The checker takes example turns from the first of these that gives any:

1. `--turns FILE`, a JSON list of texts as for `vvt replay`
2. the class attribute `check_examples`
3. the turns of the method's oracle
4. examples between tags in the method's prompt
5. guesses from the tools' descriptions, in usual forms or by the method's `write_call(thought, name, arguments)`

A call counts if it is executed on 95 seconds at 5 frames per second (captions: 18-24 s, 60-63.5 s), an
answer if another one can replace it. If `a_valid_call_of_each_tool_is_found` or `a_valid_answer_is_found` fails, give
examples:

```python
@dataclass(frozen=True, kw_only=True)
class MyMethod(vt.Method):
    check_examples: ClassVar[tuple[str, ...]] = (
        'It starts late. <look>{"start_time": 40, "end_time": 60}</look>',
        "<answer>B</answer>",
    )
```

## In the tests of a package

A pytest plugin makes a test per property, skipped if not applicable:

```python
from verl_video_tools.checks.pytest_plugin import method_tests

test_my_method = method_tests("my_package:MyMethod")
test_with_turns = method_tests("my_package:MyMethod", turns=["<answer>B</answer>"], settings={"max_turns": 3})
```

```bash
python -m pytest -q -k "test_my_method and parse_never_raises"
```

## Properties

`python docs/make_check_method.py` writes this table from the code.

<!-- properties: begin -->
"""

_GROUPS = {
    "config": "Class and config",
    "prompts": "Initial frames and prompt",
    "grammar": "Grammar",
    "tools": "Tools",
    "episode": "Rollouts and observations",
    "tokens": "Tokens and loss mask",
    "reward": "Reward",
    "groups": "Groups",
    "records": "Records",
    "pickling": "Between processes",
}


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD.rstrip("\n"), *_tables(), "", "<!-- properties: end -->"]) + "\n"


def _tables() -> Iterator[str]:
    places = list(_GROUPS)
    ordered = sorted(PROPERTIES.values(), key=lambda each: places.index(each.group))
    for group, properties in groupby(ordered, key=lambda each: each.group):
        yield f"\n### {_GROUPS[group]}\n"
        yield "| property | what must hold, and why |"
        yield "| --- | --- |"
        yield from (f"| `{each.name}` | {each.must} |" for each in properties)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
