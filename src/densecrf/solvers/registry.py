"""The table of methods: names, options, starting points, and what each can minimise."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias, get_args

from densecrf.problem.problem import Problem
from densecrf.solvers.efw import euclidean_frank_wolfe
from densecrf.solvers.loop import Finish, Step
from densecrf.solvers.lp import lp, lp_finish, lp_start
from densecrf.solvers.mean_field import mean_field, unary
from densecrf.solvers.primal_lp import cg_lp, sg_lp
from densecrf.solvers.prox_lp import Proximal, ProximalPixels, prox_lp, prox_lp_acc
from densecrf.solvers.quadratic import convex_start, dc_neg, qp, qp_cccp

__all__ = ["LP_GAP", "METHODS", "REGISTRY", "Method", "MethodName"]

#: Names of the methods.
MethodName: TypeAlias = Literal[
    "unary", "mf5", "mf", "efw", "qp", "qp-cccp", "dc-neg", "sg-lp", "cg-lp",
    "prox-lp", "prox-lp-l", "prox-lp-acc", "lp"
]  # fmt: skip
#: Relative gap at which ``"lp"`` stops unless told otherwise, in every interface.
LP_GAP = 1e-3


@dataclass(frozen=True)
class Method:
    """A method and the facts that `solve` needs about it.

    Attributes
    ----------
    steps : callable
        ``steps(problem, y, **options)``, or ``steps(problem, y, settings)``, yields `Step`.
    about : str
        One line for people.
    init : str, callable or None
        The method that gives its starting point, or a function of the problem that does; None:
        the softmax of -unary.
    presets : dict
        Options that this name fixes.
    compatibility : str
        "potts", "tree" (Potts and tree metrics) or "any".
    gap : float or None
        Gap at which it stops unless told otherwise; None: it runs to its own end.
    scored : bool
        Whether every iteration's labelling is scored; else the last one's alone, unless there is
        a callback.
    finish : callable or None
        What is done to the best labelling at the end.
    settings : type or None
        The dataclass of its options, where they are one object.
    """

    steps: Callable[..., Iterator[Step[Any]]]
    about: str
    init: str | Callable[[Problem[Any]], Step[Any]] | None = None
    presets: dict[str, Any] = field(default_factory=dict)
    compatibility: str = "any"
    gap: float | None = None
    scored: bool = True
    finish: Finish[Any] | None = None
    settings: type | None = None

    @property
    def on_lp(self) -> bool:
        """Whether it minimises the linear program, whose optimum is nearly always the energy's."""
        return self.compatibility == "tree"

    def options(self) -> list[str]:
        """Return the names of its options."""
        if self.settings is not None:
            return [each.name for each in fields(self.settings)]
        return [p for p in inspect.signature(self.steps).parameters if p not in ("problem", "y")]


#: The paper's methods on the linear program.
ON_LP: dict[str, Any] = {"init": "dc-neg", "compatibility": "tree"}
#: All methods by name.
REGISTRY: dict[str, Method] = {
    "unary": Method(unary, "argmin of the unary energies"),
    "mf5": Method(
        mean_field,
        "mean field, 5 iterations",
        presets={"iterations": 5, "tolerance": 0.0},
        scored=False,
    ),
    "mf": Method(mean_field, "mean field to convergence"),
    "efw": Method(euclidean_frank_wolfe, "regularised Frank-Wolfe, Euclidean"),
    "qp": Method(qp, "convex quadratic program, Frank-Wolfe"),
    "qp-cccp": Method(qp_cccp, "non-convex quadratic program, CCCP", "qp"),
    "dc-neg": Method(dc_neg, "difference of convex functions", convex_start),
    "sg-lp": Method(sg_lp, "linear program, projected subgradient", **ON_LP),
    "cg-lp": Method(cg_lp, "linear program, conditional gradient", **ON_LP),
    "prox-lp": Method(
        prox_lp, "proximal minimisation of the LP (the paper)", settings=Proximal, **ON_LP
    ),
    "prox-lp-l": Method(
        prox_lp,
        "prox-lp on the labels that matter",
        presets={"label_threshold": 0.01},
        settings=Proximal,
        **ON_LP,
    ),
    "prox-lp-acc": Method(
        prox_lp_acc, "prox-lp-l on the pixels in doubt", settings=ProximalPixels, **ON_LP
    ),
    "lp": Method(
        lp,
        "linear program with a certificate (ours)",
        lp_start,
        compatibility="tree",
        gap=LP_GAP,
        finish=lp_finish,
    ),
}

METHODS: tuple[MethodName, ...] = get_args(MethodName)
