"""A JAX program that knows nothing of perfml and sets no ranges of its own."""

import jax
import jax.numpy as jnp


@jax.jit
def layer(weights, values):
    return jax.nn.relu(values @ weights)


@jax.jit
def head(values):
    return jax.nn.softmax(values, axis=-1)


key = jax.random.key(0)
weights = jax.random.normal(key, (1024, 1024), dtype=jnp.float32)
values = jax.random.normal(key, (256, 1024), dtype=jnp.float32)
for _ in range(3):
    out = head(layer(weights, values))
print("sum", float(out.sum()))
