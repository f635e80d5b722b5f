"""Plans go out in the words of other systems and come in again as they were; what no words say is named."""

import sys
from dataclasses import dataclass, field, make_dataclass, replace
from types import ModuleType

import numpy as np
import pytest

from ops.models import gpt, moe
from taskflow import (
    CostModel,
    MachineModel,
    ParallelConfig,
    Plan,
    export_plan,
    import_job,
    random_strategy,
    search,
)
from taskflow import data_parallel as by_samples
from taskflow.bridges.exporting import SYSTEMS, said_in
from taskflow.bridges.making import PlanMaker
from taskflow.bridges.nearest import SaidPlans
from taskflow.bridges.recipe import Recipe, even_layout, with_ends
from taskflow.bridges.recognising import differences, recognise
from taskflow.searching.outcome import judged
from tests.bridges.random_recipes import random_plan, restored

FILES = {"megatron": "run.sh", "torchtitan": "config.py", "deepspeed": "ds.json"}
MACHINE = MachineModel.preset("h100")
COSTS = CostModel.analytic(MACHINE)


@pytest.fixture(scope="module")
def graph():
    return gpt.build(
        batch=32, sequence=32, layers=4, hidden=64, heads=8, vocabulary=256, dropout=0.0
    )


@pytest.fixture(scope="module")
def maker(graph):
    return PlanMaker(graph, MACHINE)


def read(tmp_path, graph, system, text, machine=MACHINE):
    path = tmp_path / FILES[system]
    path.write_text(text)
    return import_job(str(path), graph, machine)


@pytest.mark.parametrize("seed", range(2))
def test_random_plans_come_back(tmp_path, graph, maker, seed):
    generator = np.random.default_rng(seed)
    for name in ("megatron", "torchtitan"):
        plan = random_plan(generator, maker)
        exported = said_in(SYSTEMS[name], maker, plan, COSTS)
        back = read(tmp_path, graph, name, exported.text)
        assert (back.plan, back.unread) == (exported.plan, ())
        assert bool(exported.unsaid) == (back.plan != plan)
        assert restored(exported, recognise(back.plan, maker)[0], maker) == plan


RECIPES = [
    Recipe(data=8, sharding="state"),
    Recipe(tensor=4, data=2, rest="sequence", micro_batches=4, schedule="by_ordinal"),
    Recipe(tensor=2, context=2, data=2, sharding="parameters", recomputation="layers"),
    Recipe(
        tensor=2,
        pipeline=4,
        layout=with_ends([0, 2, 1, 1]),
        micro_batches=8,
        schedule="one_f_one_b",
        recomputation="attention",
    ),
    Recipe(data=4, pipeline=2, layout=even_layout(4, 4), micro_batches=4, schedule="interleaved"),
    Recipe(data=4, pipeline=2, layout=even_layout(3, 4), micro_batches=4, schedule="zb_v"),
]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("inside", [False, True])
def test_a_recipe_is_recognised_in_its_plan(graph, maker, recipe, inside):
    """Also where its micro-batches are in the strategy."""
    plan = maker.plan(recipe)
    given = plan
    if inside and recipe.micro_batches > 1:
        transformed, _ = maker.transformed(plan)
        given = Plan(
            plan.placement(transformed, MACHINE), 1, plan.schedule, plan.recomputed, plan.homes
        )
    recipe_back, plan_back = recognise(given, maker)
    assert (recipe_back, differences(plan_back, plan)) == (recipe, [])


def test_what_no_words_say_is_named(graph, maker):
    plan = maker.plan(RECIPES[1])
    plan.strategy["layer2.fc1"] = ParallelConfig({"b": 8})
    found = export_plan(graph, plan, MACHINE, COSTS, "torchtitan")
    (part,) = found.unsaid
    assert part.what == "1 operators (layer2.fc1): b:8 on 0-7 instead of b:2 o:4 on 0-7"
    assert part.seconds == found.outcome.seconds - found.original.seconds
    assert differences(plan, found.plan) == [replace(part, seconds=None)]
    assert str(found).startswith("torchtitan: ") and str(part) in str(found)


@pytest.mark.parametrize("system", SYSTEMS)
def test_samples_divide_into_micro_batches(maker, system):
    """Unequal micro-batches have no words: 4 samples of a device in 3."""
    said = SYSTEMS[system].said(Recipe(data=8, micro_batches=3), maker.facts)
    assert said.micro_batches == 2


