"""Front ends that fail, each in its own way. They import little, so that their process starts quickly."""

import os
import time

import numpy as np

NOT_CALLABLE = 3


def zeros(data):
    print("a line of a user's own")
    return np.zeros((1, 3, 224, 224), np.float32)


def of_one_size(data):
    return np.zeros((1, 3, 100, 100), np.float32)


def text(data):
    return "no tensor"


def another_name(data):
    return {"pixels": zeros(data)}


def raises(data):
    raise ValueError("no such pixel")


def ends(data):
    os._exit(3)


def sleeps(data):
    time.sleep(60)


def fails_for_png(data):
    if data.startswith(b"\x89PNG"):
        raise ValueError("no PNG here")
    return zeros(data)
