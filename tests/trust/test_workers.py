"""Processes of bench.trust that die, hang or end over what they do."""

import multiprocessing
import time

import pytest
import worker_targets

from bench.trust import workers


def run(target, numbers=range(6), seconds=60.0, most=30.0):
    return dict(workers.run_each(numbers, target, (), 2, seconds, most))


def test_every_number_has_its_result():
    assert run(worker_targets.double) == {number: 2 * number for number in range(6)}


def test_death_costs_one_number():
    found = run(worker_targets.die_of_three)
    assert found.pop(3) == workers.Died("the process ended with 7")
    assert found == {number: number for number in (0, 1, 2, 4, 5)}


def test_a_process_may_end_behind_a_result():
    assert run(worker_targets.end_behind_each, range(4)) == {n: n for n in range(4)}


def test_hang_is_ended():
    begin = time.monotonic()
    found = run(worker_targets.hang_at_one, range(3), most=8.0)
    assert isinstance(found.pop(1), workers.Died) and found == {0: 0, 2: 2}
    assert time.monotonic() - begin < 50


def test_nothing_begins_when_the_time_is_up():
    assert run(worker_targets.double, seconds=-1.0) == {}


@pytest.mark.parametrize("target", [worker_targets.double, worker_targets.die_of_three])
def test_no_process_is_left(target):
    run(target, range(4))
    assert multiprocessing.active_children() == []
