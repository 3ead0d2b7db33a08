"""A model that cannot be loaded is refused at once, with the reason."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path

import httpx
import pytest

pytest.importorskip("huggingface_hub", reason="comes with transformers")
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.machine import locate_model, read_chat_template

NAME = "owner/some-model"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub, which may be asked."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return tmp_path / "hub"


def download(cache: Path) -> Path:
    """What a download leaves in the cache."""
    repository = cache / "models--owner--some-model"
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    return snapshot


def hub_says(answer: object, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked = []

    def model_info(self: HfApi, name: str, *, timeout: float) -> object:
        asked.append(name)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(HfApi, "model_info", model_info)
    return asked


def refusal(kind: type[HfHubHTTPError], status: int) -> HfHubHTTPError:
    return kind("no", response=httpx.Response(status, request=httpx.Request("GET", "https://hub/api")))


def test_a_folder_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = hub_says(object(), monkeypatch)
    monkeypatch.chdir(tmp_path)
    Path("owner/some-model").mkdir(parents=True)
    assert [locate_model(name) for name in (str(tmp_path), NAME)] == [str(tmp_path), NAME]
    assert asked == []


@pytest.mark.parametrize("name", ["nodir", "/no/such/folder", "./out/model", "a/b/c", "", "owner/", "-owner/x"])
def test_what_is_neither_a_folder_nor_a_name_is_refused_unasked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = hub_says(object(), monkeypatch)
    with pytest.raises(UsageError, match=r"no folder here; give the folder of a model, or its name .* owner/name"):
        locate_model(name)
    assert asked == []


def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(UsageError, match="is a file; give the folder"):
        locate_model(str(tmp_path / "model.safetensors"))


def test_a_name_that_the_hub_knows_is_left_to_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = hub_says(object(), monkeypatch)
    assert locate_model(NAME) == NAME
    assert asked == [NAME]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (refusal(RepositoryNotFoundError, 401), "the hub has no public model of that name"),
        (refusal(GatedRepoError, 403), "asks for a token"),
        (refusal(HfHubHTTPError, 503), "gave no answer"),
        (httpx.ConnectError("[Errno -2] Name or service not known"), "cannot be reached .*Name or service not known"),
        (httpx.ReadTimeout(""), "cannot be reached .ReadTimeout"),
        (OSError("proxy"), "cannot be reached"),
    ],
)
def test_without_an_answer_the_cache_decides(
    answer: Exception, reason: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_says(answer, monkeypatch)
    with pytest.raises(UsageError, match=f"no folder here and not in the cache.*{reason}.*hf download {NAME}"):
        locate_model(NAME)
    snapshot = download(cache)
    assert locate_model(NAME) == str(snapshot)


def test_offline_nobody_is_asked(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = hub_says(object(), monkeypatch)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match="HF_HUB_OFFLINE is set"):
        locate_model(NAME)
    snapshot = download(cache)
    assert locate_model(NAME) == str(snapshot)
    assert asked == []


def test_a_hub_that_never_answers_costs_seconds(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl_video_tools.core.machine.ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
        original = HfApi.__init__
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(HfApi, "__init__", lambda self: original(self, endpoint=endpoint))
        started = time.monotonic()
        with pytest.raises(UsageError, match="cannot be reached"):
            locate_model(NAME)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "error",
    [refusal(GatedRepoError, 403), LocalEntryNotFoundError("no connection"), httpx.ConnectError("reset")],
    ids=["gated", "not in the cache", "connection lost"],
)
def test_where_the_hub_gives_no_template_the_cache_decides(
    error: Exception, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub says that it has a gated model, and refuses its files."""
    hub_says(object(), monkeypatch)

    def refuse(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    with pytest.raises(UsageError, match=f"the hub gave no chat template .*hf download {NAME}"):
        read_chat_template(NAME)
    (download(cache) / "chat_template.jinja").write_text("{{ messages }}")
    assert read_chat_template(NAME) == "{{ messages }}"


def test_a_processor_by_its_former_name_is_told_with_the_line_to_change(tmp_path: Path) -> None:
    """Checkpoints of early 2025 have it; transformers lists 150 kinds of models and not the reason."""
    (tmp_path / "preprocessor_config.json").write_text('{"image_processor_type": "Qwen2_5_VLImageProcessor"}')
    line = re.escape('write "image_processor_type": "Qwen2VLImageProcessor" there')
    with pytest.raises(UsageError, match=rf"preprocessor_config\.json names Qwen2_5_VLImageProcessor.*{line}"):
        locate_model(str(tmp_path))
    (tmp_path / "preprocessor_config.json").write_text('{"image_processor_type": "Qwen2VLImageProcessor"}')
    assert locate_model(str(tmp_path)) == str(tmp_path)
