"""Two losses and two optimizers in one graph: a small GAN (Goodfellow et al., NIPS 2014) on a ring of points.

The discriminator judges real and made points in one pass. Both losses are of that pass, so all gradients come before
the first update, as if both players moved at once. Each optimizer updates its own parameters: the loss of the generator
flows through the discriminator, which stays as it is for that.

    python examples/11_gan.py
    mpirun -n 2 python examples/11_gan.py
"""

import numpy as np

import ops
from taskflow import Executor, Graph, MachineModel, data_parallel, lower

BATCH, LATENT, STEPS = 64, 4, 1500


def build(batch: int = BATCH) -> Graph:
    """Inputs `real` (batch, 2) and `noise` (batch, LATENT); outputs `generator.loss`, `discriminator.loss`, `made`."""
    graph = Graph()
    real, noise = graph.input("real", (batch, 2)), graph.input("noise", (batch, LATENT))
    h = ops.relu(ops.linear(noise, 32, name="generator.fc1"), name="generator.relu")
    made = graph.output("made", ops.linear(h, 2, name="generator.fc2"))
    points = ops.concat([real, made], name="points")
    h = ops.leaky_relu(
        ops.linear(points, 64, name="discriminator.fc1"), 0.2, name="discriminator.relu1"
    )
    h = ops.leaky_relu(ops.linear(h, 64, name="discriminator.fc2"), 0.2, name="discriminator.relu2")
    logits = ops.linear(h, 1, name="discriminator.fc3")
    of_real, of_made = ops.split(logits, batch, name="judged")
    is_real, is_made = (
        ops.softplus(ops.multiply(of_real, -1.0)),
        ops.softplus(of_made),
    )  # -log σ(x), -log(1 - σ(x))
    judged = ops.add(ops.mean(is_real), ops.mean(is_made), name="discriminator_loss")
    fooled = ops.mean(ops.softplus(ops.multiply(of_made, -1.0)), name="generator_loss")
    rates = {"lr": 1e-3, "betas": (0.5, 0.999)}
    ops.adam(judged, parameters="discriminator.*", name="discriminator", **rates)
    ops.adam(fooled, parameters="generator.*", name="generator", **rates)
    return graph


def feeds(step: int, batch: int = BATCH) -> dict[str, np.ndarray]:
    """Points on a circle of radius 1, and noise."""
    random = np.random.default_rng(step)
    angle = random.random(batch) * 2 * np.pi
    real = np.stack([np.cos(angle), np.sin(angle)], 1).astype("float32")
    return {"real": real, "noise": random.standard_normal((batch, LATENT)).astype("float32")}


if __name__ == "__main__":
    graph, machine = build(), MachineModel.local()
    with Executor(lower(graph, data_parallel(graph, machine), machine)) as step:
        for k in range(STEPS):
            values = step(feeds(k))
            if k % 250 == 249:
                radius = np.linalg.norm(values["made"], axis=1)
                losses = ", ".join(
                    f"{name} {values[name]:.3f}"
                    for name in ("discriminator.loss", "generator.loss")
                )
                print(
                    f"step {k + 1}: {losses}, radius of made points {radius.mean():.2f} ± {radius.std():.2f}"
                )
