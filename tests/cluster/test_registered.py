"""Drafters by their registered names, out of a real store, decoded with like any folder."""

import json
from pathlib import Path

import pytest
import torch

import maskahead
from cluster.configuration import RunConfig, load_config
from cluster.registered import with_registered_names
from cluster.tracking import Tracking
from cluster.tracking.registry import Registered, Version, point, register
from cluster.training_log import DRAFTER_FORMAT
from drafters.bundle import save_order_model
from drafters.config import DrafterConfig
from drafters.order_model import OrderModelConfig, build_order_model
from models.digests import digest
from tests.text_target import save_text_target, save_tiny_sets_model


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_text_target(tmp_path_factory.mktemp("target") / "text-b8")


@pytest.fixture(scope="module")
def order(target: Path) -> Path:
    torch.manual_seed(0)
    sizes = OrderModelConfig(width=16, layers=1, heads=2, feed_forward=16)
    save_order_model(build_order_model(sizes), target.parent / "trained" / "order")
    return target.parent / "trained" / "order"


@pytest.fixture(autouse=True)
def _store(tracking: Tracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking.uri)
    monkeypatch.chdir(tmp_path)


def registered(tracking: Tracking, folder: Path, model: str) -> Registered:
    run_id = tracking.parent(f"training of {model}", model)
    for file in folder.iterdir():
        tracking.log_files(run_id, [file], folder.name)
    return register(tracking, Version(model, run_id, folder.name, "", DRAFTER_FORMAT, {}), [])


def test_order_and_sets_models_are_fetched_by_name_once_and_named_again_for_other_hosts(
    tracking: Tracking, target: Path, order: Path
) -> None:
    sets = save_tiny_sets_model(target, order.parent / "sets")
    versions = [registered(tracking, f, f"maskahead-fetched-{f.name}") for f in (order, sets)]
    for version in versions:
        point(tracking, version, "best")
    names = [f"models:/{version.model}@best" for version in versions]
    short = dict(zip(("drafter.path", "drafter.sets"), names, strict=True))
    drafter = load_config(RunConfig, short=short).drafter
    assert drafter.path
    assert drafter.sets
    assert [digest(Path(path)) for path in (drafter.path, drafter.sets)] == [
        digest(order),
        digest(sets),
    ]
    assert Path(drafter.path).parent.name == versions[0].run_id, "number 1 is another elsewhere"
    stamp = Path(drafter.path).stat()
    assert load_config(RunConfig, short=short).drafter == drafter
    assert Path(drafter.path).stat() == stamp
    pinned = DrafterConfig(path=versions[0].uri, sets=versions[1].uri)
    assert with_registered_names(drafter) == pinned
    assert with_registered_names(DrafterConfig(path=str(order))).path == str(order)


def test_decoding_with_a_registered_drafter_is_decoding_with_its_folder(
    tracking: Tracking, target: Path, order: Path, tmp_path: Path
) -> None:
    version = registered(tracking, order, "maskahead-decoded")
    rows = [{"id": "a", "prompt_ids": [4, 5, 6]}]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["decode", "--target", str(target), "--prompts", "prompts.jsonl", "--trace"]
    words += ["--method", "order", "--budget", "4", "--max-new-tokens", "16"]
    found = {}
    for name in (version.uri, str(order)):
        out = tmp_path / Path(name).name
        assert maskahead.main([*words, "--drafter", name, "--out", str(out)]) == 0
        found[name] = json.loads(out.read_text()) | {"seconds": 0}
    assert found[version.uri] == found[str(order)]
    side = json.loads((tmp_path / f"{version.number}.run.json").read_text())
    assert side["drafter"] == {
        "name": f"maskahead-decoded-{version.number}",
        "digest": digest(order),
    }


def test_what_the_store_does_not_have_is_named_with_what_it_has(
    tracking: Tracking,
    order: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    version = registered(tracking, order, "maskahead-known")
    point(tracking, version, "best")
    (tmp_path / "best.yaml").write_text("decode: {}\n")
    run_id = tracking.parent("a sweep", "a sweep")
    tracking.log_files(run_id, [tmp_path / "best.yaml"])
    other = register(tracking, Version("settings", run_id, "best.yaml", "", 1, {}), [])
    for name, said in {
        "models:/maskahead-known@wrost": r"it has maskahead-known/1 and @best$",
        "models:/maskahead-known/7": r"it has maskahead-known/1 and @best$",
        "models:/unheard@best": r"holds no such version; it has models .*maskahead-known",
        "models:/maskahead-known": r"write models:/NAME@ALIAS",
        other.uri: r"is best\.yaml, not a drafter's folder",
    }.items():
        with pytest.raises(ValueError, match=rf"^drafter\.path: .*{said}"):
            load_config(RunConfig, short={"drafter.path": name})
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/none.db")
    with pytest.raises(ValueError, match=r"no MLflow store at .*none\.db"):
        load_config(RunConfig, short={"drafter.path": version.uri})
