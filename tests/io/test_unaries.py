from __future__ import annotations

import contextlib
import os
import struct
import sys
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from densecrf.io import FileFormatError, Scores, read_c_unary, read_scores, read_unary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

rng = np.random.default_rng(0)
LOGITS = rng.normal(size=(4, 5, 6)).astype(np.float32)
PROBS = np.exp(LOGITS) / np.exp(LOGITS).sum(0)


def unary_bytes(values: np.ndarray, order: str = ">") -> bytes:
    labels, height, width = values.shape
    body = np.moveaxis(values, 0, -1).astype(f"{order}f4").tobytes()
    return struct.pack(f"{order}3I", width, height, labels) + body


def c_unary_bytes(values: np.ndarray, step: float = 0.001, order: str = ">") -> bytes:
    labels, height, width = values.shape
    vectors = np.round(np.moveaxis(values, 0, -1).reshape(-1, labels) / step).astype(int)
    keys, ids = np.unique(vectors, axis=0, return_inverse=True)
    header = struct.pack(f"{order}4If", width, height, labels, len(keys), step)
    return header + keys.astype(f"{order}i4").tobytes() + ids.astype(f"{order}u4").tobytes()


@pytest.fixture
def save(tmp_path: Path) -> Callable[[str, bytes], Path]:
    def write(name: str, data: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


def test_unary_files_round_trip_and_say_what_they_hold(save: Callable[..., Path]) -> None:
    scores = read_scores(save("a.unary", unary_bytes(LOGITS)))
    assert scores.kind == "logits"
    np.testing.assert_array_equal(scores.values, LOGITS)
    probabilities = read_scores(save("b.unary", unary_bytes(PROBS)), shape=(5, 6), labels=4)
    assert probabilities.kind == "probabilities"
    assert "sum to one" in probabilities.reason
    assert read_unary(save("c.unary", unary_bytes(LOGITS)), kind="energies").kind == "energies"


def test_compressed_unary_files_round_trip(save: Callable[..., Path]) -> None:
    scores = read_scores(save("a.c_unary", c_unary_bytes(PROBS)))
    assert scores.kind == "probabilities"
    np.testing.assert_allclose(scores.values, PROBS, atol=0.0005 + 1e-7)
    assert read_c_unary(save("b.c_unary", c_unary_bytes(LOGITS))).kind == "logits"


def test_little_endian_files_are_named_and_readable(save: Callable[..., Path]) -> None:
    path = save("a.unary", unary_bytes(LOGITS, "<"))
    with pytest.raises(FileFormatError, match=r"a\.unary: header .* byteorder='little'"):
        read_unary(path)
    np.testing.assert_array_equal(read_unary(path, byteorder="little").values, LOGITS)
    path = save("a.c_unary", c_unary_bytes(PROBS, order="<"))
    with pytest.raises(FileFormatError, match="byteorder='little'"):
        read_c_unary(path)
    assert read_c_unary(path, byteorder="little").kind == "probabilities"
    mixed = unary_bytes(LOGITS)[:12] + unary_bytes(LOGITS, "<")[12:]
    with pytest.raises(FileFormatError, match="not big-endian"):
        read_unary(save("mixed.unary", mixed))


GOOD = c_unary_bytes(PROBS)
KEYS = struct.unpack_from(">I", GOOD, 12)[0]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "ends inside its header"),
        (GOOD[:10], "ends inside its header"),
        (GOOD[:-1], "truncated"),
        (GOOD + b"\0", "too long"),
        (struct.pack(">4I", 6, 0, 4, 1), "count of zero"),
        (struct.pack(">4I", 60_000, 60_000, 4, 1) + b"\0" * 64, "above the limit"),
        (struct.pack(">4I", 6, 5, 4, 2**31) + b"\0" * 64, "above the limit"),
        (GOOD[:16] + struct.pack(">f", float("nan")) + GOOD[20:], "step nan"),
        (GOOD[:16] + struct.pack(">f", 0) + GOOD[20:], "step 0 "),
        (GOOD[:-4] + struct.pack(">I", KEYS), f"names key {KEYS} of {KEYS}"),
    ],
)
def test_damaged_compressed_files_are_named(
    save: Callable[..., Path], data: bytes, reason: str
) -> None:
    with pytest.raises(FileFormatError, match=reason) as caught:
        read_c_unary(save("bad.c_unary", data))
    assert "bad.c_unary" in str(caught.value)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"abc", "ends inside its header"),
        (unary_bytes(LOGITS)[:-4], "truncated"),
        (unary_bytes(LOGITS) + b"1234", "too long"),
        (struct.pack(">3I", 2**16 - 1, 2**16 - 1, 2**16 - 1), "above the limit"),
        (unary_bytes(np.full((2, 2, 2), np.nan)), "values up to nan are not scores"),
        (unary_bytes(np.ones((1, 2, 2))), "has 1 label"),
    ],
)
def test_damaged_unary_files_are_named(save: Callable[..., Path], data: bytes, reason: str) -> None:
    with pytest.raises(FileFormatError, match=reason):
        read_unary(save("bad.unary", data))


