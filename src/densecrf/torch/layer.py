"""Dense CRF inference as a layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from densecrf.model.compatibility import LabelTree
from densecrf.model.presets import PRESETS
from densecrf.model.resolution import COARSEST, Measured, strength_of
from densecrf.model.specification import Specification
from densecrf.operators.torch.dispatch import use_triton
from densecrf.operators.torch.lattice import Lattice
from densecrf.operators.torch.pairwise import TensorPairwise
from densecrf.solvers.efw import STEP, euclidean_frank_wolfe
from densecrf.solvers.loop import Limits, Outcome
from densecrf.solvers.lp import CELLS
from densecrf.solvers.mean_field import mean_field
from densecrf.solvers.minimisation import minimise
from densecrf.solvers.quadratic import proximal_strength
from densecrf.solvers.registry import METHODS
from densecrf.torch.batches import (
    BatchResult,
    batched,
    energies,
    features_of,
    minimise_all,
    working_dtype,
)
from densecrf.torch.export import KERNEL_NUMBERS, exporting, refine, settings_of
from densecrf.torch.inputs import (
    check_all_finite,
    check_finite,
    checked_items,
    checked_pair,
    total,
)
from densecrf.torch.problem import computed, core_problem, core_takes, torch_problem
from densecrf.validation import (
    ArgumentError,
    check_choice,
    check_integer,
    check_non_negative,
    check_positive,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from densecrf.model.label_prior import LabelPrior
    from densecrf.model.parameters import Parameters
    from densecrf.problem.problem import Problem

__all__ = ["DenseCRF"]

LEARNABLE = ("weights", "sigmas", "compatibility")
_MOST_KEPT = 1 << 25  # limit on the numbers in the features of a cached lattice
_DEFAULT = PRESETS["default"]
_UNROLLED = ("mf5", "mf", "efw")  # methods whose iterations carry the gradient
_FEW = 5  # iterations of these, except for "mf"
_LEVELS = 10  # of the dual point in the step that carries the gradient
_SMOOTHING = 1e-4  # share of the uniform distribution in logarithms of probabilities

Sigma = float | Sequence[float]


class DenseCRF(nn.Module):
    r"""Refine a network's logits with a fully connected CRF.

    Unaries are -log softmax(logits); pairwise potentials those of `densecrf.Spatial` and
    `densecrf.Bilateral`.

    Parameters
    ----------
    spatial_sigma, spatial_weight
        Standard deviation (pixels; one, or one for each axis) and weight of the smoothness kernel.
        Weight 0 leaves it out.
    bilateral_sigma_xy, bilateral_sigma_color, bilateral_weight
        Standard deviations of position (pixels) and colour (in the units of `image`: the default
        is for 0 to 255), and weight of the appearance kernel. Weight 0 leaves it out.
    compatibility : Tensor, optional
        (C, C) costs of pairs of labels, symmetric; Potts by default. For mean field, efw, dc-neg.
    normalization : {"symmetric", "none"}
        As for `densecrf.DenseCRF`.
    method : {"mf5", "mf", "efw", "dc-neg", "prox-lp", "lp"}
        The method of `forward`: ``"mf5"`` does five iterations of mean field, ``"mf"`` iterates to
        convergence, 100 times at most, ``"efw"`` does five of Euclidean Frank-Wolfe with a constant
        step. The others stop as in `solve`.
    iterations : int, optional
        Another number of iterations of mean field or Frank-Wolfe; all are done.
    learn : iterable of {"weights", "sigmas", "compatibility"}
        The parameters to learn. Weights and sigmas are stored as logarithms, so they stay
        positive. To learn a compatibility, give one to start from.

    Notes
    -----
    Gradients of mean field and Frank-Wolfe are those of the unrolled iterations, exact for the
    computed filter (see `densecrf.operators.torch.autograd`). The other methods end at or near a
    minimum, often a vertex, and are solved without a record. Their gradient is that of one more
    step :math:`P_\Delta(y - (\phi + r) / s)`: the projection and the filter are differentiated, the
    solution y and the order of its scores held fixed. Pixels in the interior of the simplex pass
    the gradient on; certain pixels do not (with dc-neg, nearly all are).

    CPU tensors without gradients are solved by the compiled core, if it is installed, with
    `torch.get_num_threads()` threads. Torch handles float64 and gradients.

    `torch.compile` skips this layer and compiles the rest. `torch.export` writes it as one
    operator, ``densecrf::refine``, for programs that import `densecrf.torch`.

    Examples
    --------
    >>> crf = DenseCRF(spatial_sigma=1.0, bilateral_sigma_xy=4.0)
    >>> logits = torch.zeros(2, 3, 8, 8)
    >>> logits[:, 1, :, :4] = 1.0
    >>> crf(logits=logits, image=torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 3, 8, 8])
    """

    costs: Tensor | None

    def __init__(
        self,
        *,
        spatial_sigma: Sigma = _DEFAULT.sigma,
        spatial_weight: float = _DEFAULT.weight,
        bilateral_sigma_xy: Sigma = _DEFAULT.sigma_xy,
        bilateral_sigma_color: Sigma = _DEFAULT.sigma_color,
        bilateral_weight: float = _DEFAULT.bilateral_weight,
        compatibility: Tensor | None = None,
        normalization: str = "symmetric",
        method: str = "mf5",
        iterations: int | None = None,
        learn: Iterable[str] = (),
    ) -> None:
        super().__init__()
        given = {
            "spatial_weight": spatial_weight,
            "bilateral_weight": bilateral_weight,
            "spatial_sigma": spatial_sigma,
            "bilateral_sigma_xy": bilateral_sigma_xy,
            "bilateral_sigma_color": bilateral_sigma_color,
        }
        self._learn = frozenset(check_choice("learn", each, LEARNABLE) for each in learn)
        self._given = {name: _checked(name, given[name]) for name in KERNEL_NUMBERS}
        self._fixed: dict[str, Tensor | None] = {}
        for name, value in self._given.items():
            self._store(name, value)
        self._store_costs(compatibility)
        self._tree: LabelTree | None = None
        self._prior: LabelPrior | None = None
        self.method = check_choice("method", method, (*_UNROLLED, "dc-neg", "prox-lp", "lp"))
        self.iterations = iterations
        if iterations is not None:
            check_integer("iterations", iterations, at_least=1)
        self.normalization = check_choice("normalization", normalization, ("symmetric", "none"))
        self._kept: tuple[Hashable, Lattice] | None = None

    @classmethod
    def from_model(
        cls,
        model: str | Parameters,
        *,
        shape: tuple[int, ...],
        grain: float = COARSEST,
        method: str = "lp",
        **options: Any,
    ) -> DenseCRF:
        """Return the layer of a model, for images of one size; other options as above.

        A model that follows the resolution of the scores needs their `grain` in pixels, about the
        network's stride (`densecrf.model.resolution`).
        """
        specification = Specification(model=model)
        side = math.prod(shape) ** (1 / len(shape))
        strength = strength_of(check_positive("grain", grain), side)
        found = Measured(grain, strength, specification.model.sigma_color)
        chosen = specification.parameters(shape, found)
        costs = chosen.label_costs
        tree = LabelTree(len(costs), leaf=costs) if isinstance(costs, tuple) else None
        layer = cls(
            spatial_sigma=chosen.sigma,
            spatial_weight=chosen.weight,
            bilateral_sigma_xy=chosen.sigma_xy,
            bilateral_sigma_color=chosen.sigma_color,
            bilateral_weight=chosen.bilateral_weight,
            compatibility=None if tree is None else torch.from_numpy(tree.matrix()),
            method=method,
            **{"normalization": chosen.normalization, **options},
        )
        layer._tree = None if "compatibility" in layer._learn else tree
        layer._prior = chosen.prior
        return layer

    def forward(self, *, logits: Tensor, image: Tensor) -> Tensor:
        """Return refined log-probabilities, (N, C, *spatial), of the logits' dtype.

        Parameters
        ----------
        logits : Tensor
            (N, C, *spatial) scores; float64 is computed in float64, all others in float32.
        image : Tensor
            (N, k, *spatial) on the same device, any number of channels, any real dtype.
        """
        if exporting():
            return refine(self, logits, image)
        refined: Tensor = self._forward(logits, image)
        return refined

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def _settings(self) -> str:
        """Return the settings; a method, since torch 2.11 takes no layer as an argument."""
        return settings_of(self)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _forward(self, logits: Tensor, image: Tensor) -> Tensor:
        logits, image = checked_pair(logits, image)
        return computed(
            lambda workspace: self._refined(logits, image, workspace),
            logits.device,
            logits.shape[1],
            f"logits of shape {tuple(logits.shape)}",
        )

    def solve(
        self,
        *,
        logits: Tensor | Sequence[Tensor],
        image: Tensor | Sequence[Tensor],
        method: str = "lp",
        gap: float | None = None,
        time_limit: float | None = None,
        max_iterations: int | None = None,
        **options: Any,
    ) -> BatchResult:
        """Minimise the energy of each item: labels, energies and bounds, without gradients.

        Items on a GPU are solved together; each stops on its own.

        Parameters
        ----------
        logits, image
            As for `forward`; or lists of (C, *spatial) and (k, *spatial), of any sizes.
        method : str
            A method of `densecrf.DenseCRF.solve`: "mf5", "efw", "dc-neg", "prox-lp", "lp", ...
        gap, time_limit, max_iterations, **options
            As there; the time limit is for all items that are solved together.
        """
        check_choice("method", method, METHODS)
        pairs = checked_items(logits, image)
        classes, device = pairs[0][0].shape[1], pairs[0][0].device

        def solve(problem: Any, stopped: bool) -> Outcome[Tensor]:
            limits = Limits.checked(gap, time_limit, 0 if stopped else max_iterations)
            return minimise(problem, method, limits, None, options)

        def attempt(workspace: int | None) -> list[Outcome[Tensor]]:
            if device.type == "cpu":  # elsewhere each problem checks when it waits anyway
                check_all_finite("logits", logits)
            sizes = [self._together(scores, colours) for scores, colours in pairs]
            try:
                return minimise_all(lambda item: self._item(*pairs[item], workspace), sizes, solve)
            except ArgumentError:
                check_all_finite("logits", logits)  # names the item
                raise

        what = f"{len(pairs)} items of shape {tuple(pairs[0][0].shape[1:])}"
        with torch.no_grad():
            outcomes = computed(attempt, device, classes, what)
        grids = [scores.shape[2:] for scores, _ in pairs]
        return BatchResult.of(outcomes, grids, stack=not isinstance(logits, (list, tuple)))

    def problem(
        self, logits: Tensor, image: Tensor, workspace: int | None = None
    ) -> Problem[Tensor]:
        """Return the problem of a whole batch, its items concatenated.

        `workspace` limits the scratch memory of the filters, in bytes.
        """
        dtype = working_dtype(logits)
        unary = energies(logits, dtype, self._prior)
        suspect = total(logits)
        declared = self._declared(image)
        features = [
            self._smoothness(image, sigma, dtype, workspace)
            if color is None
            else features_of(image, sigma, color, dtype)
            for _, sigma, color in declared
        ]
        weights = [weight for weight, _, _ in declared]

        def check() -> None:
            if not math.isfinite(float(suspect)):
                check_finite("logits", logits)

        try:
            pairwise = TensorPairwise(
                features,
                torch.stack(weights).to(dtype) if weights else torch.zeros(0),
                unary,
                normalized=self.normalization == "symmetric",
                workspace=workspace,
                between=check,  # the device is idle then
            )
        except ValueError:
            check_finite("image", image)  # the lattice is built from features alone
            raise
        return torch_problem(unary, pairwise, self._symmetric_costs(unary), self._tree)

    def _by_core(self, logits: Tensor, image: Tensor) -> bool:
        """Return whether the compiled core is used."""
        return core_takes(logits, image, (*self.parameters(), self.costs))

    def _item(self, logits: Tensor, image: Tensor, workspace: int | None) -> Any:
        """Return the problem of one finite item, for the compiled core if it can solve it."""
        if not self._by_core(logits, image):
            return self.problem(logits, image, workspace)
        check_finite("image", image)
        unary = energies(logits, torch.float32, self._prior)
        costs = self._tree or self._symmetric_costs(unary)
        unary = unary.view(-1, *image.shape[2:])
        return core_problem(unary, image[0], self._declared(image), self.normalization, costs)

    def _together(self, logits: Tensor, image: Tensor) -> int:
        """Return the size of an item if it may be solved together with others, else 0."""
        alone = self._by_core(logits, image) or not use_triton(image.float())
        return 0 if alone else logits.numel()

    def _smoothness(
        self, image: Tensor, sigma: Tensor, dtype: torch.dtype, workspace: int | None
    ) -> Tensor | Lattice:
        """Return the features of the smoothness kernel, or its lattice.

        It is the same for all images of one size: the last one, if not too large, is cached.
        """
        key = (image.shape[0], image.shape[2:], image.device, dtype, workspace)
        kept = self._kept  # which another thread may replace
        if kept is not None and kept[0] == key:
            return kept[1]
        features = features_of(image, sigma, None, dtype)
        if "sigmas" in self._learn or features.numel() > _MOST_KEPT:
            return features
        lattice = Lattice.build(features, workspace=workspace)
        self._kept = key, lattice
        return lattice

    def _refined(self, logits: Tensor, image: Tensor, workspace: int | None) -> Tensor:
        by_core = self._by_core(logits, image)
        if self.method in _UNROLLED and not by_core:
            return batched(self._unrolled(self.problem(logits, image, workspace)), logits)
        check_finite("logits", logits)
        parts = []
        for item in range(len(logits)):
            one = slice(item, item + 1)
            problem = self._item(logits[one], image[one], workspace)
            if self.method in _UNROLLED:
                parts.append(self._unrolled(problem))
                continue
            with torch.no_grad():
                y = torch.as_tensor(minimise(problem, self.method, Limits()).y)
            if not by_core:
                y = final_step(problem, y, self.method)
            parts.append(_logarithms(y))
        return torch.cat([batched(part, logits[:1]) for part in parts])

    def _unrolled(self, problem: Any) -> Tensor:
        """Return the logarithms of the marginals after the layer's iterations."""
        y = problem.unary_marginals()
        if self.method == "efw":
            most = self.iterations or _FEW
            for step in euclidean_frank_wolfe(
                problem, y, iterations=most, tolerance=0.0, step=STEP
            ):
                y = step.y
            return _logarithms(torch.as_tensor(y))
        most = self.iterations or (_FEW if self.method == "mf5" else 100)
        tolerance = 1e-3 if self.iterations is None and self.method == "mf" else 0.0
        for step in mean_field(problem, y, iterations=most - 1, tolerance=tolerance):
            y = step.y
        # The last update in logarithms: probabilities would round to zero.
        return torch.log_softmax(torch.as_tensor(problem.response_logits(y)), 0)

    def _store(self, name: str, value: Any) -> None:
        """Store a positive number: its logarithm as a parameter, or itself, on the host."""
        weight = name.endswith("_weight")
        number = torch.tensor(value) if weight else torch.tensor(value, dtype=torch.float64)
        if weight and value == 0:
            self._fixed[name] = None
        elif ("weights" if weight else "sigmas") in self._learn:
            self.register_parameter(f"log_{name}", nn.Parameter(number.log().float()))
        else:
            self._fixed[name] = number

    def _store_costs(self, compatibility: Tensor | None) -> None:
        learned = "compatibility" in self._learn
        if compatibility is None:
            if learned:
                remedy = "give the compatibility to start from"
                raise ArgumentError("learn", "compatibility", remedy)
            self.register_buffer("costs", None)
            return
        costs = torch.as_tensor(compatibility, dtype=torch.float32).clone()
        if costs.ndim != 2 or costs.shape[0] != costs.shape[1]:
            raise ArgumentError("compatibility", ..., f"shape {tuple(costs.shape)}; give (C, C)")
        if learned:
            self.costs = nn.Parameter(costs)
        else:
            self.register_buffer("costs", costs, persistent=False)

    def _value(self, name: str) -> Tensor | None:
        log: Tensor | None = getattr(self, f"log_{name}", None)
        return self._fixed.get(name) if log is None else log.exp()

    def _declared(self, image: Tensor) -> list[tuple[Tensor, Tensor, Tensor | None]]:
        """Return weight and deviations of position and colour (None: smoothness) per kernel."""
        axes = image.ndim - 2
        found: list[tuple[Tensor, Tensor, Tensor | None]] = []
        smoothness, appearance = self._value("spatial_weight"), self._value("bilateral_weight")
        if smoothness is not None:
            found.append((smoothness, self._deviations("spatial_sigma", axes, "axes"), None))
        if appearance is not None:
            sigma_xy = self._deviations("bilateral_sigma_xy", axes, "axes")
            color = self._deviations("bilateral_sigma_color", image.shape[1], "channels")
            found.append((appearance, sigma_xy, color))
        return found

    def _deviations(self, name: str, count: int, of_what: str) -> Tensor:
        sigma = cast("Tensor", self._value(name)).double()
        if sigma.ndim and len(sigma) != count:
            remedy = f"{len(sigma)} numbers for an image of {count} {of_what}"
            raise ArgumentError(name, ..., remedy)
        return sigma

    def _symmetric_costs(self, unary: Tensor) -> Tensor | None:
        if self.costs is None:
            return None
        if len(self.costs) != len(unary):
            remedy = f"{len(unary)} classes, but a compatibility of {len(self.costs)}"
            raise ArgumentError("logits", ..., remedy)
        return ((self.costs + self.costs.T) / 2).to(unary.device, unary.dtype)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"method={self.method!r}, iterations={self.iterations}"


