from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from densecrf.io import atomic_writer, write_json, write_npz, write_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_replaces_the_file_only_when_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with atomic_writer(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


def test_makes_folders_on_the_way(tmp_path: Path) -> None:
    write_text(tmp_path / "a" / "b" / "c.txt", "ä")
    assert (tmp_path / "a" / "b" / "c.txt").read_bytes() == "ä".encode()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError()])
def test_an_interruption_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: BaseException
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def interrupted() -> None:
        with atomic_writer(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        interrupted()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_full_disk_names_the_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_npz(tmp_path / "q.npz", {"marginals": np.zeros(3)})
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(tmp_path / "q.npz")
    assert names(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="no file size limit to set")
def test_a_real_size_limit_in_the_middle_of_an_array(tmp_path: Path) -> None:
    path = tmp_path / "q.npz"
    program = (
        "import resource, sys, numpy as np; from densecrf.io import write_npz\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "write_npz(sys.argv[1], {'q': np.random.default_rng(0).normal(size=10**5)})"
    )
    run = subprocess.run(
        [sys.executable, "-B", "-c", program, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert run.stderr.strip().splitlines()[-1].endswith(f"cannot write: File too large: '{path}'")
    assert names(tmp_path) == []


HALF = (
    "import sys, time; from densecrf.io import atomic_writer\n"
    "with atomic_writer(sys.argv[1]) as file:\n"
    "    file.write(b'half'); file.flush(); print(flush=True); time.sleep(600)"
)
WHOLE = "import sys; from densecrf.io import write_text; write_text(sys.argv[1], 'whole')"


def start_half(path: Path) -> subprocess.Popen[bytes]:
    """Start a process that has written half a file, and return it once it has."""
    process = subprocess.Popen([sys.executable, "-c", HALF, path], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_what_a_killed_process_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    killed = start_half(tmp_path / "a.txt")
    killed.kill()
    killed.communicate()
    assert len(names(tmp_path)) == 1
    assert not (tmp_path / "a.txt").exists()
    (tmp_path / ".other.tmp").write_text("not ours")
    subprocess.run([sys.executable, "-c", WHOLE, tmp_path / "b.txt"], check=True)
    assert names(tmp_path) == [".other.tmp", "b.txt"]


def test_what_a_living_process_writes_is_left_to_it(tmp_path: Path) -> None:
    living = start_half(tmp_path / "a.txt")
    half = names(tmp_path)
    subprocess.run([sys.executable, "-c", WHOLE, tmp_path / "b.txt"], check=True)
    living.kill()
    living.communicate()
    assert names(tmp_path) == [*half, "b.txt"]


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes")
def test_only_files_are_replaced(tmp_path: Path) -> None:
    """As root, a rename replaces even /dev/null."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/dev/null")
    for name, kind in (("pipe", "a named pipe"), ("folder", "a folder"), ("link", "a device")):
        with pytest.raises(OSError, match=f"cannot write: it is {kind}"):
            write_text(tmp_path / name, "text")
    assert names(tmp_path) == ["folder", "link", "pipe"]


def test_json_takes_numpy_values_and_refuses_what_json_cannot_say(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    write_json(path, {"e": np.float32(0.5), "n": np.int64(3), "a": np.arange(2), "p": Path("x")})
    assert json.loads(path.read_text()) == {"e": 0.5, "n": 3, "a": [0, 1], "p": "x"}
    for bad in (float("nan"), np.float64("inf"), object()):
        with pytest.raises(ValueError, match=r"r\.json: cannot be written as JSON"):
            write_json(path, {"bad": bad})
    assert json.loads(path.read_text())["n"] == 3
