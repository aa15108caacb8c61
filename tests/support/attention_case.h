// One session's keys and values around an attention layer, random and seeded, and the layer's
// definition written out in double: every key, every weight, no blocks.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <vector>

#include "kernels/attention.h"
#include "tests/support/dense_reference.h"
#include "tests/support/random_floats.h"

namespace mneme::support {

struct AttentionSizes {
  int query_heads = 1;
  int kv_heads = 1;
  int head_dim = 1;
  int rotary_dim = 0;
  int chunk_tokens = 64;
  int chunks = 0;  // closed pages
  int open = 0;    // tokens in the open page already
  kernels::Dtype kv_dtype = kernels::Dtype::kF16;
};

// For the names of test cases.
inline std::ostream& operator<<(std::ostream& out, const AttentionSizes& sizes) {
  return out << sizes.query_heads << "q" << sizes.kv_heads << "kv" << sizes.head_dim << "x"
             << sizes.chunk_tokens << "c" << sizes.chunks;
}

class AttentionSession {
 public:
  AttentionSession(const AttentionSizes& sizes, uint64_t seed) : sizes_(sizes), random_(seed) {
    shape.query_heads = sizes.query_heads;
    shape.kv_heads = sizes.kv_heads;
    shape.head_dim = sizes.head_dim;
    shape.rotary_dim = sizes.rotary_dim;
    shape.rope_theta = 1e7;
    shape.chunk_tokens = sizes.chunk_tokens;
    const int64_t page = int64_t{2} * sizes.kv_heads * sizes.chunk_tokens * sizes.head_dim;
    for (int c = 0; c < sizes.chunks; ++c)
      pages_.emplace_back(1, page, sizes.kv_dtype, random_.Many(page, 2.0f));
    for (const StoredMatrix& stored : pages_) {
      const kernels::TensorView view = stored.view();
      aligned_.emplace_back((view.size_bytes() + 7) / 8);  // pages are aligned in every tier
      std::memcpy(aligned_.back().data(), view.bytes, view.size_bytes());
      page_bytes_.push_back(reinterpret_cast<const std::byte*>(aligned_.back().data()));
    }
    for (const std::byte*& bytes : page_bytes_) {
      kernels::ChunkView chunk;
      chunk.kv = &bytes;
      chunks_.push_back(chunk);
    }
    for (const kernels::ChunkView& chunk : chunks_) chunk_pointers_.push_back(&chunk);
    // Places that no token has reached hold NaN: reading one shows.
    key.assign(static_cast<size_t>(page / 2), std::numeric_limits<float>::quiet_NaN());
    value = key;
    for (int64_t g = 0; g < sizes.kv_heads; ++g) {
      for (int64_t i = 0; i < int64_t{sizes.open} * sizes.head_dim; ++i) {
        const int64_t at = g * sizes.chunk_tokens * sizes.head_dim + i;
        key[static_cast<size_t>(at)] = random_.Next(2.0f);
        value[static_cast<size_t>(at)] = random_.Next(2.0f);
      }
    }
  }
  AttentionSession(const AttentionSession&) = delete;

  int position() const { return sizes_.chunks * sizes_.chunk_tokens + sizes_.open; }

  kernels::SessionView view() {
    open_ = {key.data(), value.data()};
    kernels::SessionView session;
    session.open_kv = &open_;
    session.chunks = chunk_pointers_.data();
    session.chunk_count = sizes_.chunks;
    return session;
  }

