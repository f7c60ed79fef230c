"""Parts of the benchmarks that run on any machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from needs import require_extra

require_extra("llm")

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

import acting  # noqa: E402
import bench_table  # noqa: E402
import checkpoints  # noqa: E402
import generating  # noqa: E402
import gpu  # noqa: E402
import in_flight  # noqa: E402
import mismatch  # noqa: E402
import reading  # noqa: E402
import start  # noqa: E402
import stepping  # noqa: E402
import sweeps  # noqa: E402
import training  # noqa: E402
import trl_grpo  # noqa: E402


def test_the_gpu_benchmark_says_in_one_line_that_there_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main([]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1 and "no CUDA device" in said.err


@pytest.mark.long
def test_the_gpu_benchmark_runs_with_a_tiny_model_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_here(words: list[str], **streams: int) -> SimpleNamespace:
        """A process of its own loads torch for seconds."""
        assert words[:2] == [sys.executable, gpu.__file__]
        code = gpu.main(words[2:])
        return SimpleNamespace(wait=lambda: code)

    monkeypatch.setattr(gpu, "subprocess", SimpleNamespace(Popen=run_here, DEVNULL=subprocess.DEVNULL))
    fills, mode = torch.utils.deterministic.fill_uninitialized_memory, torch.get_deterministic_debug_mode()  # type: ignore[attr-defined]
    cudnn_sdp = torch.backends.cuda.cudnn_sdp_enabled()
    words = f"--tiny --rounds 1 --versions 3 --micro-batch 4 --out {tmp_path}".split()
    try:
        assert gpu.main(words) == 0
        assert not torch.backends.cuda.cudnn_sdp_enabled()  # as in a worker
    finally:
        torch.backends.cuda.enable_cudnn_sdp(cudnn_sdp)
        torch.set_deterministic_debug_mode(mode)
        torch.utils.deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]
    record = json.loads((tmp_path / "cpu_tiny.json").read_text())
    assert (
        record["command"] == f"python benchmarks/gpu.py --rounds 1 --versions 3 --micro-batch 4 --out {tmp_path} --tiny"
    )
    assert record["micro_batch"] == 4
    assert record["finite"]
    assert record["deterministic"] and record["gradient_checkpointing"]  # as `PRESET=paper` is run by a worker
    assert record["with_past_versions"]["K"] == 3
    assert record["with_room_for_a_quarter"]["K"] == 3 and record["with_room_for_a_quarter"]["together"] == 1
    assert record["evaluation_seconds_per_problem"] > 0 < record["checkpoint"]["save_seconds"]
    assert len(record["two_runs_on_the_gpu"]["seconds_per_round"]) == 2
    assert record["with_weights_that_change_every_128_tokens"]["seconds_per_round"]["learn"] > 0
    assert record["complete"]
    assert record["generated_tokens_per_second"] > 0 < record["trained_tokens_per_second"]
    assert 0 < record["share_of_matrix_peak"] < 1
    # 2 layers of 16: q 16x16, k and v 16x8, o 16x16, three matrices of 16x32; 12 prompt tokens read once, 30 new ones
    inside = 2 * (256 + 128 + 128 + 256 + 3 * 512)
    context = 12 * 3 + 30 * (6 + 2.5)
    wanted = 3 * (2 * inside * 42 + 2 * 16 * 60 * 30 + 4 * 16 * 2 * context)
    seconds = record["seconds_per_round"]["train"]
    assert record["training_tflops"] == pytest.approx(wanted / seconds / 1e12, rel=0.05, abs=1e-6)


def test_rows_of_all_benchmarks_are_one_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BENCH_TABLE", str(tmp_path / "bench.txt"))
    bench_table.show("a sweep over its bare runs", [1.0, 0.9, 1.5], "<= 1.02")
    bench_table.show("plan, 10,000 runs", [12.0, 11.0], "<= 10", "s", least=True)
    bench_table.show("training / cleanrl", [2.0], "physics alone: 7 x")
    said = capsys.readouterr().out
    assert (tmp_path / "bench.txt").read_text() == said
    cells = [line.split("  ") for line in said.splitlines()]
    assert [[cell.strip() for cell in row if cell.strip()] for row in cells] == [
        ["a sweep over its bare runs", "1 x", "0.9 to 1.5", "3", "<= 1.02"],
        ["plan, 10,000 runs", "11 s", "11 to 12", "2", "<= 10", "NOT KEPT"],
        ["training / cleanrl", "2 x", "1", "physics alone: 7 x"],
    ]


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ("a sweep over its bare runs  1 x  3  <= 1.02", 0),
        ("plan, 10,000 runs  11 s  2  <= 10  NOT KEPT", 1),
        ("sweeps: failed", 1),
    ],
)
def test_bench_exits_with_1_if_a_row_breaks_its_limit(tmp_path: Path, row: str, code: int) -> None:
    (table := tmp_path / "bench.txt").write_text(f"training / cleanrl  2 x  1  physics alone: 7 x\n{row}\n")
    assert bench_table.main(str(table)) == code


def test_the_table_says_what_a_value_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (table := tmp_path / "bench.txt").write_text("list  0.35 s  7  <= 0.5\n")
    bench_table.main(str(table))
    assert "ratios are medians, seconds the smallest value, memory the largest\n" in capsys.readouterr().out


def page_rows() -> dict[str, tuple[str, str]]:
    """Rows of the page of speeds: measurement -> (value, limit)."""
    page = (Path(__file__).resolve().parents[1] / "docs/performance.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    return {row[0]: (row[1], row[-1]) for row in rows}


@pytest.mark.parametrize(
    ("what", "limit"),
    [
        ("the same with `learner=native`, to CleanRL", f"at least {training.BARS['native', 'cleanrl']:g}"),
        ("the same with `learner=compiled`", f"at least {training.BARS['compiled', 'cleanrl']:g}"),
        ("the same, `learner=compiled` to sbx", f"at least {training.BARS['compiled', 'sbx']:g}"),
        ("the geometry of a default sweep", f"at least {training.LEAST_OF_A_SWEEP:g}"),
        ("the same, `learner=compiled` to torch", f"at least {training.LEAST_OF_A_SWEEP:g}"),
        ("a vector step of 500 Hoppers", f"at most {acting.MOST:g} "),
        ("a sweep to the same training loops", f"at most {1 + sweeps.MAX_OVERHEAD:g}"),
        ("two workers to one", f"at least {sweeps.LEAST_SPEEDUP:g}"),
        (
            "the same with `learner=native`, wall",
            f"at least {trl_grpo.LEAST:g}; {trl_grpo.LEAST_LARGE:g}, 2 (processor time)",
        ),
        ("sampling from SmolLM2-135M with `decoder=native`", f"at least {generating.LEAST:g}"),
        ("a phase of word-problems", f"at most {in_flight.MOST:g} "),
        ("a phase with `MISMATCH=int4`", f"at most {mismatch.MOST:g} "),
        ("a sweep's first line", f"{start.PATIENCE:g} s"),
        ("planning 10,000 runs", f"{sweeps.LIMITS['plan']:g} s, {sweeps.MAX_MEMORY:g} MB"),
        ("report of 1,000 runs", f"{reading.LIMITS[1000]:g} s; {reading.LIMITS[10_000]:g} s, {sweeps.MAX_MEMORY:g} MB"),
        ("figures of VACO", f"{reading.GALLERY:g} s"),
    ],
)
def test_the_page_has_the_limits_that_make_bench_enforces(what: str, limit: str) -> None:
    (found,) = (row[1] for name, row in page_rows().items() if name.startswith(what))
    assert f"{found} ".startswith(limit) or found == limit


def test_the_values_on_the_page_keep_their_limits() -> None:
    rows = {what: row for what, row in page_rows().items() if row[1].startswith("at ")}
    assert len(rows) >= 10
    for what, (value, limit) in rows.items():
        sign = "<=" if limit.startswith("at most") else ">="
        values, bounds = (re.findall(r"\d+(?:\.\d+)?", text.partition("(")[0]) for text in (value, limit))
        for number, bound in zip(values, bounds if len(bounds) > 1 else bounds * len(values), strict=True):
            assert bench_table.holds(float(number), f"{sign} {bound}"), what


def test_stepping_has_rows_of_all_peers_and_enforces_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ant reaches 0.98 of a loop of `mj_step`, which lacks the contact forces that it observes."""
    ratios = np.tile([[0.98, 0.98], [1.05, 1.05], [2.5, 1.2]], (3, 1, 1))
    monkeypatch.setattr(stepping, "measure", lambda *_: (ratios, 1000.0))
    monkeypatch.setattr(sys, "argv", ["stepping.py", "--quick", "--only", "Ant-v5"])
    stepping.main()
    said = capsys.readouterr().out
    assert "NOT KEPT" not in said and ">=" not in said
    for name, value in (("mj_step", "0.98"), ("needed physics", "1.05"), ("SyncVectorEnv", "2.5")):
        (row,) = (line for line in said.splitlines() if f"/ {name}, wall" in line)
        assert f" {value} x " in row


