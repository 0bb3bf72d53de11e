"""Who runs the tasks: this process, or the workers of a Dask cluster."""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import islice
from typing import Any

__all__ = ["run_tasks"]

RETRIES = 3  # of a task that raises an OSError: a network file system may recover
DEATHS = 30  # of workers, for each task, before it is held responsible

Task = Callable[..., dict[str, Any]]


def run_tasks(
    task: Task, arguments: Sequence[tuple[Any, ...]], client: Any, name: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Run tasks; yield the number and the record of each as it is done.

    Parameters
    ----------
    task : callable
        What to run; it may run more than once.
    arguments : sequence of tuple
        Of each task; small.
    client : dask.distributed.Client or None
        Whose workers run them; None: this process, one after the other, each with all threads of
        the compiled core.
    name : str
        What the dashboard shows.
    """
    if client is None:
        for number, given in enumerate(arguments):
            yield number, task(*given)
        return
    yield from _distributed(task, arguments, client, name)


def _distributed(
    task: Task, arguments: Sequence[tuple[Any, ...]], client: Any, name: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    distributed: Any = import_module("distributed")

    def submit(number: int) -> Any:
        future = client.submit(
            task, *arguments[number], pure=False, retries=RETRIES, key=_key(name, number)
        )
        numbers[future.key] = number
        return future

    numbers: dict[str, int] = {}
    deaths: dict[int, int] = {}
    ahead = max(2, 2 * len(client.nthreads()))  # enough to keep workers busy
    left = iter(range(len(arguments)))
    running = distributed.as_completed([submit(number) for number in islice(left, ahead)])
    try:
        for future in running:
            number = numbers.pop(future.key)
            try:
                record = future.result()
            except distributed.KilledWorker as error:
                deaths[number] = deaths.get(number, 0) + 1
                if deaths[number] > DEATHS:
                    raise RuntimeError(
                        f"{name}, tile {number}: {DEATHS} workers died at it; give workers more "
                        "memory, or smaller tiles. Finished tiles are kept: run again to go on"
                    ) from error
                running.add(submit(number))
                continue
            yield number, record
            following = next(left, None)
            if following is not None:
                running.add(submit(following))
    except (TimeoutError, OSError) as error:
        if client.status == "running":
            raise
        raise ConnectionError(_gone(client)) from error
    except BaseException as error:
        if client.status != "running" and not isinstance(error, GeneratorExit):
            raise ConnectionError(_gone(client)) from error
        raise


def _key(name: str, number: int) -> str:
    from secrets import token_hex

    return f"{name}-{token_hex(4)}-{number}"


def _gone(client: Any) -> str:
    return (
        f"the scheduler {client.scheduler.address if client.scheduler else ''} is gone; finished "
        "tiles are kept: run again with another one to go on"
    )
