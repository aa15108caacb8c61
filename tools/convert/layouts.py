"""Names and shapes of the two layouts. `model/hla_layout.h` and `model/mhla_folder.h` have the same
for the reader; what is wrong is refused here with the tensor's name, before anything is written."""

from torch_file import Refused

HLA_RELEASED = {"n_embd": 2048, "n_layer": 24, "intermediate_size": 5632, "padded_vocab_size": 32000,
                "gated_delta_num_heads": 4, "gated_delta_head_dim": 256, "gated_delta_expand_v": 1.0}
# As released; tensors do not show them.
HLA_SWITCHES = {"_norm_class": "SimpleRMSNorm", "_mlp_class": "LLaMAMLP", "mamba_init": True,
                "nope": True, "gated_delta_per_layer": 1, "gated_delta_use_short_conv": False,
                "gated_delta_use_gate": True, "gated_delta_use_residual": False, "norm_eps": 1e-6,
                "block_size": 4096, "bos_token_id": 1, "eos_token_id": 2}
HLA_ROUTER = {"mix_chunk_size": 256, "mix_pool_size": 16, "gla_router_sigmoid_bias": 2.2}
MHLA_RELEASED = {"hidden_size": 1024, "num_hidden_layers": 24, "num_heads": 4, "expand_k": 0.5,
                 "expand_v": 1, "vocab_size": 32000}


class Shapes:
    """The checkpoint's tensors, and which of them a layout has asked for."""

    def __init__(self, file):
        self._file, self._seen = file, set()

    def of(self, name, dimensions):
        tensor = self._file.tensors.get(name)
        if tensor is None:
            raise Refused(f"{self._file.path}: {name}: expected this tensor, found none: is it a "
                          "part of the checkpoint, or another model?")
        if len(tensor.shape) != dimensions:
            raise Refused(f"{self._file.path}: {name}: expected {dimensions} dimensions, found shape "
                          f"{list(tensor.shape)}")
        return tensor.shape

    def want(self, name, *shape):
        if self.of(name, len(shape)) != shape:
            raise Refused(f"{self._file.path}: {name}: expected shape {list(shape)}, found "
                          f"{list(self._file.tensors[name].shape)}")
        if self._file.tensors[name].dtype not in ("F32", "BF16", "F16"):
            raise Refused(f"{self._file.path}: {name}: expected F32, BF16 or F16, found "
                          f"{self._file.tensors[name].dtype}")
        self._seen.add(name)

    def wanted(self, dropped, tied_head):
        """The tensors to write, in the checkpoint's order; all others must be known."""
        if tied_head and "lm_head.weight" in self._file.tensors and \
                not self._file.same_numbers("lm_head.weight", tied_head):
            raise Refused(f"{self._file.path}: lm_head.weight: expected the numbers of {tied_head}, "
                          "to which it is tied, found others")
        for name, tensor in self._file.tensors.items():
            if name in self._seen or dropped(name):
                continue
            raise Refused(f"{self._file.path}: {name}: expected only tensors of this layout, found "
                          f"this one of shape {list(tensor.shape)}")
        return {name: t for name, t in self._file.tensors.items() if name in self._seen}


def check_sizes(file, sizes, released):
    for key, value in released.items():
        if sizes.get(key) != value:
            raise Refused(f"{file.path}: {key}: expected {value}, as released, found "
                          f"{sizes.get(key)}")


