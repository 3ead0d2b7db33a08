"""Protocol profiles: what they set, what the command line changes, and the page that shows them."""

from __future__ import annotations

import inspect
import json
import shutil
from pathlib import Path

import pytest

from tests.chat_server import scripted
from tests.evaluation.eval_command import BOAT, BOWLS, WHEEL, result_of
from tests.judge_server import JudgeServer
from tests.turns.tagged import answer
from tests.verl_plugin.harness import model_dir
from verl_video_tools.cli.evaluation import Evaluate
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import UsageError
from verl_video_tools.data.extractors import get_extractor
from verl_video_tools.data.formats import BENCHMARK_NAMES, BenchmarkFiles
from verl_video_tools.evaluation.protocols import (
    CHANGES_ANSWERS,
    FIELD,
    PROTOCOLS,
    SUBTITLES,
    Protocol,
    apply,
    described,
    get_protocol,
)
from verl_video_tools.methods import get_method
from verl_video_tools.methods.run_settings import write_run_settings

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")

DOCS = Path(__file__).parents[2] / "docs"
SCRIPTS = {BOWLS: [answer("C")], WHEEL: [answer("B. A bucket.")], BOAT: [answer("A")]}


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS.keys())
def test_every_value_is_an_option_or_a_field(protocol: Protocol) -> None:
    options = set(inspect.signature(Evaluate).parameters)
    assert set(protocol.benchmarks) <= set(BENCHMARK_NAMES) and set(protocol.for_benchmark) <= set(BENCHMARK_NAMES)
    for benchmark in (None, *protocol.for_benchmark):
        values = protocol.of(benchmark)
        fields = {name.removeprefix(FIELD): value for name, (value, _) in values.items() if name.startswith(FIELD)}
        get_method(protocol.method, **fields)
        assert {name for name in values if not name.startswith(FIELD)} - {SUBTITLES} <= options
        if "extractor" in values:
            get_extractor(values["extractor"][0])
        assert all(source for _, source in values.values())
    assert protocol.cannot_match and protocol.prompt and protocol.judge


def test_a_profile_and_what_the_user_gives() -> None:
    protocol = get_protocol("longvt-dense")
    given = {"temperature": 0.0, "max_pixels": 100_352, SUBTITLES: False}
    applied = apply(protocol, "video-mme", given, {"initial_frames": 512, "max_calls_per_turn": 1})
    assert applied.options == {"min_pixels": 784, "extractor": "lmms-eval-2025/videomme"}
    assert applied.fields["initial_frames"] == 512 and applied.fields["call_frames"] == 128
    assert applied.overrides == {
        "max_pixels": {"published": 50_176, "used": 100_352},
        "set.initial_frames": {"published": 768, "used": 512},
        "set.max_calls_per_turn": {"published": "the method's default", "used": 1},
        "subtitles": {"published": True, "used": False},
    }
    elsewhere = apply(protocol, "mvbench", {SUBTITLES: False}, {})
    assert list(elsewhere.overrides) == ["benchmark"]


def test_options_that_a_profile_leaves_alone_are_told_if_they_change_answers() -> None:
    given = {SUBTITLES: False, "top_p": 0.5, "concurrency": 4}
    applied = apply(get_protocol("framethinker-baseline"), "video-mme", given, {})
    assert applied.overrides["top_p"] == {"published": "not set", "used": 0.5}
    assert "concurrency" not in applied.overrides
    assert set(inspect.signature(Evaluate).parameters) >= CHANGES_ANSWERS


