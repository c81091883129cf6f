"""A slow, obvious simulator of continuous batching for comparison. It shares no code with the project.

It works as vLLM describes its rule: a request is a number of tokens that it has, and a number of those that are
computed, and every step closes some of the gap. Blocks are numbers in lists. Nothing is kept from step to step."""


class Step:
    """A step that is planned: what is left of its budget, and what it does."""

    def __init__(self, budget, encoder_budget, size, free):
        self.left, self.encoder_budget, self.size, self.free = budget, encoder_budget, size, free
        self.plan, self.images = [], []

    def lacks(self, one, tokens):
        """Return the blocks that a request lacks for so many tokens more."""
        return max(0, -(-(one["done"] + tokens) // self.size) - len(one["table"]))

    def look(self, one):
        """Return the images that the step would still encode for a request."""
        seen, pixels = [], sum(self.images)
        for image in one["images"]:
            if pixels and pixels + image > self.encoder_budget:
                break
            seen.append(image)
            pixels += image
        return seen

    def plans(self, one, tokens, seen):
        self.images += seen
        del one["images"][: len(seen)]
        if tokens:
            one["table"] += [self.free.pop() for _ in range(self.lacks(one, tokens))]
            self.plan.append((one, tokens))
            self.left -= tokens


def serve(requests, latency, encoder, *, blocks, size, budget, seqs, encoder_budget):
    """Return ({id: (time of first token, time of end)}, [(start, {id: tokens}, [ids preempted])])."""
    coming = [
        {
            "id": request.id,
            "at": request.arrival,
            "prompt": request.prompt_tokens,
            "wants": request.output_len,
            "images": list(request.items),
            "out": 0,
            "done": 0,
            "table": [],
            "caught_up": False,
        }
        for request in requests
    ]
    free, waiting, running = list(range(blocks)), [], []
    times, log, now = {}, [], 0.0
    while coming or waiting or running:
        if not (waiting or running):
            now = max(now, coming[0]["at"])
        while coming and coming[0]["at"] <= now:
            waiting.append(coming.pop(0))

        step, preempted = Step(budget, encoder_budget, size, free), []
        place = 0
        while place < len(running) and step.left:
            one = running[place]
            seen = step.look(one)
            if len(seen) < len(one["images"]):
                step.plans(one, 0, seen)
                place += 1
                continue
            tokens = min(one["prompt"] + one["out"] - one["done"], step.left)
            while one in running and step.lacks(one, tokens) > len(free):
                victim = running.pop()
                free += victim["table"]
                victim.update(table=[], done=0, caught_up=False)
                waiting.insert(0, victim)
                preempted.append(victim["id"])
            if one in running:
                step.plans(one, tokens, seen)
                place += 1
        while waiting and step.left and len(running) < seqs and not preempted:
            if running and running[-1]["images"]:
                break
            one = waiting[0]
            tokens, seen = min(one["prompt"] + one["out"], step.left), step.look(one)
            if step.lacks(one, one["prompt"] + one["out"]) > len(free) or (one["images"] and not seen):
                break
            running.append(waiting.pop(0))
            step.plans(one, tokens if len(seen) == len(one["images"]) else 0, seen)

        log.append((now, {one["id"]: tokens for one, tokens in step.plan}, preempted))
        chunks = [(tokens, one["done"]) for one, tokens in step.plan if not one["caught_up"]]
        decoding = [one["done"] + 1 for one, _ in step.plan if one["caught_up"]]
        if step.images:
            now += encoder.seconds(step.images)
        if step.plan:
            now += latency.seconds(chunks, len(decoding), sum(decoding))
        for one, tokens in step.plan:
            one["done"] += tokens
            if one["done"] == one["prompt"] + one["out"]:
                one["out"] += 1
                one["caught_up"] = True
                first = times.get(one["id"], (now, now))[0]
                times[one["id"]] = (first, now)
                if one["out"] == one["wants"]:
                    free += one["table"]
                    running.remove(one)
    return times, log
