"""Scripts in the style of pydensecrf's users, unmodified but for the import.

Each takes the two modules in place of the imports and returns what the script computed. Run as a
program, this file writes recorded.json with the numbers of an installed pydensecrf2.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from skimage import data


def photograph() -> np.ndarray:
    return np.ascontiguousarray(data.astronaut()[40:136, 150:278])  # 96 high, 128 wide


def network_output(image: np.ndarray, labels: int = 3) -> np.ndarray:
    """Coarse, noisy class probabilities (labels, H, W): distance to colours, and noise."""
    rng = np.random.default_rng(7)
    centres = np.linspace(30, 220, labels)
    grey = image.astype(np.float32).mean(2)
    logits = -np.abs(grey[None] - centres[:, None, None]) / 40 + rng.normal(0, 1, (labels, 1, 1))
    logits = logits + rng.normal(0, 1.5, logits.shape)
    e = np.exp(logits - logits.max(0))
    return (e / e.sum(0)).astype(np.float32)


def readme_2d(dcrf, utils, iterations=5):
    img = photograph()
    H, W = img.shape[:2]
    probs = network_output(img)
    d = dcrf.DenseCRF2D(W, H, 3)
    U = utils.unary_from_softmax(probs)
    d.setUnaryEnergy(U)
    d.addPairwiseGaussian(sxy=(3, 3), compat=3)
    d.addPairwiseBilateral(sxy=(80, 80), srgb=(13, 13, 13), rgbim=img, compat=10)
    Q = d.inference(iterations)
    return np.array(Q).reshape((3, H, W))


def deeplab_wrapper(dcrf, utils, iterations=10):
    """The class that is pasted from project to project."""

    class DenseCRF:
        def __init__(self, iter_max, pos_w, pos_xy_std, bi_w, bi_xy_std, bi_rgb_std):
            self.iter_max = iter_max
            self.pos_w = pos_w
            self.pos_xy_std = pos_xy_std
            self.bi_w = bi_w
            self.bi_xy_std = bi_xy_std
            self.bi_rgb_std = bi_rgb_std

        def __call__(self, image, probmap):
            C, H, W = probmap.shape
            U = utils.unary_from_softmax(probmap)
            U = np.ascontiguousarray(U)
            image = np.ascontiguousarray(image)
            d = dcrf.DenseCRF2D(W, H, C)
            d.setUnaryEnergy(U)
            d.addPairwiseGaussian(sxy=self.pos_xy_std, compat=self.pos_w)
            d.addPairwiseBilateral(
                sxy=self.bi_xy_std, srgb=self.bi_rgb_std, rgbim=image, compat=self.bi_w
            )
            Q = d.inference(self.iter_max)
            return np.array(Q).reshape((C, H, W))

    img = photograph()
    return DenseCRF(iterations, 3, 1, 4, 67, 3)(img, network_output(img, 5))


def cam_pseudo_labels(dcrf, utils, iterations=10):
    img = photograph()
    H, W = img.shape[:2]
    cam = network_output(img, 4).argmax(0)
    d = dcrf.DenseCRF2D(W, H, 4)
    unary = utils.unary_from_labels(cam, 4, gt_prob=0.7, zero_unsure=False)
    d.setUnaryEnergy(unary)
    d.addPairwiseGaussian(sxy=3, compat=3)
    d.addPairwiseBilateral(sxy=50, srgb=5, rgbim=np.copy(img), compat=10)
    return np.array(d.inference(iterations)).reshape((4, H, W))


def scribbles_with_unsure(dcrf, utils, iterations=5):
    img = photograph()
    H, W = img.shape[:2]
    anno = np.zeros((H, W), np.int64)  # 0: unsure
    anno[10:14, 20:100] = 1
    anno[60:70, 40:60] = 2
    anno[85:90, 100:120] = 3
    n_labels = len(set(anno.flat)) - 1
    d = dcrf.DenseCRF2D(W, H, n_labels)
    d.setUnaryEnergy(utils.unary_from_labels(anno, n_labels, gt_prob=0.7, zero_unsure=True))
    d.addPairwiseGaussian(
        sxy=(3, 3), compat=3, kernel=dcrf.DIAG_KERNEL, normalization=dcrf.NORMALIZE_SYMMETRIC
    )
    d.addPairwiseBilateral(
        sxy=(80, 80),
        srgb=(13, 13, 13),
        rgbim=img,
        compat=10,
        kernel=dcrf.DIAG_KERNEL,
        normalization=dcrf.NORMALIZE_SYMMETRIC,
    )
    return np.array(d.inference(iterations)).reshape((n_labels, H, W))


def non_rgb_features(dcrf, utils, iterations=5):
    """A stack of five channels, through create_pairwise_bilateral."""
    img = photograph().astype(np.float32)
    H, W = img.shape[:2]
    stack = np.concatenate([img / 255, img[..., :1] ** 2 / 65025, img[..., 1:2] / 510], axis=2)
    d = dcrf.DenseCRF(H * W, 3)
    d.setUnaryEnergy(utils.unary_from_softmax(network_output(photograph())))
    d.addPairwiseEnergy(utils.create_pairwise_gaussian(sdims=(3, 3), shape=(H, W)), compat=3)
    feats = utils.create_pairwise_bilateral(
        sdims=(40, 40), schan=(0.1, 0.1, 0.1, 0.2, 0.2), img=stack, chdim=2
    )
    d.addPairwiseEnergy(feats, compat=7, kernel=dcrf.FULL_KERNEL)
    return np.array(d.inference(iterations)).reshape((3, H, W))


def stepwise(dcrf, utils, iterations=5):
    img = photograph()
    H, W = img.shape[:2]
    d = dcrf.DenseCRF2D(W, H, 3)
    d.setUnaryEnergy(utils.unary_from_softmax(network_output(img), scale=0.8))
    d.addPairwiseGaussian(sxy=3, compat=3, normalization=dcrf.NORMALIZE_AFTER)
    d.addPairwiseBilateral(
        sxy=(50, 30), srgb=(20, 20, 30), rgbim=img, compat=5, normalization=dcrf.NORMALIZE_BEFORE
    )
    Q, tmp1, tmp2 = d.startInference()
    divergences = []
    for _ in range(iterations):
        d.stepInference(Q, tmp1, tmp2)
        divergences.append(d.klDivergence(Q) / (H * W))
    stepwise.divergences = divergences
    return np.array(Q).reshape((3, H, W))


def volume_3d(dcrf, utils, iterations=5):
    rng = np.random.default_rng(3)
    z, y, x = np.mgrid[:8, :24, :30]
    volume = 100 * ((z - 4) ** 2 * 9 + (y - 12) ** 2 + (x - 15) ** 2 < 90) + rng.normal(
        0, 15, (8, 24, 30)
    )
    inside = 1 / (1 + np.exp(-(volume - 50) / 30 + rng.normal(0, 1, volume.shape)))
    d = dcrf.DenseCRF(volume.size, 2)
    d.setUnaryEnergy(utils.unary_from_softmax(np.stack([1 - inside, inside])))
    d.addPairwiseEnergy(utils.create_pairwise_gaussian((1, 3, 3), volume.shape), compat=2)
    feats = utils.create_pairwise_bilateral(sdims=(2, 6, 6), schan=(20,), img=volume, chdim=-1)
    d.addPairwiseEnergy(feats, compat=np.float32(4))
    return np.array(d.inference(iterations)).reshape((2, *volume.shape))


def label_compatibility(dcrf, utils, iterations=5):
    """A matrix and a vector: what pairs of labels cost."""
    img = photograph()
    H, W = img.shape[:2]
    costs = np.array([[0, 1, 3], [1, 0, 1], [3, 1, 0]], np.float32)
    d = dcrf.DenseCRF2D(W, H, 3)
    d.setUnaryEnergy(utils.unary_from_softmax(network_output(img)))
    d.addPairwiseBilateral(sxy=30, srgb=13, rgbim=img, compat=costs)
    d.addPairwiseGaussian(sxy=2, compat=np.array([-1, -2, -3], np.float32))
    return np.array(d.inference(iterations)).reshape((3, H, W))


def unnormalised(dcrf, utils, iterations=5):
    img = photograph()
    H, W = img.shape[:2]
    d = dcrf.DenseCRF2D(W, H, 3)
    d.setUnaryEnergy(utils.unary_from_softmax(network_output(img)))
    d.addPairwiseBilateral(
        20, 10, img, 0.01, kernel=dcrf.CONST_KERNEL, normalization=dcrf.NO_NORMALIZATION
    )
    return np.array(d.inference(iterations)).reshape((3, H, W))


SCRIPTS = {
    script.__name__: script
    for script in (
        readme_2d,
        deeplab_wrapper,
        cam_pseudo_labels,
        scribbles_with_unsure,
        non_rgb_features,
        stepwise,
        volume_3d,
        label_compatibility,
        unnormalised,
    )
}

EVERY = 997  # which marginals are recorded, in flat order


def record() -> None:
    import pydensecrf.densecrf as dcrf
    import pydensecrf.utils as utils

    recorded: dict[str, object] = {}
    for name, script in SCRIPTS.items():
        for iterations in (5, 10):
            q = script(dcrf, utils, iterations)
            recorded[f"{name}/{iterations}"] = {
                "shape": q.shape,
                "marginals": [round(float(value), 6) for value in q.ravel()[::EVERY]],
                "label_counts": np.bincount(q.argmax(0).ravel(), minlength=len(q)).tolist(),
            }
    recorded["stepwise/divergences"] = stepwise.divergences
    lines = ",\n".join(
        f" {json.dumps(key)}: {json.dumps(value)}" for key, value in recorded.items()
    )
    Path(__file__).with_name("recorded.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    record()