def test_wrong_sizes_are_named(save: Callable[..., Path]) -> None:
    path = save("a.unary", unary_bytes(LOGITS))
    with pytest.raises(FileFormatError, match=r"is for an image of shape \(5, 6\)"):
        read_scores(path, shape=(6, 5))
    with pytest.raises(FileFormatError, match="has 4 labels, 21 were expected"):
        read_scores(path, labels=21)


def test_a_small_file_cannot_ask_for_much_memory(save: Callable[..., Path]) -> None:
    ids = np.zeros(1000 * 1000, ">u4").tobytes()
    bomb = struct.pack(">4If", 1000, 1000, 5000, 1, 1.0) + bytes(4 * 5000) + ids
    path = save("bomb.c_unary", bomb)
    tracemalloc.start()
    with pytest.raises(FileFormatError, match=r"18\.6 GiB"):
        read_c_unary(path)
    assert tracemalloc.get_traced_memory()[1] < 2 * len(bomb)
    tracemalloc.stop()


# Arrays


def test_names_in_archives_say_the_kind(tmp_path: Path) -> None:
    for key, kind in (("logits", "logits"), ("probs", "probabilities"), ("unary", "energies")):
        np.savez(tmp_path / "a.npz", **{key: PROBS})
        scores = read_scores(tmp_path / "a.npz", axis="first")
        assert scores.kind == kind
        assert repr(key) in scores.reason


