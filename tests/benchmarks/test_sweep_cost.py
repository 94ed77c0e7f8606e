"""The two ways of finding a setting: what is compared, on numbers made by hand and one engine."""

from pathlib import Path

from actors.loading import open_engine
from benchmarks.sweep_cost import champion_of, paired_ratios, settings_of, verdict
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from drafters.config import DrafterConfig
from models.config import TargetConfig

A, B = {"method": "chain", "budget": 2}, {"method": "chain", "budget": 9}


def row(key: str, fidelity: str, options: dict, status: str = "done") -> dict:
    return {"key": key, "fidelity": fidelity, "options": options, "status": status}


def test_the_naive_way_runs_what_the_sweep_replayed_each_once() -> None:
    rows = [
        row("0", "replay", {"method": "standard"}),
        row("1", "replay", A),
        row("2", "replay", B),
        row("3", "replay", A),
        row("4", "replay", {"method": "order"}, "failed"),
        row("5", "live", B),
    ]
    sweep = {"rows": rows, "champion": "5"}
    assert settings_of(sweep) == [A, B]
    assert champion_of(sweep) == rows[5]


def test_winners_are_the_same_when_their_intervals_meet() -> None:
    fast, near, slow = [2.0, 2.1, 2.2] * 3, [1.9, 2.0, 2.05] * 3, [1.0, 1.1, 1.2] * 3
    assert verdict([A, B], [fast, near], own=A)["same_within_noise"]
    assert verdict([A, B], [fast, near], own=B)["same_within_noise"]
    apart = verdict([A, B], [fast, slow], own=B)
    assert not apart["same_within_noise"]
    assert (apart["naive_winner"], apart["naive_winner_ratio"]) == (A, 2.1)
    assert not verdict([A], [fast], own={"method": "standard"})["same_within_noise"]
    assert verdict([B], [slow], own={"method": "standard"})["same_within_noise"]
    few = verdict([A, B], [fast[:3], near[:3]], own=B)
    assert not few["same_within_noise"], "too few pairs to say so"


def test_every_prompt_of_every_pass_gives_a_ratio(tiny_folder: Path) -> None:
    engine = open_engine(TargetConfig(path=str(tiny_folder)), DrafterConfig(), {"chain"})
    options = DecodeOptions(method="chain", budget=2, max_new_tokens=5, ignore_stop=True)
    prompts = [PromptRow(id=name, prompt_ids=(4, 5)) for name in "ab"]
    ratios = paired_ratios(engine, prompts, options, options.draft_free(), repeats=3)
    assert len(ratios) == 6
    assert min(ratios) > 0
