"""What is on in this process. Kernels read these names on every call, from any thread.

They are process-wide, as PyTorch's fp32 setting is: a backward pass runs on threads of the autograd
engine, which know nothing of the thread that called it.
"""

from collections.abc import Callable

WORDS = ("ieee", "tf32")

# One of WORDS, or None: PyTorch computes its products itself.
word: str | None = None

# The report that counts what arrives, or None.
report = None

# Called after every change: for kernels that cannot read these names.
followers: list[Callable[[], None]] = []


def set_word(value: str | None) -> None:
    global word
    word = value
    _tell()


def set_report(value) -> None:
    global report
    report = value
    _tell()


def _tell() -> None:
    for follower in followers:
        follower()
