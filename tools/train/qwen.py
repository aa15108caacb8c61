"""Any dense Qwen3.5 in PyTorch, read natively or through routed chunks: what adapt_router.py trains a router for.

model.py's layers in their general form: full-attention layers between the linear ones, several value heads to a key
head, values of another width than keys, a head of its own. Parameters have the names of the checkpoint's tensors;
those are frozen, and only routers are trained.

Letters: B sequences, T tokens (a multiple of 256), N chunks, R rows, G key heads of width K, H value heads of width V.
A router belongs to a key head; its gates serve the H / G value heads of that key head.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint as recomputed

from gdn import chunk_transitions
from model import CHUNK, CONV, causal_conv, gated_norm, mixed_states, states_before, swiglu, unit, zero_centred_norm
from qwen_config import LINEAR
from routing import Router, cap_gates, routed_read


class Routed(NamedTuple):
    """What a routed layer leaves for losses."""
    gates: torch.Tensor    # [B,G,R,N] the router's own, before cap, threshold and given gates; 0 for recent and open chunks
    queries: torch.Tensor  # [B,R,G,K] raw
    keys: torch.Tensor     # [B,T,G,K] raw


class Norm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.empty(width)), eps

    def forward(self, x):
        return zero_centred_norm(x, self.weight, self.eps)


class Weight(nn.Module):
    """A tensor of the checkpoint that others compute with."""

    def __init__(self, *shape):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape))


def matrix(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class LinearAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = c = config
        conv, values = 2 * c.key_heads * c.key_width + c.value_heads * c.value_width, c.value_heads * c.value_width
        self.in_proj_qkv = matrix(c.width, conv)
        self.in_proj_z = matrix(c.width, values)
        self.in_proj_b = matrix(c.width, c.value_heads)
        self.in_proj_a = matrix(c.width, c.value_heads)
        self.conv1d = Weight(conv, 1, CONV)
        self.A_log = nn.Parameter(torch.empty(c.value_heads))
        self.dt_bias = nn.Parameter(torch.empty(c.value_heads))
        self.norm = Weight(c.value_width)
        self.out_proj = matrix(values, c.width)

    def raw(self, qkv, rows):
        """Queries of the rows [B,R,G,K] and keys of all tokens [B,T,G,K], before the convolution."""
        G, K = self.config.key_heads, self.config.key_width
        q, k = (x.unflatten(-1, (G, K)).float() for x in qkv[..., :2 * G * K].chunk(2, -1))
        return q.gather(1, rows[..., None, None].expand(-1, -1, G, K)), k

    def forward(self, h, router, recent, gating):
        """h [B,T,D] normalised -> [B,T,D], and what losses need where the layer is routed."""
        B, T, _ = h.shape
        G, H, K, V = self.config.key_heads, self.config.value_heads, self.config.key_width, self.config.value_width
        N = T // CHUNK
        qkv = self.in_proj_qkv(h)
        q, k, v = causal_conv(qkv, self.conv1d.weight[:, 0]).split([G * K, G * K, H * V], -1)
        q, k = (unit(x.view(B, T, G, K)).repeat_interleave(H // G, 2) for x in (q, k))
        beta = self.in_proj_b(h).float().sigmoid()
        g = -self.A_log.exp() * F.softplus(self.in_proj_a(h).float() + self.dt_bias)

        def chunks(x):
            return x.reshape(B * N, CHUNK, H, -1).transpose(1, 2).contiguous()

        def tokens(x):
            return x.transpose(1, 2).reshape(B, T, H, -1)

        local, read, carry = chunk_transitions(chunks(q * K ** -0.5), chunks(k), chunks(v), chunks(beta).squeeze(-1), chunks(g).squeeze(-1))
        carry = carry.view(B, N, H, K, V + K)
        native = gating is not None and gating.native
        o = local
        if native or recent:
            states = states_before(carry) if native else mixed_states(carry, carry.new_ones(recent))
            o = local + read @ states.reshape(B * N, H, K, V)
        o, routed = tokens(o), None
        if router is not None and gating is not None and not native:
            rows = gating.rows[..., None, None]

            def of_rows(x):
                return tokens(x).gather(1, rows.expand(-1, -1, H, x.shape[-1])).transpose(1, 2)

            routed, gates = route(router, *self.raw(qkv, gating.rows), recent, gating)
            history = routed_read(of_rows(read), carry, gates.repeat_interleave(H // G, 1))
            o = o.scatter(1, rows.expand(-1, -1, H, V), (of_rows(local) + history).transpose(1, 2))
        z = self.in_proj_z(h).view(B, T, H, V)
        return self.out_proj(gated_norm(o, self.norm.weight, z, self.config.eps).to(h.dtype).flatten(2)), routed


def route(router, queries, keys, recent, gating):
    """What losses need, and the gates [B,G,R,N] to read with; chunks that are not closed yet get 0."""
    current = gating.rows[..., None] // CHUNK
    index = torch.arange(keys.shape[1] // CHUNK, device=keys.device)
    newest = (index < current) & (index >= current - recent)
    own = router.scores(queries, router.representatives(keys)).sigmoid() * (index < current - recent)[:, None]
    gates = cap_gates(own, gating.pages_max - recent)
    gates = gates * (gates >= gating.theta)
    if gating.given is not None:
        gates = torch.where(gating.forced[:, None, :, None], gating.given[:, None], gates)
    gates = torch.where(newest[:, None], 1.0, gates)
    if gating.record is not None:
        gating.record.append(gates)
    return Routed(own, queries, keys), gates


class FullAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = c = config
        self.q_proj = matrix(c.width, 2 * c.query_heads * c.head_width)
        self.k_proj = matrix(c.width, c.kv_heads * c.head_width)
        self.v_proj = matrix(c.width, c.kv_heads * c.head_width)
        self.o_proj = matrix(c.query_heads * c.head_width, c.width)
        self.q_norm = Norm(c.head_width, c.eps)
        self.k_norm = Norm(c.head_width, c.eps)

    def forward(self, h):
        heads = (-1, self.config.head_width)
        q, gate = self.q_proj(h).unflatten(-1, (-1, 2 * self.config.head_width)).chunk(2, -1)
        q = self.rotated(self.q_norm(q.float())).to(h.dtype)
        k = self.rotated(self.k_norm(self.k_proj(h).unflatten(-1, heads).float())).to(h.dtype)
        v = self.v_proj(h).unflatten(-1, heads)
        o = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=True, enable_gqa=True)
        return self.o_proj((o.transpose(1, 2) * gate.sigmoid()).flatten(2))

    def rotated(self, x):
        """x [B,T,heads,width]: its first dims turned by halves, as far as the token stands from the start."""
        half = self.config.rotary // 2
        rate = self.config.rope_theta ** (-torch.arange(half, device=x.device) / half)
        angle = (torch.arange(x.shape[1], device=x.device)[:, None] * rate)[:, None]
        first, second, rest = x.split([half, half, x.shape[-1] - 2 * half], -1)
        return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin(), rest], -1)


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = matrix(config.width, config.mlp)
        self.up_proj = matrix(config.width, config.mlp)
        self.down_proj = matrix(config.mlp, config.width)

    def forward(self, h):
        return self.down_proj(swiglu(self.gate_proj(h), self.up_proj(h)))


class Layer(nn.Module):
    def __init__(self, config, kind):
        super().__init__()
        self.input_layernorm = Norm(config.width, config.eps)
        self.post_attention_layernorm = Norm(config.width, config.eps)
        self.mlp = Mlp(config)
        if kind == LINEAR:
            self.linear_attn = LinearAttention(config)
        else:
            self.self_attn = FullAttention(config)
        self.kind = kind

    def forward(self, x, router, recent, gating, dtype):
        h, routed = self.input_layernorm(x).to(dtype), None
        if self.kind == LINEAR:
            mixed, routed = self.linear_attn(h, router, recent, gating)
        else:
            mixed = self.self_attn(h)
        x = x + mixed.float()
        return x + self.mlp(self.post_attention_layernorm(x).to(dtype)).float(), routed


class Qwen(nn.Module):
    """The backbone, and where `history` is set the routers beside it (module `routers`, by layer)."""

    def __init__(self, config):
        super().__init__()
        self.config, self.dtype = config, torch.float32
        self.embed_tokens = Weight(config.vocabulary, config.width)
        self.layers = nn.ModuleList(Layer(config, kind) for kind in config.layers)
        self.norm = Norm(config.width, config.eps)
        self.lm_head = None if config.tied else Weight(config.vocabulary, config.width)
        self.history, self.routers = None, nn.ModuleDict()

    def add_routers(self, history, bias):
        """Fresh ones, for every linear layer that is not closed."""
        self.history = history
        device = self.norm.weight.device
        self.routers = nn.ModuleDict({str(i): Router(self.config.key_heads, self.config.key_width, bias).to(device)
                                      for i in self.config.linear_layers if i not in history.closed})

    def forward(self, ids, gating, last=None):
        """ids [B,T] -> final hidden states [B,T,D] and {layer: Routed}. With `last`, no state: only what layers up to it leave."""
        x, routed = F.embedding(ids, self.embed_tokens.weight).float(), {}
        for index, layer in enumerate(self.layers):
            router = self.routers[str(index)] if str(index) in self.routers else None
            recent = self.history.recent[index] if self.history else 0
            if index == last:
                queries, keys = layer.linear_attn.raw(layer.linear_attn.in_proj_qkv(layer.input_layernorm(x).to(self.dtype)), gating.rows)
                routed[index] = Routed(None, queries, keys)
                return None, routed
            if torch.is_grad_enabled():  # a whole layer's intermediates at a time, made again in the backward pass
                x, left = recomputed(layer, x, router, recent, gating, self.dtype, use_reentrant=False)
            else:
                x, left = layer(x, router, recent, gating, self.dtype)
            if left is not None:
                routed[index] = left
        return self.norm(x).to(self.dtype), routed

    def logits(self, hidden):
        return F.linear(hidden, (self.lm_head or self.embed_tokens).weight)
