"""Oracles: a chain along the true future, as far as each of them is told."""

import pytest

from decoders.engine import Engine
from decoders.options import ORACLES, DecodeOptions
from decoders.prompts import PromptRow
from decoders.proposers.oracle import draft_chain, joint_fills, position_fills, token_fills
from decoders.proposers.registry import open_proposers
from decoders.state import BlockEnd, State
from drafters.config import DrafterConfig
from models.target import Target
from tests.conftest import tiny_model, tiny_spec
from tests.decoders.test_chain import MASK, stale_of, view_of
from tests.reference.running import prompt_of

STALE = stale_of([0, 1, 3, 4], [5, 6, 8, 9], [0.5, 0.9, 0.95, 0.8])
ROOT: State = (MASK, MASK, 7, 8, MASK)
VIEW = view_of(ROOT, STALE, method="oracle-joint")
FUTURE = [(4, 9), (0, 7), (1, 6)]


def test_the_position_oracle_knows_where_and_reads_what() -> None:
    assert position_fills(VIEW, FUTURE) == [(4, 9), (0, 5), (1, 6)]


def test_the_token_oracle_knows_what_and_reads_where() -> None:
    assert token_fills(VIEW, FUTURE) == [(1, 6), (4, 9), (0, 7)]
    assert token_fills(VIEW, FUTURE[:2]) == [], "position 1 stays open: there is no true token"


def test_the_joint_oracle_knows_both() -> None:
    assert joint_fills(VIEW, FUTURE) == FUTURE


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    target = Target(tiny_model(tiny_spec(8)))
    folder = tmp_path_factory.mktemp("target")
    return Engine(folder, target, open_proposers(folder, target.spec, DrafterConfig(), {*ORACLES}))


def rows_of(engine: Engine, method: str, budget: int = 0, **values: object) -> list[dict]:
    rows = [PromptRow(id=str(n), prompt_ids=prompt_of(n)) for n in (0, 3, 9)]
    options = DecodeOptions.lenient(
        method=method, budget=budget, max_new_tokens=20, batch_size=2, ignore_stop=True, **values
    )
    return engine.generate(rows, options)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_engine_lets_its_oracles_see_the_draft_free_run_first(
    engine: Engine, temperature: float
) -> None:
    standard = rows_of(engine, "standard", temperature=temperature)
    nfe = {"standard": sum(row["nfe"] for row in standard)}
    for oracle in ORACLES:
        rows = rows_of(engine, oracle, budget=3, temperature=temperature)
        assert [r["token_ids"] for r in rows] == [r["token_ids"] for r in standard]
        nfe[oracle] = sum(row["nfe"] for row in rows)
    assert nfe["oracle-joint"] <= nfe["oracle-position"] <= nfe["standard"]
    assert nfe["oracle-joint"] <= nfe["oracle-token"] <= nfe["standard"]


def test_a_joint_oracle_with_room_needs_two_forwards_a_block(engine: Engine) -> None:
    """The first one opens the block; the drafts behind its step reach the end."""
    for row, blocks in zip(rows_of(engine, "oracle-joint", budget=7), (3, 3, 3), strict=True):
        assert row["nfe"] == 2 * blocks


def test_finished_states_are_not_drafted() -> None:
    limited = view_of(ROOT, STALE, BlockEnd(MASK, 0, 2, (1,)), method="oracle-joint")
    [draft] = draft_chain(limited, [(0, 5), (1, 6), (4, 9)])
    assert draft.state == (5, MASK, 7, 8, MASK)


def test_an_unknown_future_is_an_error_that_names_the_request(engine: Engine) -> None:
    decoder = engine.decoder()
    rows = [PromptRow(id="new", prompt_ids=(7, 8))]
    decoder.add(engine.requests(rows, DecodeOptions(method="oracle-joint"))[0])
    decoder.step()
    with pytest.raises(ValueError, match="draft-free run of new is not known"):
        decoder.step()
    decoder.remove("new")
