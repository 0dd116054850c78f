"""What these runs have found and what was mended since, each with the test that has it now.

A line is added with the change that mends: where it was found, and the test as pytest names it.
"""

from typing import NamedTuple


class Mended(NamedTuple):
    found: str  # what was wrong
    by: str  # the part that found it, with the seed and number of a fuzzed case
    test: str  # path::name


MENDED: tuple[Mended, ...] = (
    Mended(
        "The judge of products of two dtypes failed where no output was finite",
        "fuzz on the CPU",
        "tests/trust/test_fuzz.py::test_products_without_a_finite_output",
    ),
    Mended(
        "A column of one number, of any stride, was refused by the judge of captured calls",
        "fuzz 2:1314 on an H200",
        "tests/trust/test_fuzz_judge.py::test_bytes_of_a_column_of_one_number",
    ),
    Mended(
        "cuBLAS was forced for sums whose alpha is 0, which have no product",
        "fuzz 2:1179 on an H200",
        "tests/trust/test_fuzz_judge.py::test_no_product_is_forced_where_there_is_none",
    ),
    Mended(
        "Moments of long 16-bit sums, by a forced tile for every GPU, had no bound",
        "fuzz 2:1828 on an H200",
        "tests/trust/test_fuzz_judge.py::test_long_sums_are_within_bounds",
    ),
    Mended(
        "A NaN for the mean of infinite numbers, which eager's is now and then, counted as wrong",
        "fuzz 2:2737 on an H200",
        "tests/trust/test_fuzz_judge.py::test_the_mean_of_infinite_numbers",
    ),
    Mended(
        "Infinities as in the truth, of an infinite gamma where eager's distance from the mean is "
        "rounded to 0 or to the other side, counted as wrong",
        "fuzz 3:1370, 3:3927, 3:5490, 3:9645 and 3:18132 on an H200",
        "tests/trust/test_fuzz_judge.py::test_an_infinity_that_the_truth_has",
    ),
    Mended(
        "torch.baddbmm under a beta of -0 multiplies memory that it has not written, and was the "
        "yardstick",
        "fuzz 3:14221 on an H200",
        "tests/trust/test_fuzz_judge.py::test_a_beta_of_minus_zero",
    ),
    Mended(
        "The same in eval, where variances are given",
        "fuzz 4:5960 on an H100",
        "tests/trust/test_fuzz_judge.py::test_an_infinite_gamma_in_eval",
    ),
    Mended(
        "The judge failed where no limit of a result is finite",
        "fuzz 4:373 on an H100",
        "tests/trust/test_fuzz_judge.py::test_errors_where_no_limit_is_finite",
    ),
    Mended(
        "The gradient of one scale in front of a batch norm in 16 bits, where eps is 0.5 to 0.9 of "
        "the variance, took a sum over a product that is rounded: 1.6 times eager's error",
        "fuzz 4:17627 on an H100",
        "tests/ops/test_scale_gradient.py::test_one_scale_where_eps_is_most_of_the_variance",
    ),
    Mended(
        "Gradients of x and weight through an epilogue were held to twice eager's error alone: "
        "sums of tensor cores within their bound counted as wrong",
        "fuzz 5:256 and 5:6323 on an H200",
        "tests/trust/test_fuzz_judge.py::test_gradients_of_a_program_are_sums",
    ),
    Mended(
        "A product that eager overflows in 16 bits, times a scale of 0, counted as NaN that is "
        "missing",
        "fuzz 5:39 beyond 2^33 on an H200",
        "tests/trust/test_fuzz_judge.py::test_an_overflow_of_16_bits_times_zero",
    ),
    Mended(
        "nan_to_num of infinity is another number in 16 bits, of which the judge took the cosine",
        "fuzz 5:15732 on an H200",
        "tests/trust/test_fuzz_judge.py::test_numbers_in_place_of_infinity_are_those_of_a_dtype",
    ),
    Mended(
        "Gradients of x and weight behind a batch norm were held to twice eager's error alone: "
        "what sums of split products lose, 1.7 and 2.1 times eager's in the mean, counted as wrong",
        "fuzz 6:2614 and 6:11736 on an H200",
        "tests/trust/test_fuzz_judge.py::test_gradients_behind_a_batch_norm_are_sums",
    ),
    Mended(
        "The same of y behind the statistics of 6 rows, which divide by a small deviation",
        "fuzz 6:288 on an H200",
        "tests/trust/test_fuzz_judge.py::test_y_of_a_batch_norm_has_the_digits_of_its_product",
    ),
    Mended(
        "The same of 3 rows and heavy tails, where one term is most of a sum",
        "fuzz 6:3837 on an H200",
        "tests/trust/test_fuzz_judge.py::test_digits_of_a_split_product_in_front_of_a_batch_norm",
    ),
    Mended(
        "Softmax of long fp32 rows subtracted a maximum of many digits from what lies 2 to 4 above "
        "it: y was off by 5 and its gradient by 4 times eager's largest error",
        "fuzz 7:13914 on an H200",
        "tests/gpu/statistics/test_softmax.py::test_largest_results_of_long_rows",
    ),
)
