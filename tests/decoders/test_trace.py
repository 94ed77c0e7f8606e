"""A trace holds every state of a draft-free run, and comes back from disk as it was."""

import json
from pathlib import Path

import numpy as np
import pytest

from decoders.loop import Decoder, decode
from decoders.options import DecodeOptions
from decoders.request import Request, Result
from decoders.state import fill
from decoders.trace import Trace, TraceRecorder
from decoders.trace_store import MANIFEST, TraceManifest, TraceStore
from models.target import Target
from tests.conftest import tiny_model, tiny_spec
from tests.reference.running import commits, outcome, prompt_of, run

SPEC = tiny_spec()
SETTINGS: list[dict[str, object]] = [
    {"max_new_tokens": 9, "ignore_stop": True},
    {"max_new_tokens": 9, "temperature": 1.0, "confidence": "chosen", "top_k": 9},
    {"max_new_tokens": 5, "cap": 0.9},
    {"method": "threshold", "tau": 0.1, "max_new_tokens": 9},
    {"max_new_tokens": 0},
]


def recorded(options: DecodeOptions, batch_size: int = 3) -> tuple[list[Trace], list[Result]]:
    """Traces and results of seven requests, in the order of the requests."""
    requests = [Request(f"p{n}", prompt_of(n), options, 2**63 + n) for n in range(0, 13, 2)]
    recorder = TraceRecorder()
    results = run(Target(tiny_model(SPEC)), requests, batch_size=batch_size, observer=recorder)
    traces = [recorder.finish(results[request.id]) for request in requests]
    assert not recorder.seen
    return traces, [results[request.id] for request in requests]


def manifest(options: DecodeOptions, **changes: object) -> TraceManifest:
    values = {
        "target": "tiny",
        "target_digest": "aa",
        "prompts_digest": "bb",
        "dtype": "float64",
        "block_size": SPEC.block_size,
        "mask_token_id": SPEC.mask_token_id,
        "rule": options.commit_rule(),
        "seed": 0,
    }
    return TraceManifest.model_validate(values | changes)


@pytest.mark.parametrize("values", SETTINGS, ids=str)
def test_a_trace_is_the_run_state_by_state(values: dict[str, object]) -> None:
    for trace, result in zip(*recorded(DecodeOptions.model_validate(values)), strict=True):
        assert (trace.token_ids, trace.stop_reason) == outcome(result)
        assert trace.nfe == result.nfe
        assert trace.prefills == sum(round.kind == "prefill" for round in result.rounds)
        steps = [
            tuple((block.start + p, t) for p, t in state.step)
            for block in trace.blocks
            for state in block.states
        ]
        assert steps == commits(result)
        for block in trace.blocks:
            assert block.start % SPEC.block_size == 0
            end = len(trace.request.prompt_ids) + trace.request.options.max_new_tokens
            assert block.end.limit == end - block.start
            for before, after in zip(block.states, block.states[1:], strict=False):
                assert after.state == fill(before.state, before.step)
            for state in block.states:
                masked = [i for i, t in enumerate(state.state) if t == SPEC.mask_token_id]
                assert state.stale.positions.tolist() == masked


def test_tracing_does_not_change_the_run() -> None:
    options = DecodeOptions(max_new_tokens=9, temperature=0.7)
    traces, _ = recorded(options)
    requests = [trace.request for trace in traces]
    plain = run(Target(tiny_model(SPEC)), requests)
    assert [outcome(plain[t.request.id]) for t in traces] == [
        (t.token_ids, t.stop_reason) for t in traces
    ]


def test_a_trace_does_not_depend_on_its_batch() -> None:
    options = DecodeOptions(max_new_tokens=9, temperature=0.7)
    for one, other in zip(recorded(options, 1)[0], recorded(options, 7)[0], strict=True):
        assert_equal(one, other, exact=False)


def assert_equal(one: Trace, other: Trace, exact: bool = True) -> None:
    assert one.request == other.request
    assert (one.token_ids, one.stop_reason, one.prefills) == (
        other.token_ids,
        other.stop_reason,
        other.prefills,
    )
    assert [(b.start, b.end, len(b.states)) for b in one.blocks] == [
        (b.start, b.end, len(b.states)) for b in other.blocks
    ]
    for a, b in zip(one.blocks, other.blocks, strict=True):
        for left, right in zip(a.states, b.states, strict=True):
            assert (left.state, left.step) == (right.state, right.step)
            assert (left.stale.hidden is None) == (right.stale.hidden is None)
            for name, array in vars(left.stale).items():
                compared = getattr(right.stale, name)
                if array is None:
                    continue
                assert array.shape == compared.shape
                if exact:
                    np.testing.assert_array_equal(array, compared, err_msg=name)
                else:
                    np.testing.assert_allclose(array, compared, rtol=1e-5, atol=1e-6)


