from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from elmokit.errors import ElmoError
from elmokit.parallel import parallel_map


def square(number: int) -> tuple[int, int]:
    return number**2, os.getpid()


def fail_at_three(number: int) -> int:
    if number == 3:
        raise OSError(28, "No space left on device")
    return number


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_results_are_in_order_and_jobs_are_submitted_slightly_ahead() -> None:
    taken = []

    def jobs() -> Iterator[int]:
        for number in range(30):
            taken.append(number)
            yield number

    results = parallel_map(square, jobs(), 2)
    first = next(results)
    assert len(taken) <= 6
    whole = [first, *results]
    assert [result for result, _ in whole] == [number**2 for number in range(30)]
    assert os.getpid() not in {process for _, process in whole}


@pytest.mark.parametrize(("n", "jobs"), [(1, 5), (4, 1), (4, 0)])
def test_no_process_is_started_for_one_worker_or_one_job(n: int, jobs: int) -> None:
    results = list(parallel_map(square, range(jobs), n))
    assert results == [(i**2, os.getpid()) for i in range(jobs)]


def test_error_in_a_worker_is_raised_in_the_parent() -> None:
    with pytest.raises(OSError, match="No space") as caught:
        list(parallel_map(fail_at_three, range(100), 2))
    assert caught.value.errno == 28


def test_killed_worker_is_an_error_and_does_not_hang() -> None:
    with pytest.raises(ElmoError):
        list(parallel_map(die, range(4), 2))
