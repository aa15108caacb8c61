// The layout of the released HLA-1.3B and of its plain twin GDN-1.3B: their authors' names for
// sizes and tensors, as tools/convert writes them from the authors' checkpoint.
//
// A model of Gated-DeltaNet layers alone, without convolution or positions; plain norms, a tied
// head, and gate and up rows of the MLP in one matrix. HLA's router is in the checkpoint.
//
// config.json: `model_type` is "hla". n_embd, n_layer, vocab_size (or padded_vocab_size: rows of
// the
//   embedding), intermediate_size, norm_eps, gated_delta_num_heads, gated_delta_head_dim,
//   gated_delta_expand_v, gated_delta_variant ("gla_gdn" with the router, "gdn" without), and with
//   a router mix_pool_size. Switches of the authors' code must stand there as they were released,
//   since tensors do not show them. block_size, the context of training, is no limit. Ours:
//   route_theta (default 0: every gate is read, as released; the paper reads from 0.1 on) and
//   route_pages_max (default kPagesMaxMax: as many chunks as a query may read).
// tensors: transformer.wte.weight, transformer.ln_f.weight, and for each layer transformer.h.N.:
//   norm_1.weight, norm_2.weight [D]; mlp.gate_proj.weight [2 F, D], mlp.down_proj.weight [D, F];
//   attn.{q,k}_proj.weight [G K, D], attn.{v,g}_proj.weight [H V, D], attn.{a,b}_proj.weight [H,
//   D], attn.o_proj.weight [D, H V], attn.{A_log,dt_bias} [H], attn.o_norm.weight [V]; with a
//   router attn.route_q_proj.weight and attn.route_pool_attn_{k,v,o}_proj.weight [G, K, K]. attn.D
//   and a stored head are skipped: the released configuration reads neither.
#pragma once

#include <string_view>

#include "base/result.h"
#include "model/config_fields.h"
#include "model/model_config.h"
#include "model/tensor_taker.h"
#include "model/weights.h"

namespace mneme::model {

inline constexpr std::string_view kHlaModelType = "hla";
inline constexpr double kHlaRouteBias = 2.2;  // a constant of the released code

// Errors as in config_fields.h.
Status ReadHlaConfig(ModelConfig& config, const ConfigFields& fields);

// Errors as in tensor_taker.h.
Status TakeHlaWeights(Weights& weights, TensorTaker& taker, const ModelConfig& config);

}  // namespace mneme::model
