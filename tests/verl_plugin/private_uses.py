"""What our code uses of verl, vLLM, TransferQueue and transformers' internals, read from the code itself.

    VERL_PLATFORM=cpu python -m tests.verl_plugin.private_uses FILE

writes it as `verl_plugin/private_names.toml` has it in the tables `found`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import verl_video_tools
from verl_video_tools.verl_plugin.private_names import defines, module_file

ROOT = Path(verl_video_tools.__file__).parent
PACKAGES = ("verl", "vllm", "transfer_queue", "transformers")

Use = tuple[str, str, str]
"""A module of these packages, a name in it (`name` or `Class.name`), and our module that uses it."""


@cache
def our_modules() -> dict[str, ast.Module]:
    """By their names below our package."""
    paths = {path: path.relative_to(ROOT).with_suffix("") for path in sorted(ROOT.rglob("*.py"))}
    return {
        ".".join(name.parts).removesuffix(".__init__"): ast.parse(path.read_text(encoding="utf-8"))
        for path, name in paths.items()
    }


def is_foreign(module: str) -> bool:
    return module.partition(".")[0] in PACKAGES


def is_documented(module: str, name: str) -> bool:
    """Classes that transformers exports at its top are its public interface."""
    return module == "transformers" and name[0].isupper()


def imported() -> set[Use]:
    """Names that are imported, and what is read from imported modules and classes."""
    uses: set[Use] = set()
    for ours, tree in our_modules().items():
        known: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and is_foreign(node.module):
                for alias in node.names:
                    known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                    if not is_documented(node.module, alias.name):
                        uses.add((node.module, alias.name, ours))
            elif isinstance(node, ast.Import):
                known |= {each.asname or each.name: each.name for each in node.names if is_foreign(each.name)}
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known):
                continue
            path = known[node.value.id]
            module, _, name = path.rpartition(".")
            if module_file(path) is not None:
                uses.add((path, node.attr, ours))
            elif not is_documented(module, name) and not node.attr.startswith("__"):
                uses.add((module, f"{name}.{node.attr}", ours))
    # pydantic's, and the like, are in the class but not of it
    return {use for use in uses if "." not in use[1] or defines(_source(use[0]), use[1])}


def inherited() -> set[Use]:
    """Methods that our classes override, and what they take from `self` and `super()` that only a base defines."""
    uses: set[Use] = set()
    for found in our_subclasses():
        foreign = [base for base in found.__mro__ if is_foreign(base.__module__)]
        ours = [base for base in found.__mro__ if base.__module__.startswith(f"{ROOT.name}.")]
        bodies = [(base.__module__.partition(".")[2], _body(base)) for base in ours]
        own = set().union(*(_defined(body) for _, body in bodies))
        for module, body in bodies:
            for name in _methods(body) | (_read_from(body, "self") - own) | _read_from(body, "super"):
                owner = next((base for base in foreign if _defines(base, name)), None)
                if owner is not None and not name.startswith("__"):
                    uses.add((owner.__module__, f"{owner.__name__}.{name}", module))
    return uses


def our_subclasses() -> Iterator[type]:
    """Our classes that have one of another package among their bases, and those inside Ray's actors."""
    for name in our_modules():
        if not name.startswith("verl_plugin.") or name.endswith("__main__"):
            continue
        module = importlib.import_module(f"{ROOT.name}.{name}")
        for value in vars(module).values():
            actor = getattr(value, "__ray_metadata__", None)
            found = value if actor is None else actor.modified_class
            if inspect.isclass(found) and found.__module__ == module.__name__:
                yield found


def private_attributes() -> set[tuple[str, str]]:
    """Attributes with a leading underscore that nothing of ours defines: the name, and our module that reads it."""
    own: set[str] = set()
    for tree in our_modules().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                own.add(node.name)
            elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store):
                own.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    return {
        (node.attr, module)
        for module, tree in our_modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in own
        and not (isinstance(node.value, ast.Name) and node.value.id == "os")
    }


@cache
def _source(module: str) -> Path:
    path = module_file(module)
    assert path is not None, f"{module} has no file"
    return path


def _defines(base: type, name: str) -> bool:
    return defines(Path(inspect.getsourcefile(base) or ""), f"{base.__name__}.{name}")


def _body(base: type) -> ast.ClassDef:
    tree = our_modules()[base.__module__.partition(".")[2]]
    return next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == base.__name__)


def _methods(body: ast.ClassDef) -> set[str]:
    return {node.name for node in body.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def _defined(body: ast.ClassDef) -> set[str]:
    """Its methods, and what its body gives a value."""
    assigned = [each for each in body.body if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None]
    names = {node.id for each in assigned for node in ast.walk(each) if isinstance(node, ast.Name)}
    return _methods(body) | names


def _read_from(body: ast.ClassDef, source: str) -> set[str]:
    """Attributes of `self`, or of `super()`."""
    found = set()
    for node in ast.walk(body):
        if isinstance(node, ast.Attribute):
            value = node.value.func if isinstance(node.value, ast.Call) else node.value
            if isinstance(value, ast.Name) and value.id == source:
                found.add(node.attr)
    return found


def found_table() -> str:
    """TOML: names by their module, each with those of our modules that use it."""
    users: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for module, name, ours in imported() | inherited():
        users[module][name].add(ours)
    lines = []
    for module, names in sorted(users.items()):
        lines += ["", f'[found."{module}"]']
        lines += [f'"{name}" = "{" ".join(sorted(modules))}"' for name, modules in sorted(names.items())]
    return "\n".join(lines[1:])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(found_table() + "\n", encoding="utf-8")  # libraries write to standard output, too