def test_any_strategy_goes_out_with_what_is_named():
    graph = gpt.build(batch=8, sequence=8, layers=1, hidden=16, heads=4, vocabulary=32, dropout=0)
    maker = PlanMaker(graph, MACHINE)
    plan = Plan(random_strategy(graph, MACHINE, 0))
    found = said_in(SYSTEMS["deepspeed"], maker, plan, COSTS)
    assert restored(found, recognise(found.plan, maker)[0], maker) == plan
    assert len(found.unsaid) > 5


def test_a_schedule_that_is_not_known_there_is_named(graph, maker):
    plan = maker.plan(RECIPES[5])
    (part,) = export_plan(graph, plan, MACHINE, COSTS, "megatron").unsaid
    assert part.what == (
        "layout 'Et*2|t|tL' instead of '(Et|t|)tL'; schedule zb_v instead of interleaved"
    ) or part.words.keys() == {"layout", "schedule"}
    assert export_plan(graph, plan, MACHINE, COSTS, "torchtitan").unsaid == ()


# -- files as their systems have them ----------------------------------------------------------------------------------


def recipe_of(tmp_path, maker, system, text):
    back = read(tmp_path, maker.layers.graph, system, text, maker.machine)
    return recognise(back.plan, maker)[0], back.unread


MEGATRON = "torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py --num-layers 4 "
FLAGS = {
    "--global-batch-size 32 --micro-batch-size 4": Recipe(data=8),
    "--tensor-model-parallel-size 4 --sequence-parallel --micro-batch-size 4 "
    "--global-batch-size 32 --bf16 --lr 1e-4": RECIPES[1],
    "--pipeline-model-parallel-size 4 --tensor-model-parallel-size 2 --micro-batch-size 4 "
    '--pipeline-model-parallel-layout "E|tt|t|tL" --recompute-activations': RECIPES[3],
    "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1 "
    "--micro-batch-size 2": RECIPES[4],
    "--pipeline-model-parallel-size 2 --account-for-embedding-in-pipeline-split "
    "--account-for-loss-in-pipeline-split": Recipe(
        data=4,
        pipeline=2,
        layout=("Ett", "ttL"),
        micro_batches=8,
        schedule="one_f_one_b",
    ),
    "--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 1 --micro-batch-size 8 "
    "--use-distributed-optimizer --activations-checkpoint-method uniform": Recipe(
        data=4,
        pipeline=2,
        layout=("Et", "tttL"),
        schedule="one_f_one_b",
        sharding="state",
        recomputation="layers",
    ),
    "--use-megatron-fsdp --micro-batch-size 4": Recipe(data=8, sharding="parameters"),
}


@pytest.mark.parametrize("flags", FLAGS)
def test_flags_of_megatron(tmp_path, maker, flags):
    assert recipe_of(tmp_path, maker, "megatron", MEGATRON + flags) == (FLAGS[flags], ())


def test_what_is_not_read_is_named(tmp_path, maker):
    flags = "--micro-batch-size 4 --fp8-format hybrid --optimizer-cpu-offload --tp-comm-overlap"
    _, unread = recipe_of(tmp_path, maker, "megatron", MEGATRON + flags)
    assert unread == ("--fp8-format", "--tp-comm-overlap", "--optimizer-cpu-offload")


TITAN = """
def model_registry(name): ...


def small() -> "Trainer.Config":
    return Trainer.Config(
        model_spec=model_registry("debug"),
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=2 * 32, num_tokens_per_train_step=32 * 32,
            max_context_length=32,
        ),
        parallelism=ParallelismConfig({}),
        activation_checkpoint=FullAC.Config(),
    )


def other() -> "Trainer.Config": ...
"""
TITANS = {
    "tensor_parallel_degree=2": Recipe(
        tensor=2,
        data=4,
        rest="sequence",
        micro_batches=4,
        schedule="by_ordinal",
        sharding="parameters",
        recomputation="layers",
    ),
    "data_parallel_replicate_degree=4, data_parallel_shard_degree=1, pipeline_parallel_degree=2, "
    "pipeline_parallel_schedule='Interleaved1F1B'": Recipe(
        data=4,
        pipeline=2,
        layout=("Et", "tt", "t", "L"),
        micro_batches=4,
        schedule="interleaved",
        recomputation="layers",
    ),
}


