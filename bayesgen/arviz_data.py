"""Draws as ArviZ data: named axes with coordinates, for ArviZ before 1.0 (InferenceData) and after it (DataTree).

Groups are xarray datasets, which both take. ArviZ and xarray are imported only when data are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bayesgen.families.base import Params
from bayesgen.joint import Block, Joint

Variables = dict[str, tuple[tuple[str, ...], np.ndarray]]  # name -> (dims, values)
SAMPLE = ("chain", "draw")


class Names(NamedTuple):
    """Names of the classes, the columns and their categories (None for columns without), and of the rows."""

    classes: Sequence
    columns: Sequence
    categories: Sequence
    rows: Sequence | None = None


def coordinate(values: Sequence) -> np.ndarray:
    """Labels as the coordinates of an axis: numbers, dates or text, all different.

    Examples
    --------
    >>> coordinate(["a", 2, "a"]).tolist()
    ['a', '2', 'a (2)']
    """
    array = np.asarray(values) if not any(isinstance(v, tuple) for v in values) else np.empty(0)
    if array.ndim != 1 or array.dtype.kind not in "biufMU" or len(array) != len(values):
        array = np.asarray([str(v) for v in values])
    if len(set(array.tolist())) == len(array):
        return array
    seen: dict = {}
    text = [str(v) for v in array.tolist()]
    places = [seen.setdefault(v, i) for i, v in enumerate(text)]
    return np.asarray([v if p == i else f"{v} ({i})" for i, (v, p) in enumerate(zip(text, places, strict=True))])


def coordinates(joint: Joint, names: Names) -> dict[str, np.ndarray]:
    """Coordinates of every named axis; those of a block's columns carry its name where there are several."""
    coords = {"class": coordinate(names.classes), "feature": coordinate(names.columns)}
    if names.rows is not None:
        coords["row"] = coordinate(names.rows)
    for block in joint.blocks:
        prefix, columns = joint.prefix(block), [block.column(j) for j in range(block.num_features(joint.num_features))]
        mine = coords["feature"][columns]
        coords |= {f"{prefix}feature": mine, f"{prefix}feature_b": mine}
        coords[f"{prefix}category"] = _categories([names.categories[j] for j in columns])
    return coords


def _categories(columns: list) -> np.ndarray:
    """The categories' names where all the columns share them, else their codes."""
    known = [list(values) for values in columns if values is not None]
    if known and all(values == known[0] for values in known[1:]):
        return coordinate(known[0])
    return np.arange(max(map(len, known), default=0))


def parameters(joint: Joint, public: Params) -> Variables:
    """Public parameters with leading axes (chain, draw), and the names of their axes."""
    found: Variables = {"class_probs": ((*SAMPLE, "class"), public["class_probs"])}
    for block in joint.blocks:
        prefix = joint.prefix(block)
        for key, value in joint.params_of(block, public).items():
            dims = _dims(joint, block, key, np.shape(value)[2:])
            found[prefix + key] = ((*SAMPLE, *dims), value)
    return found


def _dims(joint: Joint, block: Block, key: str, shape: tuple[int, ...]) -> list[str]:
    """Names of a parameter's axes: the family's, else the class and ArviZ's own names."""
    prefix, family = joint.prefix(block), block.family
    stated = family.dims.get(key)
    if stated is None:
        automatic = [f"{prefix}{key}_dim_{i}" for i in range(len(shape))]
        return ["class", *automatic[1:]] if shape[:1] == (joint.num_classes,) else automatic
    if len(stated) != len(shape):
        raise ValueError(
            f"{type(family).__name__}.dims names {len(stated)} axes of {key!r}, {list(stated)}, which has shape {shape} "
            "(beside the draws)."
        )
    width = block.num_features(joint.num_features)
    known = {"class": joint.num_classes, "feature": width, "feature_b": width}
    for dim, size in zip(stated, shape, strict=True):
        if known.get(dim, size) != size:
            raise ValueError(
                f"{type(family).__name__}.dims calls an axis of {key!r} {dim!r}: it has {size}, not {known[dim]}."
            )
    return [dim if dim == "class" else prefix + dim for dim in stated]


def build(groups: dict[str, Variables], coords: dict[str, np.ndarray], attrs: dict[str, str]) -> Any:
    """InferenceData, or from ArviZ 1.0 a DataTree. Coordinates of one group only are called group.axis."""
    import arviz
    import xarray

    sets = {}
    for group, variables in groups.items():
        sizes = {dim: n for dims, values in variables.values() for dim, n in zip(dims, np.shape(values), strict=True)}
        mine = {dim: coords.get(f"{group}.{dim}", coords.get(dim, np.arange(n))) for dim, n in sizes.items()}
        sets[group] = xarray.Dataset(variables, mine, attrs)
    if not is_new(arviz):
        return arviz.InferenceData(attrs, **sets)  # type: ignore[arg-type]
    tree = xarray.DataTree.from_dict(sets)
    tree.attrs = dict(attrs)
    return tree


def is_new(arviz) -> bool:
    """Whether this is ArviZ 1.0 or later."""
    return int(arviz.__version__.split(".")[0]) >= 1


def efficiency(posterior: Variables) -> float:
    """Effective sample size of the draws, averaged over the parameters, by draw."""
    import arviz
    import xarray

    found = arviz.ess(xarray.Dataset(posterior), method="mean")
    values = np.concatenate([np.ravel(found[name].values) for name in posterior])
    draws = np.prod(np.shape(posterior["class_probs"][1])[:2])
    return float(np.nanmean(values) / draws)