def test_grpo_limits_are_of_native_learners_by_processor_time(capsys: pytest.CaptureFixture[str]) -> None:
    ours, trl = [{"rate": 2.0, "cpu": 1.0}] * 2, [{"rate": 1.0, "cpu": 2.6}] * 2
    for learner in ("native", "torch"):
        trl_grpo.show_rows(trl_grpo.Size(learner=learner), ours, trl)
    wall, cpu, torch_wall, torch_cpu = capsys.readouterr().out.splitlines()
    assert "wall time" in wall and " 2 x " in wall and ">=" not in wall
    assert "processor time" in cpu and " 2.6 x " in cpu and cpu.endswith(">= 2.5")
    assert ">=" not in torch_wall + torch_cpu


def test_what_checkpoints_of_a_simulated_run_cost() -> None:
    run = (1.0, 1.0, 2, 100.0)  # each phase of 100 s is longer than 30 s and than 19 times what is written in it
    apart, share, hourly, stop, there = checkpoints.simulate(run, 1.0, separate=False)
    assert apart == pytest.approx(103) and share == pytest.approx(100 * 3 / 103, rel=0.01)
    assert hourly == pytest.approx(3 * 3600 / 103, rel=0.01) and stop == pytest.approx(3) and there == 9.0
    apart, share, _, stop, there = checkpoints.simulate(run, 1.0, separate=True)
    assert apart == pytest.approx(102) and share == pytest.approx(100 * 2 / 102, rel=0.01)
    assert stop == pytest.approx(2, rel=0.01) and there == 3 + 2 + 2 * 1


def test_versions_of_their_own_are_written_once(tmp_path: Path) -> None:
    for separate, megabytes in ((False, 16 + 1), (True, 4 + 1)):  # 1 MB each; weights are one more
        (folder := tmp_path / f"{separate}").mkdir()
        size, _, _ = checkpoints.write(folder, separate, fresh=4, numbers=250_000)
        assert size == pytest.approx(megabytes * 1e6, rel=0.02)
