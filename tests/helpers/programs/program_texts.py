"""Texts of programs, and what is none."""

import random

EXAMPLE = """\
program 1
operands 2
v0 = add acc p0
v1 = gelu v0
v2 = mul v1 p1
return v2
"""
# Every kind of argument, type and output.
LARGE = """\
program 1
operands 16
v0 = leaky_relu p15 -0x1.47ae147ae147bp-7
v1 = lt v0 0x1.0p+0
v2 = not v1
v3 = xor v1 v2
v4 = where v3 inf acc
v5 = elu v4 0x1.0p+0 -inf nan
v6 = clamp v5 p0 0x0.0p+0
v7 = float v1
v8 = sub -0x0.0p+0 0x1.fffffffffffffp+1023
return v7 acc p3 0x1.8p+0 v8 v8 v0 p0
"""


def make_program(*lines, operands=2):
    return "".join(f"{line}\n" for line in ("program 1", f"operands {operands}", *lines))


def make_long(count):
    """A program of so many lines."""
    return make_program(*(f"v{i} = neg acc" for i in range(count)), "return acc")


NUMBERS = [0.0, -0.0, 1.0, -1.5, 0.1, 5e-324, -2.2250738585072014e-308, 1.7976931348623157e308]
GOOD = {
    "example": EXAMPLE,
    "large": LARGE,
    "nothing but the sum": make_program("return acc", operands=0),
    "256 lines": make_long(256),
    "numbers of Python": make_program(
        *(f"v{i} = add acc {number.hex()}" for i, number in enumerate(NUMBERS)), "return v0"
    ),
    "number alone": make_program("v0 = neg 0x1.0p+0", "return 0x1.0p-1 v0"),
    "exponents beyond a double": make_program("return 0x1.0p+9999 -0x1.0p+1024", operands=0),
    "unused operands and lines": make_program("v0 = neg p0", "v1 = eq p0 p1", "return p1"),
}

