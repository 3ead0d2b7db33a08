"""What `vvt doctor` looks at: one small function per question, each answering with `Check`s and never raising.

Nothing heavy is imported here; packages are judged by their metadata and by whether their module can be found. Only
`check_plugin` imports verl, as every training process does, and `check_cuda` asks torch in a process of its own.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import resource
import shutil
import sys
from collections.abc import Callable

from verl_video_tools.core.check import Check, Status, one_line
from verl_video_tools.core.environment import (
    ENGINES,
    FLASH_ATTENTION,
    ONLY_ON_A_GPU,
    PackagePin,
    install_command,
    installed_version,
    list_gpus,
    module_exists,
    of_installed_stack,
    python_error,
)
from verl_video_tools.core.errors import VideoToolsError

MIN_SHARED_MEMORY_BYTES = 2**30
"""Ray's object store and the weight transfer use /dev/shm; containers often give it 64 MiB."""
FRAME_CACHE_GB = 4
"""Most that the frame cache takes of /dev/shm by default."""
LOADER_GB = 16
"""Most that a cold start's loaders take of /dev/shm by default."""
MIN_OPEN_FILES = 4096
"""Ray and vLLM open a few hundred sockets and pipes per worker; the usual default of 1024 runs out."""


def check_package(package: PackagePin, group: str = "packages") -> Check:
    """Whether a needed package is there, in the tested version."""
    package = of_installed_stack(package)
    found = installed_version(package.distribution)
    name, fix = package.distribution, install_command(package)
    if found is None:
        return Check(group, name, Status.FAILED, detail=f"not installed, needs {package.version}", fix=fix)
    if not module_exists(package.module):
        detail = f"its metadata is there, but the module {package.module!r} is not"
        return Check(group, name, Status.FAILED, found, detail, f"{fix} --reinstall-package {name}")
    if found.partition("+")[0] == package.version:  # builds for CUDA or CPU differ after the plus sign
        return Check(group, name, Status.OK, found)
    if package.exact:
        return Check(group, name, Status.FAILED, found, f"wrong version, needs {package.version}", fix)
    return Check(group, name, Status.UNTESTED, found, f"tested with {package.version}")


def check_optional(extra: str, package: PackagePin) -> Check:
    """An optional package: its absence is fine."""
    if installed_version(package.distribution) is None:
        return Check("optional", package.distribution, Status.ABSENT, detail=f"extra {extra!r}")
    check = check_package(package, group="optional")
    if check.status is Status.FAILED:
        return Check("optional", check.name, Status.WARNING, check.found, check.detail, check.fix)
    return check


def check_torchcodec_loads() -> Check | None:
    """Whether torchcodec, where installed, finds FFmpeg's shared libraries; it often does not."""
    if installed_version("torchcodec") is None or not module_exists("torchcodec"):
        return None
    error = python_error("import torchcodec")
    if not error:
        return Check("optional", "torchcodec loads", Status.OK)
    detail = f"installed but does not load, so it cannot be chosen as decoder ({error})"
    return Check(
        "optional",
        "torchcodec loads",
        Status.WARNING,
        detail=detail,
        fix="install FFmpeg 4 to 8, with its shared libraries",
    )


def check_python() -> Check:
    """Whether the interpreter is one that the package supports."""
    found = ".".join(str(number) for number in sys.version_info[:3])
    if (3, 11) <= sys.version_info[:2] < (3, 13):
        return Check("packages", "python", Status.OK, found)
    return Check("packages", "python", Status.FAILED, found, "needs 3.11 or 3.12", "uv venv --python 3.11")


def check_engine(device: str) -> list[Check]:
    """Whether vLLM is there in the build for this device, and no second build over it."""
    wanted = ENGINES[device]
    other = ENGINES["cpu" if device == "gpu" else "gpu"]
    check = check_package(wanted)
    if installed_version(other.distribution) is None:
        return [check]
    detail = f"owns the same module as {wanted.distribution}, which DEVICE={device} needs"
    fix = f"uv pip uninstall --python {sys.executable} {other.distribution} && {install_command(wanted)}"
    conflict = Check(
        "packages", other.distribution, Status.FAILED, installed_version(other.distribution) or "", detail, fix
    )
    # Where only the other build is there, "not installed" and "the wrong one" are one finding, not two.
    return [conflict] if installed_version(wanted.distribution) is None else [check, conflict]


