"""Call patterns of public projects, unmodified but for the import; each returns marginals.

Tests replace `photograph` to run them at several sizes.
"""

from __future__ import annotations

import numpy as np
from scripts import network_output, photograph


def settings(spatial, bilateral, iterations, *, gt_prob=None, normalization=None):
    """The function of a pipeline with these parameters: (std, weight), (xy, rgb, weight)."""

    def pattern(dcrf, utils):
        img = photograph()
        H, W = img.shape[:2]
        d = dcrf.DenseCRF2D(W, H, 4)
        if gt_prob is None:
            d.setUnaryEnergy(utils.unary_from_softmax(network_output(img, 4)))
        else:
            seeds = network_output(img, 4).argmax(0)
            d.setUnaryEnergy(utils.unary_from_labels(seeds, 4, gt_prob, zero_unsure=False))
        kind = {} if normalization is None else {"normalization": getattr(dcrf, normalization)}
        d.addPairwiseGaussian(sxy=spatial[0], compat=spatial[1], **kind)
        d.addPairwiseBilateral(
            sxy=bilateral[0], srgb=bilateral[1], rgbim=img, compat=bilateral[2], **kind
        )
        return d.inference(iterations)

    return pattern


def own_features_height_first(dcrf, utils):
    img = photograph()
    H, W = img.shape[:2]
    yy, xx = np.meshgrid(np.arange(H), np.arange(W), indexing="ij")
    d = dcrf.DenseCRF(H * W, 3)
    d.setUnaryEnergy(-np.log(network_output(img)).reshape(3, -1))
    d.addPairwiseEnergy(np.stack([yy.ravel() / 5, xx.ravel() / 3]).astype("f4"), compat=3)
    colours = img.reshape(-1, 3).T / 13
    features = np.concatenate([[xx.ravel() / 40, yy.ravel() / 40], colours]).astype("f4")
    d.addPairwiseEnergy(features, compat=10)
    return d.inference(5)


def mask_without_normalization(dcrf, utils):
    img = photograph()
    H, W = img.shape[:2]
    mask = (img[..., 0] > 120).astype(np.uint8)
    d = dcrf.DenseCRF2D(W, H, 2)
    d.setUnaryEnergy(utils.unary_from_labels(mask, 2, gt_prob=0.9, zero_unsure=False))
    d.addPairwiseGaussian(sxy=(2, 2), compat=20, normalization=dcrf.NO_NORMALIZATION)
    return d.inference(5)


def full_kernel_on_points(dcrf, utils):
    img = photograph()
    H, W = img.shape[:2]
    d = dcrf.DenseCRF(H * W, 2)
    p = network_output(img, 2)
    d.setUnaryEnergy(np.ascontiguousarray(-np.log(p.reshape(2, -1))))
    feats = utils.create_pairwise_bilateral(sdims=(30, 30), schan=(20, 20, 20), img=img, chdim=2)
    d.addPairwiseEnergy(
        feats, compat=10, kernel=dcrf.FULL_KERNEL, normalization=dcrf.NORMALIZE_SYMMETRIC
    )
    return d.inference(10)


def const_kernel_before(dcrf, utils):
    img = photograph()
    H, W = img.shape[:2]
    d = dcrf.DenseCRF2D(W, H, 3)
    d.setUnaryEnergy(utils.unary_from_softmax(network_output(img)))
    d.addPairwiseGaussian(
        sxy=3, compat=3, kernel=dcrf.CONST_KERNEL, normalization=dcrf.NORMALIZE_BEFORE
    )
    return d.inference(5)


def asymmetric_negative_matrix(dcrf, utils):
    img = photograph()
    H, W = img.shape[:2]
    costs = -np.random.default_rng(2).random((5, 5)).astype("f4") * 3
    d = dcrf.DenseCRF2D(W, H, 5)
    d.setUnaryEnergy(utils.unary_from_softmax(network_output(img, 5)))
    d.addPairwiseBilateral(sxy=20, srgb=10, rgbim=img, compat=costs)
    return d.inference(5)


def one_dear_pair(dcrf, utils):
    img = photograph()
    H, W = img.shape[:2]
    costs = np.array([[80, 0, 0], [0, 0, 0], [0, 0, 0]], np.float32)
    d = dcrf.DenseCRF2D(W, H, 3)
    d.setUnaryEnergy(utils.unary_from_softmax(network_output(img)))
    d.addPairwiseGaussian(sxy=3, compat=costs)
    return d.inference(4)


def tiny_vector_huge_sigma(dcrf, utils):
    img = photograph()
    H, W = img.shape[:2]
    d = dcrf.DenseCRF2D(W, H, 3)
    d.setUnaryEnergy(utils.unary_from_softmax(network_output(img)))
    d.addPairwiseGaussian(sxy=1e8, compat=np.full(3, 1e-8, np.float32))
    return d.inference(5)


