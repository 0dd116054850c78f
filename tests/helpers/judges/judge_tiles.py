"""The rule for every SM80 tile that finds statistics, forced in turn."""

from accuracy import Rejected
from check_call import run_all_poisoned
from judge_call import assert_same_bits, make_judge
from kernel_names import finds_statistics_sm80
from tiles import force_tile, list_sm80_tiles


def list_statistics_tiles(call):
    return [tile for tile in list_sm80_tiles(call) if finds_statistics_sm80(tile)]


def judge_tiles(call):
    judge, failures, tiles = make_judge(call), [], list_statistics_tiles(call)
    assert tiles
    for tile in tiles:
        with force_tile(tile):
            results, again = run_all_poisoned(call), run_all_poisoned(call)
        try:
            judge.check(results)
        except Rejected as rejection:
            failures.append(f"{tile}: {rejection}")
        assert_same_bits(again, results)
    assert not failures, "\n".join(failures)
