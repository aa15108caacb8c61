"""The MHLA language model written from its formulas, in float64, one token at a time.

Every token reads every token before it, weighed by the mixing matrix's number for their blocks: there
are no block sums here, so that the engine's are checked by something that has none.
"""

import numpy as np

BLOCK = 64


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def rotate(x, position, theta):
    """Pairs (d, d + K/2) of the last axis turn by position * theta^(-2d/K)."""
    half = x.shape[-1] // 2
    angle = position * theta ** (-2.0 * np.arange(half) / x.shape[-1])
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle),
                           a * np.sin(angle) + b * np.cos(angle)], axis=-1)


def mixing_weight(matrix, query, key):
    """Beyond the matrix the last row serves by distance, and what it does not know is not read."""
    last = len(matrix) - 1
    row = min(query, last)
    column = row - (query - key)
    return matrix[row, column] if column >= 0 else 0.0


class Layer:
    def __init__(self, weights, config, index):
        at = f"model.layers.{index}."
        self.w = {name[len(at):]: np.asarray(value, np.float64)
                  for name, value in weights.items() if name.startswith(at)}
        stored = self.w["attn.mixing_matrix"][..., 0, 0, 0, 0]
        self.mixing = np.tril(np.clip(stored, np.float64(np.float32(1e-5)), 1))
        self.heads, self.epsilon = config["num_heads"], config["norm_eps"]

    def heads_of(self, name, x):
        return (self.w[f"attn.{name}.weight"] @ x).reshape(self.heads, -1)

    def attend(self, x, past):
        position = len(past)
        q = rotate(np.maximum(self.heads_of("q_proj", x), 0), position, 10000.0)
        k = rotate(np.maximum(self.heads_of("k_proj", x), 0), position, 10000.0)
        past.append((k, self.heads_of("v_proj", x)))
        keys = np.stack([each for each, _ in past])
        values = np.stack([each for _, each in past])
        weight = np.array([mixing_weight(self.mixing, position // BLOCK, u // BLOCK)
                           for u in range(position + 1)])
        scores = np.einsum("hk,uhk->hu", q / q.shape[-1] ** 0.5, keys) * weight
        out = np.einsum("hu,uhv->hv", scores, values)
        out = rms_norm(out, self.w["attn.g_norm_swish_gate.weight"], self.epsilon)
        out = out * silu(self.heads_of("g_proj", x))
        return self.w["attn.o_proj.weight"] @ out.reshape(-1)

    def step(self, x, past):
        x = x + self.attend(rms_norm(x, self.w["attn_norm.weight"], self.epsilon), past)
        n = rms_norm(x, self.w["mlp_norm.weight"], self.epsilon)
        inner = silu(self.w["mlp.gate_proj.weight"] @ n) * (self.w["mlp.up_proj.weight"] @ n)
        return x + self.w["mlp.down_proj.weight"] @ inner


class Model:
    def __init__(self, weights, config):
        self.embeddings = np.asarray(weights["model.embeddings.weight"], np.float64)
        self.head = self.embeddings if config["tie_word_embeddings"] else np.asarray(
            weights["lm_head.weight"], np.float64)
        self.norm = np.asarray(weights["model.norm.weight"], np.float64)
        self.epsilon = config["norm_eps"]
        self.layers = [Layer(weights, config, i) for i in range(config["num_hidden_layers"])]

    def empty(self):
        return [[] for _ in self.layers]

    def step(self, past, token):
        """The logits after `token`, which `past` then holds."""
        x = self.embeddings[token]
        for layer, own in zip(self.layers, past):
            x = layer.step(x, own)
        return self.head @ rms_norm(x, self.norm, self.epsilon)
