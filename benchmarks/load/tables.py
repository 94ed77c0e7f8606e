"""What a terminal shows of ``load.json``."""

from typing import Any

from benchmarks.load.config import Endpoint

UNITS = {"closed": "clients", "open": "per s"}


def table_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """What a terminal shows of ``load.json``: a row for each level and endpoint."""
    unit = UNITS[found["settings"]["loop"]]
    endpoints = map(Endpoint.model_validate, found["settings"]["endpoints"])
    labels = {each.name: each.label for each in endpoints}
    rows = []
    for level in found["levels"]:
        for name, own in level["endpoints"].items():
            row: dict[str, Any] = {unit: f"{level['level']:g}"}
            row |= {"endpoint": labels[name]} if len(labels) > 1 else {}
            row |= {"answered": f"{own['answered']}/{own['requests']}"}
            row |= {"errors": own["errors"]} if own["errors"] else {}
            row |= {"tokens/s": own["tokens_per_second"]}
            row |= {"first text s": _spread(own["first_text"])}
            row |= {"per token ms": _spread(own["per_token"], 1000)}
            if own["goodput"]["limits"]:
                row |= {"goodput/s": own["goodput"]["per_second"]}
            rows.append(row)
    return rows


def errors_said(found: dict[str, Any]) -> list[str]:
    """What an endpoint said first of each kind of error, a line for each."""
    lines = (
        f"{name}, {kind}: {said}"
        for level in found["levels"]
        for name, own in level["endpoints"].items()
        for kind, said in own["said"].items()
    )
    return list(dict.fromkeys(lines))


def _spread(values: dict[str, float] | None, scale: float = 1) -> str | None:
    """p50, p95 and p99."""
    return (
        None
        if values is None
        else " ".join(f"{values[p] * scale:.3g}" for p in ("p50", "p95", "p99"))
    )


RATIOS = {
    "tokens_per_second": "tokens a second",
    "first_text": "seconds to the first text",
    "per_token": "seconds a token after it",
    "seconds": "seconds of the whole answer",
}


def ratio_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The comparison of two endpoints: a row for each level and quantity; none for one endpoint."""
    unit = UNITS[found["settings"]["loop"]]
    return [
        {unit: f"{level['level']:g}", "of": told} | (level["ratio"][name] or {})
        for level in found["levels"]
        if "ratio" in level
        for name, told in RATIOS.items()
    ]


def same_texts(found: dict[str, Any]) -> str:
    """How many answers of two endpoints were the same."""
    ratios = [level["ratio"] for level in found["levels"]]
    same, pairs = (sum(ratio[name] for ratio in ratios) for name in ("same_text", "pairs"))
    return f"the same text: {same} of {pairs} pairs of answers"
