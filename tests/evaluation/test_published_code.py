"""`vvt eval --published-code`: requests hold the texts of a checkout. The files have the layout of the authors', and
other words."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from tests.chat_server import scripted, texts_of
from tests.evaluation.eval_command import BOAT, BOWLS, WHEEL, result_of, serving
from tests.judge_server import JudgeServer
from tests.turns.tagged import answer
from tests.verl_plugin.harness import model_dir
from verl_video_tools.cli.main import run
from verl_video_tools.config import config_path
from verl_video_tools.data.formats import BenchmarkFiles
from verl_video_tools.evaluation import serve
from verl_video_tools.evaluation.protocols import PROTOCOLS

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")

DOCS = Path(__file__).parents[2] / "docs"
ROLLOUT = "verl/workers/rollout/vllm_rollout"
VIDEOZOOMER = {
    "scripts/eval_video.sh": r"""
python3 -m program data.fps=0.5 \
    'data.system_prompt="Zoom like {\"segment\": [1, 2], \"fps\": 2}. \n Put it in \\boxed{{}}, at most 16 (≤ 16)."' \
    model.path="${MODEL_PATH}"
""",
    f"{ROLLOUT}/vllm_async_engine.py": r"""
class Engine:
    def process_tool_call(self, calls, current, most):
        error_info = None
        if error_info is not None:
            tool_outputs = f"<tool_response>\nNot read: {error_info}!\n</tool_response>\n"
        else:
            tool_outputs = extract_video_clip(**calls)
        if not isinstance(tool_outputs, str):
            vision_pad = "".join(tool_outputs)
            tool_call_prompt_message = (
                "<|im_start|>user\n" + "<tool_response>\nSee:\n" + vision_pad + "\n</tool_response>\n" + "think on"
            )
            if current == most - 2:
                tool_call_prompt_message += "No zoom now."
            tool_call_prompt_message +=  "<|im_end|>\n<|im_start|>assistant\n"
        else:
            tool_call_prompt_message = "<|im_start|>user\n" + tool_outputs + "Mind the error."
            if current == most - 2:
                tool_call_prompt_message += "No zoom any more."
            tool_call_prompt_message +=  "<|im_end|>\n<|im_start|>assistant\n"
""",
    f"{ROLLOUT}/function_tools.py": r"""
def prepare_tool_call_inputs_video(json_objects):
    try:
        return json_objects[0]["segment"]
    except Exception as e:
        raise ValueError(f"bad zoom {json_objects[0]}: {e}")


def extract_video_clip(path, start, end, fps, max_frames):
    try:
        extract_frame_num = int(fps * (end - start))
        if extract_frame_num > max_frames:
            error_msg = f"{extract_frame_num} frames, {max_frames} fit"
            raise ValueError(error_msg)
        return {"frames": []}
    except Exception as e:
        error_msg = f"log: {e}"
        return f"<tool_response>\nFailed: {e}<tool_response>"
