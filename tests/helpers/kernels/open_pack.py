"""Reads open_kernels.bin, by the words of src/build_system/open_kernels.py alone."""

import hashlib
import zlib


def read_pack(data):
    """PTX by the names of kernels."""
    assert hashlib.sha256(data[:-32]).digest() == data[-32:]
    head, _, packed = data[:-32].partition(b"\n\n")
    first, *lines = head.decode().split("\n")
    assert first == "cutlass_fused open kernels 1"
    texts = {}
    for line in lines:
        name, arch, unpacked_bytes, packed_bytes = line.split(" ")
        text = zlib.decompress(packed[: int(packed_bytes)]).decode()
        packed = packed[int(packed_bytes) :]
        assert len(text) == int(unpacked_bytes), name
        assert f".target {arch.replace('compute', 'sm')}\n" in text, name
        texts[name] = text
    assert not packed and list(texts) == sorted(texts)
    return texts
