"""The options of one decoding run: every default is written here, and only here."""

from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Method = Literal[
    "standard",
    "threshold",
    "chain",
    "wtree",
    "graph",
    "order",
    "sets",
    "simsd",
    "oracle-position",
    "oracle-token",
    "oracle-joint",
]
Confidence = Literal["top1", "chosen"]
Acceptance = Literal["exact", "cut", "subset", "product"]
AcceptOrder = Literal["temporal", "positional"]
Rest = Literal["redraft", "target-argmax", "draft-argmax"]
Verify = Literal["mask", "exact"]

COLDEST, HOTTEST = 1e-3, 1e3


def _usable_temperature(value: float) -> float:
    if value != 0 and not COLDEST <= value <= HOTTEST:
        raise ValueError(f"must be 0 (argmax) or between {COLDEST:g} and {HOTTEST:g}")
    return value


LARGEST_BUDGET = 256


def _usable_budget(value: object) -> object:
    if value == "auto":
        return value
    try:
        number = int(str(value).removesuffix(".0"))
    except ValueError:
        number = -1
    if not 0 <= number <= LARGEST_BUDGET:
        raise ValueError(f"must be auto, or a number of drafts from 0 to {LARGEST_BUDGET}")
    return number


Budget = Annotated[int | Literal["auto"], BeforeValidator(_usable_budget)]

Temperature = Annotated[float, AfterValidator(_usable_temperature)]
"""0 is argmax; beyond the bounds fp32 scores over- or underflow and every draw is meaningless."""

METHODS: tuple[str, ...] = get_args(Method)
DRAFT_FREE = ("standard", "threshold")
ORACLES = ("oracle-position", "oracle-token", "oracle-joint")
"""They read the draft-free run of the same prompt: ceilings to measure, nothing to serve."""
PROPOSERS = ("chain", "wtree", "graph", "order")
LOSSLESS = (*PROPOSERS, *ORACLES)
"""Methods whose outputs equal standard decoding's, whatever their options."""
DRAFTING = (*PROPOSERS, "sets", *ORACLES)
"""Methods that draft: over standard decoding, and ``sets`` over threshold decoding."""

_COMMON = {
    "method",
    "confidence",
    "temperature",
    "coupled",
    "top_k",
    "top_p",
    "seed",
    "max_new_tokens",
    "ignore_stop",
    "cache_refresh",
    "batch_size",
}
_DRAFTING = _COMMON | {"cap", "budget", "cross_block", "draft_refresh"}
OPTIONS_OF: dict[str, set[str]] = {
    "standard": _COMMON | {"cap"},
    "threshold": _COMMON | {"tau", "edit_tau", "edit_passes"},
    "chain": _DRAFTING,
    "wtree": _DRAFTING | {"width"},
    "graph": _DRAFTING | {"prune"},
    "order": _DRAFTING | {"gamma", "hedge"},
    "sets": (_DRAFTING - {"cap"}) | {"tau", "rule", "gamma"},
    "simsd": (_COMMON | {"cap", "gamma", "order", "rest", "verify"}) - {"cache_refresh"},
    **dict.fromkeys(ORACLES, _DRAFTING),
}


GAMMA_OF = {
    "order": "a mass floor, from 0 to below 1",
    "sets": "a mass floor, from 0 to below 1",
    "simsd": "a whole number of draft tokens, 0 for the whole block",
}
"""What ``gamma`` is to the methods that know it; a value above 0 never fits both."""


def takes(method: str, option: str, value: object = None) -> bool:
    """Whether a value shared by several methods is one for ``method``: it must know the option,
    and ``gamma`` must have the meaning that it has there."""
    if option not in OPTIONS_OF.get(method, set()):
        return False
    if option != "gamma" or value is None:
        return True
    try:
        return gamma_fits(method, float(str(value)))
    except ValueError:
        return True  # not a number: the validation of the field says so


def gamma_fits(method: str, gamma: float) -> bool:
    """Whether ``gamma`` is what the method calls so."""
    return gamma.is_integer() if method == "simsd" else gamma < 1


