"""What processes of bench.trust.workers do in tests of these."""

import os
import time


def _serve(pipe, compute, ends=False):
    while True:
        try:
            number = pipe.recv()
        except EOFError:
            return
        pipe.send((compute(number), not ends))
        if ends:
            return


def double(pipe):
    _serve(pipe, lambda number: 2 * number)


def die_of_three(pipe):
    _serve(pipe, lambda number: os._exit(7) if number == 3 else number)


def hang_at_one(pipe):
    _serve(pipe, lambda number: time.sleep(100) if number == 1 else number)


def end_behind_each(pipe):
    _serve(pipe, lambda number: number, ends=True)