def volume_step_by_step(dcrf, utils):
    rng = np.random.default_rng(1)
    H, W = photograph().shape[:2]
    volume = rng.normal(100, 20, (5, H, W)).astype("f4")
    volume[:, 4:10, 5:12] += 60
    p = 1 / (1 + np.exp((130 - volume) / 20))
    d = dcrf.DenseCRF(volume.size, 2)
    d.setUnaryEnergy(utils.unary_from_softmax(np.stack([1 - p, p])))
    d.addPairwiseEnergy(
        utils.create_pairwise_bilateral((2, 4, 4), (15,), volume[..., None], chdim=3), compat=4
    )
    Q, tmp1, tmp2 = d.startInference()
    for _ in range(6):
        d.stepInference(Q, tmp1, tmp2)
    return Q


def stop_when_the_divergence_settles(dcrf, utils):
    img = photograph()
    H, W = img.shape[:2]
    d = dcrf.DenseCRF2D(W, H, 3)
    d.setUnaryEnergy(utils.unary_from_softmax(network_output(img)))
    d.addPairwiseGaussian(sxy=3, compat=1)
    Q, tmp1, tmp2 = d.startInference()
    last = np.inf
    for _ in range(20):
        d.stepInference(Q, tmp1, tmp2)
        kl = d.klDivergence(Q) / (H * W)
        if abs(last - kl) < 1e-3:
            break
        last = kl
    return Q


def new_unaries_old_kernels(dcrf, utils):
    img = photograph()
    H, W = img.shape[:2]
    d = dcrf.DenseCRF2D(W, H, 3)
    d.addPairwiseGaussian(sxy=3, compat=3)
    d.addPairwiseBilateral(sxy=80, srgb=13, rgbim=img, compat=10)
    for offset in (0, 1):
        p = np.roll(network_output(img), offset, axis=0)
        d.setUnaryEnergy(utils.unary_from_softmax(p))
        Q = d.inference(3)
    return Q


def confident_labels(dcrf, utils):
    """What a pseudo-label pipeline keeps: labels surer than 0.95, 255 elsewhere."""
    q = np.array(unnormalised_probabilities(dcrf, utils))
    return np.where(q.max(0) > 0.95, q.argmax(0), 255)


def unnormalised_probabilities(dcrf, utils):
    img = photograph()
    H, W = img.shape[:2]
    scores = network_output(img) * 0.9  # adds up to 0.9
    d = dcrf.DenseCRF2D(W, H, 3)
    d.setUnaryEnergy(np.ascontiguousarray(utils.unary_from_softmax(scores)))
    float_image = img.astype(np.float64)
    d.addPairwiseBilateral(sxy=10, srgb=10, rgbim=float_image.astype(np.uint8), compat=5)
    return d.inference(10)


def one_kernel_per_channel(dcrf, utils):
    img = photograph()
    H, W = img.shape[:2]
    d = dcrf.DenseCRF(H * W, 3)
    d.setUnaryEnergy(utils.unary_from_softmax(network_output(img)))
    for channel in range(3):
        feats = utils.create_pairwise_bilateral((20, 20), (10,), img[..., channel], chdim=-1)
        d.addPairwiseEnergy(feats, compat=3)
    return d.inference(5)


def scaled_certainty(dcrf, utils):
    img = photograph()
    H, W = img.shape[:2]
    d = dcrf.DenseCRF2D(W, H, 3)
    d.setUnaryEnergy(utils.unary_from_softmax(network_output(img), scale=0.7, clip=None))
    d.addPairwiseGaussian(sxy=(5, 5), compat=10)
    return d.inference(5)


def labels_from_torch(dcrf, utils):
    import torch

    img = photograph()
    H, W = img.shape[:2]
    labels = torch.from_numpy(network_output(img).argmax(0))
    d = dcrf.DenseCRF2D(W, H, 3)
    unary = utils.unary_from_labels(labels.numpy(), 3, gt_prob=0.5, zero_unsure=False)
    d.setUnaryEnergy(unary)
    d.addPairwiseBilateral(sxy=50, srgb=5, rgbim=img, compat=10)
    return d.inference(5)


def logistic_unary(dcrf, utils):
    img = photograph()
    H, W = img.shape[:2]
    rng = np.random.default_rng(4)
    weights = rng.normal(size=(3, 4)).astype("f4")
    features = np.concatenate([img.reshape(-1, 3).T / 255, np.ones((1, H * W))])
    features = np.ascontiguousarray(features, np.float32)
    d = dcrf.DenseCRF2D(W, H, 3)
    d.setUnary(dcrf.LogisticUnary(weights, features))
    d.addPairwiseGaussian(sxy=3, compat=3)
    return d.inference(5)


def without_a_unary(dcrf, utils):
    H, W = photograph().shape[:2]
    d = dcrf.DenseCRF2D(W, H, 3)
    d.addPairwiseGaussian(sxy=3, compat=3)
    return d.startInference()[0]


