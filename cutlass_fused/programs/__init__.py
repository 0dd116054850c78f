"""Epilogues that users write: a Python function of an element of a product, as a program.

A program is the text of a pointwise function, the same for all sizes, devices and versions of
PyTorch. It says what a kernel computes behind a product, travels as an argument of an op, and needs
no Python where it is read: include/cutlass_fused/program reads it in C++.

    program 1                     the version of this format
    operands 2                    how many there are: p0, p1
    v0 = add acc p0               lines of one word each; acc is an element of x @ weight.T in fp32
    v1 = gelu v0
    v2 = mul v1 p1
    return v2                     the outputs

Arguments are acc, operands, the values of lines above, and numbers as float.hex() writes them.
`words` is the table of all words, with their types. What a function does not compute, and what it
computes twice, is not in its program, and names count up: functions that compute the same in the
same order have the same text.
"""
