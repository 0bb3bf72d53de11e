"""Masks of one image: exact on small problems, whole-image bounds, every format, bad input."""

import itertools
import warnings

import numpy as np
import pytest

import densecrf
from densecrf.io.coco import decode, encode_runs, run_lengths
from densecrf.masks import MASKS, refine_masks
from densecrf.model.masks import FAR, NEAR

SMALL = densecrf.Parameters(1.0, 0.5, 2.0, 40.0, 0.7, confidence=None)
HALF = densecrf.Parameters(1.0, 1.0, 4.0, 20.0, 2.0, confidence=None)


def scene(shape=(40, 60), seed=0):
    """Return an image of a bright square with noise, the square, and a displaced mask of it."""
    rng = np.random.default_rng(seed)
    truth = np.zeros(shape, bool)
    truth[10:30, 20:40] = True
    image = np.where(truth[..., None], 170.0, 80.0) + rng.normal(0, 3, (*shape, 3))
    return np.clip(image, 0, 255).astype(np.uint8), truth, np.roll(truth, (3, -3), (0, 1))


def least_energy(crf):
    """Return the least energy of all labellings, by the explicit matrix."""
    k = crf.pairwise.apply_double(np.eye(crf.n))
    np.fill_diagonal(k, 0)
    every = itertools.product(range(crf.n_labels), repeat=crf.n)
    unary = crf.unary.astype(float)
    return min(
        unary[x, np.arange(crf.n)].sum() + 0.5 * (k * (np.not_equal.outer(x, x))).sum()
        for x in map(np.array, every)
    )


# --- exact ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_mask_held_with_a_probability_is_solved_to_the_optimum(seed):
    rng = np.random.default_rng(seed)
    image, mask = rng.integers(0, 256, (3, 4, 3)).astype(np.uint8), rng.random((3, 4)) < 0.5
    found = refine_masks(image, mask, model=SMALL, confidence=0.73, gap=1e-6)[0]
    crf = densecrf.DenseCRF.from_labels(
        mask.astype(int), 2, SMALL.kernels(image.astype(float)), confidence=0.73
    )
    best = least_energy(crf)
    assert found.energy == pytest.approx(best, rel=2e-6)
    assert found.lower_bound <= best * (1 + 1e-7)  # the unaries' rounding
    assert found.gap <= 1e-6
    assert crf.energy(found.mask.astype(int)) == pytest.approx(best, rel=2e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_evidence_of_a_hard_mask_is_the_declared_one(seed):
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (3, 5, 3)).astype(np.uint8)
    mask = np.zeros((3, 5), bool)
    mask[:, :2] = True
    found = refine_masks(image, mask, model=SMALL, border=2.0, gap=1e-6)[0]
    distance = np.array([1.5, 0.5, 0.5, 1.5, 2.5])
    odds = NEAR + FAR * (distance / 2) ** 2
    held = np.array([True, False, False, False, True])  # the core of a thin part, and far away
    odds = np.where(held, 1000.0, odds) * np.where(np.arange(5) < 2, 1, -1)
    unary = np.logaddexp(0, [odds, -odds])
    crf = densecrf.DenseCRF(
        np.broadcast_to(unary[:, None], (2, 3, 5)), SMALL.kernels(image.astype(float))
    )
    best = least_energy(crf)
    assert found.energy == pytest.approx(best, rel=2e-6)
    assert best * (1 - 3e-6) <= found.lower_bound <= best * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_exclusive_masks_are_labels_of_one_problem(seed):
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (2, 4, 3)).astype(np.uint8)
    odds = rng.normal(0, 1, (2, 2, 4))
    found = refine_masks(image, odds, model=SMALL, border=None, exclusive=True, gap=1e-5)
    scores = np.concatenate([np.zeros((1, 2, 4)), odds])
    crf = densecrf.DenseCRF.from_logits(scores, SMALL.kernels(image.astype(float)))
    best = least_energy(crf)
    assert not (found[0].mask & found[1].mask).any()
    labels = found[0].mask + 2 * found[1].mask
    assert crf.energy(labels) == pytest.approx(best, rel=1e-4)
    assert found[0].energy == pytest.approx(best, rel=1e-4)
    assert found[0].lower_bound <= best * (1 + 1e-6)


