"""State dicts under other names."""

from collections.abc import Mapping


def map_state_dict(state_dict: Mapping, names: Mapping[str, str]) -> dict:
    """The same entries with the modules in front of the first dot renamed: what a
    torch.nn.Sequential(Linear, BatchNorm1d) calls "0" and "1" is here "gemm" and "bn".

        module.load_state_dict(map_state_dict(sequential.state_dict(), {"0": "gemm", "1": "bn"}))

    and back by {"gemm": "0", "bn": "1"}; entries of other names stay as they are. A prefix may have
    dots, as "net.0".

    Raises ValueError where two entries would get one name.
    """
    mapped = {}
    for key, value in state_dict.items():
        prefix, dot, rest = key.rpartition(".")
        new = f"{names[prefix]}{dot}{rest}" if prefix in names else key
        if new in mapped:
            raise ValueError(f"map_state_dict: two entries must not have one name, got {new!r}")
        mapped[new] = value
    return mapped
