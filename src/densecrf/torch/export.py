"""The layer as one operator, ``densecrf::refine``, for `torch.export`.

To load an exported program, import `densecrf.torch`. The operator runs the layer's own code; its
backward pass solves again, with a record.
"""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from densecrf.model.compatibility import LabelTree
from densecrf.model.label_prior import LabelPrior

if TYPE_CHECKING:
    from densecrf.torch.layer import DenseCRF

__all__ = ["KERNEL_NUMBERS", "exporting", "refine", "settings_of"]

KERNEL_NUMBERS = (
    "spatial_weight",
    "bilateral_weight",
    "spatial_sigma",
    "bilateral_sigma_xy",
    "bilateral_sigma_color",
)
NAMES = (*(f"log_{name}" for name in KERNEL_NUMBERS), "costs")  # of tensors that a layer may have


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def exporting() -> bool:
    """Return whether `torch.export` is tracing; opaque to `torch.compile`."""
    known = getattr(torch.compiler, "is_exporting", None)  # since torch 2.7
    return known is not None and bool(known())


def refine(layer: "DenseCRF", logits: Tensor, image: Tensor) -> Tensor:
    """Return the layer's `forward`, computed by the operator."""
    tensors = (getattr(layer, name, None) for name in NAMES)
    out: Tensor = torch.ops.densecrf.refine(logits, image, *tensors, layer._settings())
    return out


def settings_of(layer: "DenseCRF") -> str:
    """Return a layer's settings without its tensors."""
    settings: dict[str, Any] = {
        "options": {
            **layer._given,
            "normalization": layer.normalization,
            "method": layer.method,
            "iterations": layer.iterations,
            "learn": sorted(layer._learn),
        },
        "labels": None if layer.costs is None else len(layer.costs),
        "tree": None if layer._tree is None else layer._tree.lengths.tolist(),
        "prior": None if layer._prior is None else asdict(layer._prior),
    }
    return json.dumps(settings)


def _layer(text: str) -> "DenseCRF":
    """Return the layer with these settings, without its tensors."""
    from densecrf.torch.layer import DenseCRF

    settings = json.loads(text)
    labels, lengths, prior = (settings[name] for name in ("labels", "tree", "prior"))
    costs = None if labels is None else torch.zeros(labels, labels)
    layer = DenseCRF(compatibility=costs, **settings["options"])
    layer._tree = None if lengths is None else LabelTree(labels, leaf=lengths)
    if prior is not None:
        layer._prior = LabelPrior(**{name: tuple(values) for name, values in prior.items()})
    return layer


def _solved(logits: Tensor, image: Tensor, *rest: Any) -> Tensor:
    *tensors, settings = rest
    own = {name: each for name, each in zip(NAMES, tensors, strict=True) if each is not None}
    given = {"logits": logits, "image": image}
    out: Tensor = torch.func.functional_call(_layer(settings), own, (), given)
    return out


def _forward(logits: Tensor, image: Tensor, *rest: Any) -> Tensor:
    tensors = [each.detach() if isinstance(each, Tensor) else each for each in rest]
    with torch.no_grad():
        return _solved(logits.detach(), image.detach(), *tensors)


def _shape(logits: Tensor, *rest: Any) -> Tensor:  # noqa: ARG001 - of the operator's arguments
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    *tensors, ctx.settings = inputs
    ctx.save_for_backward(*tensors)


@once_differentiable
def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Return the layer's gradients for the tensors; it solves again."""
    needed = ctx.needs_input_grad[: len(ctx.saved_tensors)]
    inputs: list[Any] = [each if each is None else each.detach() for each in ctx.saved_tensors]
    with torch.enable_grad():
        for each, need in zip(inputs, needed, strict=True):
            if need:
                each.requires_grad_()
        out = _solved(*inputs, ctx.settings)
    wanted = [each for each, need in zip(inputs, needed, strict=True) if need]
    found = iter(torch.autograd.grad(out, wanted, grad, allow_unused=True))
    return (*(next(found) if need else None for need in needed), None)


if hasattr(torch.library, "custom_op"):  # since torch 2.4
    _operator = torch.library.custom_op(
        "densecrf::refine",
        _forward,
        mutates_args=(),
        schema=f"(Tensor logits, Tensor image, {', '.join(f'Tensor? {name}' for name in NAMES)}, "
        "str settings) -> Tensor",
    )
    _operator.register_fake(_shape)
    _operator.register_autograd(_backward, setup_context=_save)
