"""What examples tell to run: verl accepts the options, files are there, and the list of examples is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from verl.trainer.ppo.utils import need_reference_policy
from verl.utils.config import validate_config

from tests.examples.conftest import EXAMPLES
from verl_video_tools import methods
from verl_video_tools.verl_plugin.run_checks import compose_run

READMES = sorted(EXAMPLES.glob("*/README.md"))


@pytest.mark.slow
@pytest.mark.parametrize("readme", READMES, ids=lambda readme: readme.parent.name)
def test_options_exist_and_files_are_there(readme: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if the example's package were installed.
    monkeypatch.setitem(methods.REGISTERED, "frugal", "examples.add_a_method.frugal:Frugal")
    text = readme.read_text()
    for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL):
        words = block.replace("\\\n", " ").split()
        if not (options := [word for word in words if re.match(r"\+{0,2}\w+(\.\w+)+=", word)]):
            continue
        groups = [f"+video_tools={name}" for name in re.findall(r"recipes/(\w+_grpo)\.sh", block)]
        plain = [re.sub(r'"|\$\(vvt', "", option).replace("$PWD", str(EXAMPLES.parent)) for option in options]
        config = compose_run("grpo", [*groups, *plain])  # raises for an option that does not exist
        if any(option.startswith("data.train_files=") for option in plain):  # a whole command: verl checks it first
            validate_config(config, need_reference_policy(config), use_critic=False)
    named = set(re.findall(r"examples/[\w/]+(?:\.\w+)?", text))
    assert [name for name in named if not (EXAMPLES.parent / name).exists()] == []


def test_the_list_names_every_example() -> None:
    listed = re.findall(r"^\| \[`([\w/]+)`\]\((\S+)\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    folders = {*EXAMPLES.iterdir(), *(EXAMPLES / "papers").iterdir()} - {EXAMPLES / "papers"}
    expected = sorted(str(path.relative_to(EXAMPLES)) for path in folders if path.is_dir())
    assert sorted(name for name, _ in listed) == expected
    assert all((EXAMPLES / target).is_file() for _, target in listed)
