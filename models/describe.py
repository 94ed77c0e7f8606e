"""What a checkpoint is, read from its small files and the headers of its weights."""

from collections import Counter
from pathlib import Path
from typing import Any

from safetensors import safe_open

from models.checkpoint import DTYPES, find_checkpoint, read_spec
from models.digests import digest
from models.footprint import cache_bytes, weight_bytes
from models.spec import TargetSpec
from models.text import has_tokenizer

Facts = dict[str, Any]


def describe_target(path_or_name: str, with_digest: bool = False) -> tuple[TargetSpec, Facts]:
    """The spec of a target and facts of it; memory and prefix cache per dtype.

    Of a hub id only the small files are fetched; its weights count as far as they are here. The
    digest takes reading all of them. Raises ``ValueError`` for a folder that is no known target.
    """
    folder = find_checkpoint(path_or_name, weights=False)
    spec = read_spec(folder)
    facts = _facts(folder, spec)
    return spec, facts | ({"digest": digest(folder)} if with_digest else {})


def _facts(folder: Path, spec: TargetSpec) -> Facts:
    return {
        "path": str(folder),
        "family": spec.family,
        "topology": spec.topology,
        "prediction": spec.prediction,
        "parameters": spec.num_parameters,
        "layers": spec.num_layers,
        "hidden_size": spec.hidden_size,
        "heads": spec.num_heads,
        "kv_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "intermediate_size": spec.intermediate_size,
        "vocab_size": spec.vocab_size,
        "max_positions": spec.max_positions,
        "block_size": spec.block_size,
        "mask_token_id": spec.mask_token_id,
        "stop_token_ids": list(spec.stop_token_ids),
        "tied_embeddings": spec.tied_embeddings,
        "dtype_on_disk": ", ".join(read_dtypes(folder)) or None,
        "bytes_on_disk": sum(shard.stat().st_size for shard in folder.glob("*.safetensors")),
        "memory_bytes": {dtype: weight_bytes(spec, dtype) for dtype in DTYPES},
        "int8_memory_bytes": _int8_bytes(spec),
        "cache_bytes_per_token": {dtype: cache_bytes(spec, dtype) for dtype in DTYPES},
        "tensor_parallel_sizes": list(spec.tensor_parallel_sizes),
        "tokenizer": has_tokenizer(folder),
        "chat_template": has_chat_template(folder),
        "drafter": (folder / "order" / "config.json").exists(),
    }


def _int8_bytes(spec: TargetSpec) -> dict[str, int] | None:
    """Memory with ``target.quantize int8``, by the dtype of the rest; experts cannot be so held."""
    if spec.experts is not None:
        return None
    return {dtype: weight_bytes(spec, dtype, quantize="int8") for dtype in ("float32", "bfloat16")}


def read_dtypes(folder: Path) -> list[str]:
    """The dtypes of the tensors on disk, commonest first."""
    kinds: Counter[str] = Counter()
    for shard in sorted(folder.glob("*.safetensors")):
        with safe_open(shard, framework="pt") as tensors:
            kinds.update(tensors.get_slice(name).get_dtype() for name in tensors.keys())  # noqa: SIM118 (not a dict)
    return [kind for kind, _ in kinds.most_common()]


def has_chat_template(folder: Path) -> bool:
    """Whether prompts can be given as text messages."""
    if (folder / "chat_template.jinja").exists():
        return True
    settings = folder / "tokenizer_config.json"
    return settings.exists() and '"chat_template"' in settings.read_text(encoding="utf-8")
