"""The command line as a new user meets it: good input, broken input, and what is said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from command_line import COLORS, TRUTH, H, L, W, densecrf, probabilities, said
from densecrf.io import read_labels, write_image, write_labels

# --- help ----------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["segment", "compare", "certify", "info", "demo"])
def test_help_explains_every_command(command):
    result = densecrf(command, "--help")
    assert result.exit_code == 0
    assert "Exit codes: 0" in said(result)


def test_no_arguments_show_the_commands_and_version_is_short():
    assert "segment" in said(densecrf())
    assert densecrf("--version").stdout.startswith("densecrf ")


# --- segment ---------------------------------------------------------------------------


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


def test_a_folder_of_images_several_at_a_time(folder):
    result = densecrf("segment", "images", "--probs", "probs", "--method", "mf5", "--jobs", 2)
    assert result.exit_code == 0, said(result)
    assert {p.stem for p in (folder / "segmented").glob("?.png")} == set("abc")


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
    assert "a images/a.png: not an image of a known format" in text
    assert "b probs/b.npy: probabilities: 2304 of 2304 values are not finite" in text
    assert (folder / "segmented" / "c.png").is_file()


def test_hard_labels_with_void_pixels(folder):
    labels = TRUTH.astype(np.uint8).copy()
    labels[5:9, 14:18] = 255
    write_labels(folder / "labels.png", labels)
    result = densecrf("segment", "images/a.png", "--labels", "labels.png", "--out", "o.png")
    assert result.exit_code == 0, said(result)
    np.testing.assert_array_equal(read_labels(folder / "o.png"), TRUTH)


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


def test_low_resolution_logits_need_the_axis(folder):
    np.savez(folder / "small.npz", logits=np.random.default_rng(0).normal(size=(H // 4, W // 4, L)))
    command = ["segment", "images/a.png", "--probs", "small.npz", "--method", "mf5"]
    result = densecrf(*command)
    assert result.exit_code == 1
    assert "resized when you name its label axis, for example --axis 0" in said(result)
    assert densecrf(*command, "--axis", "last").exit_code == 0


def test_ambiguous_scores_name_both_readings_as_options(folder):
    np.save(folder / "odd.npy", np.abs(np.random.default_rng(0).normal(size=(L, H, W))) * 3)
    result = densecrf("segment", "images/a.png", "--probs", "odd.npy", "--method", "mf5")
    assert "(--kind logits); or energies, the lower the likelier (--kind energies)" in said(result)


def test_one_label_everywhere_is_remarked(folder):
    weak = np.array([0.34, 0.33, 0.33])[:, None, None]
    np.save(folder / "weak.npy", np.broadcast_to(weak, (L, H, W)))
    result = densecrf("segment", "images/a.png", "--probs", "weak.npy", "--method", "mf5")
    assert "label 0 everywhere: the weights are too strong for what is known; lower" in said(result)
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
        (["--labels", "images/a.png"], "name the palette that its labels use, --palette"),
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
def test_interruption_keeps_what_is_done(folder):
    for number in range(300):  # more than can be done before the signal comes
        write_image(folder / "images" / f"n{number}.png", COLORS[TRUTH])
        np.save(folder / "probs" / f"n{number}.npy", probabilities(number))
    command = [sys.executable, "-m", "densecrf", "segment", "images", "--probs", "probs"]
    process = subprocess.Popen(
        [*command, "--method", "mf"],
        stderr=subprocess.PIPE,
        text=True,
        # Undo what a shell does to its background jobs, which ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    deadline = time.monotonic() + 600
    while not list((folder / "segmented").glob("*.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 130, err
    assert "Run the same command again to go on" in err
    for record in (folder / "segmented").glob("*.json"):
        assert json.loads(record.read_text())["energy"] > 0


# --- compare, certify, info, demo ------------------------------------------------------------


def test_compare_shows_all_methods_and_a_picture(folder):
    result = densecrf(
        "compare", "images/a.png", "--probs", "probs/a.npy", "--methods", "unary,mf5", "-o", "p.png"
    )
    assert result.exit_code == 0, said(result)
    assert "unary" in result.stdout
    assert "lowest" in result.stdout
    assert (folder / "p.png").read_bytes().startswith(b"\x89PNG")


def test_compare_as_json(folder):
    command = ["compare", "images/a.png", "--probs", "probs/a.npy", "--methods", "unary,mf5"]
    answer = json.loads(densecrf(*command, "--json").stdout)
    assert [entry["method"] for entry in answer["results"]] == ["unary", "mf5"]


def test_compare_refuses_unknown_methods_and_missing_files(folder):
    command = ["compare", "images/a.png", "--probs"]
    assert densecrf(*command, "probs/a.npy", "--methods", "unary,mff").exit_code == 2
    assert densecrf(*command, "missing.npy", "--methods", "unary").exit_code == 1


@pytest.mark.parametrize("command", ["compare", "certify"])
def test_commands_for_one_image_refuse_several(folder, command):
    arguments = ["--probs", "probs", *(["--labels", "mine.png"] if command == "certify" else [])]
    for several in ("images", "images/*.png", "nowhere.png"):
        result = densecrf(command, several, *arguments)
        assert result.exit_code == 2
        assert f"give one file, not {several}" in said(result)


def test_all_commands_take_the_same_model_options(folder):
    """An energy that one command minimises can be judged by the others."""
    write_labels(folder / "mine.png", TRUTH)
    model = ["--sigma", 2, "--weight", 1, "--sigma-xy", 20, "--sigma-color", 9]
    model += ["--bilateral-weight", 2, "--scale-sigmas"]
    source = ["images/a.png", "--probs", "probs/a.npy", *model, "--json"]
    segmented = json.loads(densecrf("segment", *source, "--method", "unary").stdout)["results"][0]
    compared = json.loads(densecrf("compare", *source, "--methods", "unary").stdout)["results"][0]
    assert compared["energy"] == segmented["energy"]
    source[0:0] = ["--labels", "segmented/a.png"]
    certified = json.loads(densecrf("certify", *source).stdout)
    assert certified["energy"] == pytest.approx(segmented["energy"], rel=1e-6)


def test_what_is_proven_is_in_the_table_the_record_and_the_overlay(folder):
    source = ["segment", "images/a.png", "--probs", "probs/a.npy", "--out", "out", "--gap", "1e-6"]
    result = densecrf(*source)
    assert "proven" in result.stdout
    record = json.loads((folder / "out" / "a.json").read_text())
    assert f"{int(1000 * record['proven_share']) / 10:.1f} %" in result.stdout
    labels, image = "out/a.png", "images/a.png"
    told = json.loads(
        densecrf("certify", image, "--probs", "probs/a.npy", "--labels", labels, "--json").stdout
    )
    assert 0 <= told["proven_share"] <= 1


def test_certify_bounds_anyones_labelling(folder):
    write_labels(folder / "mine.png", TRUTH)
    command = ["certify", "images/a.png", "--probs", "probs/a.npy", "--labels", "mine.png"]
    answer = json.loads(densecrf(*command, "--json").stdout)
    assert answer["lower_bound"] <= answer["energy"]
    assert "the global optimum, proven" in densecrf(*command).stdout


def test_a_certificate_is_checked_by_its_file(folder):
    write_labels("mine.png", np.load("probs/a.npy").argmax(0).astype(np.uint8))
    source = ["certify", "images/a.png", "--probs", "probs/a.npy"]
    assert densecrf(*source, "--labels", "mine.png", "--save", "proof.npz").exit_code == 0
    checked = densecrf(*source, "--verify", "proof.npz", "--labels", "mine.png", "--json")
    assert checked.exit_code == 0
    report = json.loads(checked.stdout)
    assert report["disagreements"] == []
    assert report["energy"] == pytest.approx(report["stated"]["energy"], rel=1e-5)
    assert report["lower_bound"] == pytest.approx(report["stated"]["lower_bound"], rel=1e-5)
    assert "recomputed" in densecrf(*source, "--verify", "proof.npz").stdout
    other = densecrf(*source, "--verify", "proof.npz", "--weight", "9")
    assert (other.exit_code, "its kernels is" in other.output) == (1, True)
    labels = np.load("probs/a.npy").argmax(0)
    labels[0, 0] = 1 - labels[0, 0]
    write_labels("mine.png", labels.astype(np.uint8))
    other = densecrf(*source, "--verify", "proof.npz", "--labels", "mine.png")
    assert other.exit_code == 1
    assert "differs from its labels at 1 pixels" in " ".join(other.output.split())
    np.save("probs/a.npy", np.load("probs/a.npy")[:, ::-1])
    other = densecrf(*source, "--verify", "proof.npz", "--json")
    assert other.exit_code == 1
    assert len(json.loads(other.stdout)["disagreements"]) == 2
    for more in (["--verify", "proof.npz", "--save", "b.npz"], ["--save", "b.npz"]):
        assert densecrf(*source, *more).exit_code == 2
    refused = densecrf(*source, "--labels", "mine.png", "--save", "probs/a.npy")
    assert (refused.exit_code, "would replace the input" in refused.output) == (2, True)


def test_certify_refuses_what_it_cannot_judge(folder):
    write_labels(folder / "mine.png", TRUTH[:5])
    result = densecrf("certify", "images/a.png", "--probs", "probs/a.npy", "--labels", "mine.png")
    assert result.exit_code == 1
    assert "labels: shape (5, 32) for a grid of (24, 32) pixels" in said(result)
    result = densecrf("certify", "images/a.png", "--labels", "mine.png")
    assert result.exit_code == 2
    assert "the energy needs --probs" in said(result)


@pytest.mark.parametrize(
    ("words", "answers"),
    [
        ("segment --method pro", ["prox-lp", "prox-lp-l", "prox-lp-acc"]),
        ("segment --preset d", ["default", "deeplab"]),
        ("cert", ["certify"]),
    ],
)
def test_shells_complete_commands_and_names(words, answers):
    environment = {"_DENSECRF_COMPLETE": "complete_bash", "COMP_WORDS": f"densecrf {words}"}
    environment["COMP_CWORD"] = str(len(words.split()))
    done = subprocess.run(
        [sys.executable, "-c", "from densecrf.cli import main; main()"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert done.stdout.split() == answers


def test_info_for_people_and_programs():
    assert "methods" in densecrf("info").stdout
    answer = json.loads(densecrf("info", "--json").stdout)
    assert answer["core"]["threads"] >= 1
    assert "mf" in answer["methods"]


@pytest.mark.slow
def test_demo_draws_and_says_what_is_proven(folder):
    result = densecrf("demo")
    assert result.exit_code == 0, said(result)
    assert "Proven: of the 2^60000 labellings of coffee none" in said(result)
    assert "Mean field, run to its end, is at least" in said(result)
    assert (folder / "demo" / "demo.png").stat().st_size < 600_000


def test_a_missing_extra_is_named(monkeypatch, capsys):
    from densecrf import cli

    monkeypatch.setitem(sys.modules, "densecrf.cli.app", None)
    error = ImportError("No module named 'typer'", name="typer")

    def refuse(name, *args, **kwargs):
        if name == "densecrf.cli.app":
            raise error
        return original(name, *args, **kwargs)

    import builtins

    original = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert 'pip install "densecrf[cli]"' in capsys.readouterr().err
