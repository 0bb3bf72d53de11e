"""Tables of runs of pixels, which are kept."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from densecrf.operators.torch import pixelwise  # noqa: E402 - needs torch


def test_tables_are_kept_for_each_stream(monkeypatch):
    send = pixelwise._sent
    monkeypatch.setattr(
        pixelwise, "_sent", lambda runs, _, *rest: send(runs, torch.device("cpu"), *rest)
    )
    current = SimpleNamespace(cuda_stream=7)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: current)
    gpu = torch.device("cuda", 0)
    runs, numbers = [(0, 5), (5, 3)], [(1.0, 2.0), (3.0, 4.0)]
    first = pixelwise.Spans.of(runs, gpu, numbers)
    assert first.table[:, :2].tolist() == [[0, 5], [5, 3]]
    assert first.table.view(torch.float32)[:, 2:].tolist() == [[1, 2], [3, 4]]
    assert (first.items, first.pixels) == (2, 5)
    assert pixelwise.Spans.of(runs, gpu, numbers).table is first.table
    current.cuda_stream = 8  # it would not wait for what the other one sends
    assert pixelwise.Spans.of(runs, gpu, numbers).table is not first.table
