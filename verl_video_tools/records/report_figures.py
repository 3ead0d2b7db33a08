"""Panels as images: one PNG for the main ones, an SVG of each for the page. Drawn by matplotlib without a display."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from verl_video_tools.core.environment import NEEDED, install_command
from verl_video_tools.core.errors import SetupError
from verl_video_tools.core.types import StopReason
from verl_video_tools.records.report_panels import Curve, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PNG_WIDTH, PNG_HEIGHT = 1440, 1560
"""Pixels of the PNG; at half of it, as in a README, its text can still be read."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""By Okabe and Ito (https://jfly.uni-koeln.de/color/), which readers with any colour vision tell apart."""
MIN_STEPS_TO_SMOOTH = 30
"""A shorter curve is drawn as it is, with a point for each value."""

_DPI = 160
_INK, _SOFT, _GRID, _PAPER = "#1c2430", "#5b6675", "#d9dde4", "#fefefe"
_DARK = {_INK: "#e4e8ee", _SOFT: "#9aa6b5", _GRID: "#333c49", _PAPER: "#14181f"}
"""Colours that the SVG changes with the reader's scheme."""
_STOP_COLOURS = {
    StopReason.ANSWER: "#009e73",
    StopReason.MAX_TURNS: "#0072b2",
    StopReason.NO_ACTION: "#8a8f98",
    StopReason.INVALID_ACTION: "#d55e00",
    StopReason.PROMPT_BUDGET: "#f0e442",
    StopReason.RESPONSE_BUDGET: "#e69f00",
    StopReason.IMAGE_BUDGET: "#a6761d",
    StopReason.SCRIPT_EXHAUSTED: "#c8ccd2",
    StopReason.VIDEO_ERROR: "#cc79a7",
    StopReason.ABORTED: "#56b4e9",
}
_STYLE: Any = {
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.1,
    "figure.constrained_layout.wspace": 0.04,
    "figure.constrained_layout.hspace": 0.04,
    "font.size": 9,
    "text.color": _INK,
    "text.parse_math": False,  # names may hold dollar signs
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": _INK,
    "axes.titlepad": 8,
    "axes.facecolor": "none",
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _SOFT,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.xmargin": 0.02,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "xtick.color": _SOFT,
    "xtick.major.size": 3,
    "ytick.color": _SOFT,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 2.0,
    "legend.labelcolor": _INK,
    "svg.fonttype": "path",
    "svg.hashsalt": "verl_video_tools",
}
_DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_LABEL_CHARACTERS = 48
_SHARE_TOPS = (0.1, 0.25, 0.5, 1.0)
"""Where the axis of a share may end."""
_BELOW: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (-0.02, -0.19)}


def curves_png(panels: Sequence[Panel], names: Sequence[str]) -> bytes:
    """Six panels, two in a row, in one image of `PNG_WIDTH` by `PNG_HEIGHT` pixels on white.

    Args:
        names: of the runs; with several, each has a colour.

    Raises:
        SetupError: matplotlib is not installed.
    """
    with _style():
        figure = _figure(PNG_WIDTH / _DPI, PNG_HEIGHT / _DPI)
        figure.set_facecolor("white")
        for axes, panel in zip(figure.subplots(3, 2).flat, panels, strict=True):
            _draw(axes, panel, len(names))
            handles = _series_handles(panel, len(names))
            _add_legend(axes, handles, _BELOW | {"ncols": min(3, len(handles))})
        if len(names) > 1:
            runs = [_handle(_colour(number)) for number in range(len(names))]
            labels = [plain(name) for name in names]
            figure.legend(
                runs, labels, loc="outside upper left", ncols=min(4, len(names)), fontsize=10, borderaxespad=0.2
            )
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=_DPI, metadata={"Software": None})
    return file.getvalue()


def panel_svg(panel: Panel, names: Sequence[str]) -> bytes:
    """One panel, with a legend of its own, in the colours of the reader's scheme.

    Raises:
        SetupError: matplotlib is not installed.
    """
    with _style():
        figure = _figure(5.2, 3.2)
        figure.patch.set_alpha(0.0)
        axes = figure.subplots()
        _draw(axes, panel, len(names))
        runs = [(_handle(_colour(number)), name) for number, name in enumerate(names)]
        handles = [*(runs if len(names) > 1 and not panel.whole else []), *_series_handles(panel, len(names))]
        _add_legend(axes, handles, _BELOW | {"ncols": min(3, len(handles))})
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    # Of a path's coordinates, six decimals each, two are more than a screen shows, and half the size.
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), file.getvalue().decode())
    return _with_schemes(svg).encode()


def colour_of_run(number: int) -> str:
    """Colour of a run among several, counted from 0."""
    return _colour(number)


def moving_average(values: Sequence[float], window: int) -> npt.NDArray[np.float64]:
    """Mean over a window around each value; at the ends over as much of it as there is."""
    ones = np.ones(window)
    sums = np.convolve(values, ones, mode="full")
    counts = np.convolve(np.ones(len(values)), ones, mode="full")
    first = (window - 1) // 2
    average: npt.NDArray[np.float64] = (sums / counts)[first : first + len(values)]
    return average


