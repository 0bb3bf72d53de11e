"""Files that are no files, values that are no labels, a disk that is full: said, never a crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from command_line import COLORS, TRUTH, H, L, W, densecrf, probabilities, said
from densecrf.io import read_labels, write_labels

posix = pytest.mark.skipif(sys.platform == "win32", reason="no pipes and devices as files")


@posix
@pytest.mark.parametrize("name", ["images/p.png", "probs/a.npy", "labels.png", "params.json"])
def test_named_pipes_are_refused_not_waited_for(folder, name):
    Path(name).unlink(missing_ok=True)
    os.mkfifo(name)
    source = ["--labels", name] if name == "labels.png" else ["--probs", "probs"]
    more = ["--params", name] if name == "params.json" else []
    images = "images" if name != "labels.png" else "images/a.png"
    command = [sys.executable, "-m", "densecrf", "segment", images, *source, *more]
    run = subprocess.run(
        [*command, "--method", "unary"], capture_output=True, text=True, timeout=600, check=False
    )
    assert run.returncode in (1, 2)
    assert f"{name}: is a named pipe, not a file" in " ".join(run.stderr.split())


def test_folders_and_links_to_nothing_are_refused(folder):
    Path("images/folder.png").mkdir()
    Path("images/gone.png").symlink_to("nowhere")
    command = ["segment", "images", "--probs", "probs/{name}.npy", "--method", "unary"]
    result = densecrf(*command)
    assert result.exit_code == 1
    assert "2 of 5 could not be used" in said(result)
    assert "folder images/folder.png: is a folder, not a file" in said(result)


@pytest.mark.parametrize("value", [-(2**63), 2**63 - 1, -2, 2**31])
@pytest.mark.parametrize("source", ["--labels", "--scribbles"])
def test_values_that_are_no_labels_fail_for_their_image_alone(folder, value, source):
    Path("given").mkdir()
    for name in "abc":
        labels = TRUTH.astype(np.int64)
        labels[0, 0] = value if name == "a" else 0
        labels[1:, ::2] = 255
        np.save(f"given/{name}.npy", labels)
    result = densecrf("segment", "images", source, "given", "--method", "unary", "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert list(answer["failures"]) == ["a"]
    assert "internal" not in answer["failures"]["a"]
    assert [entry["name"] for entry in answer["results"]] == ["b", "c"]


def test_warnings_of_a_failed_image_are_not_the_next_ones(folder):
    """Image a is read with a warning, then its scores are refused."""
    from PIL import Image

    Image.fromarray((TRUTH * 1500).astype(np.uint16)).save("images/a.png")
    np.save("probs/a.npy", np.full((L, H, W), np.nan))
    result = densecrf("segment", "images", "--probs", "probs", "--method", "unary", "--json")
    answer = json.loads(result.stdout)
    assert list(answer["failures"]) == ["a"]
    assert [entry["warnings"] for entry in answer["results"]] == [[], []]


def test_one_label_is_remarked_once(folder):
    rng = np.random.default_rng(0)
    weak = 0.49 + 0.02 * rng.random((H, W))
    np.save("weak.npy", np.stack([weak, 1 - weak]))
    result = densecrf("segment", "images/a.png", "--probs", "weak.npy", "--weight", 50)
    assert "1" in said(result)
    assert said(result).count("everywhere") == 1
    assert "constant labelling" not in said(result)
    assert len(json.loads(Path("segmented/a.json").read_text())["warnings"]) == 1


@pytest.mark.parametrize("gap", ["5", "1", "-0.1", "nan"])
def test_a_gap_is_a_fraction(folder, gap):
    result = densecrf("segment", "images", "--probs", "probs", "--gap", gap)
    assert result.exit_code == 2
    assert "for 0.1 % say 0.001" in said(result)


def test_twelve_bits_are_recognised(folder):
    """Both readings of the image give the same answer as its eight bits, not a black image."""
    from PIL import Image

    grey = (COLORS[TRUTH][..., 0] * (4095 / 255)).round().astype(np.uint16)
    Image.fromarray(grey).save("deep.png")
    Image.fromarray(COLORS[TRUTH][..., 0]).save("plain.png")
    source = ["--probs", "probs/a.npy", "--method", "mf5", "--json"]
    energies = []
    for arguments in (["plain.png"], ["deep.png"], ["deep.png", "--image-range", 0, 4095]):
        (answer,) = json.loads(densecrf("segment", *arguments, *source).stdout)["results"]
        energies.append(answer["energy"])
        noticed = any("12-bit" in text for text in answer["warnings"])
        assert noticed == (arguments == ["deep.png"])
    np.testing.assert_allclose(energies[1:], energies[0], rtol=1e-3)
    answer = json.loads(densecrf("segment", "deep.png", *source, "--force").stdout)
    assert "--image-range 0 65535" in answer["results"][0]["warnings"][0]


def test_certify_completes_void_pixels(folder):
    source = ["images/a.png", "--probs", "probs/a.npy"]
    assert densecrf("segment", *source, "--out", "best.png").exit_code == 0
    labels = read_labels("best.png")
    command = ["certify", *source, "--labels"]
    whole = json.loads(densecrf(*command, "best.png", "--json").stdout)
    labels[5:9, 8:14] = 255
    write_labels("holes.png", labels)
    result = densecrf(*command, "holes.png", "--json")
    assert result.exit_code == 0, said(result)
    answer = json.loads(result.stdout)
    assert answer["void_pixels"] == 24
    assert answer["lower_bound"] <= answer["energy"] <= 1.02 * whole["energy"]
    assert "24 void pixels received the labels of lowest energy" in said(result)
    write_labels("void.png", np.full((H, W), 255))
    assert densecrf(*command, "void.png").exit_code == 1


@pytest.fixture
def environment(tmp_path):
    """An environment with a broken PyTorch, which `densecrf info` reports without a wait."""
    (tmp_path / "torch.py").write_text("raise ImportError('broken')")
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


@posix
def test_a_full_disk_behind_standard_output_is_one_line(environment):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    for command in ("info", "info --json", "--help"):
        with Path("/dev/full").open("w") as full:
            run = subprocess.run(
                [sys.executable, "-m", "densecrf", *command.split()],
                stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment,
            )  # fmt: skip
        assert run.returncode == 1
        assert run.stderr == "Error: cannot write to standard output: No space left on device\n"


def test_info_reports_a_pytorch_that_cannot_be_imported(environment):
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "densecrf", "info", "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert json.loads(run.stdout)["gpu"] == "unknown: PyTorch cannot be imported (broken)"


@posix
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_standard_streams_are_not_missed(closed, environment):
    command = f"{sys.executable} -m densecrf info {closed}"
    streams = {"capture_output": True, "text": True}
    run = subprocess.run(command, shell=True, check=False, env=environment, **streams)
    assert run.returncode == 0
    assert run.stderr == ""


@posix
def test_a_reader_that_has_gone_is_no_error_message(environment):
    read, write = os.pipe()
    os.close(read)
    run = subprocess.run(
        [sys.executable, "-m", "densecrf", "info"],
        stdout=write, stderr=subprocess.PIPE, text=True, check=False, env=environment,
    )  # fmt: skip
    os.close(write)
    assert run.stderr == ""


def test_a_device_is_passed_on(folder):
    pytest.importorskip("torch")
    source = ["segment", "images/a.png", "--probs", "probs/a.npy", "--json"]
    (core,) = json.loads(densecrf(*source).stdout)["results"]
    (torch,) = json.loads(densecrf(*source, "--device", "cpu").stdout)["results"]
    assert torch.get("skipped") is None
    assert torch["energy"] == pytest.approx(core["energy"], rel=1e-2)
    wrong = densecrf(*source, "--device", "abacus")
    assert wrong.exit_code == 1
    assert "abacus" in said(wrong)


def test_damaged_files_are_listed_with_a_reason(folder):
    Path("images/a.png").write_bytes(Path("images/a.png").read_bytes()[:60])
    head = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': "
    Path("probs/b.npy").write_bytes(head + b"(3, 900000, 900000), }".ljust(67) + b"\n" + b"0" * 64)
    np.save("probs/c.npy", np.where(TRUTH == 1, np.inf, probabilities(2)))
    result = densecrf("segment", "images", "--probs", "probs", "--method", "unary")
    assert result.exit_code == 1
    for reason in ("a images/a.png: broken or trunc", "b probs/b.npy: shape", "c probs/c.npy: "):
        assert reason in said(result)
    assert "internal" not in said(result)
