"""The folder of the models that may be loaded while the server runs."""

from dataclasses import replace
from pathlib import Path

from headrace.batching import UnknownModel
from headrace.host.server.settings import NAME, ModelSettings, with_settings
from headrace.sim.text_files import read_toml


class Repository:
    """`folder` has for each model a file NAME.toml, with keys as in a table of `--config`, or an exported program
    NAME.pt2. What a table leaves open is as in `base`; a file that it names lies in the folder too, unless its path is
    absolute. A name leads to no other folder."""

    def __init__(self, folder: Path, base: ModelSettings) -> None:
        self._folder = folder.resolve()
        self._base = base

    def names(self) -> list[str]:
        """Of the models that it has now."""
        found = {path.stem for path in self._folder.iterdir() if path.suffix in (".toml", ".pt2") and path.is_file()}
        return sorted(name for name in found if NAME.fullmatch(name))

    def settings(self, name: str) -> ModelSettings:
        """Raises UnknownModel and UsageError."""
        if name not in self.names():
            raise UnknownModel.unnamed(name)
        file = self._folder / f"{name}.toml"
        program = self._folder / f"{name}.pt2"
        if not file.exists():
            return replace(self._base, name=name, source=str(program), weights=None, input_shape=None, profile=None)
        own = replace(self._base, name=name, source=name, weights=None, input_shape=None, profile=None)
        table = read_toml(file.name, file)
        for key in ("weights", "profile", "source"):
            if isinstance(table.get(key), str) and (key != "source" or table[key].endswith(".pt2")):
                table[key] = str(self._folder / table[key])
        return replace(with_settings(own, table, file.name), name=name)
