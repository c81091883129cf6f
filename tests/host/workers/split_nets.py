"""A user's own small networks, which do at their boundaries what real networks do."""

import torch
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    """Batch norm, in-place operators, and a value that lives across boundaries."""

    input_shape = (3, 96, 96)

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.second = nn.Conv2d(6, 6, 3, padding=1, groups=2)
        self.third = nn.Conv2d(6, 6, 1)
        self.head = nn.Linear(6, 5)
        self.norm.running_mean.uniform_(-1, 1)

    def forward(self, x):
        x = F.relu_(self.norm(self.first(x)))
        y = self.third(F.hardswish(self.second(x), inplace=True))
        y += x
        return self.head(y.relu_().mean((2, 3)))


class Attention(nn.Module):
    """Layer norm and self-attention, once with the batch first and once with the batch after the sequence."""

    input_shape = (160, 16)

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.behind = nn.TransformerEncoderLayer(16, 4, 32, norm_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.behind(self.front(x).transpose(0, 1)).mean(0))


class Windows(nn.Module):
    """Several rows for each request, as in a Swin: windows are cut out, attended to, and put together again."""

    input_shape = (4, 4, 8)

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)
        self.bias = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        batch = x.shape[0]
        windows = x.view(batch, 2, 2, 2, 2, 8).permute(0, 1, 3, 2, 4, 5).reshape(batch * 4, 4, 8)
        q, k, v = self.qkv(windows).chunk(3, -1)
        weights = (q @ k.transpose(1, 2) + self.bias.tanh()).softmax(-1)
        windows = self.out(weights @ v)
        return (windows.view(batch, 2, 2, 2, 2, 8).permute(0, 1, 3, 2, 4, 5).reshape(batch, 4, 4, 8) + x).flatten(1)


class BatchLast(nn.Module):
    """In its middle the rows of a request do not follow each other, so it must not be cut there."""

    input_shape = (3, 4)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        y = self.first(x).transpose(0, 1)  # (3, batch, 4)
        y = self.second(y.reshape(-1, 4))  # (3 * batch, 4), one row of every request and then the next
        return self.third(y.view(3, -1, 4).transpose(0, 1)).flatten(1)


class Views(nn.Module):
    """Two names for one memory, which is written after a boundary."""

    input_shape = (4,)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = self.first(x)
        view = y[:, :2]
        z = self.second(x)
        view.add_(1)
        return self.third(z + y) + view.sum(1, keepdim=True)


class Shares(nn.Module):
    """Two names for one memory, which is not written any more, while another memory is written."""

    input_shape = (4,)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = self.first(x).relu_()
        view = y[:, :2]
        z = self.second(y).relu_()
        return self.third(z + y) + view.sum(1, keepdim=True)


class Writes(nn.Module):
    """Makes a constant anew in every run, and writes it in place through a view."""

    input_shape = (4,)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        scale = torch.ones(4)
        scale[:2].add_(1)
        return self.second(self.first(x) * scale)


class Positions(nn.Module):
    """Makes a positional encoding of `torch.arange` in forward and multiplies it, as XCiT, DETR and SAM do."""

    input_shape = (3, 16, 16)

    def __init__(self) -> None:
        super().__init__()
        self.project, self.stem, self.head = nn.Linear(2, 8), nn.Conv2d(3, 8, 2, 2), nn.Linear(8, 5)

    def forward(self, x):
        rows = torch.arange(8, dtype=torch.float32)
        grid = torch.stack(torch.meshgrid(rows, torch.linspace(0, 1, 8), indexing="ij"), -1)
        x = self.stem(x) + self.project(grid).permute(2, 0, 1)
        turn = torch.cat((torch.eye(4), torch.ones(4, 4).triu()), 1)
        return self.head((turn.T @ (turn @ x.flatten(2)) / 8).mean(2))


class FirstStep(nn.Module):
    """Multiplies a state of zeros that has a row for each request, and values of its own expanded to the batch."""

    input_shape = (4,)

    def __init__(self) -> None:
        super().__init__()
        self.state, self.token, self.head = nn.Linear(6, 6), nn.Linear(4, 6), nn.Linear(6, 3)
        self.start = nn.Parameter(torch.randn(1, 4))

    def forward(self, x):
        state = self.state(torch.zeros(x.shape[0], 6))
        state = torch.tanh(state + self.token(self.start.expand(x.shape[0], 4)))
        return self.head(torch.tanh(state + self.token(x)))


