"""HTML cards of results, certificates, models and kernels for notebooks; needs only NumPy.

Colours are those of `densecrf.plotting.label_colors`; everything else is inherited, so that cards
suit light and dark pages.
"""

import html
import struct
import zlib
from base64 import b64encode
from math import log10
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from densecrf.plotting import label_colors
from densecrf.solvers.result import share_proven

if TYPE_CHECKING:
    from densecrf.model.crf import DenseCRF
    from densecrf.problem.certificate import Certificate
    from densecrf.solvers.result import Result

__all__ = ["certificate_html", "kernel_html", "model_html", "png", "result_html"]

LARGEST = 200  # pixels of a thumbnail's longer side
SHOWN_LABELS = 12
WIDEST, CLOSED = 0.1, 1e-7  # gaps at which the meter is full and empty


def result_html(result: "Result") -> str:
    """Return a card of a result: thumbnail, labels, meter and numbers."""
    label, constant = result.best_constant
    rows = [
        ("energy", _number(result.energy)),
        ("lower bound", "none" if result.lower_bound is None else _number(result.lower_bound)),
        ("proven pixels", share_proven(result.proven)),
        ("for scale", f"label {label} everywhere: {_number(constant)}"),
        ("effort", f"{result.seconds:.3g} s, {result.iterations} iterations"),
        ("ended", result.message),
    ]
    if result.gap is None:
        claim = "no certificate: this method has no bound"
    elif result.optimal:
        claim = "proven optimal"
    else:
        claim = f"within {100 * result.gap:.2g} % of the global optimum, proven"
    grid, count = " × ".join(map(str, result.labels.shape)), len(result.marginals)
    title = f"{result.method}: {grid} pixels, {count} labels"
    return _card(title, claim, result.gap, rows, _thumbnail(result.labels, count) + _key(result))


def certificate_html(certificate: "Certificate") -> str:
    """Return a card of a certificate: meter and numbers."""
    rows = [
        ("energy", _number(certificate.energy)),
        ("lower bound", _number(certificate.lower_bound)),
        ("proven pixels", share_proven(certificate.proven)),
        ("effort", f"{certificate.calls} ordered filter calls, {certificate.seconds:.3g} s"),
    ]
    if certificate.excess > 0:
        rows.insert(2, ("a better labelling", _number(certificate.better_energy)))
    claim = f"at most {100 * certificate.gap:.2g} % above the global optimum, proven"
    return _card("certificate", claim, certificate.gap, rows, "")


def model_html(crf: "DenseCRF") -> str:
    """Return a card of a model: size, kernels, and the labels of lowest unary energy."""
    grid = " × ".join(map(str, crf.shape))
    rows = [("kernel", repr(kernel)) for kernel in crf.kernels]
    rows.append(("normalization", crf.normalization))
    best = crf.unary.argmin(0).reshape(crf.shape)
    title = f"DenseCRF: {grid} pixels, {crf.n_labels} labels"
    return _card(title, "argmin of the unary energies", None, rows, _thumbnail(best, crf.n_labels))


def kernel_html(kernel: Any) -> str:
    """Return a card of a kernel: its numbers, and its image where it has one."""
    fields = [(name, getattr(kernel, name)) for name in kernel.__dataclass_fields__]
    rows = [
        (name, str(value))
        for name, value in fields
        if np.size(value) <= 4 and value is not None and not name.startswith("_")
    ]
    image = getattr(kernel, "image", None)
    picture = "" if image is None else _picture(np.asarray(image))
    return _card(type(kernel).__name__, "", None, rows, picture)


