"""Turn an encoded photo into the tensor of torchvision's classifiers: shorter side to 256, middle 224, normalised."""

import cv2
import numpy as np
import triton_python_backend_utils as pb_utils

MEAN = np.array([0.485, 0.456, 0.406], np.float32) * 255
SCALE = 1 / (np.array([0.229, 0.224, 0.225], np.float32) * 255)


class TritonPythonModel:
    def initialize(self, args):
        cv2.setNumThreads(1)

    def execute(self, requests):
        responses = []
        for request in requests:
            images = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy().ravel()
            tensors = np.stack([preprocess(encoded) for encoded in images])
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("x", tensors)]))
        return responses


def preprocess(encoded):
    image = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR_RGB)
    height, width = image.shape[:2]
    scale = 256 / min(height, width)
    image = cv2.resize(image, (max(256, round(width * scale)), max(256, round(height * scale))))
    top, left = (image.shape[0] - 224) // 2, (image.shape[1] - 224) // 2
    crop = image[top : top + 224, left : left + 224]
    return np.ascontiguousarray(((crop - MEAN) * SCALE).transpose(2, 0, 1))
