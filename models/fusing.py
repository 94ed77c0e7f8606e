"""Small operations of a network in fewer kernels, by torch.compile.

Only what is a chain of element-wise operations gains: rotations and the SwiGLU product. The large
products, attention and norms are single kernels already.
"""

import torch

from models.transformer import MLP, Attention, Transformer, gated, rotate


def fuse(model: Transformer, backend: str = "inductor") -> None:
    """Replace them in ``model`` (in place), compiled at their first call for all sizes at once."""
    rotating = torch.compile(rotate, dynamic=True, backend=backend)
    gating = torch.compile(gated, dynamic=True, backend=backend)
    for module in model.modules():
        if isinstance(module, Attention):
            module.rotate = rotating
        elif isinstance(module, MLP):
            module.gated = gating
