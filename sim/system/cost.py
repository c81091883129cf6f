"""The cost of a server for the requests that it serves (PREBA, Section 6.3): throughput x time / (CAPEX + OPEX).

CAPEX is the price of the parts, OPEX that of the energy over their time: three years at 0.139 $/kWh (both the paper's).
The paper gives no prices, only where they were seen. Replace PRICES_USD by your own.

- Node: an assumption for SuperMicro's AS-2024S-TR, which the paper names: EPYC 7502 2,600 (AMD's list price at launch,
  in thousands), 256 GB of memory 900, the rest 2,000. A second such CPU has the same price.
- A100-40GB: an assumption, of resellers' prices in 2024 (the paper names an offer, but no price); A100-80GB, H100 and
  H200 likewise.
- Alveo U55C: list price at its launch in 2021.

The paper's own ratio is a check. 3.7 times the throughput is 3.0 times as much a dollar if the DPU makes the server
dearer by 3.7 / 3.0 - 1, or 23 %. For a card of 4,395 $ all other parts then cost some 19,000 $ in three years. With the
prices above they cost some 15,000 $, and the DPU makes the server dearer by about 30 %.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from headrace.batching.errors import UsageError

YEARS: Final = 3.0
USD_A_KWH: Final = 0.139
HOURS_A_YEAR: Final = 365 * 24
PRICES_USD: Final[Mapping[str, float]] = {
    "node": 5500.0,
    "cpu": 2600.0,  # each beyond the one in the node
    "a100-40gb": 8000.0,
    "a100-80gb": 15000.0,
    "h100": 30000.0,
    "h200": 35000.0,
    "fpga": 4395.0,
}


KWH: Final = "kwh"


def given_prices(text: str | None) -> dict[str, float]:
    """Return PRICES_USD and, as "kwh", USD_A_KWH, with the prices in `text` in place of some: "node=6000,kwh=0.2".

    Raises UsageError for an unknown name or a price below 0."""
    prices = {**PRICES_USD, KWH: USD_A_KWH}
    for part in [] if text is None else text.split(","):
        name, _, number = part.strip().partition("=")
        if name not in prices:
            raise UsageError(f"no price {name!r}; give some of {', '.join(prices)}, such as node=6000")
        try:
            prices[name] = float(number)
        except ValueError:
            prices[name] = math.nan
        if not 0 <= prices[name] < 1e9:
            raise UsageError(f"price {part.strip()!r}: give a number of $ after the =, 0 or more")
    return prices


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a server over its time, and the requests that it serves for a dollar."""

    capex_usd: float
    opex_usd: float
    requests_a_usd: float


def cost(
    throughput_rps: float,
    power_w: float,
    parts: Iterable[str],
    *,
    prices_usd: Mapping[str, float] = PRICES_USD,
    years: float = YEARS,
    usd_a_kwh: float = USD_A_KWH,
) -> Cost:
    """Return the cost of a server.

    Args:
        throughput_rps: The requests/s that it serves.
        power_w: Its average power.
        parts: The parts that are bought, by their names in `prices_usd`.
        prices_usd: The price of each part.
        years: The time over which parts are paid off.
        usd_a_kwh: The price of energy.

    Raises:
        UsageError: A part has no price, or a number is out of range.
    """
    bought = list(parts)
    unknown = sorted(set(bought) - set(prices_usd))
    if unknown:
        raise UsageError(f"no price of {', '.join(unknown)}; there are prices of {', '.join(prices_usd)}")
    numbers = {"throughput": throughput_rps, "power": power_w, "price of a kWh": usd_a_kwh}
    numbers |= {f"price of {name}": prices_usd[name] for name in bought}
    for name, value in numbers.items():
        if not 0 <= value < float("inf"):
            raise UsageError(f"{name} is {value}; give 0 or more")
    if not 0 < years <= 100:
        raise UsageError(f"{years:g} years; give above 0, and 100 at most")
    capex = sum(prices_usd[name] for name in bought)
    hours = years * HOURS_A_YEAR
    opex = power_w / 1e3 * hours * usd_a_kwh
    if not capex + opex:
        raise UsageError("a server that costs nothing has no requests a dollar: give prices")
    return Cost(capex, opex, throughput_rps * hours * 3600 / (capex + opex))
