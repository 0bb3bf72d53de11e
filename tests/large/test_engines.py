"""Counting the workers of a cluster whose scheduler may not answer."""

from types import SimpleNamespace

import pytest

pytest.importorskip("distributed")

from densecrf.large.engines import PATIENCE, _Distributed


class Scheduler:
    """A client whose scheduler answers in turn; an exception stands for no answer in time."""

    def __init__(self, *answers):
        self.answers = iter(answers)
        self.scheduler = SimpleNamespace(ncores=None)
        self.cluster = None

    def sync(self, *_, callback_timeout, **__):
        assert 0 < callback_timeout < PATIENCE  # without it the call could wait for ever
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


def engine(*answers):
    return _Distributed(print, Scheduler(*answers), "tasks")


def test_without_an_answer_the_last_count_holds(monkeypatch):
    tasks = engine({"a": 2, "b": 3}, TimeoutError())
    monkeypatch.setattr("densecrf.large.engines.CHECK", 1e-9)
    assert [tasks.ahead(), tasks.ahead()] == [10, 10]


@pytest.mark.parametrize("answer", [TimeoutError(), {}])
def test_long_without_workers_ends_the_run(answer):
    tasks = engine(answer, {"a": 1}, answer)
    tasks.check_workers()  # for a moment only
    tasks.seen -= 2 * PATIENCE
    tasks.check_workers()  # one is back
    tasks.seen -= 2 * PATIENCE
    with pytest.raises(ConnectionError, match="what is finished is kept"):
        tasks.check_workers()
