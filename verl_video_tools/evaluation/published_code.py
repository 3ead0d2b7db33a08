"""Prompts and messages of released checkpoints, read from the user's checkout of the authors' code.

A released checkpoint answers best to the sentences that it was trained on, which this package does not hold. A protocol
(`protocols.yaml`) names the commit and the SHA-256 of each file that is read, so that the place of every text in it is
known. Python files are parsed, never executed.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_video_tools.config import config_path
from verl_video_tools.core.errors import UsageError, writing
from verl_video_tools.core.files import write_text

FOLDER = "published_code"
"""Folder below that of an evaluation, for the texts as files."""


@dataclass(frozen=True, kw_only=True)
class PublishedCode:
    """The code of a method's authors.

    Attributes:
        repository: address.
        commit: its files are read.
        checkpoints: names on the hub of the checkpoints that were trained with it.
        files: SHA-256 of each file that is read, by its path.
    """

    repository: str
    commit: str
    checkpoints: list[str]
    files: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class PublishedTexts:
    """What a released checkpoint reads.

    Attributes:
        code: where it was read.
        prompt: system prompt.
        templates: messages by their names in the method's templates.
        serve_options: of `vllm serve`, such as the chat template.
    """

    code: PublishedCode
    prompt: str
    templates: Mapping[str, str]
    serve_options: Mapping[str, Any]

    def write(self, folder: Path, method: str) -> dict[str, Any]:
        """Write the texts as files of a method.

        Returns:
            The fields of its config that take them.

        Raises:
            UsageError: the folder cannot be written.
        """
        prompt, templates = folder / f"{method}_prompt.txt", folder / f"{method}_templates.toml"
        lines = [f"{name} = {json.dumps(text, ensure_ascii=False)}\n" for name, text in self.templates.items()]
        with writing(folder, "give another --out"):
            folder.mkdir(parents=True, exist_ok=True)
            write_text(prompt, self.prompt)
            write_text(templates, "".join(lines))  # a JSON string is a basic string of TOML
        return {"compat": "reference", "prompt_file": str(prompt), "templates_file": str(templates)}


def read_published_texts(method: str, code: PublishedCode, checkout: Path) -> PublishedTexts:
    """Read the texts of a method from a checkout of its code.

    Raises:
        UsageError: a file is missing, or is not that of the commit.
    """
    files = {name: _checked_text(checkout, name, code) for name in code.files}
    prompt, templates, serve_options = _READERS[method](files)
    return PublishedTexts(code=code, prompt=prompt, templates=templates, serve_options=serve_options)


_Texts = tuple[str, Mapping[str, str], Mapping[str, Any]]
"""Prompt, templates and options of `vllm serve`."""


def _checked_text(checkout: Path, name: str, code: PublishedCode) -> str:
    try:
        content = (checkout / name).read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {checkout / name}: {error.strerror}; --published-code takes a checkout of {code.repository}"
        ) from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != code.files[name]:
        raise UsageError(
            f"{checkout / name} is not the file of commit {code.commit}: its SHA-256 is {digest}, expected "
            f"{code.files[name]}; run `git checkout {code.commit}` there"
        )
    return content.decode()


# ------------------------------------------------------------------------------------------------- texts in Python code


def _written(node: ast.expr) -> str:
    """The text that an expression gives, with ``{expression}`` where a value stands; of a choice the first."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(_written, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _written(left) + _written(right)
        case ast.FormattedValue(value=value):
            return f"{{{ast.unparse(value)}}}"
        case ast.IfExp(body=body):
            return _written(body)
    return f"{{{ast.unparse(node)}}}"


def _function(code: str, name: str) -> ast.AST:
    functions = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return next(function for function in functions if function.name == name)


def _in_order(tree: ast.AST) -> list[ast.AST]:
    return sorted(ast.walk(tree), key=lambda node: getattr(node, "lineno", 0))


def _assigned(tree: ast.AST, name: str) -> list[ast.expr]:
    """What is assigned or added to a variable, in the order of the lines."""
    values = []
    for node in _in_order(tree):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=target)], value=value)
                | ast.AugAssign(target=ast.Name(id=target), value=value)
            ) if target == name:
                values.append(value)
    return values


def _raised(tree: ast.AST) -> list[str]:
    """The texts of exceptions that are raised, in the order of the lines."""
    return [
        _written(node.exc.args[0])
        for node in _in_order(tree)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args
    ]


def _renamed(text: str, **names: str) -> str:
    """A text with the method's names of its values in place of the code's."""
    for name, expression in names.items():
        text = text.replace(f"{{{expression}}}", f"{{{name}}}")
    return text


# --------------------------------------------------------------------------------------------------------- VideoZoomer

