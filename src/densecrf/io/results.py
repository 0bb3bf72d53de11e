"""Results in files: one ``.npz`` with plain arrays and one JSON header.

Nothing is pickled, so untrusted files are safe to load.
"""

from __future__ import annotations

import json
from dataclasses import fields
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.io.arrays import read_npz
from densecrf.io.atomic import write_npz
from densecrf.io.errors import FileFormatError
from densecrf.problem.certificate import Mixture, Potentials, Tangent
from densecrf.solvers.result import Result, Trace
from densecrf.solvers.verification import declared

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from densecrf.problem.certificate import HostDual

__all__ = ["read_result", "write_result"]

FORMAT, VERSION = "densecrf.Result", 1
HEAD = "densecrf"  # the member with the JSON, as bytes
PROOFS = ("possible", "margin")  # arrays that a result may have
KNOWN_ENERGIES = ("energy", "current_energy")  # JSON has no infinity: None is one


def write_result(path: str | os.PathLike[str], result: Result) -> None:
    """Write a result to a file, atomically."""
    arrays = {"labels": result.labels, "marginals": result.marginals}
    for name in PROOFS:
        if getattr(result, name) is not None:
            arrays[name] = getattr(result, name)
    named = {key: value for key, value in result.info.items() if isinstance(value, np.ndarray)}
    head = {"format": FORMAT, "version": VERSION, **result.to_dict(), "arrays": list(named)}
    head |= {name: name in arrays for name in PROOFS}
    for key in named:
        del head["info"][key]
    arrays |= {f"info.{key}": value for key, value in named.items()}
    if result.dual is not None:
        head["dual"], parts = _dual_to_file(result.dual)
        arrays |= parts
        head["declared"] = result.declared if result.crf is None else declared(result.crf)
    text = json.dumps(head, allow_nan=False).encode()
    write_npz(path, {HEAD: np.frombuffer(text, np.uint8), **arrays})


