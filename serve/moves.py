"""What a running endpoint can be told without loading its target again."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from decoders.options import DecodeOptions
from decoders.refusals import check_options
from models.spec import TargetSpec
from serve.config import ServeConfig
from serve.options import request_options
from tasks.files import flat

IN_PLACE = {"decode", "run_id", "certificate"}


class ServedSettings(BaseModel):
    """Ray Serve's ``user_config``: a change of it reaches every replica, and restarts none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    decode: DecodeOptions
    run_id: str | None = None
    certificate: str | None = None
    draining: bool = False

    @classmethod
    def of(cls, config: ServeConfig, draining: bool = False) -> "ServedSettings":
        """What ``config`` says of it."""
        return cls(
            decode=config.decode,
            run_id=config.run_id,
            certificate=config.certificate,
            draining=draining,
        )

    def applied_to(self, config: ServeConfig) -> ServeConfig:
        """``config`` with these settings."""
        return config.model_copy(update={name: getattr(self, name) for name in IN_PLACE})

    def values(self) -> dict[str, Any]:
        """As plain values that read back equal: only options that were given, since a method
        refuses those of others."""
        return self.model_dump(mode="json", exclude_unset=True)


def check_in_place(opened: ServeConfig, wanted: ServeConfig, spec: TargetSpec) -> None:
    """Raise ``ValueError`` where the target that was ``opened``, of that ``spec``, cannot serve
    what is ``wanted``."""
    before, after = (flat(config.model_dump(exclude=IN_PLACE)) for config in (opened, wanted))
    for key in before:
        if before[key] != after[key]:
            raise ValueError(
                f"{key} {before[key]!r} is now {after[key]!r}, which needs a redeploy; end this "
                "endpoint and start it again"
            )
    loaded = request_options(opened)
    if wanted.decode.method not in loaded:
        raise ValueError(
            f"decode.method {wanted.decode.method}: its drafter is not loaded here, which needs a "
            f"redeploy; valid in place: {', '.join(loaded)}"
        )
    # Taken over, they would refuse every request that does not bring its own.
    check_options(wanted.decode, spec)
