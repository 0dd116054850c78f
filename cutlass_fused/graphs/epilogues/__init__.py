"""Products and what follows them, in the graphs of torch.compile, as single calls of our ops.

`_product` finds a product, `_chain` what stands behind it in words of a program, by `_ops` and
`_operands`, `_cut` where it ends, `forms` what its lines are together, `_worth` whether it is worth
it, and `_replace` puts the call there, of nodes by `_make`. `_norms` does so with batch norms in
training. `_fuse` does all of it. `_options` and `_backend` are how a user asks for it.
"""

from ._backend import register_when_imported
from ._options import inductor_options

__all__ = ["inductor_options", "register_when_imported"]
