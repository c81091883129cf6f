"""Test that the placement of models on slices of their own costs no more than an exhaustive search finds."""

import itertools

import pytest
import scipy  # its parts are large, and load when they are used
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.sim.hardware.gpu.mig import GPUS
from headrace.sim.hardware.gpu.power import CPU, FPGA, GPU_PARTS, NODE
from headrace.sim.planner import allocate as allocating
from headrace.sim.planner.allocate import Option, ServerPlan, allocate, headroom
from headrace.sim.system.cost import HOURS_A_YEAR, YEARS, given_prices

GPU = "a100-40gb"
PRICES = given_prices(None)
FEW = (("7g.40gb",), ("3g.20gb", "3g.20gb"), ("1g.10gb", "2g.10gb", "3g.20gb"))


@pytest.fixture(scope="module", autouse=True)
def few_partitions():
    profiles = GPUS[GPU].profiles
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocating, "partitions", lambda gpu, full: [tuple(profiles[n] for n in names) for names in FEW])
        patch.setattr(allocating, "EVEN", 1e-7)
        allocating._different.cache_clear()
        yield
    allocating._different.cache_clear()


def server_kinds(options):
    """Return every possible server: its options with their counts, its CPUs, and whether it has a card."""
    kinds = set()
    for names in FEW:
        choices = [[None, *(i for i, option in enumerate(options) if option.profile == name)] for name in names]
        for chosen in itertools.product(*choices):
            counts = tuple(sum(each == i for each in chosen) for i in range(len(options)))
            kinds |= {(counts, cpus, card) for cpus in (1, 2) for card in (False, True)}
    return sorted(kinds)


def of_servers(options, rates, servers):
    """Return dollars without energy, idle watts, and the least watts of work, by a linear program; None if the rates
    are too high."""
    usd = sum(
        PRICES["node"] + PRICES[GPU] + (cpus - 1) * PRICES["cpu"] + card * PRICES["fpga"] for _, cpus, card in servers
    )
    idle = sum(
        NODE.idle_w + GPU_PARTS[GPU].idle_w + cpus * CPU.idle_w + card * FPGA.idle_w for _, cpus, card in servers
    )
    every = [(s, i) for s in range(len(servers)) for i in range(len(options))]
    limits, most = [], []
    for s, (counts, cpus, card) in enumerate(servers):
        limits.append([options[i].cores / options[i].capacity_rps * (of == s) for of, i in every])
        most.append(32 * cpus - sum(counts))
        limits.append([options[i].cus / options[i].capacity_rps * (of == s) for of, i in every])
        most.append(8 * card)
    if min(most) < 0:
        return None
    done = scipy.optimize.linprog(
        [options[i].watts / options[i].capacity_rps for _, i in every],
        A_ub=limits,
        b_ub=most,
        A_eq=[[float(options[i].model == model) for _, i in every] for model in rates],
        b_eq=list(rates.values()),
        bounds=[(0, servers[s][0][i] * options[i].capacity_rps) for s, i in every],
    )
    return (usd, idle + done.fun) if done.status == 0 else None


def exhaustive(options, rates, gpus, least):
    a_watt = YEARS * HOURS_A_YEAR / 1e3 * PRICES["kwh"]
    best = None
    for count in range(1, gpus + 1):
        for servers in itertools.combinations_with_replacement(server_kinds(options), count):
            found = of_servers(options, rates, servers)
            if found is None:
                continue
            usd, watts = found[0] + a_watt * found[1], found[1]
            key = {"cost": (usd,), "power": (watts,), "gpus": (count, usd)}[least]
            best = key if best is None else min(best, key)
    return best


def check_against_everything(options, rates, gpus, least):
    best = exhaustive(options, rates, gpus, least)
    if best is None:
        with pytest.raises(UsageError, match=r"bind.*Give"):
            allocate(GPU, options, rates, gpus=gpus, least=least, prices=PRICES)
        return
    found = allocate(GPU, options, rates, gpus=gpus, least=least, prices=PRICES)
    check_audio(found, rates)
    mine = {"cost": (found.usd,), "power": (found.watts,), "gpus": (len(found.servers), found.usd)}[least]
    assert found.gap < 1e-5 and mine == pytest.approx(best, rel=1e-5)