def test_an_evaluation_by_a_protocol(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server sees the published sampling; what the command line says instead is told and recorded."""
    out = tmp_path / "out"
    paths = [f"--annotations={video_mme.annotations}", f"--videos={video_mme.videos}", f"--out={out}"]
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        command = ["eval", "--benchmark=video-mme", "--protocol=framemind", f"--base-url={server.base_url}", *paths]
        command.append(f"--processor={model_dir()}")  # whose bounds of pixels are the protocol's
        assert run([*command, "--top-p=0.5", "--set=initial_frames=8"]) == 0
        assert {(request["temperature"], request["top_p"]) for request in server.requests} == {(0.01, 0.5)}
    protocol = result_of(out)["protocol"]
    assert (protocol["method"], protocol["config"]["initial_frames"], protocol["config"]["max_turns"]) == (
        "framemind",
        8,
        3,
    )
    assert protocol["pictures"]["sizes"]["max_pixels"] == 200_704
    assert protocol["published_protocol"] == {
        "name": "framemind",
        "overrides": {
            "set.initial_frames": {"published": 32, "used": 8},
            "top_p": {"published": 0.95, "used": 0.5},
        },
    }
    assert json.loads((out / "protocol.json").read_text())["published_protocol"] == protocol["published_protocol"]
    assert "framemind: top_p is 0.5, published 0.95" in capsys.readouterr().err


def test_a_protocol_takes_the_place_of_what_the_models_run_says(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without one, the folder's fields and bounds of pixels apply. With one, none of them is mixed into it."""
    model, prompt = tmp_path / "model", tmp_path / "prompt.txt"
    shutil.copytree(model_dir(), model)
    prompt.write_text("As trained.")
    method = get_method("framemind", initial_frames=4, prompt_file=str(prompt))
    write_run_settings(model, [method], {"min_pixels": 3136, "max_pixels": 50_176}, None, "owner/model", [])
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        paths = [f"--annotations={video_mme.annotations}", f"--videos={video_mme.videos}", f"--processor={model}"]
        command = ["eval", "--benchmark=video-mme", f"--base-url={server.base_url}", *paths]
        assert run([*command, "--method=framemind", f"--out={tmp_path / 'trained'}"]) == 0
        assert "framemind as in" in capsys.readouterr().err
        assert run([*command, "--protocol=framemind", "--set=call_frames=8", f"--out={tmp_path / 'published'}"]) == 0
    assert f"framemind takes the place of {model / 'video_tools.yaml'}" in capsys.readouterr().err
    trained, published = (result_of(tmp_path / name)["protocol"] for name in ("trained", "published"))
    assert (trained["config"]["initial_frames"], published["config"]["initial_frames"]) == (4, 32)
    assert trained["prompt_digest"] and published["config"]["prompt_file"] is None
    assert trained["pictures"]["sizes"]["max_pixels"] == 50_176
    assert published["pictures"]["sizes"]["max_pixels"] == 200_704
    assert list(published["published_protocol"]["overrides"]) == ["set.call_frames"]


def test_protocols_of_another_method_and_unknown_ones(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [f"--annotations={video_mme.annotations}", f"--videos={video_mme.videos}", f"--out={tmp_path / 'out'}"]
    command = ["eval", "--benchmark=video-mme", "--base-url=http://127.0.0.1:9", *files]
    assert run([*command, "--protocol=framemind", "--method=longvt"]) == 2
    assert "the protocol framemind is one of framemind, and --method is longvt" in capsys.readouterr().err
    assert run([*command, "--protocol=frames"]) == 2
    assert "there is no protocol 'frames'; choose one of: framethinker, " in capsys.readouterr().err
    assert run([*command, "--protocol=framemind"]) == 2
    assert "the protocol framemind bounds pixels, as the model's processor counts them: give --processor" in (
        capsys.readouterr().err
    )
    assert run(command) == 2
    assert "give --method, or --protocol, which has one" in capsys.readouterr().err
    with pytest.raises(UsageError, match="there is no protocol"):
        get_protocol("")


def test_a_profile_in_words() -> None:
    text = described(get_protocol("framethinker"))
    assert "  temperature = 0.6 (code, infer.py)" in text and "Cannot be matched:\n  the published prompt" in text


def test_the_page_lists_every_profile() -> None:
    page = (DOCS / "comparable.md").read_text(encoding="utf-8")
    assert [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")] == list(PROTOCOLS)
