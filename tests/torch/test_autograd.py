"""Gradients, against finite differences in double precision."""

import pytest
import torch

from densecrf.operators.torch.autograd import barycentric, filtered, projected
from densecrf.operators.torch.pairwise import TensorPairwise
from densecrf.solvers.quadratic import dc_neg
from densecrf.torch import DenseCRF, DenseCRFLoss, Lattice
from densecrf.torch.layer import final_step
from densecrf.torch.problem import torch_problem

CLASSES, GRID = 3, (3, 4)


@pytest.fixture
def inputs(generator):
    logits = torch.randn(2, CLASSES, *GRID, generator=generator, dtype=torch.float64)
    image = 255 * torch.rand(2, 2, *GRID, generator=generator, dtype=torch.float64)
    return logits, image


def layer(**options):
    crf = DenseCRF(
        spatial_sigma=1.3,
        spatial_weight=0.7,
        bilateral_sigma_xy=2.1,
        bilateral_sigma_color=80.0,
        bilateral_weight=0.9,
        **options,
    )
    return crf.double()


def check_parameters(crf, logits, image, names):
    """Compare gradients to the named parameters with finite differences."""
    parameters = [crf.get_parameter(name) for name in names]

    def function(logits, *values):
        kept = dict(zip(names, values, strict=True))
        return torch.func.functional_call(crf, kept, (), {"logits": logits, "image": image})

    arguments = (
        logits.requires_grad_(),
        *(p.detach().clone().requires_grad_() for p in parameters),
    )
    tolerance = {"eps": 1e-7, "atol": 1e-5, "rtol": 1e-4}
    assert torch.autograd.gradcheck(function, arguments, **tolerance, fast_mode=True)


def test_mean_field_to_logits_and_weights(inputs):
    crf = layer(iterations=3, learn=["weights"])
    check_parameters(crf, *inputs, ["log_spatial_weight", "log_bilateral_weight"])


@pytest.mark.parametrize("normalization", ["symmetric", "none"])
def test_mean_field_to_sigmas(normalization, inputs):
    crf = layer(iterations=2, learn=["sigmas"], normalization=normalization)
    names = ["log_spatial_sigma", "log_bilateral_sigma_xy", "log_bilateral_sigma_color"]
    check_parameters(crf, *inputs, names)


def test_frank_wolfe_to_logits_and_weights(inputs):
    crf = layer(method="efw", iterations=3, learn=["weights"])
    check_parameters(crf, *inputs, ["log_spatial_weight", "log_bilateral_weight"])


def test_frank_wolfe_to_sigmas(inputs):
    crf = layer(method="efw", iterations=2, learn=["sigmas"])
    names = ["log_spatial_sigma", "log_bilateral_sigma_xy", "log_bilateral_sigma_color"]
    check_parameters(crf, *inputs, names)


def test_mean_field_to_compatibility(inputs):
    costs = torch.tensor([[0.0, 1, 2], [1, 0, 1], [2, 1, 0]])
    crf = layer(iterations=2, learn=["compatibility"], compatibility=costs)
    check_parameters(crf, *inputs, ["costs"])


@pytest.mark.parametrize("order", ["symmetric", "forward"])
def test_filter_to_features(order, device, generator):
    features = (2 * torch.rand(12, 3, generator=generator, dtype=torch.float64)).to(device)
    values = torch.randn(2, 12, generator=generator, dtype=torch.float64).to(device)
    lattice = Lattice.build(features, order=order)

    def function(features, values):
        return filtered(lattice_of(features), values, barycentric(features, lattice))

    def lattice_of(features):
        return Lattice.build(features.detach(), order=order)

    arguments = (features.requires_grad_(), values.requires_grad_())
    assert torch.autograd.gradcheck(function, arguments, eps=1e-7, atol=1e-6)


@pytest.mark.parametrize("order", ["symmetric", "forward"])
def test_kernels_of_triton_have_the_same_gradients(order, engine, device, generator):
    features = (2 * torch.rand(40, 3, generator=generator)).to(device)
    values = torch.randn(2, 40, generator=generator).to(device)

    def gradients(dtype, engine):
        f, v = (x.to(dtype, copy=True).requires_grad_() for x in (features, values))
        lattice = Lattice.build(f, engine=engine, order=order)
        (filtered(lattice, v, barycentric(f, lattice)) ** 2).sum().backward()
        return f.grad, v.grad

    pairs = zip(gradients(torch.float32, engine), gradients(torch.float64, "torch"), strict=True)
    for ours, exact in pairs:
        torch.testing.assert_close(ours.double(), exact, rtol=1e-3, atol=1e-3)


