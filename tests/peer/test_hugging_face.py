"""Models of Hugging Face from configurations, and of torchvision: imports compare outputs and gradients themselves."""

import re
from typing import Any

import pytest

import ops
from tests.sampling import IS_THOROUGH

NAMES = ("GPT2", "Llama", "Mistral", "Qwen2", "BERT")


@pytest.fixture
def _transformers(torch: Any) -> None:
    pytest.importorskip("transformers")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("_transformers")
@pytest.mark.parametrize("name", NAMES)
def test_heads_of_any_width(name: str, subtests: pytest.Subtests) -> None:
    from .hugging_face import MODELS, WIDTHS, made

    assert set(NAMES) == MODELS.keys()
    for width in WIDTHS if IS_THOROUGH else WIDTHS[NAMES.index(name) % 4 :: 4]:
        with subtests.test(width):
            module, inputs = made(name, width)
            model = ops.from_torch(module, inputs)
            assert len(model.graph.parameters) == len(list(module.parameters()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("_transformers")
def test_a_cache_is_refused_with_advice() -> None:
    from .hugging_face import made

    module, inputs = made("GPT2", 8)
    module.config.use_cache = True
    said = "from_torch: forward returns a transformers.cache_utils.DynamicCache, tensors are needed; say use_cache="
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        ops.from_torch(module, inputs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["resnet18", "vit"])
def test_models_of_torchvision(name: str, torch: Any) -> None:
    models = pytest.importorskip("torchvision.models", exc_type=Exception)
    torch.manual_seed(0)
    vit = models.VisionTransformer
    module = (
        models.resnet18(num_classes=7)
        if name == "resnet18"
        else vit(16, 8, 2, 2, 16, 32, num_classes=7)
    )
    size = 32 if name == "resnet18" else 16
    model = ops.from_torch(module.double(), torch.rand(2, 3, size, size, dtype=torch.float64))
    assert model.output.shape == (2, 7)


def test_what_torch_says_comes_with_the_inputs(torch: Any) -> None:
    with pytest.raises(
        ValueError, match=r"^from_torch: torch.export .*; its inputs are 'input' float32 \(2, 5\)$"
    ):
        ops.from_torch(torch.nn.Linear(3, 4), torch.rand(2, 5))
    with pytest.raises(
        ValueError, match=r"; its inputs are 'input' float32 \(2,\), 'target' int64 \(3,\)$"
    ):
        ops.from_torch(torch.nn.MSELoss(), (torch.rand(2), torch.arange(3)))
    with pytest.raises(
        ValueError, match=r"; its inputs are 'input 0' float32 \(2,\), 'input 1' float32 \(2,\)$"
    ):
        ops.from_torch(torch.nn.ReLU(), (torch.rand(2), torch.rand(2)))


def test_check_is_said_by_name(torch: Any) -> None:
    with pytest.raises(
        TypeError, match=r"from_torch\(\) takes 2 positional arguments but 3 were given"
    ):
        ops.from_torch(torch.nn.MSELoss(), torch.rand(2), torch.rand(2))
