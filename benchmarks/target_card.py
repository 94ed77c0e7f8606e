"""The card of a bundled target: held-out accuracy of standard decoding, measured, beside the facts.

    python -m benchmarks.target_card --target runs/train/sdar-tiny --problems 500

writes ``README.md`` into the checkpoint's folder.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from actors.loading import open_engine
from benchmarks.heldout import PROBLEM_SEED
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from drafters.config import DrafterConfig
from models.config import TargetConfig
from models.digests import digest
from tasks.bundled import TASKS, problems, score
from tasks.intervals import wilson_interval

CARD = """\
---
license: apache-2.0
library_name: maskahead
tags: [diffusion-language-model, sdar]
---
# {name}

A block-causal diffusion language model in SDAR's format: {parameters:,} parameters, blocks of
{block_size}, {vocab_size} tokens. Trained from scratch, on generated text only, by
`maskahead train target`; the configuration and the training data are in this repository. It solves
small word problems and writes small Python functions, and knows nothing else.

| held-out task | accuracy | 95 % interval | problems | tokens a reply |
|---|---|---|---|---|
{rows}

Standard decoding (one commit a forward) at temperature 0, {dtype}, problems of combinations of
steps that training never showed. Measured by `{command}`.

- digest of configuration, tokenizer and weights: `{digest}`
- training: {training}
"""


def measure(config: TargetConfig, count: int, batch_size: int) -> list[dict[str, Any]]:
    """Accuracy on ``count`` held-out problems of every task."""
    engine = open_engine(config, DrafterConfig(), ())
    options = DecodeOptions(method="standard", batch_size=batch_size)
    found = []
    for task in TASKS:
        asked = problems(task, "heldout", count, PROBLEM_SEED)
        rows = engine.generate([PromptRow(id=p.id, prompt=p.prompt) for p in asked], options)
        correct = sum(score(asked, [row["text"] for row in rows]))
        low, high = wilson_interval(correct, count)
        tokens = sum(len(row["token_ids"]) for row in rows) / count
        found.append({"task": task, "correct": correct, "low": low, "high": high, "tokens": tokens})
        typer.echo(f"{task}: {correct} of {count}")
    return found


def table_rows(found: list[dict[str, Any]], count: int) -> str:
    return "\n".join(
        f"| {f['task']} | {f['correct'] / count:.3f} | {f['low']:.3f}-{f['high']:.3f} | {count} "
        f"| {f['tokens']:.0f} |"
        for f in found
    )


def training_summary(folder: Path) -> str:
    """What ``training.json`` says: the last run, and the stages before it where there were any."""
    config = json.loads((folder / "training.json").read_text())
    training = config["training"]
    summary = (
        f"{training['steps']} steps of {training['batch_size']} samples with "
        f"{training['noisy_blocks']} noised blocks each ({shares(config['mix'])}), seed "
        f"{training['seed']}"
    )
    for stage in config.get("stages", ()):
        first, last = stage["steps"]
        summary += (
            f"\n  - steps {first} to {last}: {shares(stage['mix'])}, learning rate "
            f"{stage['learning_rate'][0]:g} to {stage['learning_rate'][1]:g}"
        )
    return summary


def shares(mix: dict[str, float]) -> str:
    """A mix in words."""
    return ", ".join(f"{name} {share:g}" for name, share in mix.items())


def main(
    target: Annotated[str, typer.Option(help="Checkpoint folder.")],
    problems_each: Annotated[int, typer.Option("--problems", help="Problems a task.")] = 500,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    batch_size: Annotated[int, typer.Option(help="Requests a forward.")] = 16,
) -> None:
    """Measure a target on held-out bundled problems and write its card."""
    config = TargetConfig.model_validate({"path": target, "dtype": dtype})
    found = measure(config, problems_each, batch_size)
    engine_spec = open_engine(config, DrafterConfig(), ()).target.spec
    folder = Path(target)
    card = CARD.format(
        name=folder.name,
        parameters=engine_spec.num_parameters,
        block_size=engine_spec.block_size,
        vocab_size=engine_spec.vocab_size,
        rows=table_rows(found, problems_each),
        dtype=dtype,
        digest=digest(folder),
        training=training_summary(folder),
        command=f"python -m benchmarks.target_card --target {folder.name} "
        f"--problems {problems_each}",
    )
    (folder / "README.md").write_text(card)


if __name__ == "__main__":
    typer.run(main)
