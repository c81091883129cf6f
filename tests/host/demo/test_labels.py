import numpy as np
import pytest

from headrace.host.demo.runs.labels import KEPT, SHOWN, Label, Labels, first_label, surest

CATS = ("tabby", "lynx", "puma")


def test_logits_become_a_probability_by_softmax():
    label = first_label([np.float32([1, 3, 2])], CATS)
    assert label.label == "lynx" and label.probability == pytest.approx(0.66524, abs=1e-5)


def test_large_logits_do_not_overflow():
    assert first_label([np.float32([1e4, 0, -1e4])], CATS).probability == 1


def test_probabilities_are_taken_as_they_are():
    label = first_label([np.float32([0.1, 0.2, 0.7])], CATS)
    assert label.label == "puma" and label.probability == pytest.approx(0.7)


@pytest.mark.parametrize(
    "outputs",
    [
        [np.float32([1, np.nan, 2])],
        [np.zeros(2, np.float32)],  # an embedding
        [np.zeros((3, 3), np.float32)],
        [np.zeros(3, np.int64)],
        [np.zeros(3, np.float32), np.zeros(3, np.float32)],
    ],
)
def test_an_output_without_one_number_for_each_class_gets_no_label(outputs):
    assert first_label(outputs, CATS) is None


def test_each_photo_is_labelled_once_and_no_more_than_are_kept():
    labels = Labels({"cats": CATS, "embedding": None})
    for number in [0, 0, *range(KEPT + 5)]:
        for model in ("cats", "embedding"):
            labels.add(model, f"photo {number}", {"output": np.eye(3, dtype=np.float32)[number % 3]})
    assert list(labels.by_image["cats"]) == [f"photo {number}" for number in range(KEPT)]
    assert labels.by_image["cats"]["photo 1"].label == "lynx" and labels.by_image["embedding"] == {}


def test_the_surest_label_of_each_picture_is_shown_and_none_of_what_has_no_class():
    labels = {f"photo {number}": Label("cat", probability) for number, probability in enumerate((0.2, 0.9, 0.5, 1.0))}
    pictures = {"photo 0": "a", "photo 1": "b", "photo 2": "b", "photo 3": None}
    assert list(surest(labels, pictures)) == ["photo 1", "photo 0"]
    many = {str(number): Label("cat", number / 10) for number in range(9)}
    assert list(surest(many, {name: name for name in many})) == ["8", "7", "6", "5", "4"] and SHOWN == 5