def test_several_arrays_need_a_choice(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", probs=PROBS, unary=LOGITS, image=np.zeros(3))
    with pytest.raises(FileFormatError, match="holds probs and unary; choose by kind="):
        read_scores(tmp_path / "a.npz")
    scores = read_scores(tmp_path / "a.npz", kind="energies", axis="first")
    np.testing.assert_array_equal(scores.values, LOGITS)
    with pytest.raises(FileFormatError, match="no array named logits"):
        read_scores(tmp_path / "a.npz", kind="logits")


def test_bare_arrays_are_recognised_only_as_probabilities(tmp_path: Path) -> None:
    np.save(tmp_path / "p.npy", np.moveaxis(PROBS, 0, -1).astype(np.float16))
    scores = read_scores(tmp_path / "p.npy")
    assert scores.kind == "probabilities"
    assert scores.values.shape == (4, 5, 6)
    np.save(tmp_path / "l.npy", LOGITS)
    with pytest.raises(FileFormatError, match=r"logits .* or energies"):
        read_scores(tmp_path / "l.npy", axis="first")
    assert read_scores(tmp_path / "l.npy", axis="first", kind="logits").kind == "logits"


def test_the_label_axis_follows_from_what_is_known(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", logits=LOGITS)
    np.savez(tmp_path / "l.npz", logits=np.asfortranarray(np.moveaxis(LOGITS, 0, -1)))
    np.savez(tmp_path / "b.npz", logits=LOGITS[None].astype(">f8"))
    for known in ({"shape": (5, 6)}, {"labels": 4}):
        for name in ("f.npz", "l.npz"):
            np.testing.assert_array_equal(read_scores(tmp_path / name, **known).values, LOGITS)
    np.testing.assert_array_equal(
        read_scores(tmp_path / "b.npz", shape=(5, 6), axis="first").values, LOGITS
    )
    with pytest.raises(FileFormatError, match=r"two ways: 4 labels .*axis='first' or 6 labels"):
        read_scores(tmp_path / "f.npz")
    with pytest.raises(FileFormatError, match=r"\(4, 5, 6\) has no axis of 9 labels"):
        read_scores(tmp_path / "f.npz", labels=9)


def test_a_cube_is_ambiguous(tmp_path: Path) -> None:
    np.savez(tmp_path / "c.npz", logits=np.zeros((4, 4, 4)))
    with pytest.raises(FileFormatError, match="two ways"):
        read_scores(tmp_path / "c.npz", shape=(4, 4), labels=4)


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.array(["a"]), "numbers are needed"),
        (np.zeros(4), "needs a label axis"),
        (np.zeros((4, 0, 2)), "empty"),
        (np.full((2, 3, 3), np.nan), "holds nan at index"),
        (np.full((2, 3, 3), 1e300), "holds inf at index"),
        (np.zeros((1, 3, 3)), "has 1 label"),
        (np.zeros((2, 3, 3), complex), "numbers are needed"),
    ],
)
def test_unusable_arrays_are_named(tmp_path: Path, array: np.ndarray, reason: str) -> None:
    np.savez(tmp_path / "a.npz", logits=array)
    with pytest.raises(FileFormatError, match=rf"a\.npz: .*{reason}"):
        read_scores(tmp_path / "a.npz", axis="first")


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "o.npy", np.array([object]), allow_pickle=True)
    with pytest.raises(FileFormatError, match=r"o\.npy: holds values of type object"):
        read_scores(tmp_path / "o.npy")


def test_other_problems_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"suffix '\.mat'"):
        read_scores(tmp_path / "a.mat")
    with pytest.raises(FileNotFoundError, match=r"a\.npz"):
        read_scores(tmp_path / "a.npz")
    np.savez(tmp_path / "q.npz", q=PROBS)
    with pytest.raises(FileFormatError, match=r"no array named logits or .*\(found: q"):
        read_scores(tmp_path / "q.npz")
    np.savez(tmp_path / "p.npz", probs=LOGITS)
    with pytest.raises(FileFormatError, match="probabilities range over"):
        read_scores(tmp_path / "p.npz", axis="first")
    np.save(tmp_path / "t.npy", PROBS)
    (tmp_path / "t.npy").write_bytes((tmp_path / "t.npy").read_bytes()[:-8])
    with pytest.raises(FileFormatError, match="truncated or damaged"):
        read_scores(tmp_path / "t.npy")
    np.save(tmp_path / "big.npy", np.zeros((2, 100, 100)))
    with pytest.raises(FileFormatError, match="above the limit"):
        read_scores(tmp_path / "big.npy", max_bytes=1000)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ("(2, 9**9,)", "not a NumPy array file"),
        ("(2, 99999)", "truncated"),
        ("(2, 1" + 15 * "0" + ")", "GiB, above the limit"),
    ],
)
def test_a_header_that_asks_for_too_much_is_refused(
    tmp_path: Path, shape: str, reason: str
) -> None:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    prefix = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
    (tmp_path / "h.npy").write_bytes(prefix + header + bytes(64))
    with pytest.raises(FileFormatError, match=reason):
        read_scores(tmp_path / "h.npy")


