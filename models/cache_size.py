"""How many tokens of prefix cache an endpoint has: decided once, at start, from the memory that is
free when the target is loaded."""

from models.config import TargetConfig
from models.devices import Device
from models.fitting import size
from models.footprint import cache_bytes, forward_bytes, layer_bytes
from models.spec import TargetSpec
from models.target import PREFILL_TOKENS

DRAFTS = 8
"""Drafts of every request that a forward has room for beside the cache."""
SHARES = {True: 0.5, False: 0.9}
"""Of what is free then, by whether the device's memory is shared with all else on the machine."""
POOL_PEAK = 3
"""While a pool of prefixes doubles, it holds so many times what was asked of it."""
TIMES = 2
"""More than so many times what the largest batch could take is not reserved."""


def cache_size(
    spec: TargetSpec, config: TargetConfig, device: Device, max_batch: int, wanted: int | None
) -> int | None:
    """Tokens of prefix cache for batches of ``max_batch`` on a loaded target; ``None`` for one that
    keeps no exact prefix.

    ``device`` says what is free for each rank. Raises ``ValueError`` for more tokens than fit.
    """
    token = cache_bytes(spec, config.dtype, config.tp)
    if not token:
        if wanted is not None:
            raise ValueError(
                f"max_cache_tokens {wanted}: a {spec.topology} target ({spec.family}) keeps no "
                "prefix; valid: leave it out"
            )
        return None
    peak = token * (POOL_PEAK if has_pool(config, device) else 1)
    fits = int(_free(spec, config, device, max_batch) * SHARES[device.is_shared]) // peak
    if wanted is not None and wanted > fits and not config.force_fit:
        raise ValueError(
            f"max_cache_tokens {wanted} takes {size(wanted * peak)} a rank at its peak; "
            f"{device.name} has room for {fits} ({size(fits * peak)}; target.force_fit true takes "
            "them all the same)"
        )
    return wanted or min(fits, TIMES * max_batch * spec.max_positions)


def has_pool(config: TargetConfig, device: Device) -> bool:
    """Whether all prefixes lie in one piece of memory (:func:`models.opening.open_target`
    decides so, too)."""
    on_gpu = not device.is_shared
    return config.forwards in ("buckets", "graphs") or (config.forwards == "auto" and on_gpu)


def _free(spec: TargetSpec, config: TargetConfig, device: Device, max_batch: int) -> int:
    """Bytes for each rank's cache, what a forward or a prefill needs left out."""
    copies = max_batch * (1 + DRAFTS)
    forward = forward_bytes(spec, config.dtype, config.tp, copies)
    prefill = layer_bytes(spec, config.dtype, config.tp, PREFILL_TOKENS)
    ranks = config.tp if device.is_shared else 1
    return max(0, device.free // ranks - max(forward, prefill))
