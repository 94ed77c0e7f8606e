"""SimSD: a small diffusion model drafts, one masked forward of the target verifies the draft."""
