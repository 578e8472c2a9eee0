"""Imports point one way, and heavy packages stay where they belong."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bayesgen

ROOT = Path(bayesgen.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
# Lower floors may not know the upper ones. Modules of one floor may import each other unless forbidden below.
FLOORS = [
    ["programs", "linalg", "improper", "moments", "ragged", "special", "covariance_base", "covariance", "structure"],
    ["families"],
    ["joint"],
    [
        "inference",
        "predict",
        "sparse_rows",
        "outliers",
        "evidence",
        "prior_shift",
        "scores",
        "arviz_data",
        "tables",
        "columns",
        "labels",
    ],
    ["estimators"],
    ["drawing", "model_plots", "laws", "cli", "plots", "__main__", "__init__"],
]
FORBIDDEN = {
    ("inference", "predict"),
    ("predict", "inference"),
    ("tables", "predict"),
    ("predict", "tables"),
    ("tables", "inference"),
}
HOMES = {
    "sklearn": {"estimators", "tables", "columns", "labels"},
    "numpyro.infer": {"inference"},
    "pandas": {"tables", "columns", "labels", "estimators", "cli", "plots", "model_plots", "laws"},
    "arviz": set(),
    "matplotlib": set(),
}


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path, *, top_level_only: bool = False):
    tree = ast.parse(path.read_text())
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def floor(name: str) -> int:
    return next(i for i, rooms in enumerate(FLOORS) if name in rooms)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path):
    here = room(path)
    for name in imports(path):
        parts = name.split(".")
        if parts[0] != "bayesgen" or len(parts) == 1 or parts[1] == "__version__":
            continue
        there = parts[1]
        if not any(there in rooms for rooms in FLOORS):
            assert here in FLOORS[-1], f"{path.name} imports the public name {there}"
            continue
        assert floor(there) <= floor(here), f"{path.name} imports {there}, which stands above it"
        assert (here, there) not in FORBIDDEN, f"{path.name} and {there} must not know each other"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_heavy_packages_stay_at_home(path):
    for name in imports(path, top_level_only=True):
        for package, homes in HOMES.items():
            if name == package or name.startswith(package + "."):
                assert room(path) in homes, f"{path.name} imports {package} at its top"


def test_import_of_the_package_leaves_plotting_and_arviz_alone():
    code = "import sys, bayesgen; print(sorted({'matplotlib', 'arviz'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_are_there():
    for name in bayesgen.__all__:
        assert getattr(bayesgen, name).__doc__
