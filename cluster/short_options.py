"""The options of commands that decode: made from the configuration's own fields.

Every key of ``target.*`` and ``decode.*`` has a short form (``--budget 8`` is ``--set
decode.budget=8``), so that names, defaults, choices and help stand beside the code they configure.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from cluster.configuration import RunConfig, load_config
from decoders.options import METHODS, OPTIONS_OF, DecodeOptions
from drafters.config import DrafterConfig
from models.config import TargetConfig

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="YAML; keys as in --set."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any key, as in decode.budget=8; repeatable."),
]


@dataclass(frozen=True)
class ShortForm:
    """One option: the configuration key it stands for, and the field behind it."""

    key: str
    field: FieldInfo
    panel: str

    @property
    def option(self) -> Any:
        """The annotation that typer reads; values stay text for the one validation later."""
        if self.field.annotation is bool:
            return Annotated[bool | None, typer.Option(help=self.help, rich_help_panel=self.panel)]
        return Annotated[
            str | None,
            typer.Option(
                metavar=_metavar(self.field.annotation),
                help=self.help,
                rich_help_panel=self.panel,
            ),
        ]

    @property
    def help(self) -> str:
        """The field's docstring, its default, and who knows it where not all methods do."""
        text = (self.field.description or self.key).replace("``", "").replace("\n", " ")
        name = self.key.removeprefix("decode.")
        if self.key.startswith("decode."):
            knowing = [method for method in METHODS if name in OPTIONS_OF[method]]
            others = [method for method in METHODS if method not in knowing]
            if 0 < len(others) <= len(knowing):
                text += f" Not for {', '.join(others)}."
            elif others:
                text += f" For {', '.join(knowing)}."
        default = self.field.default
        return text if default is None else f"{text} Default: {default}."


def _metavar(annotation: Any) -> str:
    """How a value of this type is written."""
    if get_origin(annotation) is Literal:
        return "|".join(map(str, get_args(annotation)))
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    if kinds:
        return "|".join(map(_metavar, kinds))
    return {int: "INT", float: "NUMBER", str: "TEXT"}.get(annotation, "VALUE")


def short_forms() -> dict[str, ShortForm]:
    """Parameter name to what it stands for."""
    forms = {
        "target" if name == "path" else name: ShortForm(f"target.{name}", field, "Target")
        for name, field in TargetConfig.model_fields.items()
    }
    forms["drafter"] = ShortForm("drafter.path", DrafterConfig.model_fields["path"], "Drafter")
    for name, field in DecodeOptions.model_fields.items():
        forms[name] = ShortForm(f"decode.{name}", field, "Decoding")
    return forms


def configured(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command(config: RunConfig, ...)`` all short options, ``--set`` and ``--config``."""
    forms = short_forms()

    @wraps(command)
    def run(**values: Any) -> None:
        given = {name: values.pop(name) for name in forms}
        short = {forms[name].key: value for name, value in given.items() if value is not None}
        file, settings = values.pop("config_file"), values.pop("settings") or ()
        command(load_config(RunConfig, file, settings, short), **values)

    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    added = {"config_file": ConfigFile, "settings": Settings}
    added |= {name: form.option for name, form in forms.items()}
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [parameter.replace(kind=keyword) for parameter in own]
    parameters += [
        inspect.Parameter(name, keyword, default=None, annotation=annotation)
        for name, annotation in added.items()
    ]
    run.__dict__["__signature__"] = inspect.Signature(parameters)
    return run