NAMES = 'expected a float as argument 1 of neg, found "{}"'
MALFORMED = [
    ("", 'line 1: expected "program", found the end of the text'),
    ("\n", 'line 1: expected "program", found ""'),
    ("program 1", "line 1: expected a newline at its end, found the end of the text"),
    ("program\n", "line 1: expected version 1, found the end of the line"),
    (EXAMPLE.replace("m 1", "m 2"), 'line 1: expected version 1, found "2"'),
    (EXAMPLE.replace("m 1", "m 01"), 'line 1: expected version 1, found "01"'),
    (EXAMPLE.replace("m 1", "m 18446744073709551617"), "line 1: expected version 1, found "),
    (EXAMPLE.replace("m 1", "m 1 "), "line 1: expected the end of the line behind the version, f"),
    (EXAMPLE.replace("\n", "\r\n"), r'line 1: expected version 1, found "1\x0d"'),
    ("program 1\n", 'line 2: expected "operands", found the end of the text'),
    ("program 1\nv0 = neg acc\n", 'line 2: expected "operands", found "v0"'),
    (EXAMPLE.replace("s 2", "s 17"), 'line 2: expected a count from 0 to 16, found "17"'),
    (EXAMPLE.replace("s 2", "s -1"), 'line 2: expected a count from 0 to 16, found "-1"'),
    (EXAMPLE.replace("s 2", "s 4294967298"), "line 2: expected a count from 0 to 16, found "),
    (EXAMPLE.replace("s 2", "s"), "line 2: expected a count from 0 to 16, found the end of the l"),
    (EXAMPLE.replace("s 2", "s 2 2"), "line 2: expected the end of the line behind the count, fou"),
    (make_program(), 'line 3: expected "v0" or "return", found the end of the text'),
    (make_program("v1 = neg acc"), 'line 3: expected "v0" or "return", found "v1"'),
    (make_program("v0 = neg acc", "v0 = neg acc"), 'line 4: expected "v1" or "return", found "v0"'),
    (make_program("v0"), 'line 3: expected "=", found the end of the line'),
    (make_program("v0 neg acc"), 'line 3: expected "=", found "neg"'),
    (make_program("v0  = neg acc"), 'line 3: expected "=", found ""'),
    (make_program("v0 ="), "line 3: expected a word, found the end of the line"),
    (make_program("v0 = tanhh acc"), 'line 3: expected a word, found "tanhh"'),
    (make_program("v0 = Neg acc"), 'line 3: expected a word, found "Neg"'),
    (make_program("v0 = neg"), "line 3: expected a float as argument 1 of neg, found the end of "),
    (make_program("v0 = neg acc "), "line 3: expected the end of the line behind the arguments of"),
    (make_program("v0 = neg\tacc"), r'line 3: expected a word, found "neg\x09acc"'),
    (make_program("v0 = add acc"), "line 3: expected a float as argument 2 of add, found the end"),
    (
        make_program("v0 = add acc p0 p1", "return v0"),
        'line 3: expected the end of the line behind the arguments of add, found "p1"',
    ),
    (make_program("v0 = neg  acc"), "line 3: " + NAMES.format("")),
    (make_program("v0 = neg foo"), "line 3: " + NAMES.format("foo")),
    (make_program("v0 = neg p"), "line 3: " + NAMES.format("p")),
    (make_program("v0 = neg p01"), "line 3: " + NAMES.format("p01")),
    (make_program("v0 = neg p+1"), "line 3: " + NAMES.format("p+1")),
    (make_program("v0 = neg acc\0"), "line 3: " + NAMES.format(r"acc\x00")),
    (make_program('v0 = neg "\\'), "line 3: " + NAMES.format(r"\x22\x5c")),
    (make_program("v0 = neg \xe9"), "line 3: " + NAMES.format(r"\xc3\xa9")),
    (make_program("v0 = neg " + "x" * 100), "line 3: " + NAMES.format("x" * 40) + "..."),
    (
        make_program("v0 = neg p2"),
        'line 3: expected a float as argument 1 of neg (there are 2 operands), found "p2"',
    ),
    (
        make_program("v0 = neg v0"),
        'line 3: expected a float as argument 1 of neg (there are 0 lines before it), found "v0"',
    ),
    (
        make_program("v0 = neg v99999999999999999999"),
        "line 3: expected a float as argument 1 of neg (there are 0 lines before it), found "
        '"v99999999999999999999"',
    ),
    (
        make_program("v0 = leaky_relu acc p0"),
        'line 3: expected a number as argument 2 of leaky_relu, found "p0"',
    ),
    (
        make_program("v0 = not acc"),
        'line 3: expected a bool as argument 1 of not, found "acc", a float',
    ),
    (
        make_program("v0 = where 0x1.0p+0 acc acc"),
        'line 3: expected a bool as argument 1 of where, found "0x1.0p+0", a float',
    ),
    (
        make_program("v0 = eq acc acc", "v1 = neg v0"),
        'line 4: expected a float as argument 1 of neg, found "v0", a bool',
    ),
    (
        make_program("v0 = eq acc acc", "return acc v0"),
        'line 4: expected a float as output 2, found "v0", a bool',
    ),
    (make_program("return"), "line 3: expected a float as output 1, found the end of the line"),
    (make_program("return "), 'line 3: expected a float as output 1, found ""'),
    (
        make_program("return" + 9 * " acc"),
        'line 3: expected the end of the line behind 8 outputs, found "acc"',
    ),
    (EXAMPLE[:-1], "line 6: expected a newline at its end, found the end of the text"),
    (EXAMPLE + "\n", 'line 7: expected the end of the text behind return, found ""'),
    (EXAMPLE + EXAMPLE, 'line 7: expected the end of the text behind return, found "program 1"'),
    (EXAMPLE[: EXAMPLE.index("ret")], 'line 6: expected "v3" or "return", found the end of the t'),
    (make_long(257), 'line 259: expected "return" behind 256 lines, found "v256"'),
    ("v" * 10_000_000, "line 1: expected a text of at most 65536 bytes, found 10000000 bytes"),
    ("\n" * 65537, "line 1: expected a text of at most 65536 bytes, found 65537 bytes"),
    ("p" * 65536, "line 1: expected a newline at its end, found the end of the text"),
]
# In place of numbers.
OTHER_NUMBERS = [
    *("0x1.p+0", "0x.8p+0", "0x2.0p+0", "0x1.0", "0x1.0p", "0x1.0p+", "0x1.0p0", "0x1p+0"),
    *("0X1.0p+0", "0x1.Ap+0", "0x1.0P+0", "0x1.0p+00000", "0x1.00000000000000p+0", "0x"),
    *("+0x1.0p+0", "--0x1.0p+0", "1.0", "1", "-", "", "-nan", "+inf", "infinity", "NaN"),
    *("0x1.0p+0f", "0x1.0p+-1", "0x1.0p+0x1", "0x1.0p+0\0", "0x1,0p+0", "0x1.\0p+0"),
]


def mutate(text, random):
    """A few bytes changed, taken away, put in, or a piece repeated."""
    data = bytearray(text.encode())
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        place = random.randrange(len(data) + 1)
        choice = random.randrange(5)
        byte = (
            random.choice(b"0123456789abcdefpv xn-+.=\n\0\xff") if choice else random.randrange(256)
        )
        if choice < 2:
            data[place : place + 1] = bytes([byte])
        elif choice == 2:
            data[place:place] = bytes([byte])
        elif choice == 3:
            del data[place : place + random.randrange(1, 8)]
        else:
            data[place:place] = data[random.randrange(len(data) + 1) :][: random.randrange(40)]
    return bytes(data)


def make_mutated(count):
    """Texts with faults, some of which are none."""
    generator = random.Random(0)
    short = [text for text in GOOD.values() if len(text) < 1000]
    return [mutate(generator.choice(short), generator) for _ in range(count)]
