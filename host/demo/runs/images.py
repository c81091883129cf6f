"""Run the image demo: images go through CPU or DPU into networks, under each policy.

    photos -> DPU tensors, compared with OpenCV's -> a profile of each network -> the loads
           -> tensors of an image processor of Hugging Face, compared with those of the CPU path
           -> a live run for each policy, with these tensors -> a live run from files, which names what photos show
           -> the same photos on a simulated server of PREBA's size, and speech on its slices

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
from headrace.host.demo.options import BEFOREHAND, DemoOptions
from headrace.host.demo.runs.labels import Label, Labels
from headrace.host.demo.runs.live import (
    LiveReport,
    distinct,
    live_runs,
    open_dpus,
    preprocessor_of,
    take_profiles,
)
from headrace.host.demo.runs.load import Capacity, run_rates, slo_s
from headrace.host.demo.runs.processor import COUNT, MODEL, ProcessorCheck, check_processor
from headrace.host.demo.runs.serving import Progress
from headrace.host.demo.runs.simulated import SIMULATING, simulate_images
from headrace.host.demo.runs.slices import SpeechOnSlices, speech_on_slices
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
    processor: ProcessorCheck
    speech: SpeechOnSlices | None = None

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
    networks = {name: live.networks[name] for name in options.models_of(options.first_preprocessor)}
    simulated = simulate_images(options, networks, live.prepared, live.compared[0], live.cus)
    return replace(live, simulated=simulated, speech=speech_on_slices(options))


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
        progress.stage(f"DPU tensors of {MODEL} against those of the CPU path", min(COUNT, len(options.images)))
        checked = await check_processor(xclbin, options.images, options.api, progress.step)
        prepared = {name: by_spec[network.spec] for name, network in networks.items()}
        profiles = await take_profiles(
            options,
            networks,
            partial(hardware.profile, max_batch=options.max_batch),
            f"on {hardware.count} {hardware.kind}",
            progress,
        )
        takers = options.models_of(options.last_preprocessor)
        compared, from_files = (
            Capacity.of((profiles[name], profiles[name].typical_length) for name in names)
            for names in (options.models_of(options.first_preprocessor), takers)
        )
        here = machine()
        files_per_s = [prepared[name].files_per_s for name in takers]
        rates = run_rates(options, compared, from_files, files_per_s, here["cores"])
        labels = Labels({name: None if options.npus else net.categories for name, net in networks.items()})
        sources = {
            kind: {
                name: prepared[name].source(preprocessor_of(kind, networks[name].spec, dpus[networks[name].spec]))
                for name in options.models_of(kind)
            }
            for kind in options.preprocessors
        }
        slo = slo_s(options, compared)
        slos = {kind: slo if kind == BEFOREHAND else slo_s(options, from_files) for kind in options.preprocessors}
        runs = await live_runs(options, hardware, profiles, rates, slos, sources, progress, on_answer=labels.add)
    return ImageReport(
        options=options,
        machine=here,
        workers=hardware.count,
        profiles=profiles,
        rates_rps=rates,
        capacity=compared,
        slo_s=slo,
        runs=runs,
        cus=cus,
        networks=networks,
        prepared=prepared,
        labels=labels.by_image,
        processor=checked,
    )
