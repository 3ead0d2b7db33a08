"""The adapter for lmms-eval, with stand-ins for the two classes of lmms-eval that it imports.

lmms-eval 0.7 wants another PyAV than we do, so that it is not part of the tests' environment.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.chat_server import pictures_of, scripted, texts_of
from tests.judge_server import JudgeServer, Reply
from tests.services.retrieval.encoder import ColourEncoder
from tests.verl_plugin.harness import model_dir
from tests.videos.files import MakeVideo
from verl_video_tools.core.errors import EndpointError, UsageError
from verl_video_tools.data.formats.entries import benchmark_row
from verl_video_tools.methods import get_method
from verl_video_tools.services.retrieval import RetrievalConfig

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")

TASKS = Path(__file__).parents[2] / "examples" / "lmms_eval" / "tasks"
ADAPTER = "verl_video_tools.evaluation.lmms_eval_model"
ZOOM = '<think>there</think><video_zoom>{"segment": [1.0, 3.0], "fps": 2}</video_zoom>'


class FakeModel:
    """`lmms_eval.api.model.lmms`: lmms-eval fills `task_dict` before it asks."""

    def __init__(self) -> None:
        self.task_dict: dict[str, Any] = {}


@dataclass(frozen=True)
class FakeManifest:
    """`lmms_eval.models.registry_v2.ModelManifest`."""

    model_id: str
    simple_class_path: str


@dataclass(frozen=True)
class FakeRequest:
    """`lmms_eval.api.instance.Instance`: only its `args` are read."""

    args: tuple[str, dict[str, Any], Callable[[Any], list[Any]], int, str, str]


@pytest.fixture(scope="module")
def adapter() -> Iterator[ModuleType]:
    names = ("lmms_eval", "lmms_eval.api", "lmms_eval.api.model", "lmms_eval.models", "lmms_eval.models.registry_v2")
    modules = {name: ModuleType(name) for name in names}
    modules["lmms_eval.api.model"].lmms = FakeModel  # type: ignore[attr-defined]  # a module made here
    modules["lmms_eval.models.registry_v2"].ModelManifest = FakeManifest  # type: ignore[attr-defined]  # a module made here
    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)
        yield importlib.import_module(ADAPTER)
        patch.delitem(sys.modules, ADAPTER)


@pytest.fixture(scope="module")
def task() -> ModuleType:
    spec = importlib.util.spec_from_file_location("vvt_task_utils", TASKS / "utils.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def docs(make_video: MakeVideo) -> list[dict[str, Any]]:
    rows = []
    for number in range(3):
        question, video_path = f"Question {number}?", Path(make_video(100))
        options = ["Yes", "No"]
        rows.append(
            benchmark_row(
                "x", index=number, split="test", video_path=video_path, question=question, options=options, truth="A"
            )
        )
    return rows


def ask(model: Any, task: ModuleType, docs: list[dict[str, Any]]) -> list[str]:
    """As lmms-eval does."""
    model.task_dict["vvt_choice"] = {"test": docs}
    requests = [
        FakeRequest((task.doc_to_text(doc), {"until": ["\n"]}, task.doc_to_visual, number, "vvt_choice", "test"))
        for number, doc in enumerate(docs)
    ]
    answers: list[str] = model.generate_until(requests)
    return answers


def test_requests_become_rollouts(adapter: ModuleType, task: ModuleType, docs: list[dict[str, Any]]) -> None:
    good = scripted({f"Question {number}?": [ZOOM, f"<answer>{letter}</answer>"] for number, letter in enumerate("AB")})

    def half(request: dict[str, Any]) -> Reply:
        return Reply(b"{}", status=500) if "Question 2?" in texts_of(request["messages"][1]) else good(request)

    assert FakeManifest("video_tools", f"{ADAPTER}.VideoToolsModel") == adapter.MANIFEST
    with JudgeServer(reply=half) as server:
        model = adapter.VideoToolsModel(
            "videozoomer",
            processor=model_dir(),
            batch_size=1,
            device="cuda:0",
            base_url=server.base_url,
            initial_frames=2,
        )
        answers = ask(model, task, docs)
        assert answers == ["A", "B", ""]
        shown = [
            [picture.size for message in request["messages"] for picture in pictures_of(message)]
            for request in server.requests
        ]
        assert max(map(len, shown)) == 2 + 4
        assert {side % 28 for sizes in shown for size in sizes for side in size} == {0}  # the processor's cells
    scores = [task.process_results(doc, [answer]) for doc, answer in zip(docs, answers, strict=True)]
    assert scores == [{"accuracy": 1.0}, {"accuracy": 0.0}, {"accuracy": 0.0}]
    assert {task.doc_to_target(doc) for doc in docs} == {"A"}


def test_a_task_may_give_the_path_without_a_list(
    adapter: ModuleType, task: ModuleType, docs: list[dict[str, Any]]
) -> None:
    """As TemporalBench's tasks do."""
    with JudgeServer(reply=scripted({"Question 0?": ["<answer>A</answer>"]})) as server:
        model = adapter.VideoToolsModel("direct", base_url=server.base_url, initial_frames=2)
        model.task_dict["t"] = {"test": docs}
        request = FakeRequest((task.doc_to_text(docs[0]), {}, lambda doc: task.doc_to_visual(doc)[0], 0, "t", "test"))
        assert model.generate_until([request]) == ["A"]


