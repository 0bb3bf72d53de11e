from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from densecrf.records import RecordStore

if TYPE_CHECKING:
    from pathlib import Path

KEY = ("shared", "lp", "2_14_s")
SETTINGS = {"gap": 1e-3, "weights": [3, 10]}


def test_records_come_back_until_the_settings_change(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    assert store.load(KEY, SETTINGS) is None
    store.save(KEY, SETTINGS, {"energy": 0.1 + 0.2})
    assert store.load(KEY, dict(reversed(SETTINGS.items()))) == {"energy": 0.1 + 0.2}
    assert store.load(KEY, {**SETTINGS, "gap": 1e-4}) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(position=st.integers(0, 10_000), value=st.integers(0, 255), cut=st.integers(0, 40))
def test_a_damaged_record_is_done_again(
    tmp_path: Path, position: int, value: int, cut: int
) -> None:
    store = RecordStore(tmp_path)
    store.save(KEY, SETTINGS, {"energy": 12.5, "confusion": [[1, 2], [3, 4]]})
    path = store.path(KEY)
    good = path.read_bytes()
    data = bytearray(good)
    data[position % len(data)] = value
    path.write_bytes(data[: len(data) - cut])
    loaded = store.load(KEY, SETTINGS)
    # White space may change without harm; nothing else may.
    assert loaded in (None, {"energy": 12.5, "confusion": [[1, 2], [3, 4]]})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"values": {}}', "[" * 100_000, "\ud800"])
def test_anything_else_in_the_file_counts_as_not_done(tmp_path: Path, text: str) -> None:
    store = RecordStore(tmp_path)
    store.path(KEY).parent.mkdir(parents=True)
    store.path(KEY).write_bytes(text.encode("utf-8", "surrogatepass"))
    assert store.load(KEY, SETTINGS) is None


def test_keys_are_plain_names(tmp_path: Path) -> None:
    for key in ((), ("..",), ("a/b",), ("",), (".hidden",), ("a\\b",)):
        with pytest.raises(ValueError, match="key"):
            RecordStore(tmp_path).path(key)


def test_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        RecordStore(tmp_path).save(KEY, {}, {"energy": float("nan")})


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    program = (
        "import sys, time; from densecrf.records import RecordStore\n"
        "store = RecordStore(sys.argv[1])\n"
        "for i in range(10**6): store.save(('lp', str(i)), {}, {'energy': i}); time.sleep(0.002)"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    while process.poll() is None and len(list(tmp_path.glob("lp/*.json"))) < 5:
        time.sleep(0.01)
    process.kill()
    process.wait()
    store = RecordStore(tmp_path)
    found = sorted(int(path.stem) for path in tmp_path.glob("lp/*.json"))
    assert found == list(range(len(found)))
    assert len(found) >= 5
    for number in found:
        assert store.load(("lp", str(number)), {}) == {"energy": number}