def hla(file, released, router, theta):
    """(tensors to write, config) of an HLA checkpoint or its plain twin."""
    shapes, names = Shapes(file), file.tensors
    vocab, D = shapes.of("transformer.wte.weight", 2)
    layers = len({name.split(".")[2] for name in names if name.startswith("transformer.h.")})
    at = "transformer.h.0."
    H, = shapes.of(at + "attn.A_log", 1)
    KD, VD = (shapes.of(f"{at}attn.{part}_proj.weight", 2)[0] for part in "qv")
    F = shapes.of(at + "mlp.down_proj.weight", 2)[1]
    if not H or not layers or KD % H or VD % H:
        raise Refused(f"{file.path}: {at}attn: {KD} key and {VD} value rows on {H} heads")
    K, V = KD // H, VD // H
    routed = any(".route_" in name for name in names)
    if router is not None and router != routed:
        raise Refused(f"{file.path}: expected {'a' if router else 'no'} router "
                      f"(transformer.h.N.attn.route_*), found {'one' if routed else 'none'}")
    shapes.want("transformer.wte.weight", vocab, D)
    shapes.want("transformer.ln_f.weight", D)
    for layer in range(layers):
        at = f"transformer.h.{layer}."
        wanted = {"norm_1.weight": (D,), "norm_2.weight": (D,), "mlp.gate_proj.weight": (2 * F, D),
                  "mlp.down_proj.weight": (D, F), "attn.q_proj.weight": (KD, D),
                  "attn.k_proj.weight": (KD, D), "attn.v_proj.weight": (VD, D),
                  "attn.g_proj.weight": (VD, D), "attn.a_proj.weight": (H, D),
                  "attn.b_proj.weight": (H, D), "attn.o_proj.weight": (D, VD),
                  "attn.A_log": (H,), "attn.dt_bias": (H,), "attn.o_norm.weight": (V,)}
        if routed:
            wanted |= {f"attn.route_{part}_proj.weight": (H, K, K)
                       for part in ("q", "pool_attn_k", "pool_attn_v", "pool_attn_o")}
        for name, shape in wanted.items():
            shapes.want(at + name, *shape)
    sizes = {"n_embd": D, "n_layer": layers, "intermediate_size": F, "padded_vocab_size": vocab,
             "gated_delta_num_heads": H, "gated_delta_head_dim": K, "gated_delta_expand_v": V / K}
    if released:
        check_sizes(file, sizes, HLA_RELEASED)
    config = {"model_type": "hla", "gated_delta_variant": "gla_gdn" if routed else "gdn"}
    config |= sizes | HLA_SWITCHES | (HLA_ROUTER if routed else {})
    if theta is not None:
        if not routed:
            raise Refused("--theta: the checkpoint has no router")
        config["route_theta"] = theta
    dropped = lambda name: name == "lm_head.weight" or name.endswith(".attn.D")
    return shapes.wanted(dropped, "transformer.wte.weight"), config


def mhla(file, released, config):
    """(tensors to write, config) of an MHLA language model whose sizes `config` says."""
    def number(key, default=None):
        value = config.get(key)
        value = default if value is None else value
        if not isinstance(value, (int, float)) or isinstance(value, bool) or value <= 0:
            raise Refused(f"config.json: {key}: expected a number above 0, found {value}")
        return value
    if config.get("model_type") != "gla":
        raise Refused(f"config.json: model_type: expected gla, found {config.get('model_type')}")
    sizes = {"hidden_size": number("hidden_size"), "num_hidden_layers": number("num_hidden_layers"),
             "num_heads": number("num_heads"), "expand_k": number("expand_k", 0.5),
             "expand_v": number("expand_v", 1), "vocab_size": number("vocab_size")}
    if released:
        check_sizes(file, sizes, MHLA_RELEASED)
    D, H, vocab = sizes["hidden_size"], sizes["num_heads"], sizes["vocab_size"]
    KD, VD = int(D * sizes["expand_k"]), int(D * sizes["expand_v"])
    F = config.get("intermediate_size")
    if F is None:
        F = -(-int(D * number("hidden_ratio", 4) * 2 / 3) // 256) * 256
    tied = config.get("tie_word_embeddings", False)
    shapes = Shapes(file)
    shapes.want("model.embeddings.weight", vocab, D)
    shapes.want("model.norm.weight", D)
    if not tied:
        shapes.want("lm_head.weight", vocab, D)
    norm = "attn.g_norm_swish_gate.weight" if config.get("fuse_norm", True) else "attn.g_norm.weight"
    for layer in range(sizes["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name, shape in {"attn_norm.weight": (D,), "mlp_norm.weight": (D,),
                            "attn.q_proj.weight": (KD, D), "attn.k_proj.weight": (KD, D),
                            "attn.v_proj.weight": (VD, D), "attn.g_proj.weight": (VD, D),
                            "attn.o_proj.weight": (D, VD), norm: (VD // H,),
                            "attn.mixing_matrix": (32, 32, 1, 1, 1, 1),
                            "mlp.gate_proj.weight": (F, D), "mlp.up_proj.weight": (F, D),
                            "mlp.down_proj.weight": (D, F)}.items():
            shapes.want(at + name, *shape)
    dropped = lambda name: name == "lm_head.weight" or name.endswith(".inv_freq")
    return shapes.wanted(dropped, "model.embeddings.weight" if tied else None), config
