"""A finished run is found by its id, by its first digits and by its folder; what names none is one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from results_helper import write_run

from staleharness.errors import UserError
from staleharness.store.run_selection import find_run


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of two runs in `results` of the working folder, which also holds an unfinished run and a file."""
    monkeypatch.chdir(tmp_path)
    ids = sorted(write_run(Path("results"), seed=seed).id for seed in range(2))
    (tmp_path / "results" / "attempts" / ("0" * 12)).mkdir(parents=True)
    (tmp_path / "file").touch()
    return ids


def test_a_run_is_found_by_id_first_digits_and_folder(place: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = place
    same = next(i for i in range(12) if first[i] != second[i])
    for text in (first, first[: same + 1], f"results/runs/{first}", f"results/runs/{first}/"):
        assert find_run(text, "results").id == first
    monkeypatch.chdir(Path("results/runs") / second)
    assert find_run(".", "nowhere").id == second
    monkeypatch.chdir("..")
    assert find_run(second, "nowhere").id == second


def test_what_names_no_run_is_one_line_with_what_there_is(place: list[str]) -> None:
    first, second = place
    typo = first[:-1] + ("0" if first[-1] != "0" else "1")
    holds = f"holds {first}, {second}"
    for text, words in {
        typo: f"there is no finished run with that id in results; did you mean '{first}'?",
        f"results/runs/{typo}": f"RUN=results/runs/{typo} does not exist; did you mean '{first}'?",
        "results/runs/nope": f"RUN=results/runs/nope does not exist; results/runs {holds}",
        "nope": f"RUN='nope': there is no finished run with that id in results; it {holds}",
        "runs/nope": "RUN=runs/nope does not exist; there is no folder runs",
        "results": f"RUN=results is not the folder of a run; it {holds}",
        ".": "RUN=. is not the folder of a run; give the id of a run, or its folder results/runs/<id>",
        "file": "RUN=file is a file; give the id",
        "0" * 12: "RUN=000000000000 is not finished; `staleharness status` says how far it is",
        "results/attempts/" + "0" * 12: "RUN=000000000000 is not finished",
        "/0123456789ab": "RUN=/0123456789ab does not exist",
    }.items():
        with pytest.raises(UserError) as caught:
            find_run(text, "results")
        assert words in str(caught.value)
    with pytest.raises(UserError, match="OUT=nowhere is not a folder of results"):
        find_run("nope", "nowhere")
