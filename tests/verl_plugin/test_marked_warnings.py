"""Our warnings reach who reads a recipe's output, where that is asked for."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from verl_video_tools.verl_plugin.marked_warnings import MARK, VARIABLE, activate_if_enabled

OURS = logging.getLogger("verl_video_tools")


@pytest.fixture(autouse=True)
def _handlers_as_before() -> Iterator[None]:
    before = list(OURS.handlers)
    yield
    OURS.handlers[:] = before


def test_marked_in_one_line_and_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    activate_if_enabled()
    activate_if_enabled()
    logger = logging.getLogger("verl_video_tools.records.best_effort")
    logger.info("not for the user")
    try:
        raise ValueError("away")
    except ValueError:
        logger.warning("failed: logging to %s\nsecond line", "wandb", exc_info=True)
    logging.getLogger("verl").warning("of a framework")
    assert capsys.readouterr().err == f"{MARK} warning: failed: logging to wandb\n"


def test_a_message_that_cannot_be_formatted_raises_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.setattr(logging, "raiseExceptions", False)
    activate_if_enabled()
    OURS.handlers[-1].handle(logging.LogRecord("verl_video_tools", logging.ERROR, "", 0, "%d", ("x",), None))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("value", [None, "0"])
def test_no_handler_where_nobody_asks(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False) if value is None else monkeypatch.setenv(VARIABLE, value)
    before = list(OURS.handlers)
    activate_if_enabled()
    assert OURS.handlers == before