def everything_clipped(dcrf, utils):
    img = photograph()
    H, W = img.shape[:2]
    d = dcrf.DenseCRF2D(W, H, 3)
    d.setUnaryEnergy(utils.unary_from_softmax(network_output(img), clip=1.0))
    return d.inference(1)


def two_d_helpers(dcrf, utils):
    img = photograph()
    H, W = img.shape[:2]
    d = dcrf.DenseCRF(H * W, 3, 5)  # an argument too many
    d.setUnary(dcrf.ConstUnary(utils.unary_from_softmax(network_output(img))))
    d.addPairwiseEnergy(utils._create_pairwise_gaussian_2d(3, 4, (H, W)), compat=3)
    d.addPairwiseEnergy(utils._create_pairwise_bilateral_2d(30, 40, 9, 10, 11, img), compat=5)
    return d.inference(5)


def whole_floats(dcrf, utils):
    img = photograph()
    H, W = img.shape[:2]
    d = dcrf.DenseCRF2D(W * 1.0, H * 1.0, 3)
    d.setUnaryEnergy(utils.unary_from_softmax(network_output(img)))
    d.addPairwiseGaussian(sxy=3, compat=3)
    return d.inference(5.0)


def unusual(**changed):
    """Bilateral features with unusual standard deviations."""

    def pattern(dcrf, utils):
        img = photograph()
        H, W = img.shape[:2]
        given = {"sdims": (20, 20), "schan": (10, 10, 10), "chdim": 2, "img": img, **changed}
        if given["chdim"] == -2:
            given["img"] = img.transpose(0, 2, 1)
        elif given["chdim"] == -3:
            given["img"] = img.transpose(2, 0, 1)
        d = dcrf.DenseCRF(H * W, 3)
        d.setUnaryEnergy(utils.unary_from_softmax(network_output(img)))
        d.addPairwiseEnergy(utils.create_pairwise_bilateral(**given), compat=5)
        return d.inference(5)

    return pattern


def unusual_2d(sxy=20, srgb=10):
    def pattern(dcrf, utils):
        img = photograph()
        H, W = img.shape[:2]
        d = dcrf.DenseCRF2D(W, H, 3)
        d.setUnaryEnergy(utils.unary_from_softmax(network_output(img)))
        d.addPairwiseBilateral(sxy=sxy, srgb=srgb, rgbim=img, compat=5)
        return d.inference(5)

    return pattern


PATTERNS = {
    function.__name__: function
    for function in (
        own_features_height_first,
        mask_without_normalization,
        full_kernel_on_points,
        const_kernel_before,
        asymmetric_negative_matrix,
        one_dear_pair,
        tiny_vector_huge_sigma,
        volume_step_by_step,
        stop_when_the_divergence_settles,
        new_unaries_old_kernels,
        unnormalised_probabilities,
        one_kernel_per_channel,
        scaled_certainty,
        labels_from_torch,
        logistic_unary,
        without_a_unary,
        everything_clipped,
        two_d_helpers,
        whole_floats,
    )
}
PATTERNS |= {
    "1/3; 67/3/4; 10": settings((1, 3), (67, 3, 4), 10),
    "3/3; 64/5/4; 10": settings((3, 3), (64, 5, 4), 10),
    "3/3; 50/5/10; 10, gt_prob 0.7": settings((3, 3), (50, 5, 10), 10, gt_prob=0.7),
    "3/7; 50/5/10; 10": settings((3, 7), (50, 5, 10), 10),
    "0.3/3; 20/3/4; 10": settings((0.3, 3), (20, 3, 4), 10),
    "1/3; 23/7/20; 5, unnormalised": settings(
        (1, 3), (23, 7, 20), 5, normalization="NO_NORMALIZATION"
    ),
    "4/3; 83/5/3; 5": settings((4, 3), (83, 5, 3), 5),
    "45.7/3.3": settings((3, 3), (45.7, 3.3, 10), 5),
    "10/0.3": settings((3, 3), (10, 0.3, 10), 5),
    "20/0.03": settings((3, 3), (20, 0.03, 10), 5),
}
#: Patterns that the facade warns of, and a word of the warning.
WARNED = {
    "one of three channels": (unusual(schan=(0.1,)), "only the first 1"),
    "two of three channels": (unusual(schan=(5, 7)), "only the first 2"),
    "one of two axes": (unusual(sdims=(20,)), "only the first 1"),
    "negative sdims": (unusual(sdims=(-20, 20)), "mirrors"),
    "infinite sdims": (unusual(sdims=(np.inf, 20)), "removes"),
    "three-tuple sxy": (unusual_2d(sxy=(20, 30, 40)), "only the first 2"),
    "four-tuple srgb": (unusual_2d(srgb=(9, 10, 11, 12)), "only the first 3"),
    "negative sxy": (unusual_2d(sxy=-20), "mirrors"),
    "infinite sxy": (unusual_2d(sxy=np.inf), "removes"),
}
PATTERNS |= {
    "chdim -2": unusual(chdim=-2),
    "chdim -3": unusual(chdim=-3),
}