""",
}

TOOL = {
    "type": "function",
    "function": {"name": "crop_video", "description": "Cuts.", "parameters": {"type": "object", "properties": {}}},
}
TEMPLATE = """{% if tools %}<|im_start|>system
You help.
# Tools
{% for tool in tools %}{{ tool | tojson }}{% endfor %};
As <tool_call>JSON</tool_call><|im_end|>{% endif %}{% for message in messages %}{% if message.role == 'tool' %}
<|im_start|>user<tool_response>
{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}{% else %}
<|vision_start|><|image_pad|><|vision_end|>{% endif %}{% endfor %}</tool_response><|im_end|>{% else %}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}
{% if part.type == 'text' %}{{ part.text }}{% else %}<|vision_start|><|image_pad|><|vision_end|>{% endif %}
{% endfor %}{% endif %}{% for call in message.tool_calls or [] %}
<tool_call>{"name": "{{ call.name }}", "arguments": {{ call.arguments | tojson }}}</tool_call>{% endfor %}
<|im_end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
ERRORS = [
    ("None", '"no path"'),
    ("None", '"no start"'),
    ("None", '"no end"'),
    ("''", '"empty path"'),
    ("0", 'f"start {start_time} is negative"'),
    ("0", 'f"end {end_time} before {start_time}"'),
    ("0", 'f"nothing at {video_path}"'),
    ("0", 'f"cannot open {video_path}"'),
    ("0", 'f"{start_time}s of {duration:.2f}s"'),
    ("0", 'f"{end_time}s beyond {duration:.2f}s"'),
]
LONGVT = {
    "examples/eval/single_inference.py": f"""
CROP_VIDEO_TOOL = {TOOL!r}
TOOL_PROMPT = ("another")


def run_inference(video_path, question, enable_tool=True):
    text = {{"text": f"{{question}} {{TOOL_PROMPT}} Path: {{video_path}}" if enable_tool else question}}
    return [text]
""",
    "examples/eval/tool_call_qwen2_5_vl.jinja": TEMPLATE.replace("%}\n{", "%}{").replace("%}\n<", "%}<"),
    "lmms_eval_tasks/longvt/utils.py": 'TOOL_PROMPT = (\n    "Think, "\n    "crop, answer."\n)\n',
    "custom_tools/video_tools.py": """
class VideoTools:
    async def execute(self, parameters):
        success_msg = "Done."
        return {"text": success_msg}
""",
    "examples/video_tools/mcp_server.py": "def crop_video(video_path=None, start_time=None, end_time=None):\n"
    + "".join(f"    if video_path == {value}:\n        raise ValueError({text})\n" for value, text in ERRORS)
    + '    try:\n        return []\n    except Exception as e:\n        raise RuntimeError(f"failed {video_path}")\n',
}
MADE = {"videozoomer": VIDEOZOOMER, "longvt-sparse": LONGVT}

Checkout = Callable[[str], Path]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """Makes the files of a protocol, whose table then has their digests."""

    def make(name: str) -> Path:
        for path, text in MADE[name].items():
            (tmp_path / "code" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "code" / path).write_text(text)
        code = PROTOCOLS[name].published_code
        assert code is not None and code.files.keys() == MADE[name].keys()
        digests = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in MADE[name].items()}
        monkeypatch.setitem(PROTOCOLS, name, replace(PROTOCOLS[name], published_code=replace(code, files=digests)))
        return tmp_path / "code"

    return make


def evaluated(
    name: str, code: Path, files: BenchmarkFiles, scripts: Mapping[str, Any], *options: str
) -> list[list[tuple[str, str]]]:
    """The longest request for each question: roles and texts."""
    out = code.parent / "out"
    paths = [f"--annotations={files.annotations}", f"--videos={files.videos}", f"--out={out}"]
    command = ["eval", "--benchmark=video-mme", f"--protocol={name}", f"--published-code={code}", *paths]
    with JudgeServer(reply=scripted(scripts)) as server:
        where = f"--base-url={server.base_url}"
        assert run([*command, where, f"--processor={model_dir()}", *options]) == 0
        requests = [
            [(message["role"], texts_of(message)) for message in request["messages"]] for request in server.requests
        ]
    by_question = {request[1][1]: request for request in sorted(requests, key=len)}
    return [next(by_question[text] for text in by_question if question in text) for question in (BOWLS, WHEEL, BOAT)]


def zoom(start: float, end: float, fps: Any) -> str:
    return f'<think>there</think><video_zoom>{{"segment": [{start}, {end}], "fps": {fps}}}</video_zoom>'


