"""Check a composition and list its parts: `python -m verl_video_tools.methods.compose FILE`.

Exit code 2, and one line that names the file, the key and the fix, where it makes no sense. Recipes run this before a
run starts, and read the lengths that the file reserves (`--limits`).
"""

from __future__ import annotations

import argparse
import sys

from verl_video_tools.core.errors import UsageError
from verl_video_tools.methods.compose.composition import PACKAGED
from verl_video_tools.methods.compose.method import Compose


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m verl_video_tools.methods.compose", description=__doc__)
    parser.add_argument("file", help=f"YAML file, or one of: {', '.join(PACKAGED)}")
    parser.add_argument("--limits", action="store_true", help="print tokens of prompt and response, and images, alone")
    given = parser.parse_args(arguments)
    try:
        method = Compose(file=given.file)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    budget = method.recipe_budget
    if given.limits:
        print(budget.prompt_tokens, budget.response_tokens, budget.images)
        return 0
    for line in described(method):
        print(line)
    return 0


def described(method: Compose) -> list[str]:
    """The parts of a composition, one to a line."""
    composition, budget = method.composition, method.recipe_budget
    lines = [composition.about] if composition.about else []
    lines.append(f"grammar         {composition.grammar}")
    lines.append(f"initial frames  {composition.initial_frames}")
    lines += [f"tool            {offered.tool}" for offered in composition.tools.values()]
    for part in method.reward.terms:
        opens = "" if part.gate_from is None else f" from {part.gate_from:g}"
        gate = f", decides on {', '.join(part.gate)}{opens}" if part.gate else ""
        lines.append(f"reward          {part.key}: {part.weight:g} * {part.term}{gate}")
    lines.append(f"turns           {composition.turns}")
    lines.append(
        f"limits          {budget.prompt_tokens} tokens of prompt, {budget.response_tokens} of response, "
        f"{budget.images} images"
    )
    return lines


if __name__ == "__main__":
    sys.exit(main())