def test_hidden_states_are_stored_where_they_were_asked_for(tmp_path: Path) -> None:
    options = DecodeOptions(max_new_tokens=9, ignore_stop=True)
    request, recorder = Request("one", prompt_of(3), options, 1), TraceRecorder()
    decoder = Decoder(Target(tiny_model(SPEC)), {}, recorder, hidden=True)
    [result] = decode(decoder, [request], 1)
    trace = recorder.finish(result)
    store = TraceStore.create(tmp_path, manifest(options, hidden_size=SPEC.hidden_size))
    store.append([trace])
    [again] = store.load()
    assert_equal(trace, again)
    for block in again.blocks:
        for state in block.states:
            assert state.stale.hidden is not None
            assert state.stale.hidden.shape == (len(state.stale.positions), SPEC.hidden_size)
            assert state.stale.hidden.dtype == np.float16
    plain = run(Target(tiny_model(SPEC)), [request])["one"]
    assert plain.rounds == result.rounds, "asking for them changes nothing"


@pytest.mark.parametrize("values", SETTINGS, ids=str)
def test_what_was_stored_comes_back(values: dict[str, object], tmp_path: Path) -> None:
    options = DecodeOptions.model_validate(values)
    traces, _ = recorded(options)
    store = TraceStore.create(tmp_path / "traces", manifest(options))
    store.append(traces[:3])
    store.append(traces[3:])
    again = TraceStore(tmp_path / "traces")
    assert again.manifest() == manifest(options)
    assert again.recorded_ids() == {trace.request.id for trace in traces}
    loaded = list(again.load())
    for one, other in zip(traces, loaded, strict=True):
        assert_equal(one, other)
    assert [t.request.id for t in again.load(limit=4)] == [t.request.id for t in traces[:4]]
    assert list(again.load(limit=0)) == []
    assert [r for part in again.parts() for r in again.requests(part)] == [
        trace.request for trace in traces
    ]
    for one, other in zip(traces[4:6], again.load_part(again.parts()[1], slice(1, 3)), strict=True):
        assert_equal(one, other)


def test_a_part_that_was_not_finished_does_not_count(tmp_path: Path) -> None:
    options = DecodeOptions(max_new_tokens=5)
    traces, _ = recorded(options)
    store = TraceStore.create(tmp_path, manifest(options))
    store.append(traces[:2])
    (tmp_path / "part-00001.safetensors").write_bytes(b"half a part")
    (tmp_path / "part-00001.json.partial").write_text("[")
    assert len(list(store.load())) == 2
    store.append(traces[2:])
    assert [t.request.id for t in store.load()] == [t.request.id for t in traces]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("target_digest", "cc"),
        ("prompts_digest", "cc"),
        ("dtype", "float32"),
        ("seed", 1),
        ("rule", DecodeOptions(cap=0.5).commit_rule()),
    ],
)
def test_a_folder_of_another_run_is_refused(field: str, value: object, tmp_path: Path) -> None:
    options = DecodeOptions()
    TraceStore.create(tmp_path, manifest(options))
    TraceStore.create(tmp_path, manifest(options))  # the same run goes on
    with pytest.raises(ValueError, match=f"holds traces with {field}"):
        TraceStore.create(tmp_path, manifest(options, **{field: value}))


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no traces"):
        TraceStore(tmp_path).manifest()


@pytest.mark.parametrize(
    ("change", "told"), [({"colour": "red"}, "colour: unknown key"), ({"version": 2}, "version: 2")]
)
def test_a_manifest_of_another_format_is_refused_in_one_line(
    change: dict[str, object], told: str, tmp_path: Path
) -> None:
    content = json.loads(manifest(DecodeOptions()).model_dump_json()) | change
    (tmp_path / MANIFEST).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=rf"^[^\n]*manifest\.json: {told}[^\n]*$"):
        TraceStore(tmp_path).manifest()


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    options = DecodeOptions(max_new_tokens=1)
    store = TraceStore.create(tmp_path, manifest(options))
    store.append(recorded(options)[0][:1])
    (tmp_path / "part-00000.safetensors").write_bytes(b"half a part")
    with pytest.raises(ValueError, match=r"part-00000\.safetensors is no readable safetensors"):
        list(store.load())
