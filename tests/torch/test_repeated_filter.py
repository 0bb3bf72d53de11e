"""Planned filterings: other tensors and levels, the same answers as from scratch."""

import pytest
import torch

from densecrf.operators.torch.dispatch import has_triton
from densecrf.operators.torch.lattice import Levels
from densecrf.operators.torch.pixelwise import (
    Spans,
    balanced,
    descend,
    icm_moves,
    mean_field_update,
)
from densecrf.operators.triton.launch import Plans
from densecrf.torch import Lattice

if not has_triton():
    pytest.skip("Triton is not installed", allow_module_level=True)

from densecrf.operators.triton import filter as engine
from densecrf.operators.triton.repeated_filter import RepeatedFilter
from densecrf.operators.triton.units import Wanted, in_groups

PIXELS, LABELS = 24, 5


@pytest.fixture(params=[None, 2000], ids=["at once", "in blocks"])
def lattice(request, device, generator):
    features = (3 * torch.rand(PIXELS, 2, generator=generator)).to(device)
    return Lattice.build(features, engine="triton", workspace=request.param)


def scores(device, generator):
    return torch.rand(LABELS, PIXELS, generator=generator).to(device)


def test_plain(lattice, device, generator):
    filters = RepeatedFilter(lattice)
    for _ in range(3):
        values = scores(device, generator)
        torch.testing.assert_close(filters.apply(values), lattice.apply(values))


@pytest.mark.parametrize("names", [None, [3, 1, 4]])
def test_ordered(names, lattice, device, generator):
    filters = RepeatedFilter(lattice)
    total = lattice.mass.double().sum()
    for low in (0.0, -1.0):
        t = low + scores(device, generator)
        wanted = [Wanted(0, names or range(LABELS), Levels(3, low, 2.0, hard=False))]
        shift = scores(device, generator)
        got = filters.ordered(t - shift, shift, wanted, 0.5, total.view(1))
        expected = balanced(
            0.5 * lattice.ordered(t, levels=3, low=low, high=low + 1), lattice.mass, total
        )
        for label in set(range(LABELS)) - set(names or range(LABELS)):
            expected[label] = 0
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
        names = names and names[::-1]


@pytest.mark.parametrize("hard", [False, True])
def test_bands_of_levels_change_nothing(hard, lattice, device, generator):
    levels = Levels(12, -0.5, 4.0, hard=hard)
    low, high = torch.tensor([[-0.5, 0.0, 1.0, 0.3, 2.0], [2.25, 2.25, 1.2, 0.3, 2.1]])[..., None]
    t = (low + (high - low) * torch.rand(LABELS, PIXELS, generator=generator)).to(device)
    extents = torch.stack(torch.aminmax(t, dim=1), 1).cpu().numpy()
    bands = levels.bands(extents)
    assert bands[0][1] > bands[2][1]
    filters, totals = RepeatedFilter(lattice), lattice.mass.double().sum().view(1)
    wanted = Wanted(0, range(LABELS), levels)
    got = filters.ordered(t, None, [wanted._replace(bands=bands)], 1.0, totals)
    expected = filters.ordered(t, None, [wanted], 1.0, totals)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_one_label_is_one_channel(lattice, device):
    (units,) = in_groups(lattice, [Wanted(0, [0])])
    rows = units.empty_rows(torch.float32).fill_(1.0)
    work = units.empty_work(lattice.slots, torch.float32).fill_(-7.0)
    engine.blur_rows(lattice, rows, units, work)
    splatted = work[0].view(-1, 4)[: lattice.vertices]  # the quad's others are no labels' rows
    assert (splatted[:, 0] > 0).all()
    assert (splatted[:, 1:] < 0).all()


def test_presence(lattice, device, generator):
    filters = RepeatedFilter(lattice)
    for names in ([0, 3], [4, 1]):
        labels = torch.randint(0, LABELS, (PIXELS,), generator=generator).to(device)
        indicator = (labels == torch.tensor(names, device=device).unsqueeze(1)).float()
        got = filters.presence(labels, [Wanted(0, names)], torch.empty(LABELS, PIXELS).to(device))
        torch.testing.assert_close(got[names], lattice.apply(indicator))


def test_overlaps(lattice, device, generator):
    filters = RepeatedFilter(lattice)
    for names in ([0, 3, 4], [4, 1, 2]):
        labels = torch.randint(0, LABELS, (3, PIXELS), generator=generator).to(device)
        found = filters.overlaps(labels, [Wanted(0, names, plane=p) for p in (2, 0)])
        sums = list(zip(torch.cat(found.sums).tolist(), found.owners, strict=True))
        got = [sum(s for s, own in sums if own == k) for k in (0, 1)]
        for mass, plane in zip(got, (2, 0), strict=True):
            own = (labels[plane] == torch.tensor(names, device=device).unsqueeze(1)).float()
            assert mass == pytest.approx(float((own * lattice.apply(own)).sum()), rel=1e-6)


def test_pixelwise_work(device, generator):
    plans = Plans()
    phi, step, lipschitz = scores(device, generator), *scores(device, generator)[:2]
    for _ in range(3):
        v, r, y = (scores(device, generator) for _ in range(3))
        labels = torch.randint(0, LABELS, (PIXELS,), generator=generator).to(device)
        row = torch.arange(LABELS, dtype=torch.int32, device=device).roll(1)[None]
        calls = [
            (descend, (v, phi, r, y, step, lipschitz)),
            (descend, (v, phi, r, v, step, lipschitz)),  # one tensor in two roles
            (mean_field_update, (phi, r, y, step)),
            (icm_moves, (phi, r, step, row, labels)),
        ]
        for function, arguments in calls:
            got = function(*arguments, engine="triton", plans=plans)
            expected = function(*arguments, engine="torch")
            for one, other in zip(got, expected, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_planned_work_on_longer_items(device, generator):
    plans, n = Plans(), 300
    phi, r = torch.rand(2, LABELS, n, generator=generator).to(device)
    mass = torch.zeros(n, device=device)
    row = torch.arange(LABELS, dtype=torch.int32, device=device)[None]
    labels = torch.zeros(n, dtype=torch.int64, device=device)
    expected = icm_moves(phi, r, mass, row, labels, engine="torch")[0]
    for pixels in (100, n):
        spans = Spans.of([(0, pixels)], device)
        best, *_ = icm_moves(phi, r, mass, row, labels, spans=spans, plans=plans, engine="triton")
        torch.testing.assert_close(best[:pixels], expected[:pixels])


def test_tensors_off_their_alignment_are_worked_on_without_a_plan(lattice, device, generator):
    filters = RepeatedFilter(lattice)
    flat = torch.rand(LABELS * PIXELS + 1, generator=generator).to(device)
    for start in (0, 1, 0):
        values = flat[start : start + LABELS * PIXELS].view(LABELS, PIXELS)
        torch.testing.assert_close(filters.apply(values), lattice.apply(values))