class Numbered(nn.Module):
    """Numbers the requests of its batch: the output of one depends on its place."""

    input_shape = (4,)

    def __init__(self) -> None:
        super().__init__()
        self.place, self.layer = nn.Linear(1, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x) + self.place(torch.arange(x.shape[0], dtype=torch.float32)[:, None])


class AutocastOff(nn.Module):
    """Needs full precision in one part, whatever its caller sets, and no gradients in another part."""

    input_shape = (4,)
    on = False

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x):
        x = self.first(x)
        with torch.autocast("cpu", enabled=self.on):
            x, scale = self.second(x), x.abs().mean(1, keepdim=True)
        with torch.enable_grad():
            x = x.relu() * scale
        return self.third(x)


class AutocastOn(AutocastOff):
    on = True


class Keeps(nn.Module):
    """Keeps the result of its first run, as ConViT does with its indices."""

    input_shape = (4,)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)
        self.scale = None

    def forward(self, x):
        if self.scale is None:
            self.scale = torch.linspace(1, 2, 4)
        return self.second(self.first(x) * self.scale)


class Several(nn.Module):
    """Has named outputs, two inputs, an operator that returns several tensors, and a recurrent layer."""

    input_shape = "a=6x4,b=4"

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.LSTM(4, 8, batch_first=True)
        self.join = nn.Linear(12, 6)

    def forward(self, a, b):
        states, (h, _) = self.steps(a)
        left, right = self.join(torch.cat((h[0], b), 1)).split((2, 4), 1)
        return {"left": left, "right": right, "states": states}


class Products(nn.Module):
    """Multiplies single values: there is no sum whose order a batch could change."""

    input_shape = (9, 1)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)

    def forward(self, x):
        return self.second(self.first(x).relu())


class Wide(nn.Module):
    """Long sums, which a kernel for one request takes in another order than one for several."""

    input_shape = (2048,)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2048, 512), nn.Linear(512, 64)

    def forward(self, x):
        return self.second(self.first(x).relu())


class Mixes(nn.Module):
    """A request's output depends on the other requests."""

    input_shape = (4,)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x - x.mean(0))


class Counts(nn.Module):
    """Remembers how often it has run."""

    input_shape = (4,)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("runs", torch.zeros(1))

    def forward(self, x):
        self.runs.add_(1)
        return self.layer(x)


class Decides(nn.Module):
    """The computation depends on the values of the input."""

    input_shape = (4,)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else self.layer(-x)


class Fixed(nn.Module):
    """Takes the size of its batch for a constant."""

    input_shape = (4,)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x.view(len(x), 4))


class Killer(Residual):
    """Kills its process in the middle when the first value is 13, and raises when it is 666."""

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        return self.head(torch.ops.headrace_tests.strike(self.third(self.second(x))).mean((2, 3)))


def made(kind):
    def make():
        torch.manual_seed(3)
        return kind()

    return make


residual, attention, windows, batch_last, views, shares, writes = map(
    made, (Residual, Attention, Windows, BatchLast, Views, Shares, Writes)
)
products, wide = map(made, (Products, Wide))
several, mixes, counts, decides, fixed, killer = map(made, (Several, Mixes, Counts, Decides, Fixed, Killer))
positions, first_step, numbered = map(made, (Positions, FirstStep, Numbered))
autocast_off, autocast_on, keeps = map(made, (AutocastOff, AutocastOn, Keeps))


@torch.library.custom_op("headrace_tests::strike", mutates_args=())
def strike(x: torch.Tensor) -> torch.Tensor:
    import os
    import signal

    largest = float(x.abs().max())
    if 1e20 < largest < 1e30:
        os.kill(os.getpid(), signal.SIGKILL)
    if largest > 1e30:
        raise ValueError("unlucky number")
    return x.clone()


@strike.register_fake
def _(x):
    return torch.empty_like(x)
