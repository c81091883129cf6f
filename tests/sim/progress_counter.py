"""A progress display that counts and shows nothing."""


class Counter:
    def __init__(self):
        self.stages, self.skipped, self.steps = [], 0, 0

    def stage(self, text, total=None):
        self.stages.append((text, total))

    def skip(self, count):
        self.skipped += count

    def step(self):
        self.steps += 1
