"""`densecrf segment` as a new user meets it: good input, broken input, and what is said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from command_line import COLORS, TRUTH, H, L, W, densecrf, probabilities, said
from densecrf.cli import batch
from densecrf.io import read_labels, write_image, write_labels
from densecrf.problem.problem import Problem


def test_one_image_to_a_named_file(folder):
    result = densecrf(
        "segment", "images/a.png", "--probs", "probs/a.npy", "--out", "a-labels.png", "--marginals"
    )
    assert result.exit_code == 0, said(result)
    assert sorted(p.name for p in folder.glob("a-labels*")) == [
        "a-labels.json",
        "a-labels.npz",
        "a-labels.overlay.png",
        "a-labels.png",
    ]
    assert (read_labels(folder / "a-labels.png") == TRUTH).mean() > 0.99
    record = json.loads((folder / "a-labels.json").read_text())
    assert record["energy"] > 0
    assert record["gap"] <= 0.01
    assert np.load(folder / "a-labels.npz")["marginals"].shape == (L, H, W)


def test_islands_below_a_size_go_at_a_price(folder):
    energies = []
    for out, more in (("rough.png", []), ("smooth.png", ["--min-area", H * W])):
        given = ["images/a.png", "--probs", "probs/a.npy", "--out", out, *more]
        result = densecrf("segment", *given)
        assert result.exit_code == 0, said(result)
        record = json.loads((folder / out).with_suffix(".json").read_text())
        assert record["lower_bound"] <= record["energy"]
        energies.append(record["energy"])
    assert len(np.unique(read_labels(folder / "smooth.png"))) == 1  # even the largest is small
    assert energies[0] < energies[1]
    assert record["info"]["islands"] == pytest.approx(energies[1] - energies[0])


def test_a_folder_of_images_several_at_a_time(folder):
    result = densecrf("segment", "images", "--probs", "probs", "--method", "mf5", "--jobs", 2)
    assert result.exit_code == 0, said(result)
    assert {p.stem for p in (folder / "segmented").glob("?.png")} == set("abc")


def test_mean_field_is_scored_once(folder, monkeypatch):
    scored = []
    energy = Problem.energy
    monkeypatch.setattr(Problem, "energy", lambda *given: scored.append(1) or energy(*given))
    command = ["segment", "images/a.png", "--probs", "probs/a.npy", "--method", "mf5", "--json"]
    result = densecrf(*command)
    assert result.exit_code == 0, said(result)
    assert len(scored) == 1
    assert json.loads(result.stdout)["results"][0]["iterations"] == 5


def test_processes_write_what_threads_write(folder, monkeypatch):
    command = ["segment", "images", "--probs", "probs", "--gap", "0.01", "--jobs", 2, "--json"]
    command.append("--adapt")
    threads = densecrf(*command, "--out", "by-threads")
    monkeypatch.setattr(batch, "MANY_JOBS", 2)
    monkeypatch.setattr(batch, "PER_PROCESS", 1)
    processes = densecrf(*command, "--out", "by-processes")
    assert processes.exit_code == 0, said(processes)
    for path in (folder / "by-threads").glob("*.png"):
        assert (folder / "by-processes" / path.name).read_bytes() == path.read_bytes()
    told = [json.loads(each.stdout)["results"] for each in (threads, processes)]
    assert [each["energy"] for each in told[0]] == [each["energy"] for each in told[1]]


def test_patterns_for_images_and_companions(folder):
    (folder / "probs" / "b.npy").rename(folder / "probs" / "b-scores.npy")
    arguments = ["images/[b]*.png", "--probs", "probs/{name}-scores.npy", "--method", "mf5"]
    assert densecrf("segment", *arguments).exit_code == 0
    assert (folder / "segmented" / "b.png").is_file()


def test_folders_below_folders_keep_their_names_apart(folder):
    for name in ("x", "y"):
        (folder / "deep" / name).mkdir(parents=True)
        (folder / "scores" / name).mkdir(parents=True)
        write_image(folder / "deep" / name / "a.png", COLORS[TRUTH])
        np.save(folder / "scores" / name / "a.npy", probabilities(5))
    result = densecrf("segment", "deep", "--probs", "scores", "--method", "mf5", "--out", "o")
    assert result.exit_code == 0, said(result)
    assert (folder / "o" / "x" / "a.png").is_file()
    assert (folder / "o" / "y" / "a.png").is_file()


def test_files_are_in_the_order_that_people_count(folder):
    for number in (1, 2, 10):
        write_image(folder / "images" / f"n{number}.png", COLORS[TRUTH])
        np.save(folder / "probs" / f"n{number}.npy", probabilities(number))
    command = ["segment", "images/n*.png", "--probs", "probs", "--method", "unary", "--jobs", 2]
    answer = json.loads(densecrf(*command, "--json").stdout)
    assert [entry["name"] for entry in answer["results"]] == ["n1", "n2", "n10"]


def test_where_the_files_are_is_said(folder):
    one = densecrf("segment", "images/a.png", "--probs", "probs/a.npy", "--method", "unary")
    assert "Written: segmented/a.png, segmented/a.overlay.png, segmented/a.json" in said(one)
    many = densecrf("segment", "images", "--probs", "probs", "--method", "unary")
    assert "Written: labels, overlay, result of 3 images in segmented" in said(many)


def test_a_missing_companion_names_what_was_looked_for(folder):
    (folder / "probs" / "c.npy").unlink()
    result = densecrf("segment", "images", "--probs", "probs", "--method", "unary")
    assert "c probs/c{.npz,.npy,.unary,.c_unary}: No such file or directory" in said(result)


def test_json_holds_results_and_failures(folder):
    (folder / "probs" / "c.npy").unlink()
    result = densecrf("segment", "images", "--probs", "probs", "--method", "mf5", "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert [entry["name"] for entry in answer["results"]] == ["a", "b"]
    assert list(answer["failures"]) == ["c"]


def test_a_second_run_does_only_what_is_missing_or_changed(folder):
    command = ["segment", "images", "--probs", "probs", "--method", "mf5", "--json"]
    densecrf(*command)
    (folder / "segmented" / "a.png").unlink()
    np.save(folder / "probs" / "b.npy", probabilities(9))
    answer = json.loads(densecrf(*command).stdout)
    skipped = {entry["name"]: entry.get("skipped", False) for entry in answer["results"]}
    assert skipped == {"a": False, "b": False, "c": True}
    answer = json.loads(densecrf(*command, "--force").stdout)
    assert not any(entry.get("skipped") for entry in answer["results"])
    answer = json.loads(densecrf(*command, "--weight", "1").stdout)
    assert not any(entry.get("skipped") for entry in answer["results"])


@pytest.mark.parametrize("left", [0, 40])
def test_a_label_map_that_was_cut_short_is_written_again(folder, left):
    command = ["segment", "images/a.png", "--probs", "probs/a.npy", "--method", "unary", "--json"]
    densecrf(*command)
    path = folder / "segmented" / "a.png"
    before = path.read_bytes()
    path.write_bytes(before[:left])
    answer = json.loads(densecrf(*command).stdout)
    assert not answer["results"][0].get("skipped")
    assert path.read_bytes() == before


def test_files_of_many_images_are_flushed_together(folder, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    densecrf("segment", "images", "--probs", "probs", "--method", "unary")
    assert len(flushed) == 3 * 3 + 1  # three files of each image, and their folder


def test_each_input_is_opened_once_and_not_at_all_when_it_is_done(folder, monkeypatch):
    opened = []
    original = Path.open

    def noted(path, *arguments, **options):
        opened.append(str(path))
        return original(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", noted)
    command = ["segment", "images", "--probs", "probs", "--method", "unary"]
    assert densecrf(*command).exit_code == 0
    inputs = [path for path in opened if path.startswith(("images", "probs"))]
    assert len(inputs) == len(set(inputs)) == 6
    opened.clear()
    assert densecrf(*command).exit_code == 0
    assert not [path for path in opened if path.startswith(("images", "probs"))]


def test_damaged_records_are_done_again(folder):
    command = ["segment", "images/a.png", "--probs", "probs/a.npy", "--method", "mf5", "--json"]
    densecrf(*command)
    (folder / "segmented" / "a.json").write_text("{")
    assert not json.loads(densecrf(*command).stdout)["results"][0].get("skipped")


def test_broken_inputs_do_not_stop_the_others(folder):
    (folder / "images" / "a.png").write_bytes(b"not an image")
    np.save(folder / "probs" / "b.npy", np.full((L, H, W), np.nan))
    result = densecrf("segment", "images", "--probs", "probs", "--method", "mf5")
    assert result.exit_code == 1
    text = said(result)
    assert "2 of 3 could not be used" in text
    assert "a images/a.png: is not an image of a known format" in text
    assert "b probs/b.npy: probabilities: 2304 of 2304 values are not finite" in text
    assert (folder / "segmented" / "c.png").is_file()


def test_hard_labels_with_void_pixels(folder):
    labels = TRUTH.astype(np.uint8).copy()
    labels[5:9, 14:18] = 255
    write_labels(folder / "labels.png", labels)
    result = densecrf("segment", "images/a.png", "--labels", "labels.png", "--out", "o.png")
    assert result.exit_code == 0, said(result)
    np.testing.assert_array_equal(read_labels(folder / "o.png"), TRUTH)


def test_a_mask_of_0_and_255_is_two_labels(folder):
    mask = np.where(TRUTH == 1, 255, 0).astype(np.uint8)
    write_image(folder / "mask.png", mask)
    result = densecrf("segment", "images/a.png", "--labels", "mask.png", "--out", "o.png")
    assert result.exit_code == 0, said(result)
    np.testing.assert_array_equal(read_labels(folder / "o.png"), TRUTH == 1)
    np.save(folder / "p.npy", np.where(TRUTH == 1, 0.9, 0.1))
    found = [
        densecrf("certify", "images/a.png", "--probs", "p.npy", "--labels", name, "--json")
        for name in ("mask.png", "o.png")
    ]
    energies = [json.loads(result.stdout)["energy"] for result in found]
    assert energies[0] == energies[1]


def test_seeds_may_be_stored_in_8_bits(folder):
    seeds = np.full((H, W), 255, np.uint8)
    seeds[4, 4] = 2
    np.save(folder / "seeds.npy", seeds)
    source = ["--probs", "probs/a.npy", "--scribbles", "seeds.npy"]
    result = densecrf("segment", "images/a.png", *source, "--out", "s.png")
    assert result.exit_code == 0, said(result)
    assert read_labels(folder / "s.png")[4, 4] == 2


def test_volumes_are_for_tiles(folder):
    (folder / "v.nii.gz").write_bytes(b"\x1f\x8b")
    for image, probs in (("v.nii.gz", "probs/a.npy"), ("images/a.png", "v.nii.gz")):
        result = densecrf("segment", image, "--probs", probs)
        assert result.exit_code == 1
        assert "use densecrf.large.refine or densecrf segment --tile" in said(result)
        assert "pip install 'densecrf[large]'" in said(result)


def test_scribbles_alone_and_as_seeds(folder):
    strokes = np.zeros((H, W), np.uint8)
    strokes[3, 2:7], strokes[8, 13:18], strokes[15, 24:30] = 1, 2, 3
    write_labels(folder / "strokes.png", strokes)
    result = densecrf(
        "segment", "images/a.png", "--scribbles", "strokes.png", "--void", 0, "--out", "o.png"
    )
    assert result.exit_code == 0, said(result)
    np.testing.assert_array_equal(read_labels(folder / "o.png"), TRUTH + 1)
    seeds = np.full((H, W), 255, np.uint8)
    seeds[4, 4] = 2
    write_labels(folder / "seeds.png", seeds)
    source = ["--probs", "probs/a.npy", "--scribbles", "seeds.png"]
    assert densecrf("segment", "images/a.png", *source, "--out", "s.png").exit_code == 0
    assert read_labels(folder / "s.png")[4, 4] == 2


def test_grey_sixteen_bit_and_transparent_images(folder):
    from PIL import Image

    colors = COLORS[TRUTH]
    Image.fromarray(colors[..., 0]).save(folder / "grey.png")
    Image.fromarray(colors[..., 0].astype(np.uint16) * 257).save(folder / "deep.tif")
    alpha = np.dstack([colors, np.full((H, W), 128, np.uint8)])
    Image.fromarray(alpha).save(folder / "alpha.png")
    for name in ("grey.png", "deep.tif", "alpha.png"):
        result = densecrf("segment", name, "--probs", "probs/a.npy", "--method", "mf5")
        assert result.exit_code == 0, said(result)


def test_a_page_of_many_is_asked_for(folder):
    from PIL import Image

    pages = [Image.fromarray(COLORS[TRUTH])] * 2
    pages[0].save(folder / "pages.tif", save_all=True, append_images=pages[1:])
    command = ["segment", "pages.tif", "--probs", "probs/a.npy", "--method", "mf5"]
    assert "has 2 pages; choose one with --page 0 to 1" in said(densecrf(*command))
    assert densecrf(*command, "--page", 1).exit_code == 0


def test_every_band_of_a_satellite_image_takes_part(folder):
    """Near infrared alone tells the labels apart, which the colours do not."""
    infrared = (20000 + 20000 * TRUTH).astype(np.uint16)
    bands = np.stack([np.full_like(infrared, 30000)] * 3 + [infrared])
    layout = {"photometric": "rgb", "planarconfig": "separate", "extrasamples": ["unspecified"]}
    tifffile.imwrite(folder / "s.tif", bands, **layout)
    options = ["segment", "s.tif", "--probs", "probs/a.npy", "--method", "mf5"]
    changed = {}
    for name, more in (
        ("all", []),
        ("infrared", ["--bands", "4"]),
        ("colours", ["--bands", "3,2"]),
    ):
        result = densecrf(*options, *more, "--out", f"{name}.png")
        assert result.exit_code == 0, said(result)
        changed[name] = (read_labels(folder / f"{name}.png") != TRUTH).sum()
    assert changed["all"] == changed["infrared"] < changed["colours"]
    result = densecrf(*options, "--bands", "5")
    assert "--bands 5: s.tif has 4 bands" in said(result)


def test_low_resolution_logits_out_of_proportion_need_the_axis(folder):
    rng = np.random.default_rng(0)
    np.savez(folder / "small.npz", logits=rng.normal(size=(H // 4, W // 4, L)))
    command = ["segment", "images/a.png", "--method", "mf5", "--probs"]
    assert densecrf(*command, "small.npz").exit_code == 0
    np.savez(folder / "odd.npz", logits=rng.normal(size=(H // 4, W // 2, L)))
    result = densecrf(*command, "odd.npz")
    assert result.exit_code == 1
    assert "resized when you name its label axis by --axis" in said(result)
    assert densecrf(*command, "odd.npz", "--axis", "last").exit_code == 0


def test_ambiguous_scores_name_both_readings_as_options(folder):
    np.save(folder / "odd.npy", np.abs(np.random.default_rng(0).normal(size=(L, H, W))) * 3)
    result = densecrf("segment", "images/a.png", "--probs", "odd.npy", "--method", "mf5")
    assert "(--kind logits); or energies, lower is more probable (--kind energies)" in said(result)


def test_one_label_everywhere_is_remarked(folder):
    weak = np.array([0.34, 0.33, 0.33])[:, None, None]
    np.save(folder / "weak.npy", np.broadcast_to(weak, (L, H, W)))
    result = densecrf("segment", "images/a.png", "--probs", "weak.npy", "--method", "mf5")
    assert "label 0 everywhere: the weights are too strong for these unaries; lower" in said(result)
    assert "--bilateral-weight and --weight" in said(result)


def test_warnings_speak_of_options(folder):
    """What the library calls arguments, the terminal calls options."""
    weak = 0.49 + 0.02 * np.random.default_rng(0).random((H, W))
    np.save(folder / "weak.npy", np.stack([weak, 1 - weak]))
    command = ["segment", "images/a.png", "--probs", "weak.npy", "--method", "unary"]
    result = densecrf(*command, "--bilateral-weight", 300, "--weight", 300)
    assert "label 0 everywhere has energy" in said(result)
    assert "lower --bilateral-weight and --weight" in said(result)
    assert "normalization=" not in said(result)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["images/a.png"], "give --probs, --labels or --scribbles"),
        (["images/a.png", "--probs", "p", "--labels", "l"], "--probs or --labels, not both"),
        (["nowhere/*.png", "--probs", "probs"], "no such file, folder or match: nowhere/*.png"),
        (["probs", "--probs", "probs"], "no images in folder probs"),
        (["images", "--probs", "probs/a.npy"], "give a folder, or a pattern with {name}"),
        (
            ["images", "images/a.png", "--probs", "probs"],
            "would both be written to",
        ),
        (["images", "--probs", "probs", "--out", "o.png"], "one file, but there are 3 images"),
        (["images", "--probs", "probs", "--method", "mff"], "Did you mean 'mf'?"),
        (["images", "--probs", "probs", "--preset", "deeplap"], "Did you mean 'deeplab'?"),
        (["images", "--probs", "probs", "--axis", "middle"], "not first, last or a number"),
        (["images", "--probs", "probs", "--jobs", "0"], "'--jobs'"),
    ],
)
def test_misunderstood_commands_say_why_and_exit_with_2(folder, arguments, message):
    result = densecrf("segment", *arguments)
    assert result.exit_code == 2
    assert message in said(result)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--probs", "missing.npy"], "missing.npy: No such file"),
        (["--probs", "images/a.png"], "is an image; for label images use --labels"),
        (["--probs", "probs/a.npy", "--sigma-xy", "1e-8"], "--sigma-xy 1e-08"),
        (["--probs", "probs/a.npy", "--n-labels", "9"], "the array holds 3 labels"),
        (["--probs", "probs/a.npy", "--scribbles", "probs/a.npy"], "has shape (3, 24, 32)"),
        (["--labels", "images/a.png"], "name the palette of its labels with --palette"),
        (["--scribbles", "strokes.png"], "say which value means 'no stroke', for example --void 0"),
    ],
)
def test_unusable_input_says_what_to_do_and_exits_with_1(folder, arguments, message):
    write_labels(folder / "strokes.png", np.eye(H, W, dtype=np.uint8))
    result = densecrf("segment", "images/a.png", *arguments, "--method", "mf5")
    assert result.exit_code == 1
    assert message in said(result)


def test_an_unwritable_place_is_refused_before_any_work(folder):
    (folder / "taken").write_text("a file")
    command = ["segment", "images/a.png", "--probs", "probs/a.npy", "--method", "mf5"]
    result = densecrf(*command, "--out", "taken")
    assert result.exit_code == 2
    assert "a part of its path is a file, not a folder" in said(result)


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("jobs", ["1", "6"])
def test_interruption_keeps_what_is_done(folder, jobs):
    for number in range(20):  # so many that processes do the work of six jobs
        write_image(folder / "images" / f"n{number}.png", COLORS[TRUTH])
        np.save(folder / "probs" / f"n{number}.npy", probabilities(number))
    rng = np.random.default_rng(0)  # noise takes minutes, so that the signal comes before its end
    write_image(folder / "images" / "noise.png", rng.integers(0, 256, (500, 500, 3), np.uint8))
    np.save(folder / "probs" / "noise.npy", rng.dirichlet(np.ones(L), (500, 500)))
    command = [sys.executable, "-m", "densecrf", "segment", "images", "--probs", "probs"]
    process = subprocess.Popen(
        [*command, "--method", "lp", "--gap", "0", "--no-adapt", "--jobs", jobs],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 600
    while (
        not list((folder / "segmented").glob("*.json"))
        and process.poll() is None
        and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, err = process.communicate(timeout=600)
    assert process.returncode == 130, err
    assert "Run the same command again to continue" in err
    assert "Traceback" not in err
    for record in (folder / "segmented").glob("*.json"):
        assert json.loads(record.read_text())["energy"] > 0


def test_the_palette_is_for_the_label_map_and_not_for_the_overlay(folder):
    command = ["segment", "images/a.png", "--probs", "probs/a.npy", "--method", "unary"]
    assert densecrf(*command, "--out", "plain").exit_code == 0
    assert densecrf(*command, "--out", "voc", "--palette", "voc").exit_code == 0
    plain, voc = (Image.open(f"{out}/a.png").getpalette()[:6] for out in ("plain", "voc"))
    assert voc == [0, 0, 0, 128, 0, 0]
    assert plain == [0, 114, 178, 230, 159, 0]
    overlays = [(folder / out / "a.overlay.png").read_bytes() for out in ("plain", "voc")]
    assert overlays[0] == overlays[1]


def test_pseudo_labels_of_a_folder_leave_out_unsure_pixels(folder):
    (folder / "cams").mkdir()
    for name in "abc":
        np.save(folder / "cams" / f"{name}.npy", probabilities(3)[1:])
    options = ["--probs", "cams", "--background-power", 2, "--unsure", 255, "--confident", 0.9]
    result = densecrf("segment", "images", *options, "--palette", "voc", "--json")
    assert result.exit_code == 0, said(result)
    labels = np.array(Image.open(folder / "segmented" / "a.png"))
    record = json.loads((folder / "segmented" / "a.json").read_text())
    assert Image.open(folder / "segmented" / "a.png").getpalette()[3:6] == [128, 0, 0]
    assert record["unsure_share"] == pytest.approx((labels == 255).mean())
    assert 0 < record["unsure_share"] < 1
    assert set(np.unique(labels)) <= {*range(L), 255}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--unsure", 70000], "70000 is not a value of a label image"),
        (["--confident", 95], "95 is not between 0 and 1"),
        (["--unsure", 1], "is one of the"),
        (["--unsure", 255, "--tile", 64], "--tile does not support confidences"),
        (["--background", 0.3, "--background-power", 4], "not both"),
        (["--background", 3], "must be between 0 and 1"),
    ],
)
def test_bad_options_of_pseudo_labels_are_refused(folder, options, message):
    result = densecrf("segment", "images/a.png", "--probs", "probs/a.npy", *options)
    assert result.exit_code != 0
    assert message in " ".join(said(result).replace("│", " ").split())


def test_the_axis_of_activation_maps_is_found_or_asked_for(folder):
    maps, found = probabilities(3)[1:], []
    options = ["--background", 0.3, "--out", "o.png", "--force"]
    for given in (maps, np.moveaxis(maps, 0, -1), maps[None], maps.astype(np.float16)):
        np.save(folder / "maps.npy", given)
        result = densecrf("segment", "images/a.png", "--probs", "maps.npy", *options)
        assert result.exit_code == 0, said(result)
        found.append(read_labels(folder / "o.png"))
    assert all((each == found[0]).mean() > 0.99 for each in found)
    np.save(folder / "maps.npy", maps[:, 1:, 3:])
    result = densecrf("segment", "images/a.png", "--probs", "maps.npy", *options)
    assert "does not fit an image" in said(result)
    np.save(folder / "labels.npy", TRUTH.astype(np.uint8))
    result = densecrf("segment", "images/a.png", "--labels", "labels.npy", *options)
    assert "are for activation maps in --probs" in " ".join(said(result).split())