def _card(
    title: str, claim: str, gap: float | None, rows: list[tuple[str, str]], picture: str
) -> str:
    cells = "".join(
        f'<tr><td style="opacity:.7;text-align:left;padding:0 1em 0 0">{html.escape(name)}</td>'
        f'<td style="text-align:left">{html.escape(value)}</td></tr>'
        for name, value in rows
    )
    return (
        '<div style="display:flex;gap:16px;align-items:flex-start;flex-wrap:wrap;'
        'border:1px solid rgba(128,128,128,.4);border-radius:8px;padding:12px;max-width:640px">'
        f'<div>{picture}</div><div style="flex:1;min-width:240px"><b>{html.escape(title)}</b>'
        f'<div style="margin:2px 0 6px">{html.escape(claim)}</div>{_meter(gap)}'
        f'<table style="border:0;margin:0">{cells}</table></div></div>'
    )


def _meter(gap: float | None) -> str:
    """Return a bar of the gap on a logarithmic scale."""
    if gap is None:
        return ""
    share = (log10(max(gap, CLOSED)) - log10(CLOSED)) / (log10(WIDEST) - log10(CLOSED))
    width = 100 * min(1.0, max(0.015, share))
    return (
        '<div style="height:8px;border-radius:4px;background:rgba(0,158,115,.25);'
        'margin:0 0 8px;overflow:hidden" title="gap, on a logarithmic scale">'
        f'<div style="height:100%;width:{width:.1f}%;margin-left:auto;background:#009e73"></div>'
        "</div>"
    )


def _thumbnail(labels: npt.NDArray[Any], count: int) -> str:
    """Return labels as a picture; of volumes the middle slice, of other features nothing."""
    if labels.ndim < 2:
        return ""
    while labels.ndim > 2:
        labels = labels[len(labels) // 2]
    colors = np.rint(255 * label_colors(count)).astype(np.uint8)
    return _image(colors[_small(labels)])


def _picture(image: npt.NDArray[Any]) -> str:
    """Return an image (H, W) or (H, W, channels) as a picture."""
    if image.ndim == 3 and image.shape[-1] > 4:
        image = image[len(image) // 2]
    if image.ndim not in (2, 3):
        return ""
    small = _small(image).astype(np.float64)
    small = small[..., None] if small.ndim == 2 else small
    channels = small[..., :3] if small.shape[-1] >= 3 else small[..., :1].repeat(3, -1)
    low, high = float(channels.min()), float(channels.max())
    if not (low >= 0 and 1 < high <= 255):
        channels = (channels - low) * (255 / (high - low or 1.0))
    return _image(channels.astype(np.uint8))


def _small(pixels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    step = max(1, -(-max(pixels.shape[:2]) // LARGEST))
    return pixels[::step, ::step]


def _image(rgb: npt.NDArray[np.uint8]) -> str:
    height, width = rgb.shape[:2]
    scale = max(1, 120 // max(height, width))
    data = b64encode(png(rgb)).decode()
    return (
        f'<img src="data:image/png;base64,{data}" width="{width * scale}" '
        f'height="{height * scale}" style="image-rendering:pixelated;border-radius:4px" alt="">'
    )


def png(rgb: npt.NDArray[np.uint8]) -> bytes:
    """Return the bytes of a PNG, (H, W, 3)."""
    height, width = rgb.shape[:2]
    rows = np.concatenate([np.zeros((height, 1), np.uint8), rgb.reshape(height, -1)], 1)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows.tobytes())),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def _key(result: "Result") -> str:
    """Return the labels that occur most, with their colours and shares."""
    count = len(result.marginals)
    pixels = np.bincount(result.labels.ravel(), minlength=count)
    used = np.argsort(-pixels, kind="stable")[: min(SHOWN_LABELS, int((pixels > 0).sum()))]
    colors = np.rint(255 * label_colors(count)).astype(int)
    items = [
        f'<span style="white-space:nowrap;margin-right:8px"><span style="display:inline-block;'
        f"width:10px;height:10px;border-radius:2px;background:rgb{tuple(colors[label].tolist())}"
        f'"></span> {label}: {100 * pixels[label] / result.labels.size:.1f} %</span> '
        for label in sorted(used.tolist())
    ]
    return f'<div style="font-size:85%;max-width:{LARGEST}px">{"".join(items)}</div>'


def _number(value: float) -> str:
    return f"{value:,.1f}" if np.isfinite(value) else "not evaluated"