# Meaning


def test_energies_of_each_kind() -> None:
    expected = -np.log(PROBS)
    for values, kind in ((LOGITS, "logits"), (PROBS, "probabilities"), (expected, "energies")):
        np.testing.assert_allclose(Scores(values, kind, "", "").energies(), expected, atol=1e-5)
    with pytest.raises(ValueError, match="clip=0"):
        Scores(PROBS, "probabilities", "", "").energies(clip=0)


def test_a_forbidden_label_is_allowed_but_not_resized(tmp_path: Path) -> None:
    values = LOGITS.copy()
    values[0, 0, 0] = -np.inf
    np.savez(tmp_path / "a.npz", logits=values)
    scores = read_scores(tmp_path / "a.npz", axis="first")
    assert scores.energies()[0, 0, 0] == np.inf
    assert scores.resized((5, 6)) is scores
    with pytest.raises(FileFormatError, match=r"a\.npz: infinite values cannot be resized"):
        scores.resized((10, 12))


def test_reads_the_published_unaries(shared_data: Path) -> None:
    for name in ("2_14_s", "4_11_s"):
        stored = shared_data / "msrc_paper" / f"{name}.npz"
        with np.load(stored) as arrays:
            probs, shape = arrays["probs"], arrays["image"].shape[:2]
        raw = shared_data / "msrc_paper" / "raw" / f"{name}.c_unary"
        scores = read_scores(raw, shape=shape, labels=21)
        assert scores.kind == "probabilities"
        np.testing.assert_allclose(scores.values, np.moveaxis(probs, -1, 0), atol=1e-7)
        energies = read_scores(stored, kind="energies", shape=shape)
        softmax = Scores(scores.values, "logits", "", "").energies()
        np.testing.assert_allclose(energies.values, softmax, atol=1e-5)


# Random bytes: the error that names the file, or a result; nothing else.

fuzz = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150
)
SEEDS = {
    ".unary": unary_bytes(LOGITS[:2, :2, :2]),
    ".c_unary": c_unary_bytes(PROBS[:, :2, :2]),
}


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes")
def test_pipes_and_folders_are_refused_not_opened(tmp_path: Path) -> None:
    for name, read in (("p.unary", read_unary), ("p.c_unary", read_c_unary)):
        os.mkfifo(tmp_path / name)
        for reader in (read, read_scores):
            with pytest.raises(FileFormatError, match=rf"{name}: is a named pipe, not a file"):
                reader(tmp_path / name)
        with pytest.raises(FileFormatError, match="is a folder, not a file"):
            read(tmp_path)


@fuzz
@given(data=st.binary(max_size=200), suffix=st.sampled_from([".unary", ".c_unary", ".npy", ".npz"]))
def test_random_bytes_never_crash(tmp_path: Path, data: bytes, suffix: str) -> None:
    path = tmp_path / f"fuzz{suffix}"
    path.write_bytes(data)
    with contextlib.suppress(FileFormatError):
        read_scores(path, kind="logits")


@fuzz
@given(
    suffix=st.sampled_from([".unary", ".c_unary", ".npy", ".npz"]),
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=6),
    cut=st.integers(0, 20),
)
@pytest.mark.filterwarnings("ignore")
def test_damaged_files_never_crash(
    tmp_path: Path, suffix: str, edits: list[tuple[int, int]], cut: int
) -> None:
    path = tmp_path / f"fuzz{suffix}"
    if suffix in SEEDS:
        path.write_bytes(SEEDS[suffix])
    elif suffix == ".npy":
        np.save(path, PROBS)
    else:
        np.savez_compressed(path, probs=PROBS)
    data = bytearray(path.read_bytes())
    for position, value in edits:
        data[position % len(data)] = value
    path.write_bytes(data[: len(data) - cut])
    with contextlib.suppress(FileFormatError):
        read_scores(path)
