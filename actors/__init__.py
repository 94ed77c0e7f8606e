"""Ray actors: a target of one or more tensor-parallel ranks, its drafter, and the batch in it."""
