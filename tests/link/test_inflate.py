"""What zlib packed is unpacked, and what is damaged is refused."""

import hashlib
import random
import subprocess
import zlib

import pytest
from open_texts import compile_link_program

from build_system.paths import ROOT

SANITIZED = ("-Wextra", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
TEXT = (ROOT / "include/cutlass_fused/program/print.hpp").read_bytes()
NOISE = random.Random(0).randbytes(70_000)  # stored, as it cannot be packed
TEXTS = {
    "empty": b"",
    "one byte": b"x",
    "one byte many times": b"x" * 300_000,  # lengths of 258, one distance
    "text": TEXT,
    "text twice": TEXT + NOISE[:30_000] + TEXT,  # distances that are long
    "noise": NOISE,
    "all bytes": bytes(range(256)) * 10,
    # As many bytes as make the padding of SHA-256 a block of its own, and not.
    **{f"{n} bytes": TEXT[:n] for n in (55, 56, 63, 64, 119, 120)},
}


@pytest.fixture(scope="module")
def unpack(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inflate")
    program = compile_link_program("inflate", folder, *SANITIZED)

    def run(requests):
        lines = "".join(f"{size} {packed.hex()}\n" for packed, size in requests)
        result = subprocess.run([program], input=lines, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        return result.stdout.splitlines()

    return run


def pack(text, level=9, strategy=zlib.Z_DEFAULT_STRATEGY):
    packer = zlib.compressobj(level, strategy=strategy)
    return packer.compress(text) + packer.flush()


def test_unpacked(unpack):
    """By every kind of block: stored, with the fixed code, and with codes of its own."""
    kinds = [(0, 0), (1, 0), (6, 0), (9, 0), (9, zlib.Z_FIXED), (9, zlib.Z_HUFFMAN_ONLY)]
    cases = [(text, *kind) for text in TEXTS.values() for kind in kinds]
    found = unpack([(pack(*case), len(case[0])) for case in cases])
    assert found == [hashlib.sha256(text).hexdigest() for text, *_ in cases]


def test_another_size(unpack):
    packed = pack(TEXT)
    assert unpack([(packed, len(TEXT) + i) for i in (-1, 1, -len(TEXT), 10_000)]) == ["none"] * 4


@pytest.mark.parametrize("strategy", [zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED], ids=["own", "fixed"])
def test_damaged(unpack, strategy):
    """A bit that is changed, bytes that are missing or too many: zlib decides what is right."""
    text = TEXT[:600]
    whole = pack(text, 9, strategy)
    damaged = [
        whole[:i] + bytes([whole[i] ^ 1 << bit]) + whole[i + 1 :]
        for i in range(len(whole))
        for bit in range(0, 8, 3)
    ]
    damaged += [whole[:i] for i in range(len(whole))] + [whole + b"\0", b"\0" + whole]
    found = unpack([(data, len(text)) for data in damaged])
    for data, answer in zip(damaged, found, strict=True):
        assert answer == "none" or answer == hashlib.sha256(unzip(data)).hexdigest()
    assert found.count("none") > len(found) - 3


def unzip(data):
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(data)
    assert unpacker.eof and not unpacker.unused_data
    return text


def test_noise(unpack):
    generator = random.Random(1)
    starts = [b"\x78\x9c", b"\x78\xda", b"\x78\x01", b"", b"\x78\xbb"]
    noise = [generator.choice(starts) + generator.randbytes(200) for _ in range(500)]
    assert unpack([(data, 10_000) for data in noise]) == ["none"] * 500
