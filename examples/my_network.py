"""A network to serve. Examples 05 and 10 name it as `my_network:small`; only worker processes import this file."""

from torch import nn


class Small(nn.Module):
    """Tell which of ten classes a vector of 64 numbers is of. The weights are random, but the same each time."""

    input_shape = (64,)  # the server tells clients that this is what a request looks like
    categories = tuple(f"class {number}" for number in range(10))

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, batch):
        return self.layers(batch)  # (batch, 64) to (batch, 10)


def small() -> nn.Module:
    return Small()