def test_videozoomers_requests_have_the_words_of_the_checkout(video_mme: BenchmarkFiles, checkout: Checkout) -> None:
    scripts = {
        BOWLS: [zoom(1.0, 2.0, 2), zoom(0, 9, 9), zoom(0, 1, '"x"'), zoom(2.0, 3.0, 2), answer("C")],
        WHEEL: [*[zoom(0, 9, 9)] * 4, answer("B")],
        BOAT: [*['<think>so</think><video_zoom>{"segment": 1}</video_zoom>'] * 4, answer("A")],
    }
    bowls, wheel, boat = evaluated("videozoomer", checkout("videozoomer"), video_mme, scripts, "--set=glance_fps=1")
    system = r'Zoom like {"segment": [1, 2], "fps": 2}. \n Put it in \\boxed{{}}, at most 16 (≤ 16).'
    assert {request[0] for request in (bowls, wheel, boat)} == {("system", system)}
    shown = "<tool_response>\nSee:\n<frame0_time1.00s><image><frame1_time2.00s><image>\n</tool_response>\nthink on"
    assert bowls[3][1] == shown
    assert bowls[5][1] == "<tool_response>\nFailed: 81 frames, 16 fit<tool_response>Mind the error."
    unreadable = "could not convert string to float: 'x'"
    request = "{'segment': [0, 1], 'fps': 'x'}"
    assert (
        bowls[7][1]
        == f"<tool_response>\nNot read: bad zoom {request}: {unreadable}!\n</tool_response>\nMind the error."
    )
    assert bowls[9][1] == (
        "<tool_response>\nSee:\n<frame0_time2.00s><image><frame1_time3.00s><image>\n</tool_response>\n"
        "think onNo zoom now."
    )
    assert wheel[9][1] == "<tool_response>\nFailed: 81 frames, 16 fit<tool_response>Mind the error.No zoom any more."
    assert boat[9][1].endswith("!\n</tool_response>\nMind the error.No zoom any more.")


def crop(path: Any, start: float | None, end: float | None) -> str:
    arguments = {"video_path": str(path), "start_time": start, "end_time": end}
    given = {name: value for name, value in arguments.items() if value is not None}
    return f"<think>there</think><tool_call>{json.dumps({'name': 'crop_video', 'arguments': given})}</tool_call>"


