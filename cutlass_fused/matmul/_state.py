"""What is on in this process. Kernels read these names on every call, from any thread.

They are process-wide, as PyTorch's fp32 setting is: a backward pass runs on threads of the autograd
engine, which know nothing of the thread that called it.
"""

WORDS = ("ieee", "tf32")

# One of WORDS, or None: PyTorch computes its products itself.
word: str | None = None

# The report that counts what arrives, or None.
report = None