  // What the layer gives for consecutive tokens from position() on; `projected` has one row each.
  Doubles Reference(const std::vector<float>& projected, const std::vector<float>& q_norm,
                    const std::vector<float>& k_norm, double epsilon) const {
    const int e = shape.head_dim;
    const int group = shape.query_heads / shape.kv_heads;
    const int width = shape.projected_width();
    const auto rows = static_cast<int>(projected.size()) / width;
    std::vector<Doubles> keys;  // [tokens, Hkv]
    std::vector<Doubles> values;
    for (int t = 0; t < position() + rows; ++t) {
      for (int g = 0; g < shape.kv_heads; ++g) {
        keys.push_back(KeyAt(t, g, projected, k_norm, epsilon));
        values.push_back(ValueAt(t, g, projected));
      }
    }
    Doubles out;
    for (int row = 0; row < rows; ++row) {
      for (int h = 0; h < shape.query_heads; ++h) {
        const Doubles q = Turned(projected, row * width + 2 * h * e, q_norm, epsilon, row);
        const auto place = [&](size_t t) {
          return t * static_cast<size_t>(shape.kv_heads) + static_cast<size_t>(h / group);
        };
        Doubles scores;
        for (int t = 0; t <= position() + row; ++t) {
          const Doubles& k = keys[place(static_cast<size_t>(t))];
          double dot = 0;
          for (size_t i = 0; i < k.size(); ++i) dot += q[i] * k[i];
          scores.push_back(dot / std::sqrt(static_cast<double>(e)));
        }
        double largest = scores[0];
        for (const double score : scores) largest = std::max(largest, score);
        double total = 0;
        for (double& score : scores) total += score = std::exp(score - largest);
        Doubles sums(static_cast<size_t>(e), 0.0);
        for (size_t t = 0; t < scores.size(); ++t) {
          for (size_t i = 0; i < sums.size(); ++i) sums[i] += scores[t] * values[place(t)][i];
        }
        for (int i = 0; i < e; ++i) {
          const auto gate = static_cast<size_t>(row * width + (2 * h + 1) * e + i);
          out.push_back(sums[static_cast<size_t>(i)] / total *
                        SigmoidOf(static_cast<double>(projected[gate])));
        }
      }
    }
    return out;
  }

  kernels::AttentionShape shape;
  std::vector<float> key;    // the open page, [Hkv, T, E]
  std::vector<float> value;  // likewise

 private:
  // Norm and rotation of the head that starts at `from`, for the row-th token from position().
  Doubles Turned(const std::vector<float>& projected, int from, const std::vector<float>& norm,
                 double epsilon, int row) const {
    Doubles head(projected.begin() + from, projected.begin() + from + shape.head_dim);
    head = ZeroCentredNormOf(head, norm, epsilon);
    const int half = shape.rotary_dim / 2;
    for (int i = 0; i < half; ++i) {
      const double angle =
          (position() + row) * std::pow(shape.rope_theta, -2.0 * i / shape.rotary_dim);
      double& a = head[static_cast<size_t>(i)];
      double& b = head[static_cast<size_t>(half + i)];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = b * std::cos(angle) + a * std::sin(angle);
      a = turned;
    }
    return head;
  }

  Doubles Stored(int t, int g, int half) const {
    const int tokens = shape.chunk_tokens;
    const int e = shape.head_dim;
    const int chunk = t / tokens;
    const std::vector<float>& from = chunk < sizes_.chunks
                                         ? pages_[static_cast<size_t>(chunk)].floats()
                                         : (half == 0 ? key : value);
    const int first = chunk < sizes_.chunks ? half * shape.kv_heads + g : g;
    const auto at = from.begin() + (first * tokens + t % tokens) * e;
    return {at, at + e};
  }

  Doubles KeyAt(int t, int g, const std::vector<float>& projected, const std::vector<float>& norm,
                double epsilon) const {
    if (t < position()) return Stored(t, g, 0);
    const int row = t - position();
    const int from = row * shape.projected_width() + (2 * shape.query_heads + g) * shape.head_dim;
    return Turned(projected, from, norm, epsilon, row);
  }

  Doubles ValueAt(int t, int g, const std::vector<float>& projected) const {
    if (t < position()) return Stored(t, g, 1);
    const int from = (t - position()) * shape.projected_width() +
                     (2 * shape.query_heads + shape.kv_heads + g) * shape.head_dim;
    return {projected.begin() + from, projected.begin() + from + shape.head_dim};
  }

  AttentionSizes sizes_;
  RandomFloats random_;
  std::vector<StoredMatrix> pages_;
  std::vector<std::vector<uint64_t>> aligned_;  // the pages' bytes
  std::vector<const std::byte*> page_bytes_;
  std::vector<kernels::ChunkView> chunks_;
  std::vector<const kernels::ChunkView*> chunk_pointers_;
  kernels::OpenKv open_;
};

}  // namespace mneme::support
