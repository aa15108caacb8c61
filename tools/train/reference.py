"""The plain reader: one token at a time, float64, straight from the definitions, for a checkpoint folder.

    python3 tools/train/reference.py --model checkpoints/demo --ids 1,2,3 [--reader hla|native]

Prints the greedy next token after the ids; the class yields logits. It is slow and is there to be compared with.
Closed chunks are kept as pages rounded once to float16, with one power-of-two scale for A and one for B.
"""

import argparse

import numpy as np

import checkpoint


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def norm(x):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-6)


def unit(x):
    return x / np.sqrt(np.sum(x * x, -1, keepdims=True) + 1e-6)


def to_page(matrix):
    """Rounds to float16 after scaling the largest element into [1, 2) by a power of two."""
    largest = np.abs(matrix).max()
    scale = 2.0 ** np.floor(np.log2(largest)) if largest > 0 else 1.0
    return (matrix / scale).astype(np.float16).astype(np.float64) * scale


class LayerReader:
    """One layer's weights and memory; H heads of width K."""

    def __init__(self, layer, weights, config, settings, reader, rounded):
        def get(name):
            return weights[f"{checkpoint.PREFIX}layers.{layer}.{name}"].double().numpy()

        self.H, self.K = config["linear_num_key_heads"], config["linear_key_head_dim"]
        self.input_norm, self.mlp_norm = get("input_layernorm.weight"), get("post_attention_layernorm.weight")
        self.qkv, self.z, self.a, self.b, self.out = (get(f"linear_attn.{n}.weight") for n in ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj"))
        self.taps, self.head_norm = get("linear_attn.conv1d.weight")[:, 0], get("linear_attn.norm.weight")
        self.decay_rate, self.dt_bias = np.exp(get("linear_attn.A_log")), get("linear_attn.dt_bias")
        self.gate, self.up, self.down = (get(f"mlp.{n}_proj.weight") for n in ("gate", "up", "down"))
        self.chunk, self.window = int(settings["chunk"]), int(settings["window"])
        self.theta, self.pages_max = float(settings["theta"]), int(settings["pages_max"])
        self.recent = int(settings["recent_chunks"].split(",")[layer])
        self.native = reader == "native"
        self.page = to_page if rounded else np.copy
        self.closed = str(layer) in settings["closed_layers"].split(",")
        if not self.closed:
            self.route = {n: weights[f"layers.{layer}.route.{n}.weight"].double().numpy() for n in ("q", "pool_k", "pool_v", "pool_o")}
            self.bias = weights[f"layers.{layer}.route.bias"].double().numpy()
        self.columns = np.zeros((4, len(self.qkv)))  # the last four tokens' q, k, v before the convolution
        self.pages = []                              # (A, B), each [H, K, K]
        self.representatives = []                    # [H, P, K] a chunk
        self.window_keys, self.open_representatives = [], []
        self.tokens = 0
        self._open_chunk()

    def _open_chunk(self):
        self.A, self.B = np.tile(np.eye(self.K), (self.H, 1, 1)), np.zeros((self.H, self.K, self.K))
        self.open_representatives = []

    def step(self, x):
        """x [D], one token's hidden state -> the same after this layer. Gates of the last token stay in self.gates [H, chunks]."""
        h = norm(x) * (1 + self.input_norm)
        self.columns = np.roll(self.columns, -1, 0)
        self.columns[-1] = self.qkv @ h
        raw = self.columns[-1].reshape(3, self.H, self.K)
        q, k, v = silu((self.columns * self.taps.T).sum(0)).reshape(3, self.H, self.K)
        q, k = unit(q) * self.K ** -0.5, unit(k)
        beta = sigmoid(self.b @ h)
        decay = np.exp(-self.decay_rate * np.logaddexp(0, self.a @ h + self.dt_bias))
        for head in range(self.H):
            self._absorb(self.A[head], k[head], np.zeros(self.K), beta[head], decay[head])
            self._absorb(self.B[head], k[head], v[head], beta[head], decay[head])
        self.gates = self._gates(raw[0])
        o = np.stack([self._read(head, q[head]) for head in range(self.H)])
        o = norm(o) * self.head_norm * silu(self.z @ h).reshape(self.H, self.K)
        x = x + self.out @ o.ravel()
        h = norm(x) * (1 + self.mlp_norm)
        self._remember(raw[1])
        return x + self.down @ (silu(self.gate @ h) * (self.up @ h))

    @staticmethod
    def _absorb(state, k, v, beta, decay):
        state *= decay
        state += np.outer(k, beta * (v - k @ state))

    def _gates(self, q_raw):
        """[H, closed chunks]: recent chunks 1, then the largest of the router's gates above theta, newer first among equals."""
        chunks = len(self.pages)
        if self.native:
            return np.ones((self.H, chunks))
        gates = np.zeros((self.H, chunks))
        recent = min(self.recent, chunks)
        routed = chunks - recent
        for head in range(self.H):
            if not self.closed and routed:
                query = self.route["q"][head] @ q_raw[head]
                scores = np.stack([r[head] for r in self.representatives[:routed]]) @ query * self.K ** -0.5
                score = np.log(np.mean(np.exp(scores), -1)) + self.bias[head]
                gate = sigmoid(score)
                gate[gate < self.theta] = 0
                order = sorted(range(routed), key=lambda n: (-gate[n], -n))
                kept = order[:max(self.pages_max - recent, 0)]
                gates[head, kept] = gate[kept]
            gates[head, routed:] = 1
        return gates

    def _read(self, head, q):
        y, r = q @ self.B[head], q @ self.A[head]
        for n in reversed(range(len(self.pages))):
            w = self.gates[head, n]
            if w > 0:
                A, B = self.pages[n]
                y = y + w * (r @ B[head])
                r = r + w * (r @ A[head] - r)
        return y

    def _remember(self, k_raw):
        """Pools representatives and seals the chunk when it is full."""
        self.window_keys.append(k_raw.copy())
        self.tokens += 1
        if len(self.window_keys) == self.window:
            if not self.closed:
                self.open_representatives.append([self._representative(head, np.stack(self.window_keys)[:, head]) for head in range(self.H)])
            self.window_keys = []
        if self.tokens % self.chunk == 0:
            self.pages.append((np.stack([self.page(m) for m in self.A]), np.stack([self.page(m) for m in self.B])))
            self.representatives.append(np.array(self.open_representatives).swapaxes(0, 1) if self.open_representatives else None)
            self._open_chunk()

    def _representative(self, head, keys):
        a = keys @ self.route["pool_k"][head].T
        scores = a @ a.T * self.K ** -0.5
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = weights @ (keys @ self.route["pool_v"][head].T)
        return (mixed @ self.route["pool_o"][head].T).mean(0)


class Reader:
    def __init__(self, folder, reader="hla", rounded=True):
        """reader "hla" or "native"; rounded False keeps pages unrounded, to compare formulas alone."""
        self.weights = checkpoint.tensors(folder)
        self.config = checkpoint.text_config(folder)
        settings = checkpoint.router_settings(folder)
        self.embed = self.weights[checkpoint.PREFIX + "embed_tokens.weight"].double().numpy()
        self.final_norm = self.weights[checkpoint.PREFIX + "norm.weight"].double().numpy()
        self.layers = [LayerReader(i, self.weights, self.config, settings, reader, rounded) for i in range(self.config["num_hidden_layers"])]

    def step(self, token):
        """Reads one token; returns the logits [V] of the next."""
        x = self.embed[token]
        for layer in self.layers:
            x = layer.step(x)
        return self.embed @ (norm(x) * (1 + self.final_norm))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--ids", required=True, help="comma-separated token ids")
    parser.add_argument("--reader", choices=["hla", "native"], default="hla")
    arguments = parser.parse_args()
    reader = Reader(arguments.model, arguments.reader)
    for token in arguments.ids.split(","):
        logits = reader.step(int(token))
    best = int(logits.argmax())
    print(f"{best} {logits[best]:.6f}")


if __name__ == "__main__":
    main()
