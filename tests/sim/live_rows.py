"""Rows of LazyBatching's Fig. 17 that no machine measured, for tests of what becomes of them."""

from headrace.sim.experiments.lazybatching.rows import LiveRow

# Mean latency (ms) and share late, by load and policy: lazy, and graph by window.
RUNS = {
    (0.3, "lazy", 0.0): (10.0, 0.1),
    (0.3, "graph", 0.0): (12.0, 0.2),
    (0.3, "graph", 5.0): (80.0, 0.9),
    (0.9, "lazy", 0.0): (20.0, 0.3),
    (0.9, "graph", 0.0): (50.0, 0.8),
    (0.9, "graph", 5.0): (60.0, 0.7),
}


def live_rows():
    return [
        LiveRow(
            "a core", load, 10.0 * load, 0, policy, window, 4 * window, 25.0, 50, mean, 2 * mean, late, mean, late, 1.0
        )
        for (load, policy, window), (mean, late) in RUNS.items()
    ]


def measure_of(experiment):
    """Return what stands in for a machine at an experiment with measured figures; None at all others."""
    if not experiment.measured:
        return None

    def measure(figure, scale, progress):
        assert figure == "17"
        progress.stage("live", len(RUNS))
        return live_rows()

    return measure
