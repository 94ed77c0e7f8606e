"""Reading and writing checkpoint folders, strictly: nothing missing, nothing unknown, no pickle."""

import json
from hashlib import blake2b
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from models.config import TargetConfig
from models.families import sdar
from models.spec import TargetSpec
from models.transformer import Transformer

FAMILIES = {sdar.MODEL_TYPE: sdar}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
BUNDLED = Path(__file__).parent / "bundled"


def find_checkpoint(path_or_name: str) -> Path:
    """The folder of a checkpoint: a path, or the name of a bundled target."""
    folder = Path(path_or_name)
    if (folder / "config.json").exists():
        return folder
    if (BUNDLED / path_or_name / "config.json").exists():
        return BUNDLED / path_or_name
    bundled = sorted(p.parent.name for p in BUNDLED.glob("*/config.json"))
    raise ValueError(
        f"target.path {path_or_name!r} is neither a folder with a config.json nor a bundled "
        f"target ({', '.join(bundled)})"
    )


def read_spec(folder: Path) -> TargetSpec:
    """The spec of the checkpoint in ``folder``; ``ValueError`` for an unknown family."""
    config = json.loads((folder / "config.json").read_text())
    generation = folder / "generation_config.json"
    generation_config = json.loads(generation.read_text()) if generation.exists() else {}
    family = FAMILIES.get(config.get("model_type"))
    if family is None:
        raise ValueError(
            f"config.json of {folder.name}: model_type {config.get('model_type')!r} is not "
            f"known; known are {', '.join(sorted(FAMILIES))}"
        )
    return family.read_spec(config, generation_config, folder.resolve().name)


def load_weights(model: Transformer, folder: Path) -> None:
    """Fill ``model`` from the safetensors of ``folder``, whatever their sharding.

    Raises ``ValueError`` that names the tensors when one is missing, unknown or misshapen.
    """
    shards = sorted(folder.glob("*.safetensors"))
    if not shards:
        raise ValueError(f"{folder} holds no *.safetensors (pickled weights are not read)")
    name_of = FAMILIES[model.spec.family].checkpoint_name
    wanted = {name_of(name): parameter for name, parameter in model.named_parameters()}
    found: set[str] = set()
    for shard in shards:
        with safe_open(shard, framework="pt") as tensors:
            for name in sorted(tensors.keys()):
                if name not in wanted:
                    raise ValueError(f"{shard.name}: unknown tensor {name}")
                if name in found:
                    raise ValueError(f"{shard.name}: {name} stands in an earlier file too")
                _fill(wanted[name], tensors.get_tensor(name), f"{shard.name}: {name}")
                found.add(name)
    missing = sorted(wanted.keys() - found)
    if missing:
        shown = ", ".join(missing[:3])
        raise ValueError(f"{folder}: {len(missing)} tensors are missing: {shown} ...")


def _fill(parameter: torch.nn.Parameter, value: torch.Tensor, where: str) -> None:
    if parameter.shape != value.shape:
        raise ValueError(f"{where} has shape {list(value.shape)}, not {list(parameter.shape)}")
    with torch.no_grad():
        parameter.copy_(value)


def load_model(config: TargetConfig) -> Transformer:
    """The whole network of a checkpoint on one device: evaluation mode, no gradients."""
    folder = find_checkpoint(config.path)
    spec = read_spec(folder)
    if config.block_size not in (None, spec.block_size):
        raise ValueError(
            f"target.block_size {config.block_size}: {folder.name} was made for blocks of "
            f"{spec.block_size}"
        )
    model = Transformer(spec).to(DTYPES[config.dtype])
    load_weights(model, folder)
    return model.requires_grad_(False).eval().to(config.device)


def save_checkpoint(model: Transformer, folder: Path, dtype: str = "bfloat16") -> None:
    """Write weights and configuration in the family's own layout."""
    family = FAMILIES[model.spec.family]
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        family.checkpoint_name(name): parameter.detach().to("cpu", DTYPES[dtype]).contiguous()
        for name, parameter in model.named_parameters()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config, generation_config = family.write_config(model.spec, dtype)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(generation_config, indent=2) + "\n")


def digest(path: Path) -> str:
    """A short digest of what decides a model's outputs: configuration, weights, tokenizer; or of
    the one file that ``path`` is."""
    state = blake2b(digest_size=8)
    names = ("config.json", "generation_config.json", "tokenizer.json")
    files = [path] if path.is_file() else [path / name for name in names]
    files += sorted(path.glob("*.safetensors"))
    for file in files:
        if file.exists():
            state.update(file.name.encode())
            state.update(file.read_bytes())
    return state.hexdigest()