def test_a_window_has_the_whole_images_energy_and_bound():
    image, _, mask = scene((70, 90))
    found = refine_masks(image, mask, model=HALF, confidence=0.8, gap=1e-6)[0]
    crf = densecrf.DenseCRF.from_labels(
        mask.astype(int), 2, HALF.kernels(image.astype(float)), confidence=0.8
    )
    whole = crf.solve("lp", gap=1e-6)
    assert found.energy == pytest.approx(whole.energy, rel=2e-6)
    assert whole.lower_bound * (1 - 2e-6) <= found.lower_bound <= whole.energy * (1 + 1e-6)
    assert crf.energy(found.mask.astype(int)) == pytest.approx(found.energy, rel=2e-6)


def test_masks_are_exact_within_a_hundred_iterations():
    image, _, mask = scene((60, 80))
    for confidence in (None, 0.73):
        found = refine_masks(
            image, mask, model=HALF, confidence=confidence, gap=1e-6, max_iterations=100
        )
        assert found.gap[0] <= 1e-6
        assert found[0].iterations <= 100


# --- the model ------------------------------------------------------------------------------------


def test_a_displaced_mask_is_put_right():
    image, truth, mask = scene()
    found = refine_masks(image, mask)
    assert (found.masks == truth).mean() > 0.995
    assert found[0].changes.area_before[1] == mask.sum()
    assert found[0].changes.changed == (mask != found.masks).sum()
    assert found[0].warning == ""


def test_small_masks_keep_a_core():
    image = np.full((40, 40, 3), 128, np.uint8)
    mask = np.zeros((40, 40), bool)
    mask[18:22, 10:30] = True
    found = refine_masks(image, mask, strength=5.0)[0]
    assert found.mask[19:21, 12:28].all()
    assert not found.mask[24:].any()


