"""The routed and the mixed read of an all-linear Qwen3.5 model, one token at a time in float64.

Written from the formulas, with no chunk form, no shared code and no attention to speed: the state of
a chunk is kept as its affine transition (A, B), and history is read newest to oldest with a row
vector. Shapes are [heads, K, V] and alike; updates act from the left.
"""

import dataclasses

import numpy as np

CHUNK = 256
TAPS = 4


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def rms(x, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def l2(x):
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + 1e-6)


@dataclasses.dataclass(frozen=True)
class Memory:
    """What one layer remembers. Never changed in place, so that a token can be tried and dropped."""
    columns: np.ndarray          # [TAPS - 1, conv width], before the convolution, oldest first
    A: np.ndarray                # [H, K, K] of the open chunk
    B: np.ndarray                # [H, K, V]
    pages: tuple = ()            # closed chunks: (A, B)
    representatives: tuple = ()  # of closed chunks: [G, P, K]
    window_keys: tuple = ()      # raw keys [G, K] of the open window
    open_windows: tuple = ()     # representatives [G, K] of the open chunk so far
    tokens: int = 0


class Layer:
    def __init__(self, index, weights, config, router, mixing):
        prefix = f"model.layers.{index}."
        self.w = {k.removeprefix(prefix): v.astype(np.float64) for k, v in weights.items()
                  if k.startswith(prefix)}
        self.G, self.H = config["linear_num_key_heads"], config["linear_num_value_heads"]
        self.K, self.V = config["linear_key_head_dim"], config["linear_value_head_dim"]
        self.eps = config["rms_norm_eps"]
        self.settings = router["settings"]
        self.closed = index in self.settings["closed_layers"]
        self.recent = self.settings["recent_chunks"][index]
        own = f"layers.{index}."
        self.route = {k.removeprefix(own + "route."): v.astype(np.float64)
                      for k, v in router["tensors"].items() if k.startswith(own)}
        matrix = mixing["tensors"].get(own + "mixing") if mixing else None
        self.mixing = None if matrix is None else matrix.astype(np.float64)
        self.round_representatives = router["round_representatives"]

    def empty(self):
        conv = 2 * self.G * self.K + self.H * self.V
        return Memory(np.zeros((TAPS - 1, conv)), np.tile(np.eye(self.K), (self.H, 1, 1)),
                      np.zeros((self.H, self.K, self.V)))

    def step(self, m, x, reader):
        """One token: hidden [D] -> (memory, hidden, gates [G, closed chunks], scores)."""
        h = rms(x, self.eps) * (1 + self.w["input_layernorm.weight"])
        raw = self.w["linear_attn.in_proj_qkv.weight"] @ h
        KD = self.G * self.K
        q_raw, k_raw = raw[:KD].reshape(self.G, self.K), raw[KD:2 * KD].reshape(self.G, self.K)

        window = np.vstack([m.columns, raw])  # the last 4 tokens, the current one last
        taps = self.w["linear_attn.conv1d.weight"][:, 0, :]  # [conv width, TAPS]
        mixed = silu(np.einsum("tc,ct->c", window, taps))
        r = self.H // self.G
        q = np.repeat(l2(mixed[:KD].reshape(self.G, self.K)), r, axis=0) * self.K ** -0.5
        k = np.repeat(l2(mixed[KD:2 * KD].reshape(self.G, self.K)), r, axis=0)
        v = mixed[2 * KD:].reshape(self.H, self.V)
        beta = sigmoid(self.w["linear_attn.in_proj_b.weight"] @ h)
        a = self.w["linear_attn.in_proj_a.weight"] @ h + self.w["linear_attn.dt_bias"]
        g = -np.exp(self.w["linear_attn.A_log"]) * np.logaddexp(0, a)

        A, B = np.exp(g)[:, None, None] * m.A, np.exp(g)[:, None, None] * m.B
        A = A - (beta[:, None] * k)[:, :, None] * np.einsum("hk,hkj->hj", k, A)[:, None, :]
        B = B + (beta[:, None] * k)[:, :, None] * (v - np.einsum("hk,hkv->hv", k, B))[:, None, :]

        gates, scores = self.gates(m, q_raw, reader)
        o = np.stack([self.read(m, A[n], B[n], q[n], gates[n // r], n) for n in range(self.H)])
        z = (self.w["linear_attn.in_proj_z.weight"] @ h).reshape(self.H, self.V)
        o = rms(o, self.eps) * self.w["linear_attn.norm.weight"] * silu(z)
        x = x + self.w["linear_attn.out_proj.weight"] @ o.ravel()

        h = rms(x, self.eps) * (1 + self.w["post_attention_layernorm.weight"])
        inner = silu(self.w["mlp.gate_proj.weight"] @ h) * (self.w["mlp.up_proj.weight"] @ h)
        x = x + self.w["mlp.down_proj.weight"] @ inner
        return self.remember(m, window[1:], A, B, k_raw), x, gates, scores

    def read(self, m, A, B, q, gates, head):
        y, row = q @ B, q @ A
        for chunk in reversed(range(len(m.pages))):
            w = gates[chunk]
            if w == 0:
                continue
            page_a, page_b = m.pages[chunk][0][head], m.pages[chunk][1][head]
            y = y + w * (row @ page_b)
            row = row + w * (row @ page_a - row)
        return y

    def gates(self, m, q_raw, reader):
        count = len(m.pages)
        recent = min(self.recent, count)
        gates, scores = np.zeros((self.G, count)), np.zeros((self.G, count))
        if reader == "mhla" and not self.closed:
            for chunk in range(count):
                gates[:, chunk] = self.mixed_weight(count, chunk)
        if reader == "hla" and not self.closed:
            for head in range(self.G):
                query = self.route["q.weight"][head] @ q_raw[head]
                for chunk in range(count):
                    s = m.representatives[chunk][head] @ query * self.K ** -0.5
                    scores[head, chunk] = s.max() + np.log(np.mean(np.exp(s - s.max())))
                w = sigmoid(scores[head] + self.route["bias"][head])
                w[w < self.settings["theta"]] = 0
                # Largest first, the newer first among equals; recent chunks take their room.
                order = sorted(range(count - recent), key=lambda c: (-round(w[c], 11), -c))
                for chunk in order[:self.settings["pages_max"] - recent]:
                    gates[head, chunk] = w[chunk]
        gates[:, count - recent:] = 1
        return gates, scores

    def mixed_weight(self, query, key):
        last = len(self.mixing) - 1
        if query <= last:
            return self.mixing[query, key]
        distance = query - key
        return self.mixing[last, last - distance] if distance <= last else 0.0

    def remember(self, m, columns, A, B, k_raw):
        keys, windows = m.window_keys + (k_raw,), m.open_windows
        if len(keys) == self.settings["window"]:
            windows = windows + ((self.represent(np.stack(keys)),) if self.route else ())
            keys = ()
        if (m.tokens + 1) % CHUNK != 0:
            return Memory(columns, A, B, m.pages, m.representatives, keys, windows, m.tokens + 1)
        empty = self.empty()
        closed = (np.stack(windows, axis=1),) if self.route else (None,)
        return Memory(columns, empty.A, empty.B, m.pages + ((A, B),), m.representatives + closed,
                      keys, (), m.tokens + 1)

    def represent(self, keys):
        """Keys [window, G, K] -> [G, K]: attention of the window on itself, averaged."""
        out = []
        for head in range(self.G):
            a = keys[:, head] @ self.route["pool_k.weight"][head].T
            u = keys[:, head] @ self.route["pool_v.weight"][head].T
            s = a @ a.T * self.K ** -0.5
            p = np.exp(s - s.max(axis=1, keepdims=True))
            p = p / p.sum(axis=1, keepdims=True)
            out.append((p @ u @ self.route["pool_o.weight"][head].T).mean(axis=0))
        out = np.stack(out)
        return out.astype(np.float16).astype(np.float64) if self.round_representatives else out


class Model:
    """`router` and `mixing`: tensors and settings; see make_hla.py."""

    def __init__(self, weights, config, router, mixing=None):
        self.embedding = weights["model.embed_tokens.weight"].astype(np.float64)
        self.norm = weights["model.norm.weight"].astype(np.float64)
        self.eps = config["rms_norm_eps"]
        self.layers = [Layer(i, weights, config, router, mixing)
                       for i in range(config["num_hidden_layers"])]

    def empty(self):
        return tuple(layer.empty() for layer in self.layers)

    def step(self, memory, token, reader):
        """One token -> (memory, logits, gates and scores of each layer)."""
        x = self.embedding[token]
        after, traces = [], []
        for layer, m in zip(self.layers, memory):
            m, x, gates, scores = layer.step(m, x, reader)
            after.append(m)
            traces.append((gates, scores))
        logits = self.embedding @ (rms(x, self.eps) * (1 + self.norm))
        return tuple(after), logits, traces
