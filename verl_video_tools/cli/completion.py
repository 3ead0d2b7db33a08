"""Names that a shell completes: those that `vvt list` prints."""

from __future__ import annotations

from collections.abc import Callable

import typer


def names_of(kind: str) -> Callable[[str], list[str]]:
    """For `typer.Option(autocompletion=...)`: the names of a `list_names.Kind` that go on from what is typed."""

    def complete(incomplete: str) -> list[str]:
        from verl_video_tools.cli.list_names import Kind, texts_of

        return [name for name in texts_of(Kind(kind)) if name.startswith(incomplete)]

    return complete


def names_of_listed(context: typer.Context, incomplete: str) -> list[str]:
    """The same for the second argument of `vvt list`, whose first one is the kind."""
    kind = context.params.get("kind")
    return names_of(str(kind))(incomplete) if kind else []
