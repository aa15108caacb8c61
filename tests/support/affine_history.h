// AffineHistory: one head's tokens as affine chunks, run by the library's ops in pieces or one by
// one, and read with any gates.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/affine_chunk.h"
#include "tests/support/recurrence.h"

namespace mneme::support {

enum class Cut { kPieces, kTokens };

template <typename Real>
class AffineHistory {
 public:
  struct Chunk {
    std::vector<Real> a, b;
    kernels::AffineChunk<Real> view() { return {a.data(), b.data()}; }
  };

  AffineHistory(const RecurrenceTokens& tokens, int chunk_tokens)
      : tokens_(tokens),
        chunk_tokens_(chunk_tokens),
        shape_{RuleOf(tokens.recurrence), tokens.key_dim, tokens.value_dim},
        workspace_(tokens.key_dim, tokens.value_dim),
        q_(Cast(tokens.q)),
        k_(Cast(tokens.k)),
        v_(Cast(tokens.v)),
        beta_(Cast(tokens.beta)),
        g_(Cast(tokens.g)),
        p_(Cast(tokens.p)) {}

  const kernels::AffineShape& shape() const { return shape_; }
  kernels::AffineWorkspace<Real>& workspace() { return workspace_; }
  std::vector<Chunk>& chunks() { return chunks_; }

  kernels::TokenRows<Real> TokensFrom(int t) const {
    kernels::TokenRows<Real> rows;
    rows.q = q_.data() + t * shape_.key_dim;
    rows.k = k_.data() + t * shape_.key_dim;
    rows.v = v_.data() + t * shape_.value_dim;
    if (!p_.empty()) rows.erase = p_.data() + t * shape_.key_dim;
    if (!beta_.empty()) rows.write_strength = beta_.data() + t;
    if (!g_.empty())
      rows.log_decay =
          g_.data() +
          t * (shape_.rule.decay == kernels::TransitionKind::kDiagonal ? shape_.key_dim : 1);
    return rows;
  }

  Chunk NewChunk() const {
    Chunk chunk{std::vector<Real>(static_cast<size_t>(shape_.a_numbers())),
                std::vector<Real>(static_cast<size_t>(shape_.b_numbers()))};
    kernels::cpu::StartChunk(shape_, chunk.view());
    return chunk;
  }

  // Makes chunks of all tokens; y [count, V] with the gates. `spoil` is called for each chunk when
  // it is closed.
  std::vector<Real> Run(Cut cut, const ChunkGate& gate,
                        const std::function<void(int, Chunk&)>& spoil = nullptr) {
    std::vector<Real> y;
    chunks_.clear();
    for (int t = 0; t < tokens_.count;) {
      if (t % chunk_tokens_ == 0) {
        if (t != 0 && spoil != nullptr) spoil(t / chunk_tokens_ - 1, chunks_.back());
        chunks_.push_back(NewChunk());
      }
      const int left = std::min(chunk_tokens_ - t % chunk_tokens_, tokens_.count - t);
      const int n = cut == Cut::kTokens ? 1 : std::min(left, kernels::kPieceTokens);
      std::vector<Real> carry = QueriesOf(t, n);
      std::vector<Real> output(static_cast<size_t>(n * shape_.value_dim), Real{0});
      if (cut == Cut::kTokens) {
        EXPECT_TRUE(kernels::cpu::StepToken<Real>(
            {shape_, TokensFrom(t), chunks_.back().view(), &workspace_}));
        Read(static_cast<int>(chunks_.size()) - 1, t, n, gate, carry, output);
      } else {
        EXPECT_TRUE(
            kernels::cpu::AppendPiece<Real>({shape_, n, TokensFrom(t), chunks_.back().view(),
                                             carry.data(), output.data(), &workspace_}));
        OpenGate(t, n, gate, carry, output);
      }
      for (int j = static_cast<int>(chunks_.size()) - 2; j >= 0; --j)
        Read(j, t, n, gate, carry, output);
      y.insert(y.end(), output.begin(), output.end());
      t += n;
    }
    return y;
  }

 private:
  static std::vector<Real> Cast(const std::vector<float>& x) { return {x.begin(), x.end()}; }

  std::vector<Real> QueriesOf(int t, int n) const {
    return {q_.begin() + t * shape_.key_dim, q_.begin() + (t + n) * shape_.key_dim};
  }

  void Read(int chunk, int t, int n, const ChunkGate& gate, std::vector<Real>& carry,
            std::vector<Real>& output) {
    std::vector<Real> gates;
    for (int i = 0; i < n; ++i) gates.push_back(static_cast<Real>(gate(t + i, chunk)));
    const Status status =
        kernels::cpu::ReadChunk<Real>({shape_, chunks_[static_cast<size_t>(chunk)].view(), n,
                                       gates.data(), carry.data(), output.data(), &workspace_});
    ASSERT_TRUE(status) << status.error().message();
  }

  // carry and output of a piece are those of an open chunk with gate 1.
  void OpenGate(int t, int n, const ChunkGate& gate, std::vector<Real>& carry,
                std::vector<Real>& output) {
    const int K = shape_.key_dim, V = shape_.value_dim;
    for (int i = 0; i < n; ++i) {
      const Real w = static_cast<Real>(gate(t + i, static_cast<int>(chunks_.size()) - 1));
      for (int d = 0; d < K; ++d) {
        Real& c = carry[static_cast<size_t>(i * K + d)];
        c = (1 - w) * q_[static_cast<size_t>((t + i) * K + d)] + w * c;
      }
      for (int d = 0; d < V; ++d) output[static_cast<size_t>(i * V + d)] *= w;
    }
  }

  const RecurrenceTokens& tokens_;
  int chunk_tokens_;
  kernels::AffineShape shape_;
  kernels::AffineWorkspace<Real> workspace_;
  std::vector<Real> q_, k_, v_, beta_, g_, p_;
  std::vector<Chunk> chunks_;
};

}  // namespace mneme::support
