# A first study, cell by cell: run it as a script, or open it as a notebook (cells begin with `# %%`).
#
# The runs here take seconds and are far too small to learn anything. For real ones, leave `steps` and `settings` out:
# the preset then sets their size.

# %% What there is to compare
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import staleharness as sh

methods = pd.DataFrame(sh.list_algorithms())
print(methods.loc[methods["core"], ["name", "summary"]].to_string(index=False))

# %% A sweep
# Every algorithm × capacity × seed is a run in a process of its own. K is how many past versions of the policy act at
# once: K = 1 is synchronous training, K = 4 makes the data up to three phases old. What is stored in `out` is not run
# again, so this cell may be run as often as you like.
tiny = {"num_envs": 4, "num_steps": 64, "epochs": 2, "minibatches": 4, "evaluations": 2, "final_episodes": 2}
results = sh.sweep(
    env="Pendulum", k=[1, 4], algo=["ppo_clip", "spo"], seeds=2, steps=1024, settings=tiny, out="first_study"
)
print(len(results), "runs")

# %% The table
# Interquartile mean of the normalised scores with its interval, and how stale the data were.
table = results.table()
print(table.frame()[["algorithm", "capacity", "iqm", "iqm_low", "iqm_high", "lag_mean", "ess"]].round(3).to_string())
print("\n".join(table.notes))

# %% A figure
# Every figure of the report can be drawn by name, and each of its panels into axes of your own. Everything else that a
# run recorded, phase by phase, is in a data frame.
sh.draw("lag_histogram", results).savefig("lag_histogram.png")

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
sh.draw_panel("learning_curves", results, left, k=4)
left.legend(frameon=False)
metrics = results.metrics()
for name, phases in metrics[metrics["K"] == 4].groupby("algorithm"):
    mean = phases.groupby("steps")["tv_data"].mean()
    right.plot(mean.index, mean, label=name)
right.set(xlabel="environment steps", ylabel="TV distance of the data", title="How stale the data are, K = 4")
right.legend(frameon=False)
fig.savefig("first_study.png", bbox_inches="tight")

# %% Phase by phase
# The same run in this process, one phase at a time: look into it, stop when you like. Nothing is stored.
for phase in sh.simulate(env="Pendulum", algo="spo", k=4, steps=1024, **tiny):
    lags = phase.metrics["lag_histogram"]
    print(f"phase {phase.metrics['phase']}: decisions by lag {lags}, ESS {phase.metrics['ess_data']:.3f}")

# %% An algorithm of your own
# It has to be in a file, because every run is a process of its own, and because a run's id depends on the code. In a
# notebook, `%%writefile my_idea.py` does the same; `staleharness new algorithm my_idea` writes one to start from.
Path("my_idea.py").write_text('''
from dataclasses import dataclass

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import importance_ratio


@ALGORITHMS.register("my_idea")
@dataclass(frozen=True)
class MyIdea(Algorithm):
    """w·A with the importance weight truncated at `cap`."""

    paper = "unpublished"
    cap: float = 1.2

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        ratio = importance_ratio(d.target_logp, d.behaviour_logp)
        return PolicyLoss(-ratio.clamp(max=self.cap) * d.advantage)
''')
mine = sh.sweep(
    env="Pendulum",
    k=4,
    algo=["my_idea", "my_idea[cap=2.0]", "ppo_clip"],
    seeds=1,
    steps=1024,
    settings=tiny,
    out="first_study",
    plugin="my_idea.py",
)
print(mine.runs[["algorithm", "seed", "lag_mean", "ess_data"]].round(3).to_string(index=False))

# %% Later
# Results are files: read them in another notebook, or with `staleharness report --out first_study`. So are published
# ones, of runs long enough to learn: the share of its score without lag that each method retains at K = 8.
print(len(sh.load("first_study")), "runs are stored")
published = sh.load("results/reference/quick_hopper").table()
at_lag = published.frame().query("capacity == 8").sort_values("retained", ascending=False)
print(at_lag[["algorithm", "raw_mean", "retained", "retained_low", "retained_high"]].round(2).to_string(index=False))
print("\n".join(published.answers))
