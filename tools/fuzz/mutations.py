"""Forged certificates: what is changed in a file is refused, or what it then states is true."""

from __future__ import annotations

import copy
import io
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import checks
import numpy as np
from problems import pick

import densecrf
from densecrf.io.results import HEAD
from densecrf.problem.certificate import CertificateError

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

MODELS = 24  # whose certificates are changed
SOLVED = (
    ("lp", {}),
    ("lp", {"gap": 0.0}),
    ("prox-lp", {"order": "soft"}),
    ("prox-lp", {"warm": True}),
    ("prox-lp-l", {"label_threshold": 0.3}),
    ("sg-lp", {"order": "hard"}),
    ("cg-lp", {}),
    ("qp", {}),
)
NUMBERS = (
    0,
    1,
    -1,
    2,
    0.5,
    -0.5,
    22.0,
    -22.0,
    1e-300,
    1e7,
    -1e7,
    1e38,
    1e300,
    2**31,
    2**63,
    10**30,
)
OTHERS: tuple[Any, ...] = (None, True, False, "", "0.5", "nan", [], {}, [1, 2], {"a": 1})
LITERALS = ("NaN", "Infinity", "-Infinity", "1e999", "[" * 3000, "9" * 5000, '"\\ud800"')


class Certificate(NamedTuple):
    """A saved result, its model, and the energy of every labelling."""

    crf: densecrf.DenseCRF
    head: dict[str, Any]
    arrays: Arrays
    labellings: Array
    energies: Array
    rounding: float


def run_mutation(rng: np.random.Generator) -> list[str]:
    """Change one certificate in ways drawn from the seed; return what is wrong with the answer."""
    certificate = _certificate(int(rng.integers(MODELS)))
    head, arrays = copy.deepcopy(certificate.head), dict(certificate.arrays)
    changes = [pick(rng, CHANGES) for _ in range(int(rng.integers(1, 4)))]
    changes.sort(key=lambda change: change is not _forge)  # which needs a file that is whole
    done = [change(rng, head, arrays, certificate) for change in changes]
    text = json.dumps(head).encode()
    if rng.random() < 0.03:
        text = _with_literal(rng, text)
        done.append("literal")
    data = _packed({HEAD: np.frombuffer(text, np.uint8), **arrays})
    if rng.random() < 0.05:
        data = _flipped(rng, data)
        done.append("bytes")
    try:
        found = _judged(certificate, data)
    except Exception as error:
        found = [f"{type(error).__name__}: {error}"]
    return [f"{each}\n    changed: {done}" for each in found]


