"""State dicts under other names."""

from collections.abc import Mapping


def map_state_dict(state_dict: Mapping, names: Mapping[str, str]) -> dict:
    """The entries of a state dict with the modules at their head renamed: what a
    torch.nn.Sequential(Linear, BatchNorm1d) calls "0" and "1" is here "gemm" and "bn".

        module.load_state_dict(map_state_dict(sequential.state_dict(), {"0": "gemm", "1": "bn"}))

    and back by {"gemm": "0", "bn": "1"}; entries of other names stay as they are. A name may have
    dots, as "net.0"; of several that fit the longest counts.

    Raises ValueError where two entries would get one name.
    """
    mapped = {}
    for key, value in state_dict.items():
        new, prefix = key, key
        # Within a module there may be others, as those of a parametrization.
        while (dot := prefix.rfind(".")) >= 0:
            prefix = key[:dot]
            if prefix in names:
                new = names[prefix] + key[dot:]
                break
        if new in mapped:
            raise ValueError(f"map_state_dict: two entries must not have one name, got {new!r}")
        mapped[new] = value
    return mapped