def test_projection(generator):
    z = torch.randn(4, 9, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(projected, z, eps=1e-7)


@pytest.mark.parametrize("method", ["lp", "prox-lp", "dc-neg"])
def test_final_step_with_the_order_held_fixed(method, generator):
    features = torch.rand(12, 2, generator=generator, dtype=torch.float64)
    unary = torch.rand(3, 12, generator=generator, dtype=torch.float64)
    weights = torch.tensor([0.8], dtype=torch.float64)
    y = torch.softmax(-3 * unary, 0)
    fixed = torch_problem(unary, TensorPairwise([features], weights, unary))
    strength = fixed.pairwise.diagonal if method == "dc-neg" else 4 * fixed.lipschitz

    def step(unary, weights):
        """The same step with everything that is held fixed in plain sight."""
        problem = torch_problem(unary, TensorPairwise([features], weights, unary))
        pull = problem.messages(y) if method == "dc-neg" else problem.dual_point(y, rescale=False)
        return problem.steps.project(y - (unary + pull) / (strength + 1e-12))

    arguments = (unary.clone().requires_grad_(), weights.clone().requires_grad_())
    assert torch.autograd.gradcheck(step, arguments, eps=1e-7, atol=1e-6)
    unary, weights = arguments
    problem = torch_problem(unary, TensorPairwise([features], weights, unary))
    direction = torch.randn(3, 12, generator=generator, dtype=torch.float64)
    expected = torch.autograd.grad((step(unary, weights) * direction).sum(), arguments)
    ours = final_step(problem, y, method)
    torch.testing.assert_close(ours.detach(), y)
    got = torch.autograd.grad((ours * direction).sum(), arguments)
    torch.testing.assert_close(got, expected)


def test_final_step_of_dc_neg_under_costs_that_are_not_definite(generator):
    """The strength has the term of negative eigenvalues, as the method's own steps do."""
    features = torch.rand(12, 2, generator=generator, dtype=torch.float64)
    unary = torch.rand(3, 12, generator=generator, dtype=torch.float64)
    costs = torch.tensor([[0.0, 2.0, -1.0], [2.0, 0.0, 1.0], [-1.0, 1.0, 0.0]]).double()
    y = torch.softmax(-3 * unary, 0)
    problem = torch_problem(unary, TensorPairwise([features], [0.8], unary), costs)
    centre = torch.eye(3, dtype=torch.float64) - 1 / 3
    eigenvalues = torch.linalg.eigvalsh(-centre @ costs @ centre)
    assert eigenvalues[0] < 0
    strength = eigenvalues[-1] * problem.pairwise.diagonal
    strength = strength - eigenvalues[0] * (problem.pairwise.mass - problem.pairwise.diagonal)

    def step(unary):
        return problem.steps.project(y - (unary + problem.messages(y)) / strength)

    direction = torch.randn(3, 12, generator=generator, dtype=torch.float64)
    given = unary.clone().requires_grad_()
    attached = torch_problem(given, TensorPairwise([features], [0.8], unary), costs)
    (got,) = torch.autograd.grad((final_step(attached, y, "dc-neg") * direction).sum(), given)
    for label, pixel in ((0, 0), (1, 5), (2, 11)):
        change = torch.zeros_like(unary)
        change[label, pixel] = 1e-6
        ends = ((step(unary + change) - step(unary - change)) * direction).sum() / 2e-6
        torch.testing.assert_close(got[label, pixel], ends, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("costs", [None, [[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]])
def test_final_step_of_dc_neg_is_the_methods_own(costs, generator):
    """Finite differences of the method's next iterate have the gradient that is returned."""
    features = torch.rand(12, 2, generator=generator, dtype=torch.float64)
    unary = torch.rand(3, 12, generator=generator, dtype=torch.float64)
    y = torch.softmax(-unary, 0)
    matrix = None if costs is None else torch.tensor(costs, dtype=torch.float64)

    def problem_of(unary):
        return torch_problem(unary, TensorPairwise([features], [2.0], unary), matrix)

    def next_iterate(unary):
        with torch.no_grad():
            return next(dc_neg(problem_of(unary), y)).y

    direction = torch.randn(3, 12, generator=generator, dtype=torch.float64)
    given = unary.clone().requires_grad_()
    stepped = final_step(problem_of(given), y, "dc-neg")
    (got,) = torch.autograd.grad((stepped * direction).sum(), given)
    expected = torch.empty_like(unary)
    for place in range(unary.numel()):
        change = torch.zeros_like(unary)
        change.view(-1)[place] = 1e-7
        apart = next_iterate(unary + change) - next_iterate(unary - change)
        expected.view(-1)[place] = (apart * direction).sum() / 2e-7
    assert expected.abs().sum() > 0
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", ["lp", "prox-lp"])
def test_linear_programs_pass_gradients_to_everything(method, inputs):
    logits, image = inputs
    crf = layer(method=method, learn=["weights", "sigmas"])
    logits.requires_grad_()
    (crf(logits=0.3 * logits, image=image) * torch.randn_like(logits)).sum().backward()
    assert logits.grad.abs().sum() > 0
    for name, parameter in crf.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("form", ["quadratic", "lp"])
def test_loss(form, inputs):
    logits, image = inputs
    loss = DenseCRFLoss(
        form, bilateral_sigma_xy=2.0, bilateral_sigma_color=90.0, spatial_weight=0.5
    )
    roi = torch.ones(2, *GRID)
    roi[:, 0] = 0
    if form == "quadratic":
        logits.requires_grad_()
        assert torch.autograd.gradcheck(
            lambda logits: loss(logits=logits, image=image, roi=roi),
            logits,
            eps=1e-6,
            atol=1e-7,
            fast_mode=True,
        )
    else:
        # Soft levels smooth the order, so finite differences agree at two labels' edges only:
        # a small move along the negative gradient must lower the loss.
        logits.requires_grad_()
        value = loss(logits=logits, image=image, roi=roi)
        value.backward()
        moved = logits.detach() - 0.1 * logits.grad / logits.grad.norm()
        assert loss(logits=moved, image=image, roi=roi) < value
        assert not logits.grad[:, :, 0].any()