@pytest.mark.parametrize("words", TITANS)
def test_a_configuration_of_torchtitan(tmp_path, maker, words):
    (tmp_path / "config.py").write_text(TITAN.replace("({})", f"({words})"))
    back = import_job(f"{tmp_path}/config.py:small", maker.layers.graph, MACHINE)
    assert recognise(back.plan, maker)[0] == TITANS[words]


def test_toml_of_torchtitan(tmp_path, maker):
    text = """
    [training]
    local_batch_size = 4
    seq_len = 32
    [parallelism]
    data_parallel_shard_degree = -1
    tensor_parallel_degree = 1
    enable_async_tensor_parallel = true
    [activation_checkpoint]
    mode = "none"
    """
    (tmp_path / "old.toml").write_text(text)
    back = import_job(str(tmp_path / "old.toml"), maker.layers.graph, MACHINE)
    assert recognise(back.plan, maker)[0] == Recipe(data=8, sharding="parameters")
    assert back.unread == ("parallelism.enable_async_tensor_parallel = True",)


@pytest.fixture
def torchtitan(monkeypatch):
    """What stands in for its modules: the fields that its documentation has."""
    config, checkpoint = (
        ModuleType(f"torchtitan.{name}") for name in ("config", "distributed.activation_checkpoint")
    )
    from taskflow.bridges.torchtitan import TitanParallelism

    config.ParallelismConfig = make_dataclass(
        "ParallelismConfig",
        [(name, object, None) for name in TitanParallelism.__struct_fields__],
        kw_only=True,
    )
    for name in ("FullAC", "SelectiveAC"):
        policy = type(name, (), {"Config": make_dataclass(f"{name}Config", [])})
        setattr(checkpoint, name, policy)
    for module in (config, checkpoint):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for name in ("torchtitan", "torchtitan.distributed"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))


@dataclass
class Training:
    num_tokens_per_microbatch_per_dp_rank: int = 0
    num_tokens_per_train_step: int = -1
    max_context_length: int = 0


@dataclass
class Trainer:
    parallelism: object = None
    training: Training = field(default_factory=Training)
    activation_checkpoint: object = "default"


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_is_written_imports_in_torchtitan(torchtitan, maker, recipe):
    recipe = SYSTEMS["torchtitan"].said(recipe, maker.facts)
    scope: dict[str, object] = {}
    exec(SYSTEMS["torchtitan"].write(recipe, maker.facts), scope)
    config = scope["with_plan"](Trainer())  # type: ignore[operator]
    ranks = config.parallelism
    sharded, copied = ranks.data_parallel_shard_degree, ranks.data_parallel_replicate_degree
    assert sharded * copied == recipe.data and min(sharded, copied) == 1
    assert ranks.tensor_parallel_degree == recipe.tensor
    assert config.training.num_tokens_per_train_step == 32 * 32
    each = config.training.num_tokens_per_microbatch_per_dp_rank
    assert each * recipe.data * recipe.micro_batches == 32 * 32
    names = [name for part in ranks.module_fqns_per_model_part or () for name in part]
    layers = [f"layers.{k}" for k in range(4)]
    assert names == (["tok_embeddings", *layers, "norm", "lm_head"] if names else [])
    assert (config.activation_checkpoint is None) == (recipe.recomputation == "")


DEEPSPEED = {
    '{"train_batch_size": 32, "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 3}, '
    '"bf16": {"enabled": true}}': Recipe(
        data=8, micro_batches=2, schedule="by_ordinal", sharding="parameters"
    ),
    '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}, "pipeline": '
    '{"stages": 2, "activation_checkpoint_interval": 1}, "tensor_parallel": {"autotp_size": 2}, '
    '"train_batch_size": "auto"}': Recipe(
        tensor=2,
        data=2,
        pipeline=2,
        layout=("Ett", "ttL"),
        micro_batches=8,
        schedule="one_f_one_b",
        sharding="state",
        recomputation="layers",
    ),
}


@pytest.mark.parametrize("text", DEEPSPEED)
def test_json_of_deepspeed(tmp_path, maker, text):
    recipe, unread = recipe_of(tmp_path, maker, "deepspeed", text)
    assert (recipe, unread) == (DEEPSPEED[text], ())
    facts, system = maker.facts, SYSTEMS["deepspeed"]
    assert system.said(recipe, facts) == recipe
    assert recipe_of(tmp_path, maker, "deepspeed", system.write(recipe, facts))[0] == recipe


