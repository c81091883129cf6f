"""Options of `demo` and `profile` that are settings of a served model. `serve` has them from the same class."""

from typing import Annotated, Any

import typer

from headrace.batching.settings import option, settings_of
from headrace.host.server.settings import ModelSettings


def _of_model(name: str) -> Any:
    """Return the option of a setting of a model."""
    each = next(each for each in settings_of(ModelSettings) if each.name == name)
    numbers = {"min": each.ge, "max": each.le} if each.kind is int else {}
    return typer.Option(option(name), help=each.help, **numbers)


Workers = Annotated[str | None, _of_model("workers")]
Whole = Annotated[bool, _of_model("whole")]
MaxBatch = Annotated[int, _of_model("max_batch")]
AllowNonfinite = Annotated[bool, _of_model("allow_nonfinite_weights")]
ReadMemory = Annotated[int, _of_model("read_memory_mib")]
