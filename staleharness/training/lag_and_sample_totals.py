"""A run's accounts: lags of the data as assigned, generated and trained on, and the ledger of all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .lag_stats import add_histograms, first_and_last_lags, lag_stats, mean_lag
from .sample_ledger import UNITS, Count, Flow, Ledger

if TYPE_CHECKING:
    from .base_learner import Learner
    from .phase_record import PhaseData
    from .version_assignment import Lags

KINDS = ("assigned", "realised", "trained")
TOTALS = ("sequences/", "decisions/")  # cumulative columns, whose mean has no meaning
# Beginnings of columns that the checksum of a run's metrics leaves out.
ACCOUNTS = ("lags/", "gradient_lags/", "untrained/", "mismatch/", "eval_complete_right", *TOTALS)


class Accounts:
    """Totals over a run: the ledger, and three histograms of lags in phases, of rows as assigned and of decisions as
    realised (all that were due in a phase) and as trained on. Histograms leave out the phases that fill the buffer."""

    def __init__(self, fill_phases: int = 0) -> None:
        self.fill_phases = fill_phases
        self.ledger = Ledger()
        self.histograms: dict[str, list[int]] = {kind: [] for kind in KINDS}

    def enter(
        self, phase: int, gradient_steps: int, learner: Learner[Any, Any], phase_data: PhaseData[Any], lags: Lags
    ) -> dict[str, Any]:
        """Add a phase and return its metrics; `gradient_steps` were done when it began. Raises `RuntimeError` where the
        accounts do not close."""
        flow, assigned_lags, reused = phase_data.flow, lags.assigned_lags(phase), None
        first_epoch_decisions = learner.first_epoch_decisions
        columns: dict[str, Any] = {
            "lags/assigned": mean_lag(assigned_lags),
            **first_and_last_lags(learner.first_lags, learner.last_lags),
        }
        if learner.rows is None:  # a kind of task that sets no rows: all of its data is there to be trained on
            rows = phase_data.behaviour_logp
            handed_count = flow.generated if flow else Count(len(rows)).rows(rows.shape[1])
            trained, realised_lags, trained_lags = Count(handed_count.sequences, first_epoch_decisions), [], []
        else:
            stats = lag_stats(learner.rows, phase, gradient_steps)
            handed_count, realised_lags, trained_lags = stats.handed_count, stats.handed_lags, stats.trained_lags
            trained = stats.trained_count
            columns |= stats.columns
            if trained.decisions != first_epoch_decisions:
                raise RuntimeError(
                    f"phase {phase} trained on {first_epoch_decisions} decisions in its first epoch, and "
                    f"{trained.decisions} were there to be trained on; please report it"
                )
        flow = flow or Flow(handed_count)
        if learner.rows is not None and (before := flow.trained_before) is not None:
            now = before.new_ones(before.shape) if learner.rows.trained is None else learner.rows.trained > 0
            reused = Count(int((before.any(1) & now.any(1)).sum()), int((before & now).sum()))
        realised_lags = add_histograms(realised_lags, flow.dropped_lags)
        if learner.rows is not None:
            columns["lags/realised"] = mean_lag(realised_lags)
            columns["lags/at_cap"] = sum(trained_lags[lags.cap :]) / max(1, sum(trained_lags))
        if phase >= self.fill_phases:
            for kind, counts in {"assigned": assigned_lags, "realised": realised_lags, "trained": trained_lags}.items():
                self.histograms[kind] = add_histograms(self.histograms[kind], counts)
        return columns | self.ledger.enter(phase, flow, handed_count, trained, reused)

    def record(self) -> dict[str, Any]:
        """Return the accounts in `run.json`: {"lags": {kind: {lag: count}}, "ledger": {unit: {entry: count}}}."""
        totals = self.ledger.totals
        return {
            "lags": {kind: {str(lag): n for lag, n in enumerate(counts)} for kind, counts in self.histograms.items()},
            "ledger": {
                unit: {key.partition("/")[2]: n for key, n in totals.items() if key.startswith(f"{unit}/")}
                for unit in UNITS
            },
        }

    def state_dict(self) -> dict[str, Any]:
        return {"totals": dict(self.ledger.totals), "histograms": dict(self.histograms)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.ledger.totals, self.histograms = dict(state["totals"]), dict(state["histograms"])