def test_a_method_that_searches(
    adapter: ModuleType, task: ModuleType, docs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, configs = ColourEncoder(), []

    def load_encoder(config: RetrievalConfig) -> ColourEncoder:
        configs.append(config)
        return encoder

    monkeypatch.setattr(adapter, "load_encoder", load_encoder)
    search = {"name": "clip_sample", "arguments": {"start_frame": 0, "end_frame": 50, "prompt": "something red"}}
    turns = [f"<thinking>a</thinking><tool_call>{json.dumps(search)}</tool_call>", "<answer>A</answer>"]
    with JudgeServer(reply=scripted({f"Question {number}?": turns for number in range(3)})) as server:
        model = adapter.VideoToolsModel(
            "videobrain", base_url=server.base_url, retrieval_model="DIR", retrieval_num_threads=8
        )
        assert ask(model, task, docs[:1]) == ask(model, task, docs[1:2]) == ["A"]  # each in an event loop of its own
        assert len(server.requests) == 4
        shown = texts_of(server.requests[1]["messages"][-1])
    assert configs == [RetrievalConfig(model="DIR", num_threads=8)]
    assert encoder.text_batches == [["something red"]] * 2
    assert shown.count("<image>") == get_method("videobrain").clip_frames


def test_what_the_adapter_does_not_take(adapter: ModuleType, task: ModuleType, docs: list[dict[str, Any]]) -> None:
    url = "http://127.0.0.1:9/v1"
    with pytest.raises(UsageError, match="VideoZoomer has no field 'frames'"):
        adapter.VideoToolsModel("videozoomer", base_url=url, frames=3)
    with pytest.raises(UsageError, match=r"PolicyConfig.concurrency takes int"):
        adapter.VideoToolsModel("direct", base_url=url, concurrency="many")
    with pytest.raises(
        UsageError, match=r"searches for frames by text; say with which encoder, such as retrieval_model="
    ):
        adapter.VideoToolsModel("videobrain", base_url=url)
    with pytest.raises(UsageError, match="RetrievalConfig has no field 'modal'"):
        adapter.VideoToolsModel("videobrain", base_url=url, retrieval_modal="DIR")
    with pytest.raises(EndpointError, match="no usable reply"):
        ask(adapter.VideoToolsModel("direct", base_url=url), task, docs)
    with pytest.raises(NotImplementedError, match="generate_until"):
        adapter.VideoToolsModel("direct", base_url=url).loglikelihood([])
    model = adapter.VideoToolsModel("direct", base_url=url)
    model.task_dict["t"] = {"test": [{}]}
    with pytest.raises(UsageError, match="t 0: a request takes the path of one video"):
        model.generate_until([FakeRequest(("Q?", {}, lambda doc: ["a.mp4", "b.mp4"], 0, "t", "test"))])


class Rows(list[dict[str, Any]]):
    """A data set, of which the tasks need no more than this."""

    def filter(self, keeps: Callable[[dict[str, Any]], bool]) -> Rows:
        return Rows(filter(keeps, self))


def configs() -> dict[str, dict[str, Any]]:
    """The tasks of the example, with the functions that they name as texts, as lmms-eval reads them."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))
    read = [yaml.load(path.read_text(), Loader) for path in sorted(TASKS.glob("*.yaml"))]
    return {
        config["task"]: {**yaml.load((TASKS / config.pop("include")).read_text(), Loader), **config} for config in read
    }


def test_tasks_of_three_kinds_of_answers(adapter: ModuleType, task: ModuleType, make_video: MakeVideo) -> None:
    """Each task takes its rows, and grades what the method answers after a tool call or at once."""
    made = [
        ("Which colour?", "A", "mc", ["red", "blue"], "<answer>A</answer>"),
        ("Which side?", "B", "mc", ["left", "right"], "<answer>A. left</answer>"),
        ("How many?", "12", "numeric", [], "<answer>There are 12.</answer>"),
        ("Who?", "a dog", "open", [], "<answer>A dog</answer>"),
        ("When is it red?", "[1.0, 3.0]", "segment", [], "<answer>From 1 to 3 seconds</answer>"),
        ("When is it blue?", "[1.0, 3.0]", "segment", [], "<answer>[0, 1.5]</answer>"),
    ]
    docs = Rows(
        benchmark_row(
            "x",
            index=number,
            split="test",
            video_path=Path(make_video(100)),
            question=question,
            options=options,
            truth=truth,
            question_type=question_type,
        )
        for number, (question, truth, question_type, options, _) in enumerate(made)
    )
    scripts = {question: [ZOOM, answer] if "red" in question else [answer] for question, *_, answer in made}
    scores = {}
    with JudgeServer(reply=scripted(scripts)) as server:
        model = adapter.VideoToolsModel("videozoomer", base_url=server.base_url, initial_frames=2)
        for name, config in configs().items():
            asked = getattr(task, config["process_docs"].removeprefix("utils."))(docs)
            process_results = getattr(task, config["process_results"].removeprefix("utils."))
            results = [
                process_results(doc, [answer]) for doc, answer in zip(asked, ask(model, task, asked), strict=True)
            ]
            assert all(list(each) == [metric["metric"] for metric in config["metric_list"]] for each in results)
            scores[name] = results
    assert scores == {
        "vvt_choice": [{"accuracy": 1.0}, {"accuracy": 0.0}],
        "vvt_open": [{"accuracy": 1.0}, {"accuracy": 1.0}],
        "vvt_segment": [{"accuracy": 1.0, "mean_iou": 1.0}, {"accuracy": 0.0, "mean_iou": pytest.approx(0.5 / 3)}],
    }


def test_the_commands_are_those_of_the_page() -> None:
    """The folder of tasks as seen from that of the rows, and the model's arguments whole."""
    readme = (TASKS.parent / "README.md").read_text()
    told = f"--include_path $CHECKOUT/examples/lmms_eval/tasks --tasks {','.join(configs())}"
    assert told in readme and told in (TASKS / "_rows_yaml").read_text()
    page = (TASKS.parents[2] / "docs" / "evaluation.md").read_text()
    of_page, of_readme = (re.findall(r"--model_args (method=videozoomer\S+)", text) for text in (page, readme))
    assert of_page == of_readme[:1] and "min_pixels=25088,max_pixels=100352" in of_page[0]


@pytest.mark.parametrize("name", configs())
def test_the_tasks_name_functions_that_exist(name: str, task: ModuleType) -> None:
    named = [str(value) for key, value in configs()[name].items() if key.startswith(("doc_to", "process"))]
    assert len(named) == 5
    assert all(callable(getattr(task, each.removeprefix("utils."))) for each in named)