def test_longvts_requests_have_the_words_of_the_checkout(
    video_mme: BenchmarkFiles, checkout: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    code, videos = checkout("longvt-sparse"), video_mme.videos
    assert videos is not None
    kitchen, tide = videos / "kitchen_one.mp4", videos / "-Tide02.MP4"
    scripts = {
        BOWLS: [crop(kitchen, 1.0, 3.0), crop(kitchen, -1, 3), crop(kitchen, 3, 1), answer("C")],
        WHEEL: [crop("x.mp4", 1, 2), crop(kitchen, 50, 60), crop(kitchen, 1, 60.5), answer("B")],
        BOAT: [crop("", 1, 2), crop(tide, None, 2), crop(tide, 1, None), answer("A")],
    }
    bowls, wheel, boat = evaluated("longvt-sparse", code, video_mme, scripts)
    system = f"You help.\n# Tools\n{json.dumps(TOOL)};\nAs <tool_call>JSON</tool_call>"
    assert {request[0] for request in (bowls, wheel, boat)} == {("system", system)}
    match = re.fullmatch(r"((?:<image>)+)(.*)", bowls[1][1], re.DOTALL)
    assert match is not None
    frames, text = match.groups()
    assert text.endswith(f" Think, crop, answer. Path: {kitchen}") and text.startswith(BOWLS)
    assert bowls[3][1] == "<tool_response>\n<image><image>Done.</tool_response>"
    failed = "<tool_response>\nTool execution failed: Error executing tool crop_video: {}</tool_response>"
    read = [[request[number][1] for number in (3, 5, 7)] for request in (bowls, wheel, boat)]
    assert read[0][1:] == [failed.format("start -1.0 is negative"), failed.format("end 1.0 before 3.0")]
    assert read[1] == [
        failed.format("nothing at x.mp4"),
        failed.format("50.0s of 3.33s"),
        failed.format("60.5s beyond 3.33s"),
    ]
    assert read[2] == [failed.format(reason) for reason in ("empty path", "no start", "no end")]
    assert f"started with --chat-template={config_path('longvt-template')} --chat-template-content-format=openai" in (
        capsys.readouterr().err
    )
    protocol = result_of(code.parent / "out")["protocol"]
    published = PROTOCOLS["longvt-sparse"].published_code
    assert published is not None
    assert protocol["published_code"] == {"repository": published.repository, "commit": published.commit}
    assert (protocol["config"]["compat"], protocol["config"]["initial_frames"]) == ("reference", 64)

    # The packaged template writes what the published one writes for tools, calls and their replies.
    image = {"type": "image"}
    theirs = [
        {"role": "user", "content": [*[image] * frames.count("<image>"), {"type": "text", "text": text}]},
        {
            "role": "assistant",
            "content": "<think>there</think>",
            "tool_calls": [json.loads(scripts[BOWLS][0].partition("<tool_call>")[2].removesuffix("</tool_call>"))],
        },
        {"role": "tool", "content": [image, image, {"type": "text", "text": "Done."}]},
    ]
    ours = [{"role": role, "content": _parts(text)} for role, text in bowls[:4]]
    assert _rendered(ours, config_path("longvt-template").read_text()) == _rendered(
        theirs, LONGVT["examples/eval/tool_call_qwen2_5_vl.jinja"], [TOOL]
    )


def _parts(text: str) -> list[dict[str, str]]:
    pieces = re.split(r"(<image>)", text)
    return [{"type": "image"} if piece == "<image>" else {"type": "text", "text": piece} for piece in pieces if piece]


def _rendered(messages: list[Any], template: str, tools: Any = None) -> str:
    (text,), _ = render_jinja_template([messages], tools=tools, chat_template=template, add_generation_prompt=True)
    return str(text)


def test_a_served_checkpoint_gets_the_chat_template(
    video_mme: BenchmarkFiles, checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    code = checkout("longvt-sparse")
    paths = [f"--annotations={video_mme.annotations}", f"--videos={video_mme.videos}", f"--out={tmp_path / 'out'}"]
    scripts = {BOWLS: [answer("C")], WHEEL: [answer("B")], BOAT: [answer("A")]}
    with JudgeServer(reply=scripted(scripts)) as server:
        monkeypatch.setattr(serve, "served_model", serving(server, asked))
        command = ["eval", "--benchmark=video-mme", "--protocol=longvt-sparse", f"--published-code={code}", *paths]
        assert run([*command, f"--serve={model_dir()}", "--serve-option=enforce-eager=true"]) == 0
    assert asked[3] == {
        "chat-template": str(config_path("longvt-template")),
        "chat-template-content-format": "openai",
        "enforce-eager": True,
    }


def test_another_checkout_is_refused(
    video_mme: BenchmarkFiles, checkout: Checkout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = checkout("videozoomer")
    paths = [f"--annotations={video_mme.annotations}", f"--videos={video_mme.videos}", f"--out={tmp_path / 'out'}"]
    command = ["eval", "--benchmark=video-mme", "--base-url=http://127.0.0.1:9", f"--processor={model_dir()}", *paths]
    script = code / "scripts/eval_video.sh"
    script.write_text(script.read_text() + "\n")
    assert run([*command, "--protocol=videozoomer", f"--published-code={code}"]) == 2
    told = capsys.readouterr().err
    assert f"{script} is not the file of commit 56381538bbde43d6d3417b54f727784958a4e316: its SHA-256 is " in told
    assert "run `git checkout 56381538bbde43d6d3417b54f727784958a4e316` there" in told
    script.unlink()
    assert run([*command, "--protocol=videozoomer", f"--published-code={code}"]) == 2
    assert "takes a checkout of https://github.com/zsgvivo/VideoZoomer" in capsys.readouterr().err
    for options in (["--protocol=framemind"], ["--method=longvt"]):
        assert run([*command, *options, f"--published-code={code}"]) == 2
        told = capsys.readouterr().err
        assert "--published-code needs a protocol with published code: --protocol videozoomer, longvt-sparse" in told
    assert not (tmp_path / "out").exists()


def test_the_page_lists_every_checkpoint() -> None:
    page = (DOCS / "comparable.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\S+)\]\(https://huggingface.co/(\S+)\) \| \[`(\w+)`\]\((\S+)\) \| (.*) \|$", page, re.M)
    listed = {(name, commit, link): re.findall(r"`([\w-]+)`", names) for name, _, commit, link, names in rows}
    expected: dict[tuple[str, str, str], list[str]] = {}
    for protocol in PROTOCOLS.values():
        if (code := protocol.published_code) is not None:
            for name in code.checkpoints:
                link = f"{code.repository}/tree/{code.commit}"
                expected.setdefault((name, code.commit[:8], link), []).append(protocol.name)
    assert all(name == address for name, address, *_ in rows) and listed == expected
