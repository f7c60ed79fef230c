"""Where every row and every decision went. Both accounts close exactly."""

from __future__ import annotations

import numpy as np

from .lag import masked, stretch_lengths, trained_rows
from .log import FATES, Record


def ledger(record: Record) -> dict[str, dict[str, int]]:
    """`rows` that began and `tokens` that were made, over the whole run: generated = the sum of all the others.

    `masked` were taken by the trainer and left out of the loss; `lost` are decisions that a failure took, whose
    rows are made again. Raises `ArithmeticError` where an account does not close, which would be a mistake of ours.
    """
    rows, tokens = (
        {name: int(n) for name, n in zip(FATES, np.bincount(record.fate, weights, len(FATES)), strict=True)}
        for weights in (None, record.done)
    )
    hidden = masked(record)
    rows["masked"] = rows["trained"] - int(trained_rows(record).sum())
    tokens["masked"] = int(stretch_lengths(record)[hidden].sum())
    for account in (rows, tokens):
        account["trained"] -= account["masked"]
    tokens["lost"] = record.lost
    accounts = {
        "rows": {"generated": len(record.slot), **rows},
        "tokens": {"generated": int(stretch_lengths(record).sum()) + record.lost, **tokens},
    }
    for name, account in accounts.items():
        if account["generated"] != sum(account.values()) - account["generated"]:
            raise ArithmeticError(f"the account of {name} does not close: {account}")
    return accounts