def test_a_strategy_file_of_flexflow(tmp_path, graph):
    """Dimensions from the inside: the last is that of samples."""
    path = tmp_path / "strategy.txt"
    path.write_text("1\nlayer1.fc1\n0\n3\n2\t1\t4\t\n8\n0\t4\t1\t5\t2\t6\t3\t7\n")
    plan = import_job(str(path), graph, MACHINE).plan
    wanted = by_samples(graph, MACHINE)
    wanted["layer1.fc1"] = ParallelConfig({"b": 4, "o": 2}, (0, 4, 1, 5, 2, 6, 3, 7))
    assert plan == Plan(wanted)


def test_parameters_that_stay_are_gathered_once():
    """Whatever is computed again; the casts of a precision are homes and no part of layers then."""
    sizes = {"batch": 8, "sequence": 16, "layers": 2, "hidden": 64, "heads": 4, "vocabulary": 64}
    graph = gpt.build(**sizes, dropout=0.0, dtype="mixed_bfloat16")
    maker, moved = PlanMaker(graph, MACHINE), {}
    for again in (True, False):
        for kind in ("", "layers"):
            recipe = Recipe(data=8, sharding="parameters", gathers_again=again, recomputation=kind)
            plan = maker.plan(recipe)
            assert recognise(plan, maker)[0] == recipe
            moved[again, kind] = judged(graph, MACHINE, COSTS, plan).bytes_moved
    assert moved[False, ""] == moved[False, "layers"] < moved[True, "layers"]


def test_experts_lie_across_data_parallel_devices(tmp_path):
    graph = moe.build(batch=8, sequence=16, layers=2, hidden=32, heads=4, vocabulary=64, groups=8)
    maker = PlanMaker(graph, MACHINE)
    recipe = Recipe(tensor=2, expert=4, data=4, rest="sequence", sharding="state")
    plan = maker.plan(recipe)
    assert plan.strategy["experts0.up"] == ParallelConfig({"e": 4, "replicas": 2})
    assert recognise(plan, maker)[0] == recipe
    exported = export_plan(graph, plan, MACHINE, COSTS, "megatron")
    assert exported.unsaid == ()
    assert read(tmp_path, graph, "megatron", exported.text).plan == plan


@pytest.mark.parametrize("schedule", ["interleaved:2", "zb_v:1"])
def test_how_eager_an_order_is_no_system_says(tmp_path, graph, maker, schedule):
    layout = ("Et", "t", "t", "tL") if schedule == "interleaved:2" else ("Et", "tt", "tL")
    recipe = Recipe(4, pipeline=2, layout=layout, micro_batches=4, schedule=schedule)
    plan = maker.plan(recipe)
    assert recognise(plan, maker)[0] == recipe
    for system in ("megatron", "torchtitan"):
        exported = export_plan(graph, plan, MACHINE, COSTS, system)
        assert [f"schedule {schedule} instead of" in each.what for each in exported.unsaid] == [
            True
        ]
        back = read(tmp_path, graph, system, exported.text).plan
        assert back == exported.plan != plan == restored(exported, recognise(back, maker)[0], maker)


# -- the best that can be said -----------------------------------------------------------------------------------------


def test_a_search_stays_within_what_a_system_says(tmp_path, graph, maker):
    start = Recipe(data=8, recomputation="layers", micro_batches=4, schedule="by_ordinal")
    said = SaidPlans(SYSTEMS["megatron"], maker)
    starts = {"job": maker.plan(replace(start, schedule="gpipe"))}  # which is said as another one
    given = {"starts": starts, "space": said, "moves": said.moves}
    found = search(graph, MACHINE, COSTS, proposals=1, **given)
    assert list(found.baseline_seconds) == ["job"] and not found.left_out
    assert found.baseline_seconds["job"] == judged(graph, MACHINE, COSTS, maker.plan(start)).seconds
    assert found.seconds < 0.95 * found.baseline_seconds["job"]
    text = SYSTEMS["megatron"].write(recognise(found.plan, maker)[0], maker.facts)
    again = read(tmp_path, graph, "megatron", text).plan
    assert again == found.plan and judged(graph, MACHINE, COSTS, again).seconds == found.seconds


def test_a_space_of_plans_may_have_none_of_the_starts(graph, maker):
    said = SaidPlans(
        replace(SYSTEMS["megatron"], said=lambda recipe, facts: Recipe(tensor=16)), maker
    )
    given = {"starts": {"job": maker.plan(Recipe(data=8))}, "space": said, "moves": said.moves}
    with pytest.raises(ValueError, match="search: the space has none of job"):
        search(graph, MACHINE, COSTS, **given)