def _checked(name: str, value: Any) -> float | list[float]:
    """Return a weight, or one or several standard deviations."""
    if name.endswith("_weight"):
        return check_non_negative(name, value)
    if isinstance(value, Sequence):
        return [check_positive(name, number) for number in value]
    return check_positive(name, value)


def _logarithms(y: Tensor) -> Tensor:
    """Return the logarithms of marginals, smoothed since they may be 0."""
    return ((1 - _SMOOTHING) * y + _SMOOTHING / len(y)).log()


def final_step(problem: Problem[Tensor], y: Tensor, method: str) -> Tensor:
    r"""Return the solution `y`, with the gradient of one more projected step of the method.

    The step is :math:`P_\Delta(y - (\phi + r) / s)`: r is the gradient of the pairwise term
    (messages for dc-neg, the dual point of `y` for the linear programs), s the strength of the
    method's proximal term. The projection and r as a function of weights and features are
    differentiated; `y`, the order of its scores and s are held fixed.
    """
    if not torch.is_grad_enabled():
        return y
    if method == "dc-neg":
        strength = proximal_strength(problem).detach()
        pull = problem.messages(y)
    else:
        strength = (CELLS * problem.lipschitz).detach()
        pull = problem.dual_point(y, _LEVELS, rescale=False)
    step = problem.steps.project(y - (problem.unary + pull) / strength)
    return y + (step - step.detach())
