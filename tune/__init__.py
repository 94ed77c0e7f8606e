"""Finding a target's best setting: search space, trials, sweep, leaderboard and reports."""
