# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Howard's policy iteration for batch-service queues, with banded linear systems. The model is that of model.py.

Rule: this file computes with numbers only. Their meaning and all checks of input are outside.

States are numbered s * F + phase with s = 0 ... s_max and S_o = s_max + 1, where F is the number of phases. Under a
policy the row of a state in I - P has few entries. They lie around (queue length after service + expected arrivals), so
the linear systems are banded. One state that is visited often, the `reference`, is taken out: its row becomes that of
I, so its relative value is 0. The rest is a nonsingular M-matrix, which is eliminated without pivoting. The solution
gives cost and time until the reference is reached. Their ratio is the average cost (renewal-reward). The transposed
system gives the expected visits to each state between two visits to the reference.

Pivots are not computed by subtraction, but as sums of the probabilities of leaving. So times and visits have full
relative accuracy, although they may differ by a factor of 1e90. Source: Grassmann, Taksar, Heyman, Operations Research
33(5), 1985.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, exp, fabs, lgamma, log

import numpy as np

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__)
    #define FOR_EACH_VECTOR_UNIT __attribute__((target_clones("avx512f", "avx2,fma", "default")))
    #else
    #define FOR_EACH_VECTOR_UNIT
    #endif

    /* y[i] -= f * x[i] */
    FOR_EACH_VECTOR_UNIT
    static void subtract_scaled(double *restrict y, const double *restrict x, double f, Py_ssize_t n)
    {
        for (Py_ssize_t i = 0; i < n; i++) y[i] -= f * x[i];
    }

    /* e[i] += sum over k in [first, last] of p[k] * h[i + k]; four at a time, to load and store e a quarter as often */
    FOR_EACH_VECTOR_UNIT
    static void add_expected(double *restrict e, const double *restrict h, const double *restrict p, Py_ssize_t first,
                             Py_ssize_t last, Py_ssize_t n)
    {
        Py_ssize_t k = first;
        for (; k + 3 <= last; k += 4) {
            const double p0 = p[k], p1 = p[k + 1], p2 = p[k + 2], p3 = p[k + 3];
            const double *from = h + k;
            for (Py_ssize_t i = 0; i < n; i++)
                e[i] += p0 * from[i] + p1 * from[i + 1] + p2 * from[i + 2] + p3 * from[i + 3];
        }
        for (; k <= last; k++) {
            const double p0 = p[k];
            const double *from = h + k;
            for (Py_ssize_t i = 0; i < n; i++) e[i] += p0 * from[i];
        }
    }
    """
    void subtract_scaled(double *y, const double *x, double f, Py_ssize_t n) nogil
    void add_expected(double *e, const double *h, const double *p, Py_ssize_t first, Py_ssize_t last, Py_ssize_t n) nogil


def poisson(const double[::1] means, double[:, ::1] pmf, Py_ssize_t[::1] first, Py_ssize_t[::1] last):
    """Fill pmf[a, k] with the Poisson probabilities of means[a].

    Outside [first[a], last[a]] they are below 1e-19, and stay 0. pmf must have room for all of them (`room_for`)."""
    cdef Py_ssize_t a, k, mode
    cdef double mean, peak, value, total
    for a in range(means.shape[0]):
        mean = means[a]
        mode = <Py_ssize_t>mean
        peak = exp(mode * log(mean) - mean - lgamma(mode + 1.0)) if mean > 0 else 1.0
        total = pmf[a, mode] = peak
        value = peak
        k = mode
        while k > 0 and value > 1e-19:
            value *= k / mean
            k -= 1
            pmf[a, k] = value
            total += value
        first[a] = k
        value = peak
        k = mode
        while value > 1e-19 and k + 1 < pmf.shape[1]:
            k += 1
            value *= mean / k
            pmf[a, k] = value
            total += value
        last[a] = k
        pmf[a, mode] += 1.0 - total  # rows sum to 1


def iterate(
    const double[:, ::1] base,
    const double[:, ::1] slope,
    const double[:, ::1] sojourn,
    const double[:, :, :, ::1] arrivals,
    const Py_ssize_t[::1] first,
    const Py_ssize_t[::1] last,
    Py_ssize_t s_max,
    double overflow_cost,
    Py_ssize_t[::1] policy,
    double[::1] values,
    double[::1] visits,
    Py_ssize_t reference,
    bint improve,
    int max_evaluations,
):
    """Improve `policy` in place until it is optimal; without `improve`, only evaluate it.

    Args:
        base, slope, sojourn: By action and phase.
        arrivals: By action, first phase, last phase and count; zero for counts outside first[a] to last[a].
        policy: The action of each state.
        values: Receives the relative values.
        visits: Receives the expected visits to each state between two visits to the reference.

    Returns:
        (average cost, evaluations, reference). evaluations is -1 if `max_evaluations` were not enough.
    """
    cdef Py_ssize_t actions = base.shape[0], phases = base.shape[1]
    cdef Py_ssize_t overflow = s_max + 1, n = (s_max + 2) * phases
    cdef Py_ssize_t a, s, i, j, k, x, f, to, lower, upper, width, max_arrivals, low, high, tried
    cdef double g = 0.0, factor, value, scale, tolerance, keep
    cdef bint stable
    cdef Py_ssize_t[::1] lo = np.empty(n, np.intp), hi = np.empty(n, np.intp)
    cdef double[::1] cost = np.empty(n), time = np.empty(n)
    cdef double[::1] home = np.empty(n)  # probability of going to the reference, where its column is eliminated already
    cdef double[::1] band_store
    cdef double *band
    cdef double *row
    cdef const double *above
    max_arrivals = 0
    for a in range(actions):
        max_arrivals = max(max_arrivals, last[a])
    cdef double[:, ::1] padded = np.empty((phases, s_max + 2 + max_arrivals))
    cdef double[::1] expected = np.empty(s_max + 1)
    cdef double[::1] best = np.empty(n)
    cdef Py_ssize_t[::1] choice = np.empty(n, np.intp)
    cdef int evaluations = 0
    cdef Py_ssize_t closed

    while True:
        # Evaluate. First which columns each row of I - P, and of its factors, occupies.
        evaluations += 1
        lower = upper = 0
        high = 0
        for x in range(n):
            s = min(x // phases, s_max)
            a = policy[x]
            lo[x] = min(x, (s - a + first[a]) * phases if s - a + first[a] < overflow else overflow * phases)
            hi[x] = min(s - a + last[a], overflow) * phases + phases - 1
            if x == reference:
                lo[x] = hi[x] = x
            hi[x] = max(hi[x], x)
            if lo[x] < x:
                hi[x] = max(hi[x], high)
            high = max(high, hi[x])
            lower = max(lower, x - lo[x])
            upper = max(upper, hi[x] - x)
        width = lower + upper + 1
        band_store = np.zeros(n * width)
        band = &band_store[0]
        for x in range(n):
            row = band + x * width + lower - x  # row[c] is column c
            if x == reference:
                row[x] = 1.0
                cost[x] = time[x] = visits[x] = 0.0
                continue
            _spread(row, x, policy[x], s_max, phases, arrivals, first, last, -1.0)
            row[x] += 1.0
            s = min(x // phases, s_max)
            a, f = policy[x], x % phases
            cost[x] = base[a, f] + slope[a, f] * s + (overflow_cost * sojourn[a, f] if x >= overflow * phases else 0.0)
            time[x] = sojourn[a, f]
            visits[x] = 0.0
        closed = -1
        for x in range(n):
            PyErr_CheckSignals()  # Ctrl-C
            row = band + x * width + lower - x
            home[x] = 0.0
            if x == reference:
                continue
            for j in range(lo[x], x):
                if row[j] == 0.0:
                    continue
                if j == reference:
                    home[x] -= row[j]
                    continue
                above = band + j * width + lower - j
                factor = row[j] / above[j]
                row[j] = factor
                subtract_scaled(row + j + 1, above + j + 1, factor, hi[j] - j)
                cost[x] -= factor * cost[j]
                time[x] -= factor * time[j]
                home[x] -= factor * home[j]
            row[x] = home[x]
            for j in range(x + 1, hi[x] + 1):
                row[x] -= row[j]
            if row[x] <= 0.0:
                closed = x
                break
        if closed >= 0:  # the states before it never reach the reference
            reference = closed
            if evaluations < max_evaluations:
                continue
            return g, -1, reference
        for x in range(n - 1, -1, -1):
            row = band + x * width + lower - x
            for j in range(x + 1, hi[x] + 1):
                cost[x] -= row[j] * cost[j]
                time[x] -= row[j] * time[j]
            cost[x] /= row[x]
            time[x] /= row[x]
        # The reference's own step closes the cycle. visits holds its transition probabilities for a moment.
        f = reference % phases
        s = min(reference // phases, s_max)
        a = policy[reference]
        _spread(&visits[0], reference, a, s_max, phases, arrivals, first, last, 1.0)
        visits[reference] = 0.0
        value = base[a, f] + slope[a, f] * s + (overflow_cost * sojourn[a, f] if reference >= overflow * phases else 0.0)
        scale = sojourn[a, f]
        for x in range(n):
            value += visits[x] * cost[x]
            scale += visits[x] * time[x]
        g = value / scale
        for x in range(n):
            values[x] = cost[x] - g * time[x]
        for x in range(n):  # visits: the transposed system
            row = band + x * width + lower - x
            visits[x] /= row[x]
            if visits[x] != 0.0:
                subtract_scaled(&visits[0] + x + 1, row + x + 1, visits[x], hi[x] - x)
        for x in range(n - 1, -1, -1):
            row = band + x * width + lower - x
            for j in range(lo[x], x):
                visits[j] -= row[j] * visits[x]
        visits[reference] = 1.0
        # With a reference that is hardly ever visited, values are small differences of large numbers.
        k = reference
        for x in range(n):
            if visits[x] > visits[k]:
                k = x
        if visits[k] > 1e3:
            reference = k
            if evaluations < max_evaluations:
                continue
        if not improve:
            return g, evaluations, reference
        # Improve: the action with the least cost + expected relative value of what follows.
        scale = 0.0
        for x in range(n):
            scale = max(scale, fabs(values[x]))
        tolerance = 1e-12 * n * (scale + fabs(g) * sojourn[0, 0])
        for f in range(phases):
            for s in range(s_max + 2):
                padded[f, s] = values[s * phases + f]
            for k in range(max_arrivals):
                padded[f, s_max + 2 + k] = padded[f, s_max + 1]
        for x in range(n):
            best[x] = INFINITY
            choice[x] = 0
        for a in range(actions):
            if a > s_max:
                break
            PyErr_CheckSignals()
            for f in range(phases):
                for i in range(s_max + 1 - a):
                    expected[i] = base[a, f] - g * sojourn[a, f] + slope[a, f] * (i + a)
                for to in range(phases):
                    add_expected(
                        &expected[0], &padded[to, 0], &arrivals[a, f, to, 0], first[a], last[a], s_max + 1 - a
                    )
                for i in range(s_max + 1 - a):
                    x = (i + a) * phases + f
                    value = expected[i]
                    if a == policy[x]:
                        value -= tolerance  # keeps what it has where two are equal, or it might go round in circles
                    if value < best[x]:
                        best[x] = value
                        choice[x] = a
                if a > 0:  # to wait in S_o is no policy that serves
                    x = overflow * phases + f
                    value = expected[s_max - a] + overflow_cost * sojourn[a, f]
                    if a == policy[x]:
                        value -= tolerance
                    if value < best[x]:
                        best[x] = value
                        choice[x] = a
        stable = True
        for x in range(n):
            if choice[x] != policy[x]:
                stable = False
                policy[x] = choice[x]
        if stable:
            return g, evaluations, reference
        if evaluations >= max_evaluations:
            return g, -1, reference


cdef void _spread(
    double *row,
    Py_ssize_t x,
    Py_ssize_t a,
    Py_ssize_t s_max,
    Py_ssize_t phases,
    const double[:, :, :, ::1] arrivals,
    const Py_ssize_t[::1] first,
    const Py_ssize_t[::1] last,
    double sign,
) noexcept:
    """row[y] += sign * probability of state y after state x under action a."""
    cdef Py_ssize_t left = min(x // phases, s_max) - a, f = x % phases, k, to, column
    cdef double rest
    for to in range(phases):
        rest = 0.0
        for k in range(first[a], last[a] + 1):
            column = left + k
            if column <= s_max:
                row[column * phases + to] += sign * arrivals[a, f, to, k]
            else:
                rest += arrivals[a, f, to, k]
        if left + last[a] > s_max:
            row[(s_max + 1) * phases + to] += sign * rest
