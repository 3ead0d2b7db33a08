"""Write docs/comparable.md from the protocol profiles: python docs/make_comparable.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.evaluation.protocols import FIELD, SUBTITLES, Protocol, Value, option_of
from verl_video_tools.evaluation.published_protocols import PROTOCOLS

PAGE = Path(__file__).parent / "comparable.md"

_HEAD = """# Comparable with published numbers

A number stands beside a published one only where both were measured alike. `--protocol NAME` of
[`vvt eval`](evaluation.md) takes frames, pixels, sampling, extractor and inference policy of a published evaluation. An
option that you give comes before it; it is told, and stands beside the published value in `published_protocol` of
`protocol.json`. `vvt list protocols` prints the names, and with a name its values, their sources and what stays
different.

```bash
vvt eval --protocol videozoomer --benchmark mlvu-dev --annotations MLVU/json --videos MLVU/video \\
    --serve checkpoints/huggingface --out results/zoomer-mlvu
```

A table with a number of frames for each row leaves it to you (`--set initial_frames=N`). What no profile sets is yours,
too: the model, with an endpoint of yours also its `--processor`; `--annotations` and
`--videos`; the folder of `--subtitles` where the table shows them; the address of a judge where questions are open;
`--retrieval` for frames by text. Compare `accuracy_published` with the paper's figure;
[Evaluation](evaluation.md#published-extractors) says how it differs from ours. This page is made from the profiles by
`python docs/make_comparable.py`.

"""


def page() -> str:
    """The whole page."""
    return _HEAD + "\n".join([*_overview(), "", *(line for each in PROTOCOLS.values() for line in _section(each))])


def _overview() -> Iterator[str]:
    yield "| protocol | method | frames | turns | pixels of a frame | sampling | extractor |"
    yield "| --- | --- | --- | ---: | --- | --- | --- |"
    for protocol in PROTOCOLS.values():
        values = {name: value.value for name, value in protocol.values.items()}
        cells = [
            f"[`{protocol.name}`](#{protocol.name})",
            f"`{protocol.method}`",
            _frames(values),
            str(values.get(f"{FIELD}max_turns", 1)),
            _range(values),
            _sampling(values),
            _extractor(protocol),
        ]
        yield "| " + " | ".join(cells) + " |"


def _frames(values: Mapping[str, Any]) -> str:
    if f"{FIELD}video_fps" in values:
        return f"{values[f'{FIELD}video_fps']:g} a second, at most {values[f'{FIELD}max_video_frames']}, as a video"
    if f"{FIELD}initial_frames" not in values:
        return "each row's, given by you"
    first, call = values[f"{FIELD}initial_frames"], values.get(f"{FIELD}call_frames")
    long = values.get(f"{FIELD}initial_frames_long")
    shown = f"{first}" if long is None else f"{first}, long videos {long}"
    return shown if call is None else f"{shown}; {call} a call"


def _range(values: Mapping[str, Any]) -> str:
    if "max_pixels" not in values:
        return "the method's"
    return f"{values['min_pixels']:,} to {values['max_pixels']:,}"


def _sampling(values: Mapping[str, Any]) -> str:
    temperature = values.get("temperature", 0)
    told = "greedy" if temperature == 0 else f"temperature {temperature}"
    told += f", top_p {values['top_p']}" if "top_p" in values else ""
    return told + (f"; {values['attempts']} attempts" if "attempts" in values else "")


def _extractor(protocol: Protocol) -> str:
    if "extractor" in protocol.values:
        return f"`{protocol.values['extractor'].value}`"
    some = any("extractor" in values for values in protocol.for_benchmark.values())
    return "`lmms-eval-2025/...` where there is one" if some else "the benchmark's"


def _section(protocol: Protocol) -> Iterator[str]:
    yield f"## {protocol.name}"
    yield ""
    yield f"{protocol.about}. Results: {protocol.table}, of {', '.join(f'`{name}`' for name in protocol.benchmarks)}."
    yield ""
    yield "| option | value | source |"
    yield "| --- | --- | --- |"
    yield from _rows(protocol.values, "")
    yield from (
        f"| `{option_of(name)}` | each row's, given by you | {source} |" for name, source in protocol.by_row.items()
    )
    for benchmark, values in protocol.for_benchmark.items():
        yield from _rows(values, f", `{benchmark}`")
    yield f"| prompt | {protocol.prompt} | |"
    yield f"| judge | {protocol.judge} | |"
    yield ""
    yield "Cannot be matched:"
    yield ""
    yield from (f"- {reason}" for reason in protocol.cannot_match)
    yield ""


def _rows(values: Mapping[str, Value], suffix: str) -> Iterator[str]:
    for name, value in values.items():
        if name == SUBTITLES:
            yield f"| subtitles{suffix} | {'shown' if value.value else 'not shown'} | {value.source} |"
        else:
            yield f"| `{option_of(name)}`{suffix} | {_shown(value.value)} | {value.source} |"


def _shown(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = " ".join(value)
    return f"`{value}`" if isinstance(value, str) else str(list(value) if isinstance(value, tuple) else value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
