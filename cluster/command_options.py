"""Options that commands of several files share."""

from pathlib import Path
from typing import Annotated

import typer

Prompts = Annotated[
    Path,
    typer.Option(metavar="FILE", help="JSON lines: id, and prompt (text) or prompt_ids."),
]
Target = Annotated[str | None, typer.Option(help="Checkpoint folder, or a bundled target's name.")]
RowsFile = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="FILE",
        help="JSON lines, in order; what an interrupted run wrote stays; - prints.",
    ),
]