def check_judge(base_url: str, model: str | None) -> list[Check]:
    """Whether a judge can be reached, serves its model, and tells a right answer from a wrong one."""
    try:
        from verl_video_tools.dry_run.judge import JUDGE_FIX, judge_checks
        from verl_video_tools.services.config import JudgeConfig

        return judge_checks(JudgeConfig(base_url=base_url, model=model))
    except VideoToolsError as error:
        return [Check("judge", "options", Status.FAILED, detail=one_line(error), fix=JUDGE_FIX)]


def check_ffmpeg(blocked: bool) -> Check:
    """Encode and decode a tiny H.264 clip in memory, with the FFmpeg that PyAV brings along.

    Args:
        blocked: whether a needed package is missing or wrong already.
    """
    try:
        import av

        decoded = _round_trip_h264(num_frames=12)
    except Exception as error:  # the question is whether it works, whatever the reason
        if blocked and isinstance(error, ModuleNotFoundError):
            return Check("machine", "FFmpeg (PyAV)", Status.SKIPPED, detail=f"needs the module {error.name!r}")
        fix = install_command(PackagePin("av", "av", "18.1.0")) + " --reinstall-package av"
        return Check("machine", "FFmpeg (PyAV)", Status.FAILED, detail=f"H.264: {one_line(error)}", fix=fix)
    version = ".".join(str(number) for number in av.library_versions["libavcodec"])
    return Check(
        "machine", "FFmpeg (PyAV)", Status.OK, f"libavcodec {version}", f"{decoded} H.264 frames encoded and decoded"
    )


def _round_trip_h264(num_frames: int) -> int:
    """Number of frames decoded again, after their brightness was compared with what went in.

    Raises:
        RuntimeError: frames are lost or changed beyond what lossy compression explains.
    """
    import io

    import av
    import numpy as np

    sent = [20 + 15 * number for number in range(num_frames)]  # grey levels
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as output:
        stream = output.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        for level in sent:
            frame_HWC = np.full((64, 64, 3), level, dtype=np.uint8)
            output.mux(stream.encode(av.VideoFrame.from_ndarray(frame_HWC, format="rgb24")))
        output.mux(stream.encode())
    file.seek(0)
    with av.open(file, "r") as source:
        received = [float(frame.to_ndarray(format="rgb24").mean()) for frame in source.decode(video=0)]
    if len(received) != num_frames:
        raise RuntimeError(f"{num_frames} frames encoded, {len(received)} decoded")
    error = max(abs(before - after) for before, after in zip(sent, received, strict=True))
    if error > 8:
        raise RuntimeError(f"the decoded frames differ by {error:.0f} of 255 grey levels from the encoded ones")
    return len(received)


def check_gpu(device: str) -> Check:
    """Which GPUs there are; their absence is fine unless DEVICE=gpu was asked for."""
    gpus = list_gpus()
    if gpus:
        return Check(
            "machine", "GPU", Status.OK, f"{len(gpus)} x {gpus[0]}", "" if device == "gpu" else "unused, DEVICE=cpu"
        )
    if device == "gpu":
        fix = "install the NVIDIA driver, or run with DEVICE=cpu"
        return Check("machine", "GPU", Status.FAILED, detail="DEVICE=gpu, but nvidia-smi lists none", fix=fix)
    return Check("machine", "GPU", Status.OK, "none", "recipes run with DEVICE=cpu")


def check_smoke_test(device: str) -> Check | None:
    """What a smoke test cannot show without a GPU; None on a machine with a GPU."""
    if device != "cpu":
        return None
    detail = f"only a GPU can show: {', '.join(ONLY_ON_A_GPU)}"
    return Check("machine", "--smoke-test", Status.OK, "runs with the options of a real run", detail)


def check_cuda(device: str) -> Check | None:
    """Whether torch can use the GPU: its CUDA version may be newer than the driver. Not asked without a GPU."""
    if device != "gpu" or not list_gpus() or not module_exists("torch"):
        return None
    error = python_error("import torch; torch.zeros(1, device='cuda').item()")
    if not error:
        return Check("machine", "torch on GPU", Status.OK)
    return Check(
        "machine",
        "torch on GPU",
        Status.FAILED,
        detail=error,
        fix="install an NVIDIA driver for CUDA 13 (580 or newer)",
    )


