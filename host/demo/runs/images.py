"""Run the image demo: images go through CPU or DPU into networks, under each policy.

    photos -> DPU tensors, compared with OpenCV's -> a profile of each network -> the loads
           -> a live run for each preprocessor and policy -> the same on a simulated server of PREBA's size

All runs at one load have the same Poisson arrivals. The networks run on this machine's workers or, in modelled time, on
simulated NPUs, which node-level policies can interrupt at every node.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from headrace.host.demo.inputs.prepared_images import Clocks, Equality, PreparedImages, prepare_images
from headrace.host.demo.networks import ImageNetwork
from headrace.host.demo.options import DemoOptions
from headrace.host.demo.runs.labels import Label, Labels
from headrace.host.demo.runs.live import (
    LiveReport,
    distinct,
    live_runs,
    open_dpus,
    preprocessor_of,
    take_profiles,
)
from headrace.host.demo.runs.load import in_batches_rps, one_by_one_rps, run_rates
from headrace.host.demo.runs.serving import Progress
from headrace.host.demo.runs.simulated import SIMULATING, simulate_images
from headrace.host.live.hardware import hardware_of, schedules_nodes
from headrace.host.workers.profiling.batches import machine


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageReport(LiveReport):
    """The results of the image demo. `networks`, `prepared` and `labels` are by network, in the order of the
    options."""

    cus: int
    networks: Mapping[str, ImageNetwork]
    prepared: Mapping[str, PreparedImages]
    labels: Mapping[str, Mapping[str, Label]]

    @property
    def distinct(self) -> list[PreparedImages]:
        return distinct(self.prepared)

    @property
    def equality(self) -> Equality:
        return Equality.total(prepared.equality for prepared in self.distinct)

    @property
    def clocks(self) -> Clocks | None:
        return Clocks.total(prepared.clocks for prepared in self.distinct)

    @property
    def unequal(self) -> int:
        """The number of the DPU's tensors that differ from OpenCV's."""
        return self.equality.on_dpu - self.equality.equal


def demo(options: DemoOptions, networks: Sequence[ImageNetwork], xclbin: Path, progress: Progress) -> ImageReport:
    """Run the image demo with the networks that `load_image_networks` returned.

    Raises UsageError for options that cannot be met, and WorkerLost if no worker can be started."""
    live = asyncio.run(_demo(options, networks, xclbin, progress))
    progress.stage(SIMULATING)
    return replace(live, simulated=simulate_images(options, live.networks, live.prepared, live.runs, live.cus))


async def _demo(options: DemoOptions, loaded: Sequence[ImageNetwork], xclbin: Path, progress: Progress) -> ImageReport:
    networks = {network.name: network for network in loaded}
    by_node = schedules_nodes(options.policies, options.profiles)
    if by_node and not options.npus:
        progress.stage(f"cutting {' and '.join(networks)} into nodes")
    hardware = hardware_of(loaded, workers=options.workers, npus=options.npus, by_node=by_node, whole=options.whole)
    async with open_dpus(xclbin, (network.spec for network in loaded), options.api) as dpus:
        by_spec = {}
        for spec, dpu in dpus.items():
            assert dpu is not None  # there is an xclbin
            title = f"DPU tensors of 3x{spec.crop_height}x{spec.crop_width} against OpenCV's"
            progress.stage(title, len(options.images))
            by_spec[spec] = await prepare_images(dpu, options.images, progress.step)
            cus = len(dpu.cus)
        prepared = {name: by_spec[network.spec] for name, network in networks.items()}
        profiles = await take_profiles(
            options,
            networks,
            partial(hardware.profile, max_batch=options.max_batch),
            f"on {hardware.count} {hardware.kind}",
            progress,
        )
        inputs = [(profile, profile.typical_length) for profile in profiles.values()]
        one_by_one, in_batches = one_by_one_rps(inputs), in_batches_rps(inputs)
        here = machine()
        files_per_s = [part.files_per_s for part in prepared.values()]
        rates = run_rates(options, one_by_one, in_batches, files_per_s, here["cores"])
        labels = Labels({name: None if options.npus else net.description.categories for name, net in networks.items()})
        sources = {
            kind: {
                name: prepared[name].source(preprocessor_of(kind, network.spec, dpus[network.spec]))
                for name, network in networks.items()
            }
            for kind in options.preprocessors
        }
        runs = await live_runs(options, hardware, profiles, rates, sources, progress, on_answer=labels.add)
    return ImageReport(
        options=options,
        machine=here,
        workers=hardware.count,
        profiles=profiles,
        rates_rps=rates,
        one_by_one_rps=one_by_one,
        in_batches_rps=in_batches,
        runs=runs,
        cus=cus,
        networks=networks,
        prepared=prepared,
        labels=labels.by_image,
    )
