"""Tables as text: names that do not fit are cut so that they stay different."""

from __future__ import annotations

from staleharness.base.table_formatting import shorten_names


def test_names_that_differ_at_the_end_stay_different() -> None:
    names = [f"ppo_clip[learning_rate={rate}]" for rate in ("0.0001", "0.0003", "0.001")] + ["vaco"]
    short = shorten_names(names, 16)
    assert short == ["ppo_c…te=0.0001]", "ppo_c…te=0.0003]", "ppo_c…ate=0.001]", "vaco"]
    assert all(len(name) <= 16 for name in short)


def test_names_that_differ_early_are_cut_at_the_end() -> None:
    assert shorten_names(["decoupled_ppo[x=1]", "tis[cap=1.0]"], 10) == ["decoupled…", "tis[cap=1…"]
    assert shorten_names(["a", "a"], 5) == ["a", "a"]  # rows of one method
