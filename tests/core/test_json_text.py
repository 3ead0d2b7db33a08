"""JSON objects amid other words: which there are, and that no text takes long."""

import json
import random
from typing import Any

import pytest

from verl_video_tools.core.json_text import json_objects, located_json_objects

PIECES = [
    *[
        '{"a":',
        '"l{"',
        '"',
        '\\"',
        "null",
        "0.5",
        "x",
        '{"label": "correct"}',
        '"b\\u00e9"',
        '"\\x"',
        "01",
        "1e5",
        "NaN",
    ],
    *["{", "}", "[", "]", ":", ",", "1", " ", "\n", '"a"', '{"a": {"b": [1, {"c": 2}]}}', "\\", "-", "// no JSON"],
]


def by_decoder(text: str) -> list[dict[str, Any]]:
    """Asked at every brace, which is right and takes time as the square of the text's length."""
    found, position = [], text.find("{")
    while position >= 0:
        end = position + 1
        try:
            one, end = json.JSONDecoder().raw_decode(text, position)
            found.append(one)
        except ValueError:
            pass
        position = text.find("{", end)
    return found


@pytest.mark.slow
def test_the_objects_that_the_decoder_finds() -> None:
    generator = random.Random(7)
    for _ in range(5_000):
        text = "".join(generator.choices(PIECES, k=generator.randrange(1, 14)))
        assert repr(list(json_objects(text))) == repr(by_decoder(text)), text


def test_where_they_are() -> None:
    text = 'So {this}: {"a": [{"b": 1}]}, and {"c": {"d": 2}, "e": }.'
    assert [(found, text[start:end]) for found, start, end in located_json_objects(text)] == [
        ({"a": [{"b": 1}]}, '{"a": [{"b": 1}]}'),
        ({"d": 2}, '{"d": 2}'),
    ]


def test_objects_with_half_a_surrogate_pair_or_too_many_levels_are_skipped() -> None:
    assert list(json_objects('{"a": "\\ud800"} {"a": 1}')) == [{"a": 1}]
    assert len(list(json_objects('{"a":' * 100 + "1" + "}" * 100))) == 1
    assert list(json_objects('{"a":' * 50_000 + "1" + "}" * 50_000)) == []


@pytest.mark.slow
@pytest.mark.timeout(15)
@pytest.mark.parametrize(
    "piece", ["{", '{"', '{"a":', '{"a":[', '{"a{', '{\\"', '{"a":1,', '{"a":1} {', "{\n", '{"k{":":","', "{ \t"]
)
def test_long_texts_take_time_in_proportion_to_their_length(piece: str) -> None:
    """A quarter of a million characters; half a minute if each brace read the rest of the text."""
    text = piece * (250_000 // len(piece))
    assert list(json_objects(text + ' {"label": "correct"}'))[-1:] in ([{"label": "correct"}], [])
