"""Methods by name, and what is said about names, fields and values that do not exist."""

import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.method import zero_reward
from verl_video_tools.data.rows import RowMethods
from verl_video_tools.methods import METHOD_NAMES, get_method
from verl_video_tools.methods.framethinker import FrameThinker


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_every_name_gives_its_method(name: str) -> None:
    method = get_method(name)
    assert method.name == name
    assert zero_reward(method).keys() == {"score", *method.reward_components}


def test_overrides() -> None:
    fields = {"max_turns": 3, "time_bonus": 1, "box": [320, 180], "max_turn_tokens": None, "compat": "reference"}
    method = get_method("framethinker", **fields)
    assert isinstance(method, FrameThinker)
    assert (method.max_turns, method.box, method.max_turn_tokens) == (3, (320, 180), None)
    assert method.compat == "reference"
    assert isinstance(method.time_bonus, float)


def test_a_field_has_its_name_in_a_runs_configuration_too() -> None:
    assert get_method("longvt", **{"video_tools.longvt.initial_frames": 9}) == get_method("longvt", initial_frames=9)
    with pytest.raises(UsageError, match=r"no field 'video_tools\.framethinker\.max_turns'"):
        get_method("longvt", **{"video_tools.framethinker.max_turns": 3})
    methods = RowMethods(settings={"video_tools.framemind.rung": 2, "video_tools.longvt.initial_frames": 9})
    assert (methods.of("framemind"), methods.of("longvt")) == (
        get_method("framemind", rung=2),
        get_method("longvt", initial_frames=9),
    )


def test_a_method_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        get_method("framethinker").max_turns = 3


def test_unknown_method_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no method 'framethink'; choose one of: .*framethinker"):
        get_method("framethink")


def test_unknown_field_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no field 'turns'; its fields are: .*max_turns"):
        get_method("framethinker", turns=3)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_turns", "5"),
        ("max_turns", 2.5),
        ("max_turns", True),
        ("max_turns", None),
        ("max_turns", 0),
        ("max_turn_tokens", 0),
        ("time_bonus", "0.5"),
        ("time_bonus", False),
        ("ccv", 1),
        ("ccv", "yes"),
        ("compat", "strictly"),
        ("bonus_condition", True),
        ("box", 640),
        ("box", [640]),
        ("box", [640, 0]),
        ("box", "64"),
        ("prompt_file", 7),
        ("turn_bonus", -0.2),
        ("tool_deadline_seconds", 0),
    ],
)
def test_wrong_values_are_named(field: str, value: object) -> None:
    with pytest.raises(UsageError, match=rf"FrameThinker\.{field} .*got"):
        get_method("framethinker", **{field: value})


def test_names_cost_no_heavy_import() -> None:
    """Every Ray worker imports the table of names."""
    code = (
        "import sys; import verl_video_tools.methods; "
        "heavy = {'av', 'torch', 'transformers', 'verl', 'vllm'} & set(sys.modules); "
        "print(sorted(heavy)); sys.exit(bool(heavy))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_list_without_quotes_is_told_to_be_json() -> None:
    with pytest.raises(UsageError, match=r"got '\[uniform_sample\]'; a list is written as JSON"):
        get_method("videobrain", tool_names="[uniform_sample]")
