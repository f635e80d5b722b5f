"""What the tests of this folder run on: the GPU at hand, or NumPy in its place (`--stand-in`)."""

from taskflow.backend import find_gpus
from tests.fake_gpu.streams import FakeStreams


def backend(**options):
    if not find_gpus():
        return FakeStreams()
    from taskflow.backend.cuda.device import CudaStreams

    return CudaStreams(**options)
