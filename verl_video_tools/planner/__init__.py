"""An estimate of the tokens and the memory that a GRPO run needs (`vvt plan`)."""
