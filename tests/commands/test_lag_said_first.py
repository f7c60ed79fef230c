"""A plan that is too short for its lag says so before anything runs."""

from __future__ import annotations

import json

from command_line import Cli


def test_a_dry_run_says_it_in_words_and_as_data(call: Cli) -> None:
    asked = ("sweep", "--env", "bit-chain", "--k", "8", "--steps", "4", "--algo", "spo", "--seeds", "1", "--dry")
    code, out, _ = call(*asked)
    assert "1 of 1 run to do" in out.splitlines()[0]
    assert code == 0 and "note: less lag than it looks: LAG=uniform at K=8 has a mean lag of 3.50 phases" in out
    code, out, err = call(*asked, "--json")
    (note,) = json.loads(out)["notes"]
    assert code == 0 and "of 0.75 over the 4 phases of a run" in note and f"note: {note}" in err
