#include "kernels/gdn_step.h"

#include <algorithm>

#include "kernels/cpu/row_loops.h"

namespace mneme::kernels::cpu {

void GdnStep(const GdnStepArgs& args) {
  const int K = args.key_dim, V = args.value_dim, T = args.chunk_tokens, i = args.at;
  const int width = K + V;
  float* of_key = args.scratch;  // k . k_j, then its decayed weights beside it
  float* of_query = of_key + T;  // q . k_j
  float* key_weight = of_query + T;
  float* query_weight = key_weight + T;
  float* key_sum = query_weight + T;   // [K+V]
  float* query_sum = key_sum + width;  // [K+V]

  DotRowsTwice(args.open_k, K, i, K, args.k, args.q, of_key, of_query);
  float query_key = 0.0f;
  DotRows(args.k, K, 1, K, args.q, &query_key);
  std::copy_n(args.k, K, args.open_k + static_cast<ptrdiff_t>(i) * K);

  for (int head = 0; head < args.heads; ++head) {
    float* c = args.open_c + static_cast<ptrdiff_t>(head) * T;
    float* u = args.open_u + static_cast<ptrdiff_t>(head) * T * width;
    c[i] = (i == 0 ? 0.0f : c[i - 1]) + args.log_decay[head];
    // Columns [first, width) of u are worked on.
    const bool transition = args.transition && c[i] >= kDecayDrop;
    const int first = transition ? 0 : K;
    DecayWeights(c, i, c[i], of_key, key_weight);
    DecayWeights(c, i, c[i], of_query, query_weight);

    // Both sums start with what the chunk's beginning left: e^{c_i} [x | 0].
    std::fill_n(key_sum, width, 0.0f);
    std::fill_n(query_sum, width, 0.0f);
    if (transition) {
      ScaleRow(args.k, DecayOf(c[i]), K, key_sum);
      ScaleRow(args.q, DecayOf(c[i]), K, query_sum);
    }
    AddRowsTwice(u + first, width, i, width - first, key_weight, query_weight, key_sum + first,
                 query_sum + first);

    float* row = u + static_cast<ptrdiff_t>(i) * width;
    const float beta = args.write_strength[head];
    const float* v = args.v + static_cast<ptrdiff_t>(head) * V;
    for (int d = 0; d < K; ++d) row[d] = transition ? -beta * key_sum[d] : 0.0f;
    for (int d = 0; d < V; ++d) row[K + d] = beta * (v[d] - key_sum[K + d]);
    AddRows(row + first, width, 1, width - first, &query_key, query_sum + first);

    if (args.transition) std::copy_n(query_sum, K, args.carry + static_cast<ptrdiff_t>(head) * K);
    std::copy_n(query_sum + K, V, args.output + static_cast<ptrdiff_t>(head) * V);
  }
}

}  // namespace mneme::kernels::cpu