def test_pixels_beyond_the_border_keep_their_label():
    image, _, mask = scene()
    wrong = mask.copy()
    wrong[2:6, 50:58] = True  # far from the square
    found = refine_masks(255 - image // 2, wrong, border=2.0, strength=5.0)[0].mask
    inner = np.zeros_like(mask)
    inner[15:31, 19:35] = True
    assert found[inner].all()
    assert not found[35:].any()


def test_a_mask_that_vanishes_is_warned_about():
    image, _, mask = scene()
    cutler = densecrf.Parameters(3, 7, 50, 5, 10, confidence=0.731)
    with pytest.warns(densecrf.ArgumentWarning, match="mask 0 has 0 pixels of 400"):
        found = refine_masks(image // 8 + 100, [mask], model=cutler, strength=3.0)
    assert found[0].warning
    with pytest.warns(densecrf.ArgumentWarning, match="2 of 3 are to be looked at: mask 1"):
        refine_masks(
            image // 8 + 100, [np.zeros_like(mask), mask, mask], model=cutler, strength=3.0
        )


def test_overlapping_masks_are_solved_by_themselves():
    image, _, mask = scene()
    both = np.stack([mask, np.roll(mask, 5, 1)])
    together = refine_masks(image, both)
    alone = [refine_masks(image, each)[0] for each in both]
    for one, other in zip(together, alone, strict=True):
        assert (one.mask == other.mask).all()
        assert one.energy == other.energy


def test_the_number_of_threads_does_not_matter():
    image, _, mask = scene()
    many = np.stack([np.roll(mask, i, 1) for i in range(5)])
    one, more = (refine_masks(image, many, threads=n) for n in (1, 4))
    assert (one.masks == more.masks).all()
    assert [each.lower_bound for each in one] == [each.lower_bound for each in more]


def test_scores_weigh_the_evidence():
    image = np.full((12, 20, 3), 128, np.uint8)
    left, right = np.zeros((2, 12, 20), bool)
    left[:, :12] = right[:, 8:] = True
    masks = np.where(np.stack([left, right]), 2.0, -2.0)
    found = refine_masks(image, masks, scores=[1.0, 0.2], exclusive=True, model=SMALL)
    assert (found[0].mask >= left).all()
    assert not (found[1].mask & left).any()


# --- formats --------------------------------------------------------------------------------------


def test_arrays_come_back_as_they_came():
    image, _, mask = scene()
    expected = refine_masks(image, mask).masks
    assert expected.dtype == bool
    assert expected.shape == mask.shape
    for given in (mask.astype(np.uint8), mask * np.uint8(255), mask.astype(np.float32)):
        found = refine_masks(image, given[None])
        assert found.masks.dtype == given.dtype
        assert found.masks.shape == (1, *mask.shape)
        assert (found.masks[0] == expected * given.max()).all()
    assert (refine_masks(image, [mask, mask]).arrays == expected).all()


def test_probabilities_and_logits_are_the_same_masks():
    image, truth, mask = scene()
    odds = np.where(mask, 1.5, -1.5).astype(np.float32)
    logits = refine_masks(image, odds)
    p = 1 / (1 + np.exp(-odds.astype(np.float64)))
    probabilities = refine_masks(image, p)
    assert ((logits.masks > 0) == (probabilities.masks == 1)).all()
    assert set(np.unique(probabilities.masks)) == {0.0, 1.0}
    assert (np.abs(logits.masks) == np.abs(odds)).all()
    assert ((logits.masks > 0) == truth).mean() > 0.97


@pytest.mark.parametrize("coded", ["list", "text", "bytes"])
def test_run_lengths_come_back_as_they_came(coded):
    image, _, mask = scene()
    runs = run_lengths(mask)
    counts = {"list": runs, "text": encode_runs(runs), "bytes": encode_runs(runs).encode()}[coded]
    found = refine_masks(image, [{"size": [40, 60], "counts": counts}])
    assert type(found.masks[0]["counts"]) is type(counts)
    assert (decode(found.masks[0], (40, 60)) == found[0].mask).all()
    assert (found[0].mask == refine_masks(image, mask).masks).all()


def test_annotations_keep_their_fields():
    image, _, mask = scene()
    polygon = [17, 13, 37, 13, 37, 33, 17, 33]
    given = {"id": 7, "segmentation": [polygon], "area": 400, "bbox": [0, 0, 1, 1], "score": 0.9}
    found = refine_masks(image, [given])
    out = found.masks[0]
    assert given["area"] == 400  # not changed
    assert out["id"] == 7
    assert out["area"] == found[0].mask.sum()
    x, y, width, height = out["bbox"]
    assert found[0].mask[y : y + height, x : x + width].sum() == out["area"]
    assert (decode(out["segmentation"], mask.shape) == found[0].mask).all()
    assert (refine_masks(image, [[polygon]])[0].mask == refine_masks(image, mask)[0].mask).all()


def test_a_polygon_whose_mask_gets_a_hole_becomes_run_lengths():
    image, truth, _ = scene()
    image[18:22, 28:32] = image[0, 0]
    ring = truth.copy()
    ring[19:21, 29:31] = False
    counts = {"size": [40, 60], "counts": run_lengths(ring)}
    holed = refine_masks(image, [counts])[0].mask
    assert holed[15, 25]
    assert not holed[20, 30]
    found = refine_masks(image, [[[20, 10, 40, 10, 40, 30, 20, 30]]], border=12.0)
    if not found[0].mask[20, 30]:
        assert set(found.masks[0]) == {"size", "counts"}


@pytest.mark.parametrize("kind", ["xyxy", "xywh"])
def test_boxes_become_the_objects_in_them(kind):
    image, truth, _ = scene()
    box = [18, 8, 43, 33] if kind == "xyxy" else [18, 8, 25, 25]
    found = refine_masks(image, np.array([box], float), kind=kind, scores=[0.8])
    overlap = (found[0].mask & truth).sum() / (found[0].mask | truth).sum()
    assert overlap > 0.95
    x, y, width, height = densecrf.io.coco.box_of(found[0].mask)
    expected = [x, y, x + width, y + height] if kind == "xyxy" else [x, y, width, height]
    assert found.masks.tolist() == [expected]


def test_annotations_without_a_segmentation_are_boxes():
    image, truth, _ = scene()
    found = refine_masks(image, [{"bbox": [18, 8, 25, 25], "score": 0.8, "image_id": 1}])
    assert (found[0].mask & truth).sum() / (found[0].mask | truth).sum() > 0.95
    assert (decode(found.masks[0]["segmentation"], (40, 60)) == found[0].mask).all()


@pytest.mark.parametrize("confidence", [None, 0.8])
def test_empty_and_full_masks_are_left_alone(confidence):
    image = scene()[0]
    found = refine_masks(image, [np.zeros((40, 60), bool), np.ones((40, 60), bool)])
    assert not found.masks[0].any()
    assert found.masks[1].all()
    assert max(found.gap) <= 1e-6
    none = refine_masks(image, np.zeros((0, 40, 60), bool), confidence=confidence)
    assert len(none) == 0
    assert none.masks.shape == (0, 40, 60)
    assert len(refine_masks(image, [], kind="coco")) == 0


def test_grey_and_floating_images_are_read():
    image, truth, mask = scene()
    grey = refine_masks(image[..., 0], mask).masks
    floating = refine_masks(image / 255.0, mask).masks
    first = refine_masks(np.moveaxis(image, -1, 0), mask, channel_axis=0).masks
    assert min((each == truth).mean() for each in (grey, floating, first)) > 0.99


def _on_device(image, masks, **options):
    """Solve on torch tensors, on a GPU where there is one."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return refine_masks(image, masks, device=device, **options)


def _soft(masks):
    return np.clip(masks * 0.6 + 0.2 + np.random.default_rng(0).normal(0, 0.05, masks.shape), 0, 1)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("masks", {}),
        ("masks", {"scores": [0.4, 1.0, 0.7]}),
        ("masks", {"confidence": 0.8}),
        ("probabilities", {}),
        ("probabilities", {"border": None}),
        ("logits", {"border": 3.0}),
        ("xyxy", {}),
        ("masks", {"exclusive": True}),
    ],
)
def test_devices_find_the_same_masks(kind, options):
    image, _, mask = scene()
    masks = np.stack([mask, np.roll(mask, 2, 0), np.zeros_like(mask)])
    if kind == "probabilities":
        masks = _soft(masks)
    elif kind == "logits":
        masks = 8 * _soft(masks) - 4
    elif kind == "xyxy":
        masks = np.array([[18, 8, 43, 33], [22, 6, 39, 31]])
    options = {"gap": 1e-4, "model": HALF, "kind": kind, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", densecrf.ArgumentWarning)
        here, there = refine_masks(image, masks, **options), _on_device(image, masks, **options)
    assert (here.arrays == there.arrays).mean() > 0.999
    for one, other in zip(here, there, strict=True):
        assert one.energy == pytest.approx(other.energy, rel=2e-4)
        assert other.gap <= 1e-4
        assert other.lower_bound <= one.energy * (1 + 1e-7)
        assert one.lower_bound <= other.energy * (1 + 1e-7)
        changes = np.array(other.changes.area_before)
        assert np.abs(changes - one.changes.area_before).max() <= 2
        assert other.changes.loss == pytest.approx(one.changes.loss, abs=2e-3)
        assert other.changes.pixels == one.changes.pixels == sum(other.changes.area_after)


@pytest.mark.parametrize("seed", range(3))
def test_devices_solve_to_the_optimum_of_the_whole_image(seed):
    rng = np.random.default_rng(seed)
    image, masks = rng.integers(0, 256, (3, 4, 3)).astype(np.uint8), rng.random((3, 3, 4)) < 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", densecrf.ArgumentWarning)
        found = _on_device(image, masks, model=SMALL, confidence=0.73, gap=1e-6)
    for mask, each in zip(masks, found, strict=True):
        crf = densecrf.DenseCRF.from_labels(
            mask.astype(int), 2, SMALL.kernels(image.astype(float)), confidence=0.73
        )
        best = least_energy(crf)
        assert each.energy == pytest.approx(best, rel=2e-6)
        assert each.lower_bound <= best * (1 + 1e-7)  # the unaries' rounding
        assert crf.energy(each.mask.astype(int)) == pytest.approx(best, rel=2e-6)


def test_a_device_goes_on_with_the_masks_that_have_not_reached_their_gap(monkeypatch):
    pytest.importorskip("torch")
    from densecrf.torch import masks as on_device

    runs, iterate = [], on_device.iterate

    def counted(problem, limits, before, *, certified):
        runs.append((problem.n, limits.gap, before is not None))
        return iterate(problem, limits, before, certified=certified)

    monkeypatch.setattr(on_device, "iterate", counted)
    image, truth, mask = scene()
    hard = np.roll(mask, (12, 12), (0, 1))  # far off: a larger gap than the others'
    found = _on_device(image, np.stack([truth] * 20 + [hard]), gap=1e-3)
    assert max(found.gap) <= 1e-3
    assert len(runs) > 1
    assert runs[1][0] < runs[0][0]
    assert runs[1][1] < runs[0][1]
    assert runs[1][2]


def test_a_time_limit_returns_what_there_is():
    image, _, mask = scene()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = refine_masks(image, mask, time_limit=0.0, gap=0.0)[0]
    assert found.mask.shape == mask.shape
    assert -np.inf < found.lower_bound <= found.energy < np.inf


# --- bad input ------------------------------------------------------------------------------------

MASK = scene()[2]
TEXT = encode_runs(run_lengths(MASK))


@pytest.mark.parametrize(
    ("masks", "options", "message"),
    [
        (MASK[1:], {}, r"masks: shape \(39, 60\) for an image of \(40, 60\)"),
        (np.ones((3, 4)), {}, "kind='xyxy'"),
        (np.full((40, 60), np.nan), {}, "not finite"),
        (np.arange(2400).reshape(40, 60), {"kind": "masks"}, "not 0 and one more"),
        (np.full((40, 60), 3.0), {}, "kind='logits'"),
        (np.full((40, 60), 3.0), {"kind": "probabilities"}, "kind='logits'"),
        (MASK, {"kind": "polygons"}, "must be one of 'masks'"),
        (MASK, {"scores": [0.5, 0.5]}, r"scores: shape \(2,\) for 1 masks"),
        (MASK, {"scores": [0.0]}, "give 0 < score <= 1"),
        (MASK, {"confidence": 1.0}, "confidence"),
        (MASK, {"border": 0}, "border"),
        (MASK, {"gap": 2}, "gap"),
        (MASK, {"model": "nothing"}, "model"),
        ([[9, 9, 9, 9]], {"kind": "xyxy"}, "holds no pixel"),
        (np.ones((2, 3)), {"kind": "xyxy"}, r"give \(n, 4\)"),
        ([{"size": [40, 60], "counts": [5]}], {}, r"masks\[0\]: counts: runs of 5 pixels"),
        ([{"size": [4, 6], "counts": [24]}], {}, r"masks\[0\]: segmentation: size"),
        ([{"size": [40, 60], "counts": TEXT[:-1] + "X"}], {}, "truncated"),
        ([{"size": [40, 60], "counts": "\u00e9"}], {}, "not COCO's compressed"),
        ([{"id": 1}], {}, "there is none, and no bbox"),
        ([{"bbox": [1, 2, 3]}], {}, "x, y, width, height"),
        ([[[1, 2, 3, 4]]], {}, "a polygon of 4 numbers"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(masks, options, message):
    with pytest.raises(densecrf.ArgumentError, match=message):
        refine_masks(scene()[0], masks, **options)


def test_a_misspelt_keyword_names_the_nearest():
    with pytest.raises(TypeError, match="Did you mean 'exclusive'"):
        refine_masks(scene()[0], MASK, exclusiv=True)


def test_channels_first_are_asked_for():
    with pytest.raises(densecrf.ArgumentError, match="channel_axis=0"):
        refine_masks(np.moveaxis(scene()[0], -1, 0), MASK)


def test_the_model_of_masks_is_local():
    assert MASKS.sigma_xy <= 20
    assert MASKS.confidence is None