_SYSTEM_PROMPT = re.compile(r"'(data\.system_prompt=.*?)'", re.DOTALL)
_USER_HEADER = "<|im_start|>user\n"


def _videozoomer(files: Mapping[str, str]) -> _Texts:
    """The prompt of scripts/eval_video.sh, and the messages of the asynchronous engine, by which it evaluates."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    folder = "verl/workers/rollout/vllm_rollout/"
    script, engine, tools = (
        files[name] for name in ("scripts/eval_video.sh", f"{folder}vllm_async_engine.py", f"{folder}function_tools.py")
    )
    override = _SYSTEM_PROMPT.search(script)
    assert override is not None  # the digest says so
    # Hydra reads the shell's word: of its escapes only those of quotation marks are resolved.
    prompt = str(OverridesParser.create().parse_override(override[1]).value())

    turn = _function(engine, "process_tool_call")
    messages = [_written(value) for value in _assigned(turn, "tool_call_prompt_message")]
    shown, last_shown, _, failed, last_failed, _ = (message.removeprefix(_USER_HEADER) for message in messages)
    advice = failed.removeprefix("{tool_outputs}")
    unreadable = _renamed(_written(_assigned(turn, "tool_outputs")[0]), error="error_info") + advice
    clip = _function(tools, "extract_video_clip")
    returned = [node.value for node in _in_order(clip) if isinstance(node, ast.Return)]
    refused = next(_written(value) for value in returned if isinstance(value, ast.JoinedStr))
    refusal = _renamed(refused, error="e") + advice
    observation = _renamed(shown, frames="vision_pad")
    (no_numbers,) = _raised(_function(tools, "prepare_tool_call_inputs_video"))
    templates = {
        "observation": observation,
        "observation_last": observation + last_shown,
        "refusal": refusal,
        "refusal_last": refusal + last_failed,
        "unreadable": unreadable,
        "unreadable_last": unreadable + last_failed,
        "too_many_frames": _renamed(_written(_assigned(clip, "error_msg")[0]), num_frames="extract_frame_num"),
        "no_numbers": _renamed(no_numbers, reason="e", request="json_objects[0]"),
    }
    return prompt, templates, {}


# -------------------------------------------------------------------------------------------------------------- LongVT

_CHECKS = (
    *("path_missing", "start_missing", "end_missing", "path_empty", "start_negative", "end_not_after_start"),
    *("file_missing", None, "start_beyond", "end_beyond", None),
)
"""Templates of the errors that the published tool raises, in their order; None: those that cannot occur here."""


def _longvt(files: Mapping[str, str]) -> _Texts:
    """The dialogue of examples/eval, with the instruction of the benchmarks and the tool's own errors. The list of
    tools is what the published chat template writes for the schema of examples/eval/single_inference.py."""
    from transformers.utils.chat_template_utils import render_jinja_template

    inference = ast.parse(files["examples/eval/single_inference.py"])
    schema = ast.literal_eval(_assigned(inference, "CROP_VIDEO_TOOL")[0])
    (instruction,) = map(_written, _assigned(ast.parse(files["lmms_eval_tasks/longvt/utils.py"]), "TOOL_PROMPT"))
    choices = [_written(node.body) for node in _in_order(inference) if isinstance(node, ast.IfExp)]
    question = next(text for text in choices if "{TOOL_PROMPT}" in text).replace("{TOOL_PROMPT}", instruction)

    template = files["examples/eval/tool_call_qwen2_5_vl.jinja"]
    messages = [{"role": "user", "content": "question"}]
    rendered = render_jinja_template([messages], tools=[schema], chat_template=template)[0][0]
    prompt = rendered.partition("<|im_start|>system\n")[2].partition("<|im_end|>")[0]

    (success,) = map(_written, _assigned(_function(files["custom_tools/video_tools.py"], "execute"), "success_msg"))
    errors = _raised(_function(files["examples/video_tools/mcp_server.py"], "crop_video"))
    names = {"path": "video_path", "start": "start_time", "end": "end_time"}
    templates = {
        "user": "{frames}" + _renamed(question, path="video_path"),
        "observation": f"<tool_response>\n{{frames}}{success}</tool_response>",
        **{name: _renamed(text, **names) for name, text in zip(_CHECKS, errors, strict=True) if name is not None},
    }
    # The published template renders calls and replies anew, from `tool_calls` and messages of a tool. The packaged one
    # puts its line breaks around the texts of this loop.
    serve_options = {"chat-template": str(config_path("longvt-template")), "chat-template-content-format": "openai"}
    return prompt, templates, serve_options


_READERS = {"videozoomer": _videozoomer, "longvt": _longvt}
