"""Reads open_kernels.bin, by the words of src/build_system/open_kernels.py alone."""

import hashlib
import zlib


def read_pack(data):
    """PTX by the names of kernels."""
    head, _, rest = data.partition(b"\n\n")
    assert hashlib.sha256(head + b"\n\n").digest() == rest[:32]
    packed = rest[32:]
    first, *lines = head.decode().split("\n")
    assert first == "cutlass_fused open kernels 2"
    texts = {}
    for line in lines:
        name, arch, param_bytes, unpacked_bytes, packed_bytes, digits = line.split(" ")
        text = zlib.decompress(packed[: int(packed_bytes)]).decode()
        packed = packed[int(packed_bytes) :]
        assert len(text) == int(unpacked_bytes), name
        assert hashlib.sha256(text.encode()).hexdigest() == digits, name
        if int(param_bytes):
            assert f" {name}_param_0[{param_bytes}]" in text, name
        assert f".target {arch.replace('compute', 'sm')}\n" in text, name
        texts[name] = text
    assert not packed and list(texts) == sorted(texts)
    return texts
