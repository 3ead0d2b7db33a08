"""The vLLM that is installed does what our front end leans on; differences between versions are in `front_end_facts`.

What needs no vLLM, the names of images and which of them are fetched, is in `test_shared_images`. Whole requests are
compared in tests/integration/test_front_end.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.verl_plugin.own_process import last_line_of
from verl_video_tools.core.machine import module_exists
from verl_video_tools.synthetic import FAMILIES, Family, base_model_dir

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not all(map(module_exists, ("verl", "vllm"))), reason="the pinned environment is not installed"),
]


@pytest.fixture(scope="module", params=FAMILIES)
def facts(request: pytest.FixtureRequest) -> dict[str, Any]:
    family: Family = request.param
    program = ("-m", "tests.verl_plugin.front_end_facts", str(base_model_dir(family)))
    found: dict[str, Any] = json.loads(last_line_of(*program, VLLM_CPU_KVCACHE_SPACE="1"))
    return found


def test_images_are_looked_up_under_the_names_that_the_request_has(facts: dict[str, Any]) -> None:
    without_settings, with_settings = facts["hashes"]
    assert without_settings == {"equal": True, "plain": True}
    assert with_settings == {"equal": True, "plain": False}  # one image under two settings is two


def test_a_request_of_several_pieces_is_the_one_that_vllm_makes(facts: dict[str, Any]) -> None:
    """With all images new, and with all in the cache."""
    assert facts["prepared"] and not [name for name, is_equal in facts["prepared"].items() if not is_equal]


def test_vllm_places_few_images_at_a_time(facts: dict[str, Any]) -> None:
    """vLLM 0.24 takes time in the square of what it places at once. A prompt with other placeholders stays whole."""
    assert facts["pieces"] == {"most": 16, "whole": True, "counted": True, "odd_stays_whole": True}


def test_a_vllm_with_another_interface_prepares_requests_itself(facts: dict[str, Any]) -> None:
    assert facts["other_interface"] == {
        "lines": 1,
        "names_what_is_missing": True,
        "outputs": ["output"],
        "same_images": True,
        "rest": True,
    }


def test_the_vision_tower_computes_on_the_pixel_values_of_the_actors_processor(facts: dict[str, Any]) -> None:
    """vLLM may normalise them on the device (0.29: Qwen2.5-VL): then 8 bits are sent, exactly."""
    found = facts["tower_inputs"]
    assert found["sent_dtype"] == ("uint8" if found["on_device"] else "float32")
    assert found["difference"] <= 1e-6
    assert found.get("kept_by_a_reload", True)


def test_a_request_without_references_reaches_the_engine_as_it_is(facts: dict[str, Any]) -> None:
    assert facts["passed_through"]


def test_no_request_is_prepared_while_caches_are_cleared(facts: dict[str, Any]) -> None:
    """vLLM clears the cache of this process, then that of its core: a request between counts on images of one only."""
    assert facts["cleared"]["during"] == []
    assert facts["cleared"]["after"] == ["pause_generation", "sleep", "reset_mm_cache"]


def test_a_model_without_images_keeps_vllms_front_end(facts: dict[str, Any]) -> None:
    """As a judge's, which verl may serve."""
    assert not facts["wraps_text_model"]
