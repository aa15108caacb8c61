"""The demo model: Gated DeltaNet layers in the Qwen3.5 layout, read through routed chunks.

A sequence is cut into chunks of 256 tokens. In every layer a token sees its own chunk; `recent_chunks` newest closed
chunks are always read with gate 1 (closed layers have nothing else); routed layers read further chunks through gates.
Only chosen rows (tokens) read routed history in training; all other tokens have every gate 0.
"""

import sys
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn

import routing
from gdn import chunk_transitions
from routing import Router, cap_gates, routed_read

CHUNK = 256
CONV = 4
EPS = 1e-6


@dataclass
class ModelConfig:
    vocabulary: int = 4096
    width: int = 384
    layers: int = 6
    closed_layers: int = 3  # the first ones: they read the newest closed chunk and no routed history
    heads: int = 2
    head_width: int = 128
    mlp: int = 960
    router_bias: float = -5.0
    half_lives: tuple = (64.0, 4096.0)  # tokens; heads of all layers spread over it evenly in the logarithm

    def as_dict(self):
        return asdict(self)


@dataclass
class Gating:
    """How routed layers choose gates for the rows of a batch.

    rows     [B, R] positions of the tokens that may read routed history, ascending
    given    [B, R, N] gates to use where `forced`, or None
    forced   [B, R] whether a row uses `given` instead of the router's gates, or None
    pages_max, theta: cap and threshold on the router's gates (theta 0: none)
    native   every layer, closed ones too, reads all closed chunks with gate 1
    mixing   [routed layers, distances] gates that depend on the distance in chunks alone, 1 the newest closed one; or None
    record   a list that receives the gates [B,H,R,N] of every layer that reads routed history
    """
    rows: torch.Tensor
    given: torch.Tensor = None
    forced: torch.Tensor = None
    pages_max: int = 16
    theta: float = 0.0
    native: bool = False
    mixing: torch.Tensor = None
    record: list = None

    @classmethod
    def everywhere(cls, ids, **settings):
        """Every token of ids [B,T] is a row."""
        return cls(torch.arange(ids.shape[1], device=ids.device).expand(ids.shape), **settings)


def zero_centred_norm(x, weight, eps=EPS):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * (1 + weight)


def gated_norm(o, weight, z, eps=EPS):
    return o * torch.rsqrt(o.square().mean(-1, keepdim=True) + eps) * weight * F.silu(z.float())


def causal_conv(x, taps):
    """x [B,T,W], taps [W,4], last tap on the token itself -> SiLU of the depthwise convolution, float32."""
    padded = F.pad(x, (0, 0, CONV - 1, 0)).float()
    T = x.shape[1]
    return F.silu(sum(padded[:, j:j + T] * taps[:, j] for j in range(CONV)))


def unit(x):
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + EPS)


def states_before(carry):
    """carry [B,N,H,K,V+K] = [added | left] -> the native state before each chunk [B,N,H,K,V]."""
    widths = [carry.shape[-1] - carry.shape[-2], carry.shape[-2]]
    states = [torch.zeros_like(carry[:, 0, ..., :widths[0]])]
    for chunk in carry.unbind(1)[:-1]:
        added, left = chunk.split(widths, -1)
        states.append(left @ states[-1] + added)
    return torch.stack(states, 1)


def mixed_states(carry, weights):
    """carry [B,N,H,K,V+K], weights of distance 1, 2, ..., further back 0 -> the state that each chunk reads [B,N,H,K,V].

    Chunk i reads chunks 0 .. i-1 in their order with gates weights[i-j-1]: S' = (1-w) S + w (left S + added).
    """
    width, chunks = carry.shape[-2], carry.shape[1]
    added, left = carry.split([carry.shape[-1] - width, width], -1)
    states = torch.zeros_like(added)
    for distance in range(min(chunks - 1, len(weights)), 0, -1):  # chunk i has read all that lie further back
        before, weight = states[:, distance:], weights[distance - 1]
        through = left[:, :chunks - distance] @ before + added[:, :chunks - distance]
        states = torch.cat([states[:, :distance], before + weight * (through - before)], 1)
    return states


def swiglu(gate, up):
    return F.silu(gate) * up


def compile_functions():
    """Fuses element-wise work (CUDA only); worth it because a step is some thousand small kernels."""
    for module, names in ((sys.modules[__name__], ("zero_centred_norm", "gated_norm", "causal_conv", "unit", "swiglu", "chunk_transitions")),
                          (routing, ("pass_chunk", "pool"))):
        for name in names:
            setattr(module, name, torch.compile(getattr(module, name), dynamic=False))


class Linear(nn.Module):
    """y = W x without bias; the product runs in the type of x."""

    def __init__(self, inputs, outputs, std):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * std)

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype))


