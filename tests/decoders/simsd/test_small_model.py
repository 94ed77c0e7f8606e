"""The small model follows a text that grows, and one that turned out otherwise."""

from decoders.options import DecodeOptions
from decoders.simsd.draft import Ask
from decoders.simsd.small_model import SmallModel, common_length
from models.bucketed_target import BucketedTarget
from models.target import Target
from tests.conftest import tiny_model
from tests.reference.running import prompt_of
from tests.reference.simsd import naive_draft

MODEL = tiny_model(seed=1)
MASKS = (MODEL.spec.mask_token_id,) * 4
OPTIONS = DecodeOptions(method="simsd")


def test_a_text_that_grows_shrinks_or_changes_is_drafted_as_if_it_were_new() -> None:
    texts = [prompt_of(8), prompt_of(12), prompt_of(16), prompt_of(8), (*prompt_of(8), 9, 9, 9, 9)]
    for kind in (Target, BucketedTarget):
        small = SmallModel(kind(MODEL))
        for text in texts:
            (draft,) = small.draft([Ask(0, text, MASKS, OPTIONS, 0)])
            assert draft.fills == naive_draft(MODEL, text, MASKS, OPTIONS)
            assert list(draft.fills) == list(naive_draft(MODEL, text, MASKS, OPTIONS))
        small.leave(0)
        small.leave(0)
        assert not small.target.open_slots


def test_a_block_that_grew_is_stored_with_the_next_draft_not_by_itself() -> None:
    small = SmallModel(Target(MODEL))
    forwards = []
    for text in (prompt_of(8), prompt_of(12), prompt_of(20)):
        small.draft([Ask(0, text, MASKS, OPTIONS, 0)])
        forwards.append(small.num_forwards)
    assert forwards == [1 + 4, 1 + 4 + 4, 1 + 4 + 4 + 1 + 4], "two blocks at once: one prefill"


def test_common_length_counts_equal_tokens_at_the_beginning() -> None:
    assert common_length([1, 2, 3], [1, 2, 4, 5]) == 2
    assert common_length([], [1]) == 0
    assert common_length([1, 2], [1, 2, 3]) == 2