def check_flash_attention(device: str) -> Check | None:
    """Whether a GPU run can pack its sequences: verl does so by default, with flash-attn. Not asked on CPUs."""
    if device != "gpu":
        return None
    fix = f"{install_command(FLASH_ATTENTION)} --no-build-isolation  # compiled where no wheel fits: needs nvcc"
    if installed_version(FLASH_ATTENTION.distribution) is None:
        detail = (
            "not installed: a recipe stops when it loads the model, unless it is given "
            "actor_rollout_ref.model.use_remove_padding=false "
            "++actor_rollout_ref.model.override_config.attn_implementation=sdpa"
        )
        return Check("packages", FLASH_ATTENTION.distribution, Status.WARNING, detail=detail, fix=fix)
    check = check_package(FLASH_ATTENTION)
    if module_exists("torch") and (error := python_error("import flash_attn")):
        detail = f"installed but does not load, built for another torch? ({error})"
        return Check(
            "packages", check.name, Status.WARNING, check.found, detail, f"{fix} --reinstall-package flash-attn"
        )
    return check


def check_shared_memory(path: str = "/dev/shm") -> Check:
    """Whether shared memory is large enough for Ray's object store and the weight transfer.

    On a machine with GPUs also for the rows that a cold start's loaders have ready (`video_tools.loader_shm_gb`).
    """
    try:
        total_bytes = shutil.disk_usage(path).total
    except OSError as error:
        return Check("machine", path, Status.WARNING, detail=one_line(error), fix="mount a tmpfs there")
    found = f"{total_bytes / 2**30:.1f} GiB"
    if total_bytes < MIN_SHARED_MEMORY_BYTES:
        detail = "too small for Ray and the weight transfer"
        return Check("machine", path, Status.WARNING, found, detail, "docker run --shm-size=8g ...")
    if list_gpus() and total_bytes < (LOADER_GB + FRAME_CACHE_GB) * 1e9:
        detail = f"a cold start on real data takes up to {LOADER_GB} GB of it, and the frame cache {FRAME_CACHE_GB}"
        fix = "docker run --shm-size=32g ..., or a smaller video_tools.loader_shm_gb"
        return Check("machine", path, Status.WARNING, found, detail, fix)
    return Check("machine", path, Status.OK, found)


def check_open_files() -> Check:
    """Whether a process may open as many files as Ray and vLLM need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= MIN_OPEN_FILES:
        return Check("machine", "open files", Status.OK, "unlimited" if soft == resource.RLIM_INFINITY else str(soft))
    fix = f"ulimit -n {65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)}"
    return Check("machine", "open files", Status.WARNING, str(soft), f"fewer than {MIN_OPEN_FILES}", fix)


def check_plugin(blocked: bool) -> list[Check]:
    """Load the plugin and look up each of its registrations as verl would; verl itself hides a failure.

    Args:
        blocked: whether a needed package is missing or wrong already: what fails here is then no second finding.
    """
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip().lower()
    if policy != "auto" and "verl_video_tools" not in {name.strip() for name in policy.split(",")}:
        detail = f"VERL_USE_EXTERNAL_PLUGINS={policy} keeps verl from loading it"
        return [Check("plugin", "verl.plugins", Status.FAILED, detail=detail, fix="unset VERL_USE_EXTERNAL_PLUGINS")]
    try:
        plugin = importlib.import_module("verl_video_tools.verl_plugin.plugin")
        registrations: Callable[[], list[tuple[str, str, bool, str]]] = plugin.registrations
        results = registrations()
    except (Exception, SystemExit) as error:  # some libraries end the process at import
        return [_plugin_check("registrations", one_line(error), ok=False, blocked=blocked)]
    return [_plugin_check(f"{kind} {name}", detail, ok, blocked) for kind, name, ok, detail in results]


def _plugin_check(name: str, detail: str, ok: bool, blocked: bool) -> Check:
    detail = " ".join(detail.split())
    if ok:
        return Check("plugin", name, Status.OK, detail=detail)
    if blocked:
        return Check("plugin", name, Status.SKIPPED, detail=f"fix the packages first ({detail})")
    fix = "reinstall verl_video_tools (`make install` in its checkout)"
    return Check("plugin", name, Status.FAILED, detail=detail, fix=fix)
