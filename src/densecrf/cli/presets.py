"""``densecrf presets``: the presets and their sources."""

from dataclasses import asdict
from typing import Any

from densecrf.cli import options as o
from densecrf.cli.reports import output, print_json
from densecrf.model.parameters import Parameters
from densecrf.model.presets import PRESETS

__all__ = ["presets"]


def presets(as_json: o.Json = False) -> None:
    """List the presets: kernels, confidence of hard labels, and source."""
    if as_json:
        print_json({name: _plain(preset) for name, preset in PRESETS.items()})
        return
    output.print(f"{'':11} {'spatial':9} {'bilateral':14} {'confidence':11} from")
    for name, preset in PRESETS.items():
        output.print(_line(name, preset), soft_wrap=True, markup=False)


def _line(name: str, p: Parameters) -> str:
    spatial = f"{p.sigma:g}/{p.weight:g}" if p.weight else "none"
    bilateral = f"{p.sigma_xy:g}/{p.sigma_color:g}/{p.bilateral_weight:g}"
    confidence = "by margin" if p.confidence is None else f"{p.confidence:g}"
    remarks = ["not normalised"] * (p.normalization == "none") + [p.caution] * bool(p.caution)
    about = f"{p.about} ({'; '.join(remarks)})" if remarks else p.about
    return f"{name:11} {spatial:9} {bilateral:14} {confidence:11} {about}"


def _plain(preset: Parameters) -> dict[str, Any]:
    kept = ("sigma", "weight", "sigma_xy", "sigma_color", "bilateral_weight", "confidence")
    numbers = asdict(preset)
    return {name: numbers[name] for name in (*kept, "normalization", "caution", "about")}