def _dual_to_file(dual: HostDual) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the JSON and the arrays of a dual point."""
    if isinstance(dual, Tangent):
        return {"kind": "tangent"}, {"dual.0.y": dual.y}
    parts = dual.parts if isinstance(dual, Mixture) else ((1.0, dual),)
    rows: list[dict[str, Any]] = []
    arrays: dict[str, NDArray[Any]] = {}
    for number, (share, part) in enumerate(parts):
        members = {"scores": part.scores, "offsets": part.offsets, "labels": part.labels}
        given = {name: np.asarray(value) for name, value in members.items() if value is not None}
        arrays |= {f"dual.{number}.{name}": value for name, value in given.items()}
        names = ("cells", "levels", "hard", "of_nodes")
        numbers = {name: getattr(part, name) for name in names}
        rows.append({"share": float(share), **numbers, "arrays": list(given)})
    kind = "mixture" if isinstance(dual, Mixture) else "potentials"
    return {"kind": kind, "parts": rows}, arrays


def _dual_from_file(path: str | os.PathLike[str], head: dict[str, Any]) -> HostDual:
    """Return the dual point of a file; `Result.verify` checks whether it is feasible."""
    if head["kind"] == "tangent":
        return Tangent(np.array(read_npz(path, ["dual.0.y"])["dual.0.y"]))
    parts: list[tuple[float, Potentials[NDArray[Any]]]] = []
    for number, row in enumerate(head["parts"]):
        names = {name: f"dual.{number}.{name}" for name in row["arrays"]}
        found = read_npz(path, list(names.values()))
        arrays = {name: np.array(found[member]) for name, member in names.items()}
        cells = None if row["cells"] is None else float(row["cells"])
        part = Potentials(
            cells=cells,
            levels=int(row["levels"]),
            hard=bool(row["hard"]),
            of_nodes=bool(row.get("of_nodes", False)),
            **arrays,
        )
        parts.append((float(row["share"]), part))
    if head["kind"] == "potentials":
        ((_, only),) = parts
        return only
    if head["kind"] != "mixture":
        raise ValueError(f"a dual point of kind {head['kind']!r}")
    return Mixture(tuple(parts))


def read_result(path: str | os.PathLike[str]) -> Result:
    """Read a result from a file that `write_result` made.

    Raises
    ------
    FileFormatError
        A ValueError that names the file: not a result, damaged, or of another version.
    """
    try:
        text = read_npz(path, [HEAD])[HEAD].tobytes()
        head = json.loads(text, parse_constant=_no_number)
        form, version = head["format"], head["version"]
    except (FileFormatError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise FileFormatError(path, f"not a file of Result.save ({error})") from error
    if form != FORMAT:
        raise FileFormatError(path, f"holds {form!r}, not {FORMAT!r}")
    if version != VERSION:
        raise FileFormatError(
            path,
            f"has format version {version!r}, this densecrf reads {VERSION}; use the densecrf "
            "that wrote it",
        )
    try:
        return _result(path, head)
    except FileFormatError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise FileFormatError(path, f"damaged: {type(error).__name__}: {error}") from error


def _no_number(name: str) -> float:
    raise ValueError(f"the number {name}")


def _result(path: str | os.PathLike[str], head: dict[str, Any]) -> Result:
    names = [f"info.{key}" for key in head["arrays"]]
    proofs = [name for name in PROOFS if head.get(name, False)]
    arrays = read_npz(path, ["labels", "marginals", *names, *proofs])
    labels, marginals = _grid(arrays["labels"], arrays["marginals"])
    info = {**head["info"], **{name[5:]: np.array(arrays[name]) for name in names}}
    constant = head["best_constant"]
    if not 0 <= int(constant["label"]) < len(marginals):
        raise ValueError(f"best_constant of label {constant['label']}, of {len(marginals)}")
    return Result(
        labels=labels,
        marginals=marginals,
        energy=_energy(head["energy"]),
        lower_bound=None if head["lower_bound"] is None else float(head["lower_bound"]),
        method=str(head["method"]),
        converged=bool(head["converged"]),
        message=str(head["message"]),
        seconds=float(head["seconds"]),
        iterations=int(head["iterations"]),
        best_constant=(int(constant["label"]), _energy(constant["energy"])),
        trace=_trace(head["trace"]),
        possible=_possible(arrays["possible"], marginals) if "possible" in proofs else None,
        margin=_margin(arrays["margin"], labels) if "margin" in proofs else None,
        info=info,
        dual=_dual_from_file(path, head["dual"]) if head.get("dual") else None,
        declared=dict(head["declared"]) if head.get("declared") else None,
    )


def _grid(
    labels: NDArray[Any], marginals: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    if labels.dtype.kind != "i" or marginals.ndim < 2 or marginals.shape[1:] != labels.shape:
        raise ValueError(f"labels of shape {labels.shape}, marginals of {marginals.shape}")
    if labels.min() < 0 or labels.max() >= len(marginals):
        raise ValueError(f"labels from {labels.min()} to {labels.max()}, of {len(marginals)}")
    if marginals.dtype.kind != "f" or not np.isfinite(marginals).all():
        raise ValueError("marginals that are not finite numbers")
    return np.array(labels, np.int64), np.array(marginals, np.float32)


def _possible(counts: NDArray[Any], marginals: NDArray[np.float32]) -> NDArray[np.int32]:
    if counts.dtype.kind != "i" or counts.shape != marginals.shape[1:]:
        raise ValueError(f"possible of shape {counts.shape}, type {counts.dtype}")
    if counts.min() < 1 or counts.max() > len(marginals):
        raise ValueError(f"possible from {counts.min()} to {counts.max()}, of {len(marginals)}")
    return np.array(counts, np.int32)


def _margin(values: NDArray[Any], labels: NDArray[np.int64]) -> NDArray[np.float32]:
    if values.dtype.kind != "f" or values.shape != labels.shape or not np.isfinite(values).all():
        raise ValueError(f"margin of shape {values.shape}, type {values.dtype}, or not finite")
    return np.array(values, np.float32)


def _energy(value: float | None) -> float:
    return inf if value is None else float(value)


def _trace(columns: dict[str, list[Any]]) -> Trace:
    numbers: Any = {name: [_number(value) for value in column] for name, column in columns.items()}
    trace = Trace(**numbers)
    for name in KNOWN_ENERGIES:
        setattr(trace, name, [_energy(value) for value in numbers[name]])
    if len({len(getattr(trace, each.name)) for each in fields(trace)}) != 1 or not len(trace):
        raise ValueError("columns of the trace that differ in length, or are empty")
    return trace


def _number(value: Any) -> float | None:
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    raise TypeError(f"{value!r} among the numbers of the trace")
