"""What the doctor says of a judge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.judge_server import MODEL, JudgeServer, Reply, completion
from verl_video_tools.cli.main import run
from verl_video_tools.launch.checks import installation
from verl_video_tools.launch.checks.installation import judge_checks
from verl_video_tools.launch.checks.report import Status
from verl_video_tools.services.judge import JudgeConfig

pytest.importorskip("openai", reason="the extra `judge` is not installed")


def outcome(base_url: str, model: str | None = None) -> dict[str, Status]:
    return {check.name: check.status for check in judge_checks(JudgeConfig(base_url=base_url, model=model))}


def test_a_good_judge() -> None:
    with JudgeServer() as server:
        checks = judge_checks(JudgeConfig(base_url=server.base_url))
    assert [check.status for check in checks] == [Status.OK] * 3
    assert [check.found for check in checks] == [f"{MODEL} at {server.base_url}", "correct", "incorrect"]


def test_the_judge_of_the_run_is_asked_and_not_its_cache(tmp_path: Path) -> None:
    with JudgeServer() as server:
        config = JudgeConfig(base_url=server.base_url, cache_dir=str(tmp_path / "cache"))
        good = judge_checks(config)
    assert [check.status for check in good] == [Status.OK] * 3 and not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("always", "failed"),
    [("correct", "known incorrect answer"), ("incorrect", "known correct answer"), ("partial", "known correct answer")],
)
def test_a_judge_that_says_always_the_same(always: str, failed: str) -> None:
    with JudgeServer(reply=lambda request: completion(json.dumps({"label": always}))) as server:
        assert outcome(server.base_url)[failed] is Status.FAILED


def test_a_judge_that_never_judges() -> None:
    with JudgeServer(reply=lambda request: Reply(b"no", status=400)) as server:
        found = outcome(server.base_url)
    assert found["endpoint"] is Status.OK
    assert found["known correct answer"] is found["known incorrect answer"] is Status.FAILED


def test_a_model_that_is_not_served() -> None:
    unknown = Reply(b'{"error": {"message": "The model `other` does not exist."}}', status=404)
    with JudgeServer(reply=lambda request: unknown) as server:
        checks = judge_checks(JudgeConfig(base_url=server.base_url, model="other"))
    assert checks[-1].status is Status.FAILED
    assert "The model `other` does not exist" in checks[-1].detail


@pytest.mark.usefixtures("short_backoff")
def test_nobody_there() -> None:
    with JudgeServer() as server:
        pass
    (check,) = judge_checks(JudgeConfig(base_url=server.base_url))
    assert (check.name, check.status) == ("endpoint", Status.FAILED)
    assert "docs/judge.md" in check.fix


@pytest.mark.usefixtures("short_backoff")
@pytest.mark.parametrize("models", [b"<html>\n<body>busy</body>\n</html>", b"[]", b"null"])
def test_an_odd_list_of_models_is_one_line(models: bytes) -> None:
    kind = "text/html" if models.startswith(b"<") else "application/json"
    with JudgeServer(models_reply=Reply(models, content_type=kind)) as server:
        (check,) = judge_checks(JudgeConfig(base_url=server.base_url))
    assert (check.name, check.status) == ("endpoint", Status.FAILED)
    assert "GET /models lists no model" in check.detail and "\n" not in check.detail


@pytest.mark.parametrize("by_variable", [False, True])
def test_the_doctor_asks(
    by_variable: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installation, "check_installation", lambda device: [])
    with JudgeServer() as server:
        if by_variable:
            monkeypatch.setenv("VVT_JUDGE_BASE_URL", server.base_url)
        assert run(["doctor", "--json", *([] if by_variable else ["--judge-base-url", server.base_url])]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [check["group"] for check in report["checks"]] == ["judge"] * 3
