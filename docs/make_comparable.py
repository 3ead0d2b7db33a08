"""Write docs/comparable.md from the protocol profiles: python docs/make_comparable.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.evaluation.protocols import FIELD, OWN_FRAMES, OWN_PROMPT, SUBTITLES, Protocol, Value, option_of
from verl_video_tools.evaluation.published_protocols import PROTOCOLS

PAGE = Path(__file__).parent / "comparable.md"

_HEAD = """# Comparable with published numbers

`vvt eval --protocol NAME` sets frames, pixels, sampling, extractor and inference policy of a published evaluation.
Options that you give take precedence; `published_protocol` in `protocol.json` records both values. `vvt list protocols`
lists the names; `vvt list protocols NAME` prints values, sources and remaining differences.

```bash
vvt eval --protocol videozoomer --benchmark mlvu-dev --annotations MLVU/json --videos MLVU/video \\
    --serve checkpoints/huggingface --out results/zoomer-mlvu
```

You supply what no profile sets:

| for | give |
|---|---|
| the model | `--serve`, or an endpoint and its `--processor` |
| the data | `--annotations`, `--videos`; `--subtitles` where the table shows them |
| tables with frames per row | `--set initial_frames=N` |
| open questions; frames by text | a judge's address; `--retrieval` |

Compare `accuracy_published` with the paper; [how it differs from `accuracy`](evaluation.md#published-extractors).

## Always different

- **Prompts** are in our own words ([why](decisions/own-prompts.md)).
- **Frames** are decoded and scaled by our reader, by presentation time. Published code differs in single frames.

## Protocols

<!-- protocols: begin -->
"""
_END = "<!-- protocols: end -->\n"
_COMMON = {OWN_PROMPT: "prompts", OWN_FRAMES: "frames"}
"""What the head says once of all profiles that have it."""


def page() -> str:
    """The whole page."""
    sections = (line for each in PROTOCOLS.values() for line in _section(each))
    return _HEAD + "\n".join([*_overview(), "", *sections, _END])


def _overview() -> Iterator[str]:
    yield "| protocol | method | frames | sampling | extractor |"
    yield "| --- | --- | --- | --- | --- |"
    for protocol in PROTOCOLS.values():
        values = {name: value.value for name, value in protocol.values.items()}
        cells = [
            f"[`{protocol.name}`](#{protocol.name})",
            f"`{protocol.method}`",
            _frames(values),
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
    yield f"### {protocol.name}"
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
    if common := [word for reason, word in _COMMON.items() if reason in protocol.cannot_match]:
        yield f"- {' and '.join(common)}, see [above](#always-different)"
    yield from (f"- {reason}" for reason in protocol.cannot_match if reason not in _COMMON)
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
