"""The KV cache as a resource: blocks of tokens, and their growth while requests decode.

A request with n tokens in the cache holds ceil(n / block_size) blocks. A request that decodes takes a new block
whenever its tokens fill its last one. The requests that decode advance together, so the blocks that their next steps
take follow from their phases alone:

    block_size 4, two requests with 6 and 8 tokens:   step      0  1  2  3  4
                                                      blocks    1  0  1  0  1

The request with 8 tokens takes a block in steps 0 and 4, and the request with 6 tokens in step 2.

Source: PagedAttention (Kwon et al., SOSP 2023), Section 4.

This file is compiled (setup.py).
"""

from typing import Final


class KvCache:
    """The blocks of one replica, and the growth of the requests that decode.

    `free` is the number of free blocks. `steps` counts the steps of decoding. A request that decodes has `base + steps`
    tokens in the cache, where its `base` was given to `joins`.

    Args:
        blocks: The number of blocks.
        block_size: The tokens of one block.
    """

    def __init__(self, blocks: int, block_size: int) -> None:
        self.blocks: Final[int] = blocks
        self.block_size: Final[int] = block_size
        self.free: int = blocks
        self.steps: int = 0
        self._decoding: int = 0
        # The requests that take a block in a step, by the step's number modulo block_size.
        self._phases: list[int] = [0] * block_size

    def needed(self, tokens: int) -> int:
        """Return the number of blocks that hold so many tokens."""
        return (tokens + self.block_size - 1) // self.block_size

    def more(self, past: int, tokens: int) -> int:
        """Return the blocks that a request takes for `tokens` more than the `past` tokens that it has."""
        return self.needed(past + tokens) - self.needed(past)

    def joins(self, base: int) -> None:
        """Add a request to those that decode."""
        self._phases[(-base) % self.block_size] += 1
        self._decoding += 1

    def leaves(self, base: int) -> None:
        """Remove a request from those that decode, and free its blocks."""
        self._phases[(-base) % self.block_size] -= 1
        self._decoding -= 1
        self.free += self.needed(base + self.steps)

    def next_growth(self) -> int:
        """Return the blocks that the next step of decoding takes."""
        return self._phases[self.steps % self.block_size]

    def growth(self, steps: int) -> int:
        """Return the blocks that the next `steps` steps of decoding take."""
        taken = steps // self.block_size * self._decoding
        for step in range(self.steps, self.steps + steps % self.block_size):
            taken += self._phases[step % self.block_size]
        return taken

    def steps_that_fit(self) -> int:
        """Return how many steps of decoding the free blocks allow. There must be requests that decode."""
        rounds = self.free // self._decoding
        left = self.free - rounds * self._decoding
        step = self.steps
        while self._phases[step % self.block_size] <= left:
            left -= self._phases[step % self.block_size]
            step += 1
        return rounds * self.block_size + step - self.steps

    def decode(self, steps: int) -> None:
        """Let all requests that decode advance by `steps` tokens. The blocks must be free."""
        self.free -= self.growth(steps)
        self.steps += steps
