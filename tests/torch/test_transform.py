import numpy as np
import pytest
import torch

from densecrf.torch import DenseCRF, DenseCRFd

OPTIONS = {"bilateral_sigma_xy": 4.0}


@pytest.fixture
def data(generator):
    pred = torch.randn(3, 6, 7, generator=generator)
    return {"pred": pred, "image": torch.rand(1, 6, 7, generator=generator), "id": 7}


def test_scores_are_replaced_and_the_rest_kept(data):
    refined = DenseCRF(**OPTIONS)(logits=data["pred"][None], image=data["image"][None])[0]
    out = DenseCRFd(output="log_probabilities", **OPTIONS)(data)
    torch.testing.assert_close(out["pred"], refined)
    assert out["id"] == 7
    assert out is not data
    labels = DenseCRFd(**OPTIONS)(data)["pred"]
    torch.testing.assert_close(labels, refined.argmax(0, keepdim=True))


def test_probabilities_and_arrays(data):
    p = torch.softmax(data["pred"], 0)
    arrays = {"seg": p.numpy(), "scan": np.asarray(data["image"])}
    transform = DenseCRFd("seg", "scan", scores="probabilities", output="probabilities", **OPTIONS)
    expected = DenseCRFd(output="probabilities", **OPTIONS)(data)["pred"]
    torch.testing.assert_close(transform(arrays)["seg"], expected, rtol=1e-4, atol=1e-5)


def test_missing_keys_are_named(data):
    with pytest.raises(KeyError, match="'mask' is not in the data"):
        DenseCRFd("mask")(data)


def test_subclasses_of_tensors_are_taken_for_what_they_hold(data):
    class Annotated(torch.Tensor):
        """Like MONAI's: refuses what it does not know."""

        @classmethod
        def __torch_function__(cls, function, types, arguments=(), keywords=None):
            if function.__name__ == "sort":
                raise TypeError("not for me")
            return super().__torch_function__(function, types, arguments, keywords)

    wrapped = {key: data[key].as_subclass(Annotated) for key in ("pred", "image")}
    expected = DenseCRFd(**OPTIONS)(data)["pred"]
    torch.testing.assert_close(DenseCRFd(**OPTIONS)(wrapped)["pred"], expected)