class LinearAttention(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        D, H, K = config.width, config.heads, config.head_width
        self.heads, self.head_width = H, K
        self.in_proj_qkv = Linear(D, 3 * H * K, D ** -0.5)
        self.in_proj_z = Linear(D, H * K, D ** -0.5)
        self.in_proj_a = Linear(D, H, 0.1 * D ** -0.5)
        self.in_proj_b = Linear(D, H, D ** -0.5)
        self.out_proj = Linear(H * K, D, (H * K * 2 * config.layers) ** -0.5)
        taps = torch.randn(3 * H * K, CONV) * 0.1
        taps[:, -1] += 0.7
        self.conv = nn.Parameter(taps)
        self.norm = nn.Parameter(torch.ones(K))
        self.A_log = nn.Parameter(torch.zeros(H))
        self.dt_bias = nn.Parameter(_decay_bias(config, layer))
        self.routed_index = layer - config.closed_layers
        self.router = Router(H, K, config.router_bias) if self.routed_index >= 0 else None

    def forward(self, h, gating, trace):
        """h [B,T,D] normalised -> [B,T,D]. A trace list receives (router, raw row queries, representatives)."""
        B, T, _ = h.shape
        H, K, N = self.heads, self.head_width, T // CHUNK
        qkv = self.in_proj_qkv(h)
        local, read, carry = self.transitions(h, causal_conv(qkv, self.conv))
        carry = carry.view(B, N, H, K, 2 * K)
        native, mixed = gating is not None and gating.native, gating is not None and gating.mixing is not None
        if self.router is None or native or mixed:
            if native:
                states = states_before(carry)
            elif self.router is None:
                states = F.pad(carry[:, :-1, ..., :K], (0, 0, 0, 0, 0, 0, 1, 0))
            else:
                states = mixed_states(carry, gating.mixing[self.routed_index])
            o = (local + read @ states.reshape(B * N, H, K, K)).transpose(1, 2).reshape(B, T, H, K)
        else:
            o = local.transpose(1, 2).reshape(B, T, H, K)
            if gating is not None:
                rows = gating.rows[..., None, None]
                row_reads = read.transpose(1, 2).reshape(B, T, H, K).gather(1, rows.expand(-1, -1, H, K)).transpose(1, 2)
                gates = self._gates(qkv, gating, trace)
                if gating.record is not None:
                    gating.record.append(gates)
                history = routed_read(row_reads, carry, gates)
                o = o.scatter_add(1, rows.expand(-1, -1, H, K), history.transpose(1, 2))
        return self.output(h, o)

    def transitions(self, h, qkv):
        """h [B,T,D] and its q, k, v after the convolution [B,T,3HK] -> what chunk_transitions gives for all B*N chunks."""
        B, T, _ = h.shape
        H, K, N = self.heads, self.head_width, T // CHUNK
        q, k, v = qkv.view(B, T, 3, H, K).unbind(2)
        beta = self.in_proj_b(h).float().sigmoid()
        g = -self.A_log.exp() * F.softplus(self.in_proj_a(h).float() + self.dt_bias)

        def chunks(x):
            return x.reshape(B * N, CHUNK, H, -1).transpose(1, 2).contiguous()

        return chunk_transitions(chunks(unit(q) * K ** -0.5), chunks(unit(k)), chunks(v),
                                 chunks(beta).squeeze(-1), chunks(g).squeeze(-1))

    def output(self, h, o):
        """What the layer adds to the residual stream, of the reads o [B,T,H,K]."""
        z = self.in_proj_z(h).view(o.shape)
        return self.out_proj(gated_norm(o, self.norm, z).to(h.dtype).flatten(2))

    def _gates(self, qkv, gating, trace):
        """Gates of the rows over all chunks [B,H,R,N]; chunks that are not closed yet get 0."""
        B, T, _ = qkv.shape
        closed = torch.arange(T // CHUNK, device=qkv.device) < (gating.rows // CHUNK)[..., None]
        raw = qkv.float().view(B, T, 3, self.heads, self.head_width)
        q_rows = raw[:, :, 0].gather(1, gating.rows[..., None, None].expand(-1, -1, *raw.shape[3:]))
        representatives = self.router.representatives(raw[:, :, 1])
        if trace is not None:
            trace.append((self.router, q_rows, representatives))
        gates = self.router.scores(q_rows, representatives).sigmoid()
        gates = cap_gates(gates * closed[:, None], gating.pages_max)
        gates = gates * (gates >= gating.theta)
        if gating.given is not None:
            gates = torch.where(gating.forced[:, None, :, None], gating.given[:, None], gates)
        return gates


class Layer(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        D = config.width
        self.input_norm = nn.Parameter(torch.zeros(D))
        self.attention = LinearAttention(config, layer)
        self.mlp_norm = nn.Parameter(torch.zeros(D))
        self.gate_proj = Linear(D, config.mlp, D ** -0.5)
        self.up_proj = Linear(D, config.mlp, D ** -0.5)
        self.down_proj = Linear(config.mlp, D, (config.mlp * 2 * config.layers) ** -0.5)

    def forward(self, x, gating, trace, dtype):
        x = x + self.attention(zero_centred_norm(x, self.input_norm).to(dtype), gating, trace).float()
        h = zero_centred_norm(x, self.mlp_norm).to(dtype)
        return x + self.down_proj(swiglu(self.gate_proj(h), self.up_proj(h))).float()


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed = nn.Parameter(torch.randn(config.vocabulary, config.width) * 0.02)
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.layers))
        self.norm = nn.Parameter(torch.zeros(config.width))

    def forward(self, ids, gating, dtype=torch.float32, trace=None):
        """ids [B,T], T a multiple of 256 -> final hidden states [B,T,D]; gating None closes every gate."""
        x = F.embedding(ids, self.embed)
        for layer in self.layers:
            x = layer(x, gating, trace, dtype)
        return zero_centred_norm(x, self.norm).to(dtype)

    def logits(self, hidden):
        return F.linear(hidden, self.embed.to(hidden.dtype))


def _decay_bias(config, layer):
    """dt_bias [H] such that exp(A_log) = 1 gives each head its half-life: log-uniform, shortest in the first layer."""
    low, high = (torch.tensor(x).log() for x in config.half_lives)
    index = layer * config.heads + torch.arange(config.heads)
    half_life = (low + (high - low) * index / (config.layers * config.heads - 1)).exp()
    rate = torch.tensor(2.0).log() / half_life
    return (rate.exp() - 1).log()