class DecodeOptions(BaseModel, frozen=True):
    """How to decode (``decode.*`` of a configuration)."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    method: Method = "standard"
    """How a block is filled: draft-free, or with the drafts of a proposer."""
    budget: Budget = 8
    """Most drafts D that ride in one verification forward; ``auto`` decides it in every round, from
    the measured cost of a forward."""
    cross_block: bool = False
    """A draft that fills its block goes on into the next one: copies of that ride behind it, and
    when it is accepted the next block needs no forward to open. Block-causal targets only."""
    draft_refresh: int = Field(default=0, ge=0)
    """Once at most so many positions of a block are masked, the next block's masked copy rides
    behind the likeliest fill, so that the next block begins with drafts; 0 is off. Block-causal
    targets only."""
    gamma: float = Field(default=0.0, ge=0)
    """For order and sets a mass floor below 1: drafts of smaller mass are not verified
    (SPOT-gamma). For simsd the tokens that the small model drafts before the target verifies; 0 is
    the whole block."""
    hedge: float = Field(default=0.6, ge=0, le=1)
    """Below this top-1 probability a position's second candidate is drafted too."""
    width: int = Field(default=3, ge=1, le=32)
    """Children of a node of the breadth-first tree (wtree)."""
    prune: float = Field(default=0.0, ge=0, lt=1)
    """Graph drafts whose fills have a smaller geometric mean probability are not verified."""
    cap: float = Field(default=1.0, ge=0, le=1)
    """Confidence counts as at most this (capped order); 1 is off, 0 is left to right."""
    order: AcceptOrder = "temporal"
    """Draft tokens are accepted in the order in which they were drafted, or from left to right (the
    release's way, without a guarantee)."""
    rest: Rest = "redraft"
    """What becomes of the draft behind the first rejected token: drafted again, or filled at once
    with the target's or the small model's most likely tokens (no guarantee, one forward a
    block)."""
    verify: Verify = "mask"
    """The target verifies a draft in one forward under SimSD's temporal mask, which approximates
    the states that it stands for, or as a batch of exactly these states (lossless)."""
    tau: float = Field(default=0.9, ge=0, lt=1)
    """Threshold decoding commits every position whose confidence is above tau."""
    edit_tau: float = Field(default=1.0, ge=0, le=1)
    """Tokens of the active block are replaced while the target prefers others with a confidence
    above this (LLaDA2.1's editing threshold); 1 is off."""
    edit_passes: int = Field(default=16, ge=0, le=64)
    """Most forwards that go on replacing tokens of a block once it is full. Bounded: a block whose
    tokens keep changing places would never end."""
    rule: Acceptance = "exact"
    """Which drafted steps count over threshold decoding (sets): only its own (``exact``); the most
    confident part of it (``cut``); any part of it (``subset``); any with its tokens whose
    confidences have a geometric mean of tau (``product``). All but ``exact`` are approximate."""
    confidence: Confidence = "top1"
    """Rank positions by their most likely token, or by the chosen (drawn) one."""
    temperature: Temperature = 0.0
    """0 takes the most likely token; above 0 tokens are drawn, with noise of the seed."""
    coupled: bool = True
    """Draw with noise of (seed, position, token) alone, which drafts share; off, the noise depends
    on the number of fills too, so that every step draws anew (the ablation of independent-sample
    verification)."""
    top_k: int = Field(default=0, ge=0)
    """Sample among the k most likely tokens; 0 is off."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sample among the most likely tokens that together hold this probability; 1 is off."""
    seed: int = 0
    """Decides, with a row's id, the noise of every row that has no seed of its own."""
    max_new_tokens: int = Field(default=256, ge=0)
    """Most tokens of an answer; a row's own limit wins."""
    ignore_stop: bool = False
    """Go on behind stop ids, up to the limit."""
    cache_refresh: int = Field(default=0, ge=0)
    """Bidirectional targets (LLaDA, Dream) keep keys and values of prompt and finished blocks from
    the last forward that saw them, and compute them anew every so many blocks; whatever is decoded
    so is approximate. 0 keeps nothing: exact."""
    batch_size: int = Field(default=1, ge=1)
    """Requests that share a forward."""

    @model_validator(mode="after")
    def _options_of_the_method(self) -> "DecodeOptions":
        unknown = sorted(self.model_fields_set - OPTIONS_OF[self.method])
        if unknown:
            valid = ", ".join(sorted(OPTIONS_OF[self.method]))
            raise ValueError(
                f"decode.{unknown[0]} is not an option of method {self.method}; valid: {valid}"
            )
        if self.cache_refresh and self.drafts and self.budget == "auto":
            raise ValueError(
                "decode.budget auto: it knows what forwards cost without decode.cache_refresh "
                f"({self.cache_refresh}) only; give a number of drafts"
            )
        if self.method in GAMMA_OF and not gamma_fits(self.method, self.gamma):
            raise ValueError(
                f"decode.gamma {self.gamma:g}: for method {self.method} it is "
                f"{GAMMA_OF[self.method]}"
            )
        if self.verify == "exact" and (self.order, self.rest) != ("temporal", "redraft"):
            raise ValueError(
                "decode.verify exact accepts what the target itself commits, in its order; "
                f"decode.order {self.order} and decode.rest {self.rest} are of verify mask"
            )
        return self

    @classmethod
    def lenient(cls, **values: object) -> "DecodeOptions":
        """Options from shared values: those that are none of the method's are left out."""
        method = str(values.get("method", "standard"))
        known = {key: values[key] for key in values if takes(method, key, values[key])}
        return cls.model_validate(known | {key: values[key] for key in values if key == "method"})

    @property
    def drafts(self) -> bool:
        """Whether the method proposes drafts."""
        return self.method == "simsd" or (self.method in DRAFTING and self.budget != 0)

    @property
    def masked(self) -> bool:
        """Whether drafts are verified under a mask that only approximates their states."""
        return self.method == "simsd" and self.verify == "mask"

    @property
    def edits(self) -> bool:
        """Whether a token of the active block may still change."""
        return self.method == "threshold" and self.edit_tau < 1

    @property
    def reads_hidden(self) -> bool:
        """Whether its drafter reads the target's hidden states."""
        return self.method == "sets" and self.drafts

    @property
    def over_threshold(self) -> bool:
        """Whether a step is what threshold decoding commits, rather than one position."""
        return self.method in ("threshold", "sets")

    @property
    def lossless(self) -> bool:
        """Whether it commits nothing that its own draft-free run would not."""
        return self.rule == "exact"

    @property
    def promises_equality(self) -> bool:
        """Whether what comes out is promised to be, token by token, what the target itself writes
        by the same rule: the one place that decides between ``exact`` and ``approximate``."""
        return self.lossless and not self.masked and not self.cache_refresh

    def commit_rule(self) -> dict[str, object]:
        """What decides a trajectory, apart from the noise: two runs that agree on it (and on
        target, prompt, seed and dtype) commit the same tokens in the same order."""
        rule: dict[str, object] = {
            "rule": "threshold" if self.over_threshold else "standard",
            "confidence": self.confidence,
            "temperature": self.temperature,
            "max_new_tokens": self.max_new_tokens,
            "ignore_stop": self.ignore_stop,
        }
        if self.temperature > 0:
            rule |= {"top_k": self.top_k, "top_p": self.top_p, "coupled": self.coupled}
        if self.cache_refresh:
            rule["cache_refresh"] = self.cache_refresh
        rule |= {"tau": self.tau} if self.over_threshold else {"cap": self.cap}
        if self.edits:
            rule |= {"edit_tau": self.edit_tau, "edit_passes": self.edit_passes}
        return rule

    def draft_free(self) -> "DecodeOptions":
        """The same run without drafts: the baseline, whose outputs a lossless method equals."""
        method = "threshold" if self.over_threshold else "standard"
        return DecodeOptions.lenient(**(self.model_dump() | {"method": method}))
