"""How a block is filled: state, commit rules, noise, the one loop, proposers, traces, replay."""
