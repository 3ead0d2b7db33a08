"""Write docs/check-method.md from the properties: python docs/make_check_method.py."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from verl_video_tools.checks.properties import PROPERTIES

PAGE = Path(__file__).parent / "check-method.md"

_HEAD = """# Check a method

`vvt check-method` asks whether a method keeps what loops, records, evaluation and training rely on. It needs no model,
no GPU, no network and no policy: it renders a video of 95 seconds of the synthetic world and runs the method's own
prompt, grammar, tools and reward on it. One method takes seconds.

```bash
vvt check-method longvt              # a name
vvt check-method my_module:MyMethod  # or a Python path
vvt check-method --all               # every method that is installed
vvt check-method my_method --json > findings.json
```

One line is printed for each property. The exit code is 1 if a property fails, 2 for bad usage.

| status | meaning |
|---|---|
| `pass` | the property holds for all that was tried |
| `fail` | it does not; the line says what was wrong, the value, and what to do |
| `not applicable` | there is nothing to ask about, such as tools; or another property fails that this one requires |

One fault is told once: where a property fails, those that require it are not asked. Mend it, then run again.

A pass is no proof. What was tried is fixed: the same video, questions and texts in every run, so that a result can be
repeated.

## Turns to check with

The checker finds turns that call a tool and turns that answer in this order:

1. `--turns FILE`, a JSON list of texts as `vvt replay` takes it;
2. the class attribute `check_examples`;
3. the turns of the method's oracle, if it has one;
4. examples between tags in the method's prompt;
5. guesses from the arguments in `tool_descriptions`, in the `description` of a tool, or in the docstring of its `plan`:
   in usual forms, and as the method's `write_call(thought, name, arguments)` writes them, if it has one, as
   [compositions](compose.md) do.

A turn that calls counts if its call is carried out on a video of 95 seconds at 5 frames per second. A turn that answers
counts if its answer can be replaced by another one. Where none is found, `a_valid_call_of_each_tool_is_found` or
`a_valid_answer_is_found` fails and says so. Give examples then:

```python
@dataclass(frozen=True, kw_only=True)
class MyMethod(vt.Method):
    check_examples: ClassVar[tuple[str, ...]] = (
        'It starts late. <look>{"start_time": 40, "end_time": 60}</look>',
        "<answer>B</answer>",
    )
```

| option | does |
|---|---|
| `--turns FILE` | turns of your own, as above |
| `--set FIELD=VALUE` | checks the method with another value of a field; repeatable |
| `--processor FOLDER` | takes sizes and tokens from a model's processor; else they are about those of Qwen2.5-VL |
| `--json` | prints a JSON object: for each method a list of `property`, `group`, `status`, `reason` |

The defaults of a method are what has to pass. With `--set compat=reference` a method may fail: published code may pay
for what a policy wrote, or refuse rows that ours accept, and the method's page says so.

## In the tests of a package

The package is a plugin of pytest. `method_tests` makes a test of each property; a property that is not applicable is
skipped:

```python
from verl_video_tools.checks.pytest_plugin import method_tests

test_my_method = method_tests("my_package:MyMethod")
test_with_turns = method_tests("my_package:MyMethod", turns=["<answer>B</answer>"], settings={"max_turns": 3})
```

```bash
python -m pytest -q -k "test_my_method and parse_never_raises"
```

## Properties

This table is made from the code by `python docs/make_check_method.py`.
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
    return "\n".join([_HEAD.rstrip("\n"), *_tables()]) + "\n"


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