def check_audio(found, rates):
    """Slices hold their rates, servers have the cores and the CUs."""
    served = dict.fromkeys(rates, 0.0)
    for server in found.servers:
        cores = cus = 0.0
        assert tuple(name for name, _ in server.slices) == server.partition in FEW
        for (name, option), rate in zip(server.slices, server.rates_rps, strict=True):
            if option is None:
                assert rate == 0
                continue
            assert option.profile == name and rate <= option.capacity_rps * (1 + 1e-6)
            served[option.model] += rate
            cores += 1 + rate * option.cores / option.capacity_rps
            cus += rate * option.cus / option.capacity_rps
        assert cores <= 32 * server.cpus * (1 + 1e-6) and cus <= 8 * server.card + 1e-6
    assert served == pytest.approx(rates, rel=1e-5)


@st.composite
def cases(draw):
    options = {}
    for model in ("a", "b")[: draw(st.integers(1, 2))]:
        for _ in range(draw(st.integers(1, 2))):
            profile = draw(st.sampled_from(["1g.10gb", "2g.10gb", "3g.20gb", "7g.40gb"]))
            way = draw(st.sampled_from(["cpu", "dpu", "ideal"]))
            options[model, profile, way] = Option(
                model,
                profile,
                way,
                draw(st.integers(50, 400)),
                cores=draw(st.integers(1, 40)) if way == "cpu" else 0.0,
                cus=draw(st.integers(1, 60)) / 10 if way == "dpu" else 0.0,
                watts=draw(st.integers(0, 200)),
            )
    rates = {model: float(draw(st.integers(30, 600))) for model in dict.fromkeys(model for model, _, _ in options)}
    return list(options.values()), rates


@settings(max_examples=12, deadline=None)
@given(cases(), st.sampled_from(["cost", "power", "gpus"]))
def test_nothing_is_better_than_what_is_allocated(case, least):
    options, rates = case
    check_against_everything(options, rates, 2 if len(options) <= 2 else 1, least)


