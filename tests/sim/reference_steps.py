"""A slow, obvious simulator of continuous batching for comparison. It shares no code with the project.

It works as vLLM describes its rule: a request is a number of tokens that it has, and a number of those that are
computed, and every step closes some of the gap. Blocks are numbers in lists. Nothing is kept from step to step.

With prefix caching, the free blocks are a list from the first that is taken to the last. Each block has the name of its
contents, or none. The name of a block lists what stands for each of its request's tokens, up to its own last one."""


class Blocks:
    """The blocks of the KV cache."""

    def __init__(self, number, size):
        self.size, self.free = size, list(range(number))
        self.names, self.users, self.by_name = {}, dict.fromkeys(self.free, 0), {}
        self.evicted = 0

    def new(self):
        block = self.free.pop(0)
        if block in self.names:
            name = self.names.pop(block)
            self.by_name[name].remove(block)
            self.evicted += 1
        self.users[block] = 1
        return block

    def name_of(self, one, number):
        """Return the name of a block of a request; its own tokens are named after it."""
        name = []
        for token in range((number + 1) * self.size):
            name.append(next((segment for segment, end in one["contents"] if token < end), ("own", one["id"])))
        return tuple(name)

    def found(self, one, tokens):
        """Return the blocks that a request finds whose last token is to be computed."""
        blocks = []
        while (len(blocks) + 1) * self.size < tokens:
            same = self.by_name.get(self.name_of(one, len(blocks)))
            if not same:
                break
            blocks.append(same[0])
        return blocks

    def hold(self, block):
        if not self.users[block]:
            self.free.remove(block)
        self.users[block] += 1

    def fill(self, one, tokens):
        """Name the whole blocks of a request that has so many tokens."""
        for number in range(tokens // self.size):
            block = one["table"][number]
            if block not in self.names:
                name = self.name_of(one, number)
                self.names[block] = name
                self.by_name.setdefault(name, []).append(block)

    def give_back(self, table):
        for block in reversed(table):
            self.users[block] -= 1
            if not self.users[block]:
                place = len(self.free) if block in self.names else 0
                self.free.insert(place, block)


class Step:
    """A step that is planned: what is left of its budget, and what it does."""

    def __init__(self, budget, encoder_budget, blocks, caching):
        self.left, self.encoder_budget, self.blocks, self.caching = budget, encoder_budget, blocks, caching
        self.plan, self.images = [], []

    def lacks(self, one, tokens):
        """Return the blocks that a request lacks for so many tokens more."""
        return max(0, -(-(one["done"] + tokens) // self.blocks.size) - len(one["table"]))

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
            one["table"] += [self.blocks.new() for _ in range(self.lacks(one, tokens))]
            self.plan.append((one, tokens))
            self.left -= tokens
            if self.caching and not one["caught_up"]:
                self.blocks.fill(one, one["done"] + tokens)


def serve(requests, latency, encoder, *, blocks, size, budget, seqs, encoder_budget, caching=False):
    """Return ({id: (time of first token, time of end)}, [(start, {id: tokens}, [ids preempted], {id: tokens found})],
    and the number of evicted blocks)."""
    coming = [
        {
            "id": request.id,
            "at": request.arrival,
            "prompt": request.prompt_tokens,
            "wants": request.output_len,
            "images": list(request.items),
            "contents": request.contents,
            "out": 0,
            "done": 0,
            "table": [],
            "caught_up": False,
        }
        for request in requests
    ]
    cache, waiting, running = Blocks(blocks, size), [], []
    times, log, now = {}, [], 0.0

    def drops(one):
        if caching:
            cache.fill(one, one["done"])
        cache.give_back(one["table"])

    while coming or waiting or running:
        if not (waiting or running):
            now = max(now, coming[0]["at"])
        while coming and coming[0]["at"] <= now:
            waiting.append(coming.pop(0))

        step, preempted, found = Step(budget, encoder_budget, cache, caching), [], {}
        place = 0
        while place < len(running) and step.left:
            one = running[place]
            seen = step.look(one)
            if len(seen) < len(one["images"]):
                step.plans(one, 0, seen)
                place += 1
                continue
            tokens = min(one["prompt"] + one["out"] - one["done"], step.left)
            while one in running and step.lacks(one, tokens) > len(cache.free):
                victim = running.pop()
                drops(victim)
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
            has = one["prompt"] + one["out"]
            known = cache.found(one, has) if caching else []
            lacks = -(-has // size) - sum(1 for block in known if cache.users[block])
            tokens, seen = min(has - len(known) * size, step.left), step.look(one)
            if lacks > len(cache.free) or (one["images"] and not seen):
                break
            running.append(waiting.pop(0))
            for block in known:
                cache.hold(block)
            one.update(table=known, done=len(known) * size)
            if known:
                found[one["id"]] = one["done"]
            step.plans(one, tokens if len(seen) == len(one["images"]) else 0, seen)

        log.append((now, {one["id"]: tokens for one, tokens in step.plan}, preempted, found))
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
                    drops(one)
                    running.remove(one)
        assert all(count >= 0 for count in cache.users.values())
        assert len(cache.free) + sum(1 for count in cache.users.values() if count) == blocks
    return times, log, cache.evicted