@cache
def _certificate(number: int) -> Certificate:
    rng = np.random.default_rng([number, 2017])
    labels, shape = ((2, (2, 3)), (3, (5,)), (4, (2, 2)))[number % 3]
    n = int(np.prod(shape))
    kernels = [
        densecrf.Spatial(rng.uniform(0.5, 2), rng.uniform(0.2, 2)),
        densecrf.Features(rng.normal(size=(n, 2)), rng.uniform(0.2, 2)),
    ]
    tree = densecrf.LabelTree(labels, [([0, 1], 0.5)] if labels > 2 else [], leaf=0.7)
    crf = densecrf.DenseCRF(
        rng.normal(size=(labels, *shape)) * rng.uniform(0.5, 3),
        kernels,
        ("symmetric", "none")[number // 2 % 2],
        ("exact", "lattice")[number // 4 % 2],
        compatibility=tree if number % 5 == 4 else None,
    )
    method, options = SOLVED[number % len(SOLVED)]
    result = crf.solve(method, keep_dual=True, **options)
    if result.dual is None:
        result = crf.solve("lp", keep_dual=True)
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.npz"
        result.save(path)
        buffer.write(path.read_bytes())
    buffer.seek(0)
    with np.load(buffer) as archive:
        arrays = dict(archive)
    head = json.loads(arrays.pop(HEAD).tobytes())
    energies = checks.Energies(crf)
    labellings, sums = checks.every_energy(energies)
    rounding = 2 * max(energies.rounding(x) for x in labellings[:: max(1, len(labellings) // 50)])
    return Certificate(crf, head, arrays, labellings, sums, rounding)


def _judged(certificate: Certificate, data: bytes) -> list[str]:
    """Load and verify a file; return what it states that is not true."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.npz"
        path.write_bytes(data)
        try:
            result = densecrf.Result.load(path)
            str(result)
            result.to_json()
            verification = result.verify(certificate.crf)
        except (ValueError, CertificateError):
            return []
    crf, labellings, energies = certificate.crf, certificate.labellings, certificate.energies
    optimum, found = float(energies.min()), []
    own = float(energies[(labellings == result.labels.reshape(-1)).all(1)][0])
    within = verification.tolerance + certificate.rounding
    if abs(verification.energy - own) > within:
        found.append(f"energy recomputed as {verification.energy!r}: it is {own!r}")
    if verification.lower_bound > optimum + within:
        found.append(f"bound recomputed as {verification.lower_bound!r} above {optimum!r}")
    optima = labellings[energies <= optimum + certificate.rounding]
    used = np.array([len(np.unique(column)) for column in optima.T]).reshape(crf.shape)
    if (verification.possible < used).any():
        found.append("an optimal label was ruled out")
    proven = verification.proven.reshape(-1)
    if (optima[:, proven] != result.labels.reshape(-1)[proven]).any():
        found.append("a label was proven that some optimum does not have")
    if verification.disagreements(
        result.energy, result.lower_bound, result.possible, result.margin
    ):
        return found
    if abs(result.energy - own) > within + verification.tolerance:
        found.append(f"energy stated as {result.energy!r}: it is {own!r}")
    if result.lower_bound is None or result.lower_bound > optimum + 2 * within:
        found.append(f"bound stated as {result.lower_bound!r} above {optimum!r}")
    for pixel in np.flatnonzero(result.proven.reshape(-1)):
        others = energies[labellings[:, pixel] != result.labels.reshape(-1)[pixel]]
        if others.min() < own - 8 * within:
            found.append(f"pixel {pixel} stated as proven: another label is better")
    return found


# --- changes ---------------------------------------------------------------------------------


def _change_head(
    rng: np.random.Generator, head: dict[str, Any], arrays: Arrays, _: Certificate
) -> str:
    """Change, remove or repeat something in the JSON."""
    del arrays
    places = [place for place in _places(head) if len(place) > 1 or rng.random() < 0.5]
    place = pick(rng, [each for each in places if each[0] in ("dual", "declared")] or places)
    place = pick(rng, (place, pick(rng, places)))
    at: Any = head
    for step in place[:-1]:
        at = at[step]
    way = rng.random()
    if way < 0.1:
        del at[place[-1]]
    elif way < 0.2 and isinstance(at, list):
        at.append(copy.deepcopy(at[place[-1]]))
    elif way < 0.5 and isinstance(at[place[-1]], (int, float)):
        at[place[-1]] = at[place[-1]] * pick(rng, NUMBERS)
    else:
        at[place[-1]] = pick(rng, NUMBERS if rng.random() < 0.7 else OTHERS)
    return f"JSON at {place}"


def _places(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys = (
        list(value)
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    )
    found = []
    for key in keys:
        found += [(*above, key), *_places(value[key], (*above, key))]
    return found


def _change_array(
    rng: np.random.Generator, head: dict[str, Any], arrays: Arrays, _: Certificate
) -> str:
    """Change the numbers, the shape or the type of an array, or take another one's."""
    del head
    if not arrays:
        return "nothing left"
    name = pick(rng, sorted(arrays))
    array = np.atleast_1d(arrays[name])
    noise = rng.normal(size=array.shape)
    ways: dict[str, Any] = {
        "scaled": lambda: array * array.dtype.type(pick(rng, (-1, 0, 2, 3, 1e3))),
        "far": lambda: array.astype(np.float64) * pick(rng, (1e7, 1e30, 1e38, 1e300)),
        "noise": lambda: (array + noise * 10.0 ** rng.uniform(-6, 3)).astype(array.dtype),
        "zero": lambda: np.zeros_like(array),
        "type": lambda: array.astype(pick(rng, ("f2", "f4", "f8", "i1", "i8", "u1", "?", ">f4"))),
        "turned": lambda: array.T,
        "flat": lambda: array.reshape(-1),
        "rows": lambda: array[::-1],
        "fewer": lambda: array[: max(1, len(array) - 1)],
        "more": lambda: np.concatenate([array, array]),
        "axis": lambda: array[None],
        "number": lambda: array.reshape(-1)[0],
        "mixed": lambda: rng.permutation(array.reshape(-1)).reshape(array.shape),
        "other": lambda: arrays[pick(rng, sorted(arrays))],
        "entry": lambda: _with_entry(rng, array),
        "gone": lambda: None,
    }
    way = pick(rng, sorted(ways))
    changed = ways[way]()
    if changed is None:
        del arrays[name]
    else:
        arrays[name] = np.asarray(changed)
    return f"{name} {way}"


def _with_entry(rng: np.random.Generator, array: Array) -> Array:
    changed = array.astype(np.float64) if array.dtype.kind == "f" else array.copy()
    values = (
        (np.nan, np.inf, -np.inf, 1e38, -1e20) if array.dtype.kind == "f" else (-1, 0, 1, 7, 99)
    )
    changed.reshape(-1)[int(rng.integers(array.size))] = pick(rng, values)
    return changed.astype(array.dtype)


def _forge(
    rng: np.random.Generator, head: dict[str, Any], arrays: Arrays, certificate: Certificate
) -> str:
    """Change what would prove more, as somebody would who knows how the proof works."""
    parts = (head.get("dual") or {}).get("parts") or []
    way = pick(rng, ("bound", "possible", "labels", "share", "shares", "part", "some", "device"))
    if way == "bound":
        head["lower_bound"] = head["energy"]
    elif way == "possible" and "possible" in arrays:
        arrays["possible"] = np.ones_like(arrays["possible"])
    elif way == "labels" and "labels" in arrays:
        other = certificate.labellings[int(rng.integers(len(certificate.labellings)))]
        arrays["labels"] = other.reshape(certificate.crf.shape).astype(np.int64)
        head["energy"] = certificate.crf.energy(other)
    elif way == "device":
        head["info"] = {"device": "cpu"}
    elif parts:
        part = pick(rng, parts)
        if way == "share":
            part["share"] = pick(rng, (2.0, 22.0, -22.0, 1.0, 1 + 1e-9, 1e9, -1e-9))
        elif way == "shares":
            head["dual"]["kind"] = "mixture"
            for each in parts:
                each["share"] = pick(rng, (1.0, 0.9, -1.0, 5.0))
        elif way == "part":
            head["dual"]["kind"] = "mixture"
            _add_part(rng, head, arrays)
        elif way == "some":
            count = certificate.crf.n_labels
            names = pick(rng, ([0], [0, 0], [count], [-1], list(range(count)), [1, 0]))
            arrays["dual.0.labels"] = np.array(names)
            parts[0]["arrays"].append("labels")
    return f"forged {way}"


def _add_part(rng: np.random.Generator, head: dict[str, Any], arrays: Arrays) -> None:
    """Let the dual point have one part more, of other potentials."""
    parts = head["dual"]["parts"]
    number = len(parts)
    for name in [name for name in arrays if name.startswith("dual.0.")]:
        values = arrays[name]
        if values.dtype.kind == "f":
            values = rng.normal(size=values.shape).astype(np.float32)
        arrays[name.replace("dual.0.", f"dual.{number}.")] = values
    parts.append({**copy.deepcopy(parts[0]), "share": pick(rng, (0.5, 1.0, 3.0, -3.0))})


CHANGES = (_change_head, _change_array, _change_array, _forge, _forge)


def _with_literal(rng: np.random.Generator, text: bytes) -> bytes:
    """Replace one number of the JSON by what Python's reader takes or chokes on."""
    digits = [i for i, byte in enumerate(text) if byte in b"0123456789"]
    place = pick(rng, digits)
    return text[:place] + pick(rng, LITERALS).encode() + text[place + 1 :]


def _packed(arrays: Arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _flipped(rng: np.random.Generator, data: bytes) -> bytes:
    changed = bytearray(data)
    for place in rng.integers(0, len(data), 2):
        changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)
