"""How many bytes of tensors are alive at once, by watching every operation that makes one."""

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Within its ``with`` block, ``peak`` is the most that new tensors held at one moment; what an
    operation needs inside itself is not seen."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        held = {t.untyped_storage().data_ptr() for t in tree_leaves(args) if torch.is_tensor(t)}
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if torch.is_tensor(tensor):
                self._watch(tensor.untyped_storage(), held)
        return made

    def _watch(self, storage: torch.UntypedStorage, held: set[int]) -> None:
        key, count = storage.data_ptr(), storage.nbytes()
        if not count or key in held or key in self._known:
            return
        self._known.add(key)
        self.now += count
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._free, key, count)

    def _free(self, key: int, count: int) -> None:
        self._known.discard(key)
        self.now -= count
