"""Write docs/check-method.md from the properties: python docs/make_check_method.py."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from verl_video_tools.checks.properties import PROPERTIES

PAGE = Path(__file__).parent / "check-method.md"

_HEAD = """# Check a method

`vvt check-method` tests the properties that loops, records, evaluation and training need from a method. It runs the
method's own prompt, grammar, tools and reward on a synthetic video of 95 seconds, without a model, GPU, network or
policy. A method takes seconds.

```bash
vvt check-method longvt              # a name
vvt check-method my_module:MyMethod  # or a Python path
vvt check-method --all               # every method that is installed
vvt check-method my_method --json > findings.json
```

It prints one line per property. Exit codes: 1 if a property fails, 2 for bad usage.

| status | meaning |
|---|---|
| `pass` | the property holds for everything that was tried; inputs are the same in every run |
| `fail` | the line gives the fault, the value and what to do |
| `not applicable` | the method has no such part, or a property that this one requires fails |

`--set FIELD=VALUE` checks another value, `--processor FOLDER` takes sizes and tokens from a model's processor
(default: as Qwen2.5-VL); [all options](cli.md#vvt-check-method).

A method must pass with its defaults. With `--set compat=reference` it may fail, since published code may break a
property; the method's page lists where.

## Turns to check with

The checker takes example turns from the first of these that gives any:

1. `--turns FILE`, a JSON list of texts as for `vvt replay`
2. the class attribute `check_examples`
3. the turns of the method's oracle
4. examples between tags in the method's prompt
5. guesses from the tools' descriptions, written in usual forms or by the method's `write_call(thought, name,
   arguments)`, as in [compositions](compose.md)

A call counts if it is executed on a video of 95 seconds at 5 frames per second; an answer counts if another one can
replace it. If none is found, `a_valid_call_of_each_tool_is_found` or `a_valid_answer_is_found` fails. Then give
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

A pytest plugin makes one test per property; those that are not applicable are skipped:

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