def test_cores_are_those_of_a_slices_own_server():
    # (1 + 40) cores each: a pool of two servers would do with three CPUs.
    options = [Option(model, "7g.40gb", "cpu", 100, cores=40) for model in ("a", "b")]
    found = allocate(GPU, options, {"a": 100, "b": 100}, gpus=2, least="cost", prices=PRICES)
    check_audio(found, {"a": 100, "b": 100})
    assert [server.cpus for server in found.servers] == [2, 2] and found.gap == pytest.approx(0, abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(cases())
def test_no_rates_in_these_proportions_go_beyond_the_headroom(case):
    options, rates = case
    try:
        servers = allocate(GPU, options, rates, gpus=2, least="cost", prices=PRICES).servers
    except UsageError:
        return
    kinds = [
        (tuple(sum(each == option for _, each in server.slices) for option in options), server.cpus, server.card)
        for server in servers
    ]
    factor = headroom(servers, rates).factor
    assert factor > 1 - 1e-6
    for share, goes in ((1 - 1e-6, True), (1 + 1e-6, False)):
        most = {model: share * factor * rate for model, rate in rates.items()}
        assert (of_servers(options, most, kinds) is not None) == goes


@pytest.mark.parametrize(
    ("cores", "cus", "rate", "factor", "binds", "of"),
    [
        (10, 0, 50, 2, "slices", "a"),
        (62, 0, 20, 2.5, "cpu", 0),  # 31 of 62 cores are there, for half of 100/s
        (0, 16, 20, 2.5, "cus", 0),
    ],
)
def test_what_is_exhausted_first_is_told(cores, cus, rate, factor, binds, of):
    option = Option("a", "7g.40gb", "cpu" if cores else "dpu", 100, cores=cores, cus=cus)
    found = headroom([ServerPlan(("7g.40gb",), (("7g.40gb", option),), (rate,), 1, True)], {"a": rate})
    assert found.factor == pytest.approx(factor) and (found.binds, found.of) == (binds, of)


def test_the_solver_prints_nothing(capfd):
    # HiGHS 1.12 has a line of its own for these.
    options = [
        Option(model, profile, way, rps, cores=parts if way == "cpu" else 0, cus=parts if way == "dpu" else 0, watts=w)
        for model, profile, way, rps, parts, w in (
            ("a", "3g.20gb", "cpu", 740.4, 19.5, 13.7),
            ("a", "3g.20gb", "dpu", 562.2, 3.2, 43.7),
            ("a", "7g.40gb", "cpu", 743.2, 10.6, 0.1),
            ("a", "7g.40gb", "dpu", 502.4, 1.4, 53.9),
            ("b", "3g.20gb", "cpu", 397.4, 13.7, 49.2),
            ("b", "3g.20gb", "dpu", 713.5, 1.5, 55.7),
            ("b", "7g.40gb", "cpu", 334.3, 14.4, 73.9),
            ("b", "7g.40gb", "dpu", 795.3, 3.9, 46.2),
        )
    ]
    allocate(GPU, options, {"a": 1158, "b": 937}, gpus=2, least="cost", prices=PRICES)
    assert capfd.readouterr().out == ""


def test_slices_of_a_model_are_equally_busy():
    options = [Option("a", "3g.20gb", "ideal", 100, watts=50), Option("b", "3g.20gb", "ideal", 100, watts=50)]
    found = allocate(GPU, options, {"a": 250, "b": 100}, gpus=4, least="cost", prices=PRICES)
    rates = sorted(rate for server in found.servers for rate in server.rates_rps)
    assert rates == pytest.approx([250 / 3] * 3 + [100])


def test_what_too_few_gpus_could_do_is_told():
    options = [Option("a", "3g.20gb", "ideal", 100), Option("b", "7g.40gb", "ideal", 900)]
    with pytest.raises(
        UsageError,
        match=r"--gpus 2: .* hold 33.3 % .* slices bind; .* is a at 600/s, .* takes 3 GPUs.*"
        "Give --gpus 4",
    ):
        allocate(GPU, options, {"a": 600, "b": 300}, gpus=2, least="cost", prices=PRICES)


def test_that_it_is_cores_that_bind_is_told():
    options = [Option("a", "7g.40gb", "cpu", 1000, cores=126)]
    with pytest.raises(UsageError, match=r"hold 50 % .* CPU cores bind \(the slices could do 100 %\).*Give --gpus 2"):
        allocate(GPU, options, {"a": 1000}, gpus=1, least="cost", prices=PRICES)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"rates": {"a": 1.0, "b": 1.0}}, "no slice of a100-40gb is known to serve b"),
        ({"rates": {"a": 0.0}}, "rate 0/s of a: give a number above 0"),
        ({"rates": {}}, "nothing to place"),
        (
            {"rates": {"b": 1.0}, "options": [Option("b", "7g.40gb", "ideal", 1), Option("a", "7g.40gb", "ideal", 1)]},
            "an option is for a, which has no rate",
        ),
        ({"options": [Option("a", "7g.80gb", "ideal", 1)]}, "a100-40gb has no profile '7g.80gb'"),
        ({"gpus": 0}, "--gpus 0: give 1 to 64"),
        ({"least": "time"}, "--least 'time': choose from cost, power, gpus"),
        ({"gpu": "a10"}, "there is no GPU 'a10'"),
    ],
)
def test_what_cannot_be_allocated_is_refused(changed, words):
    given = {
        "gpu": GPU,
        "options": [Option("a", "7g.40gb", "ideal", 1)],
        "rates": {"a": 1.0},
        "gpus": 1,
        "least": "cost",
        "prices": PRICES,
        **changed,
    }
    with pytest.raises(UsageError, match=words):
        allocate(given.pop("gpu"), given.pop("options"), given.pop("rates"), **given)


def test_an_option_without_a_capacity_is_refused():
    with pytest.raises(UsageError, match="give a capacity above 0"):
        Option("a", "7g.40gb", "ideal", 0)
