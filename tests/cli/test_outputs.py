"""No command writes onto what it reads, or twice onto one file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import typer

from command_line import COLORS, TRUTH, densecrf, probabilities, said
from densecrf.cli.outputs import check_outputs
from densecrf.io import write_image, write_labels
from densecrf.model.parameters import write_parameters
from densecrf.model.presets import PRESETS


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def same(folder: Path) -> Path:
    """A folder with an image and its probabilities, and nothing else."""
    (folder / "same").mkdir()
    write_image(folder / "same" / "a.png", COLORS[TRUTH])
    np.save(folder / "same" / "a.npy", probabilities(0))
    return folder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("segment same --probs same --out same", "made from same/a.png, would replace the input"),
        ("segment same/a.png --probs same/a.npy --out same/a.png", "choose another --out"),
        ("segment same/a.png --probs same/a.npy --out SAME/A.png", "the input same/a.png"),
        ("segment images/a.png --labels same/a.png --palette voc --out same", "same/a.png, made"),
        ("segment images/a.png --scribbles same/a.png --out same", "input same/a.png"),
        ("segment images --probs same/{name}.npz --out same --marginals", "input same/a.npz"),
        ("compare images/a.png --probs probs/a.npy --out images/a.png", "choose another --out"),
        ("compare images/a.png --probs probs/a.npy --out probs/a.npy", "ends in .png"),
    ],
)
def test_no_command_writes_onto_an_input(same, arguments, message):
    before = contents(same)
    result = densecrf(*arguments.split())
    assert result.exit_code == 2
    assert message in said(result)
    assert contents(same) == before


def test_the_file_of_parameters_is_an_input(folder):
    write_parameters("a.json", PRESETS["deeplab"])
    command = ["segment", "images/a.png", "--probs", "probs/a.npy", "--params", "a.json"]
    result = densecrf(*command, "--out", ".")
    assert result.exit_code == 2
    assert "would replace the input a.json" in said(result)


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        (
            "labels.jpg",
            "labels.jpg: .jpg is lossy and changes labels; give labels.png, or a folder",
        ),
        ("deep/labels.JPEG", "is lossy and changes labels; give labels.png"),
        ("labels.webp", "is lossy"),
        ("labels.bmp", "labels.bmp: .bmp is not supported; give labels.png, or a folder"),
        ("labels.json", "is not supported"),
    ],
)
def test_out_of_another_format_is_refused_and_makes_no_folder(folder, out, reason):
    result = densecrf("segment", "images/a.png", "--probs", "probs/a.npy", "--out", out)
    assert result.exit_code == 2
    assert reason in said(result)
    assert not list(folder.rglob("labels*"))


def test_tiles_are_not_written_into_a_folder_named_as_a_picture(folder):
    command = ["segment", "images/a.png", "--probs", "probs/a.npy", "--tile", "64"]
    result = densecrf(*command, "--out", "labels.png")
    assert result.exit_code == 2
    assert "labels.png: .png is not supported; give labels.npy or .zarr or .tif" in said(result)
    assert not Path("labels.png").exists()


def test_a_folder_may_have_a_dot_in_its_name(folder):
    command = ["segment", "images/a.png", "--probs", "probs/a.npy", "--method", "unary"]
    assert densecrf(*command, "--out", "results.v2").exit_code == 0
    assert Path("results.v2/a.png").is_file()


def test_two_images_may_not_share_an_output(folder):
    write_image("images/a.overlay.png", COLORS[TRUTH])
    np.save("probs/a.overlay.npy", probabilities(3))
    command = ["segment", "images", "--probs", "probs", "--method", "unary"]
    result = densecrf(*command)
    assert result.exit_code == 2
    both = "images/a.overlay.png and images/a.png would both be written to segmented/a.overlay.png"
    assert both in said(result)
    assert not Path("segmented").exists()
    assert densecrf(*command, "--no-overlay").exit_code == 0


def test_names_that_differ_in_case_are_one_output(folder):
    write_image("images/A.png", COLORS[TRUTH])
    result = densecrf("segment", "images", "--probs", "probs", "--method", "unary")
    assert result.exit_code == 2
    assert "images/A.png and images/a.png would both be written to segmented/a.png" in said(result)


def test_results_below_the_images_are_no_images(folder):
    """The same command goes on, or has nothing to do, wherever its results are."""
    for out in ("images/results", "images"):
        for image in Path("images").glob("?.png"):
            image.rename(image.with_suffix(".bmp"))  # read by content, so the suffix is free
        command = ["segment", "images", "--probs", "probs", "--method", "unary", "--out", out]
        assert densecrf(*command).exit_code == 0
        again = densecrf(*command)
        assert again.exit_code == 0, said(again)
        assert "3 of 3 done before" in said(again)


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_links_are_the_files_that_they_name(folder, link):
    link(Path("images/a.png").resolve(), "linked.png")
    command = ["segment", "images/a.png", "--probs", "probs/a.npy", "--out", "linked.png"]
    result = densecrf(*command)
    assert result.exit_code == 2
    assert "would replace the input images/a.png" in said(result)


def test_only_files_are_written(folder):
    Path("a.png").mkdir()
    with pytest.raises(typer.BadParameter, match=r"a\.png cannot be written: it is a folder; wait"):
        check_outputs([(Path("a.png"), "b")], [], "wait")
    with pytest.raises(typer.BadParameter, match="it is a device"):
        check_outputs([(Path(os.devnull), "b")], [None], "wait")
    check_outputs([(Path("x/b.png"), "b"), (Path("x/c.png"), "b")], [Path("none.png")], "")


def test_judged_labels_are_only_read(folder):
    write_labels("mine.png", TRUTH)
    before = contents(folder)
    command = ["certify", "images/a.png", "--probs", "probs/a.npy", "--labels", "mine.png"]
    assert densecrf(*command, "--budget", 1).exit_code == 0
    assert contents(folder) == before


def test_the_picture_of_the_demonstration_replaces_no_folder(folder):
    Path("taken/demo.png").mkdir(parents=True)
    result = densecrf("demo", "--out", "taken")
    assert result.exit_code == 2
    assert "cannot be written" in said(result)
