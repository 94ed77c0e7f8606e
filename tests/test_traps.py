"""The traps that users of other systems fell into, and the tests that keep each of them shut.

The table is checked: a test that is renamed or removed must leave it, and no trap may be left
without one.
"""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

TRAPS: dict[str, tuple[str, ...]] = {
    "1. The mask token is sampled, or leftover masks are emitted.": (
        "decoders/test_sampling.py::test_the_mask_token_is_never_drawn_however_likely",
        "decoders/test_stopping.py::test_masks_never_leak_even_when_the_network_wants_them",
    ),
    "2. Temperature 0 divides by zero, or is silently sampled at 1.": (
        "decoders/test_sampling.py::test_temperature_zero_is_argmax_and_reads_no_noise",
        "serve/test_api.py::test_temperature_0_is_greedy_whatever_the_seed",
    ),
    "3. top-k = 1 makes every position sure, and a threshold fills the whole block.": (
        "decoders/test_loop_counting.py::test_top_k_of_one_does_not_make_every_position_sure",
    ),
    "4. A step larger than the number of masks overwrites the prompt's tail.": (
        "decoders/test_loop_counting.py"
        "::test_a_step_of_many_commits_never_overwrites_the_prompts_tail",
    ),
    "5. > against >= at the threshold; ties of low-precision probabilities.": (
        "decoders/test_rules.py::test_threshold_commits_everything_strictly_above",
        "decoders/test_sampling.py::test_saturated_probabilities_keep_their_order",
    ),
    "6. Keys of denoising steps are kept, or part of a block is computed anew.": (
        "models/test_target.py::test_only_stored_copies_become_part_of_the_prefix",
        "models/test_cache.py::test_scratch_is_overwritten_by_the_next_write",
        "models/test_target.py::test_root_and_drafts_equal_a_forward_each",
    ),
    "7. Work or text goes on behind a stop; split stop strings and characters.": (
        "decoders/test_stopping.py::test_nothing_is_forwarded_once_the_text_has_ended",
        "decoders/test_stopping.py::test_a_stop_id_ends_the_text_and_is_not_part_of_it",
        "decoders/test_stopping.py::test_stop_ids_in_the_prompt_do_not_stop",
        "actors/test_text_stream.py"
        "::test_text_ends_before_the_first_complete_stop_string_wherever_rounds_end",
        "actors/test_text_stream.py::test_a_character_is_held_back_until_its_last_byte",
    ),
    "8. Padding shifts the block grid; output changes with the neighbours in a batch.": (
        "decoders/test_batching_independence.py"
        "::test_output_and_counts_equal_those_of_a_request_alone",
    ),
    "9. rope_theta against the newer rope_parameters.": (
        "models/test_checkpoint.py::test_both_spellings_of_the_rotary_base_are_read",
    ),
    "10. A mask of zeros and ones is added to the scores.": (
        "models/test_attention.py::test_a_mask_of_numbers_that_would_be_added_is_refused",
        "models/test_attention.py::test_masked_attention_equals_the_element_wise_reference",
    ),
    "11. Missing or unknown tensors, or a wrong block size, are accepted in silence.": (
        "models/test_families.py::test_one_missing_one_unknown_and_one_misshapen_tensor_are_named",
        "models/test_families.py::test_the_users_block_size_fills_in_but_does_not_overrule",
    ),
    "12. Rows above 0 are not sampled; different seeds give the same sample.": (
        "decoders/test_batching_independence.py"
        "::test_one_request_many_times_in_a_batch_gives_one_answer_by_seed",
        "serve/test_api.py::test_without_a_seed_samples_differ_and_with_one_they_repeat",
    ),
    "13. Nothing passes the threshold: an endless loop.": (
        "decoders/test_loop_counting.py::test_threshold_that_nothing_passes_goes_on_one_by_one",
    ),
    "14. An unfinished block is put into a prefix cache.": (
        "models/test_cache.py::test_an_unfinished_block_is_never_kept",
        "models/test_target.py::test_an_unfinished_block_is_not_prefilled",
    ),
    "15. A number of ranks that does not divide the key/value heads fails late.": (
        "models/test_spec.py"
        "::test_ranks_that_do_not_divide_are_refused_with_the_reason_and_the_valid_ones",
        "serve/test_config.py::test_a_target_that_cannot_be_opened_is_refused",
    ),
}


def test_all_fifteen_traps_are_in_the_table() -> None:
    assert [int(trap.partition(".")[0]) for trap in TRAPS] == list(range(1, 16))
    assert all(TRAPS.values())


@pytest.mark.parametrize("named", sorted({test for tests in TRAPS.values() for test in tests}))
def test_a_test_that_the_table_names_is_there(named: str) -> None:
    file, _, name = named.partition("::")
    body = ast.parse((TESTS / file).read_text(encoding="utf-8")).body
    assert name in {node.name for node in body if isinstance(node, ast.FunctionDef)}
