"""The released HLA-1.3B's formulas, one token at a time in float64.

Written from the mathematics of the authors' model (hla_layout.h has its names) and not from our
code: history is the state itself, carried forward chunk by chunk with the gates of the current
query, where the server reads backwards with a row vector and never has that state.

    S_j = (1 - w_j) S_{j-1} + w_j (A_j S_{j-1} + B_j),   S = A_open S_last + B_open,   o = q S

Shapes are [heads, K, V] and alike; updates act from the left.
"""

import dataclasses

import numpy as np

CHUNK = 256
BIAS = 2.2


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def rms(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def l2(x):
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + 1e-6)


@dataclasses.dataclass(frozen=True)
class Memory:
    """What one layer remembers. Never changed in place, so that a token can be tried and dropped."""
    A: np.ndarray                # [H, K, K] of the open chunk
    B: np.ndarray                # [H, K, V]
    pages: tuple = ()            # closed chunks: (A, B)
    representatives: tuple = ()  # of closed chunks: [H, P, K]
    keys: tuple = ()             # raw keys [H, K] of the open chunk


class Layer:
    def __init__(self, index, weights, config, theta, round_representatives):
        prefix = f"transformer.h.{index}."
        self.w = {name.removeprefix(prefix): tensor.astype(np.float64)
                  for name, tensor in weights.items() if name.startswith(prefix)}
        self.H, self.K = config["gated_delta_num_heads"], config["gated_delta_head_dim"]
        self.V = round(self.K * config["gated_delta_expand_v"])
        self.eps, self.window = config["norm_eps"], config["mix_pool_size"]
        self.theta, self.round = theta, round_representatives

    def empty(self):
        return Memory(np.tile(np.eye(self.K), (self.H, 1, 1)), np.zeros((self.H, self.K, self.V)))

    def step(self, m, x, routed):
        """One token: hidden [D] -> (memory, hidden, gates [H, closed chunks], raw query)."""
        h = rms(x, self.w["norm_1.weight"], self.eps)
        project = lambda name: self.w[f"attn.{name}_proj.weight"] @ h
        q_raw, k_raw = project("q").reshape(self.H, self.K), project("k").reshape(self.H, self.K)
        q, k = l2(silu(q_raw)) * self.K ** -0.5, l2(silu(k_raw))
        v = silu(project("v")).reshape(self.H, self.V)
        beta = sigmoid(project("b"))
        g = -np.exp(self.w["attn.A_log"]) * np.logaddexp(0, project("a") + self.w["attn.dt_bias"])

        token = np.exp(g)[:, None, None] * (
            np.eye(self.K) - beta[:, None, None] * k[:, :, None] * k[:, None, :])
        A = token @ m.A
        B = token @ m.B + beta[:, None, None] * k[:, :, None] * v[:, None, :]

        gates = self.gates(m, q_raw) if routed else np.ones((self.H, len(m.pages)))
        o = np.einsum("hk,hkv->hv", q, A @ self.history(m, gates) + B)
        z = project("g").reshape(self.H, self.V)
        o = rms(o, self.w["attn.o_norm.weight"], self.eps) * silu(z)
        x = x + self.w["attn.o_proj.weight"] @ o.ravel()

        h = rms(x, self.w["norm_2.weight"], self.eps)
        gate, up = np.split(self.w["mlp.gate_proj.weight"] @ h, 2)
        x = x + self.w["mlp.down_proj.weight"] @ (silu(gate) * up)
        return self.remember(m, A, B, k_raw), x, gates, q_raw

    def history(self, m, gates):
        S = np.zeros((self.H, self.K, self.V))
        for chunk, (A, B) in enumerate(m.pages):
            w = gates[:, chunk, None, None]
            S = (1 - w) * S + w * (A @ S + B)
        return S

    def state(self, m):
        """The plain state after the last token: every gate 1."""
        return m.A @ self.history(m, np.ones((self.H, len(m.pages)))) + m.B

    def gates(self, m, q_raw):
        gates = np.zeros((self.H, len(m.pages)))
        for head in range(self.H):
            query = self.w["attn.route_q_proj.weight"][head] @ q_raw[head]
            for chunk, representatives in enumerate(m.representatives):
                s = representatives[head] @ query * self.K ** -0.5
                score = s.max() + np.log(np.sum(np.exp(s - s.max()))) - np.log(len(s))
                gates[head, chunk] = sigmoid(score + BIAS)
        return np.where(gates < self.theta, 0, gates)

    def remember(self, m, A, B, k_raw):
        keys = m.keys + (k_raw,)
        if len(keys) < CHUNK:
            return Memory(A, B, m.pages, m.representatives, keys)
        closed = np.stack([self.represent(np.stack(keys[at:at + self.window]))
                           for at in range(0, CHUNK, self.window)], axis=1)
        empty = self.empty()
        return Memory(empty.A, empty.B, m.pages + ((A, B),), m.representatives + (closed,))

    def represent(self, keys):
        """Keys [window, H, K] -> [H, K]: attention of the window on itself, projected, averaged."""
        out = []
        for head in range(self.H):
            part = lambda name: self.w[f"attn.route_pool_attn_{name}_proj.weight"][head]
            a, u = keys[:, head] @ part("k").T, keys[:, head] @ part("v").T
            s = a @ a.T * self.K ** -0.5
            p = np.exp(s - s.max(axis=1, keepdims=True))
            p = p / p.sum(axis=1, keepdims=True)
            out.append((p @ u @ part("o").T).mean(axis=0))
        out = np.stack(out)
        return out.astype(np.float16).astype(np.float64) if self.round else out


class Model:
    def __init__(self, weights, config, theta=0.0, round_representatives=True):
        self.embedding = weights["transformer.wte.weight"].astype(np.float64)
        self.norm = weights["transformer.ln_f.weight"].astype(np.float64)
        self.eps = config["norm_eps"]
        self.layers = [Layer(i, weights, config, theta, round_representatives)
                       for i in range(config["n_layer"])]

    def empty(self):
        return tuple(layer.empty() for layer in self.layers)

    def step(self, memory, token, routed):
        """One token -> (memory, logits, gates and raw query of each layer)."""
        x = self.embedding[token]
        after, traces = [], []
        for layer, m in zip(self.layers, memory):
            m, x, gates, q_raw = layer.step(m, x, routed)
            after.append(m)
            traces.append((gates, q_raw))
        return tuple(after), self.embedding @ rms(x, self.norm, self.eps), traces
