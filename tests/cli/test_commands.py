"""Help, compare, certify, info, completion and demo, as a new user meets them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from command_line import TRUTH, densecrf, said
from densecrf.io import write_labels
from densecrf.model.presets import PRESETS


@pytest.mark.parametrize("arguments", ["tune --data x", "reproduce table --help", "tune"])
def test_commands_that_left_the_package_say_where_they_are(arguments):
    result = densecrf(*arguments.split())
    assert result.exit_code == 2
    assert "python -m experiments" in said(result)


# --- help ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["segment", "masks", "box", "compare", "certify", "info", "presets", "demo"]
)
def test_help_explains_every_command(command):
    result = densecrf(command, "--help")
    assert result.exit_code == 0
    assert "Exit codes: 0" in said(result)


def test_no_arguments_show_the_commands_and_version_is_short():
    assert "segment" in said(densecrf())
    assert densecrf("--version").stdout.startswith("densecrf ")


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


def test_presets_are_listed_with_whom_they_come_from():
    shown = densecrf("presets").stdout
    numbers = json.loads(densecrf("presets", "--json").stdout)
    assert list(numbers) == list(PRESETS)
    for name, preset in PRESETS.items():
        (line,) = (line for line in shown.splitlines() if line.split()[0] == name)
        assert preset.about in line
        assert ("not normalised" in line) == (preset.normalization == "none")
        assert numbers[name]["sigma_xy"] == preset.sigma_xy
    assert "video       none      60/5/5" in shown
    assert PRESETS["cutler"].caution in shown


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
    assert "Mean field, run to convergence, is at least" in said(result)
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


PRESSED = """
import signal, sys
class Press:
    def find_spec(self, name, *_):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Press())
sys.argv = ["densecrf", *{command!r}]
from densecrf.cli import main
main()
"""


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("module", "command"),
    [("typer", ["info"]), ("densecrf.cli.segment", ["info"]), ("torch", ["info"])],
)
def test_ctrl_c_during_an_import_is_one_line(module, command):
    """While the command line is imported, and later, by a command."""
    if module == "torch":
        pytest.importorskip("torch.nn")  # tests/torch is no torch
    code = PRESSED.format(module=module, command=command)
    run = [sys.executable, "-c", code]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 130
    assert ended.stderr == "Interrupted.\n"


@pytest.mark.parametrize(
    "command",
    ["segment", "masks", "box", "compare", "certify", "adapt", "fit", "info", "presets", "demo"],
)
def test_help_is_short_and_help_all_is_whole(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    short, whole = (densecrf(command, option).output for option in ("--help", "--help-all"))
    assert len(short.splitlines()) <= 65
    assert "<bool>" not in whole + densecrf("--help").output
    rare = set(re.findall(r"--[a-z-]+", whole)) - set(re.findall(r"--[a-z-]+", short))
    if command in ("info", "presets", "demo"):
        assert not rare
    else:
        assert {"--sigma", "--device"} & rare
        assert "--out" in short or "--labels" in short
    if command == "segment":
        first = {"--probs", "--labels", "--scribbles", "--out", "--preset", "--model", "--gap"}
        assert first <= set(re.findall(r"--[a-z-]+", short))
        assert {"--sigma", "--json", "--no-overlay", "--device"} <= rare


def test_a_table_has_one_line_per_row_in_any_terminal(folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    command = ["segment", "images", "--probs", "probs", "--method", "mf5"]
    first, again = densecrf(*command), densecrf(*command)
    assert len(first.stdout.splitlines()) == len(again.stdout.splitlines()) == 4
    assert first.stdout == again.stdout
    assert "3 of 3 done before; --force does them again" in again.stderr


def test_brackets_in_a_name_are_no_markup(folder):
    out = "[red]x[/]/[/bold].png"
    result = densecrf(
        "compare", "images/a.png", "--probs", "probs/a.npy", "--methods", "unary,mf5", "--out", out
    )
    assert result.exit_code == 0, result.output
    assert f"Picture: {out}" in result.output


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have names in Unicode alone")
def test_a_name_that_is_not_utf_8_is_printed(folder):
    Path("images/a.png").rename(os.fsdecode(b"images/caf\xe9.png"))
    run = [sys.executable, "-m", "densecrf", "segment", b"images/caf\xe9.png", "--probs"]
    ended = subprocess.run([*run, "probs/a.npy"], capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert b"caf\\udce9" in ended.stdout