def smoothing_window(num_steps: int) -> int:
    """Steps that the moving average of a curve takes in; 1 for a short curve."""
    return 1 if num_steps < MIN_STEPS_TO_SMOOTH else 2 * (num_steps // 40) + 5


def plain(text: str) -> str:
    """A name on one line, without what cannot be printed, not too long."""
    line = "".join(character if character.isprintable() else "\ufffd" for character in " ".join(text.split()))
    return line if len(line) <= _LABEL_CHARACTERS else line[: _LABEL_CHARACTERS - 1] + "…"


# ------------------------------------------------------------------------------------------------------------ drawing


@contextmanager
def _style() -> Iterator[None]:
    try:
        import matplotlib
    except ImportError as error:
        (package,) = (package for package in NEEDED if package.distribution == "matplotlib")
        raise SetupError(f"figures need matplotlib, which is not there: {install_command(package)}") from error
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a policy may name tools in any script
        yield


def _figure(width_inches: float, height_inches: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width_inches, height_inches), layout="constrained")


def _draw(axes: Axes, panel: Panel, num_runs: int) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axes.set_title(plain(panel.title))
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    if panel.share:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    if not any(panel.curves):
        axes.text(
            0.5, 0.5, "none recorded in training", transform=axes.transAxes, ha="center", va="center", color=_SOFT
        )
        axes.set(xticks=[], yticks=[], xlabel="")
        return
    if panel.whole:
        _draw_whole(axes, panel)
        axes.set_ylim(0, 1)
    else:
        _draw_curves(axes, panel, num_runs)
        most = max((value for curves in panel.curves for curve in curves for value in curve.values), default=0.0)
        if panel.share:
            axes.set_ylim(0, next((top for top in _SHARE_TOPS if most <= top), 1.0))
        elif panel.from_zero:
            axes.set_ylim(0, axes.get_ylim()[1] if most > 0 else 1.0)
    steps = {step for curves in panel.curves for curve in curves for step in curve.steps}
    if len(steps) == 1:
        (step,) = steps
        axes.set_xlim(step - 1, step + 1)
        axes.set_xticks([step])


def _draw_curves(axes: Axes, panel: Panel, num_runs: int) -> None:
    labels = panel.labels()
    for number, curves in enumerate(panel.curves):
        for curve in curves:
            series = labels.index(curve.label)
            colour, dashes = _look(series, number, num_runs)
            window = smoothing_window(len(curve.steps))
            if window > 1:
                axes.plot(curve.steps, curve.values, color=colour, linewidth=0.8, alpha=0.28)
            marker = "o" if window == 1 else ""
            averaged = moving_average(curve.values, window)
            axes.plot(
                curve.steps,
                averaged,
                color=colour,
                linestyle=dashes,
                linewidth=1.8,
                marker=marker,
                markersize=3.5,
                clip_on=False,
            )


def _draw_whole(axes: Axes, panel: Panel) -> None:
    (curves,) = panel.curves
    steps = np.array(curves[0].steps)
    window = smoothing_window(len(steps))
    shares = [moving_average(curve.values, window) for curve in curves]
    colours = [_stop_colour(curve) for curve in curves]
    axes.set_axisbelow(False)
    if window > 1:
        axes.stackplot(steps, *shares, colors=colours, linewidth=0)
        axes.set_xlim(steps[0], steps[-1])
        return
    width = 0.85 * (np.diff(steps).min() if len(steps) > 1 else 1.0)
    below = np.zeros(len(steps))
    for share, colour in zip(shares, colours, strict=True):
        axes.bar(steps, share, width, bottom=below, color=colour, linewidth=0)
        below = below + share


def _series_handles(panel: Panel, num_runs: int) -> list[tuple[Any, str]]:
    """What tells the curves of one run apart, where there are several."""
    if panel.whole:
        return [(_patch(_stop_colour(curve)), curve.label) for curve in panel.curves[0]]
    labels = panel.labels()
    looks = [_look(series, 0, num_runs) for series in range(len(labels))] if len(labels) > 1 else []
    return [
        (_handle(colour if num_runs == 1 else _SOFT, dashes), label)
        for (colour, dashes), label in zip(looks, labels, strict=False)
    ]


def _add_legend(axes: Axes, handles: Sequence[tuple[Any, str]], place: Mapping[str, Any]) -> None:
    if handles:
        artists, labels = [artist for artist, _ in handles], [plain(label) for _, label in handles]
        axes.legend(artists, labels, borderaxespad=0.0, columnspacing=1.2, **place)


def _look(series: int, number: int, num_runs: int) -> tuple[str, Any]:
    """Colour and dashes: of one run the curves have colours, of several each run has one."""
    if num_runs == 1:
        return _colour(series), "-" if series < len(COLOURS) else _DASHES[1]
    return _colour(number), _DASHES[series % len(_DASHES)]


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _stop_colour(curve: Curve) -> str:
    return _STOP_COLOURS[StopReason(curve.label.replace(" ", "_"))]


def _handle(colour: str, dashes: Any = "-") -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, linestyle=dashes, linewidth=2.2)


def _patch(colour: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=colour, linewidth=0)


def _with_schemes(svg: str) -> str:
    """Exchange the colours of ink and grid for variables that follow the reader's scheme."""
    names = {colour: f"--c{number}" for number, colour in enumerate(_DARK)}
    light = ";".join(f"{name}:{colour}" for colour, name in names.items())
    dark = ";".join(f"{names[colour]}:{value}" for colour, value in _DARK.items())
    svg = re.sub("|".join(names), lambda match: f"var({names[match[0]]})", svg)
    style = f"<style>:root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}</style>"
    begin = svg.index(">", svg.index("<svg ")) + 1
    return svg[:begin] + style + svg[begin:]
