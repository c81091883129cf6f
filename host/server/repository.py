"""The folder of the models that clients may load while the server runs."""

from dataclasses import replace
from pathlib import Path

from headrace.batching import UnknownModel
from headrace.host.server.settings import NAME, ModelSettings, with_settings
from headrace.sim.text_files import read_toml


class Repository:
    """Read the settings of models from a folder.

    A model is a file NAME.toml, with the keys of a table of `--config`, or an exported program NAME.pt2. A setting that
    the table leaves out comes from `base`. A file name in the table is relative to the folder: `weights` and `profile`,
    and a `source` or `processor` with a slash or with the ending of its files. A model's name cannot lead to another
    folder."""

    def __init__(self, folder: Path, base: ModelSettings) -> None:
        self._folder = folder.resolve()
        self._base = base

    def names(self) -> list[str]:
        """Return the names of the models that the folder has now, sorted."""
        names = {path.stem for path in self._folder.iterdir() if path.suffix in (".toml", ".pt2") and path.is_file()}
        return sorted(name for name in names if NAME.fullmatch(name))

    def settings(self, name: str) -> ModelSettings:
        """Return the settings of a model. Raises UnknownModel and UsageError."""
        if name not in self.names():
            raise UnknownModel.unnamed(name)
        file = self._folder / f"{name}.toml"
        program = self._folder / f"{name}.pt2"
        if not file.exists():
            return replace(self._base, name=name, source=str(program), weights=None, input_shape=None, profile=None)
        own = replace(self._base, name=name, source=name, weights=None, input_shape=None, profile=None)
        table = read_toml(file.name, file)
        for key in ("weights", "profile", "source", "processor"):
            if isinstance(value := table.get(key), str) and (key in ("weights", "profile") or _is_path(value)):
                table[key] = str(self._folder / value)
        return replace(with_settings(own, table, file.name), name=name)


def _is_path(value: str) -> bool:
    """Tell whether a source or a processor is a file or a folder, and no name."""
    return "/" in value or value.endswith((".pt2", ".json"))
