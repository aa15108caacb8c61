// One session of one linear layer as the memory and the step plan would keep it: runs gdn_read over
// a run of tokens in whatever steps a test asks for, seals and folds at chunk ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_stream.h"
#include "kernels/gdn.h"
#include "kernels/page_group.h"
#include "tests/support/gdn_definition.h"

namespace mneme::support {

enum class History : uint8_t { kNone, kList, kFolded };

struct GdnSessionOptions {
  History history = History::kList;
  kernels::Dtype dtype = kernels::Dtype::kF32;
  int threads = 1;
  float epsilon = 1e-2f;  // of the output norm; large enough that small outputs stay small
};

// A run of tokens of one role.
struct Role {
  int tokens = 0;
  kernels::RowForm form = kernels::RowForm::kPrefill;
  int slice_pieces = 64;  // pieces a prefill slice may have
};

class GdnSession {
 public:
  GdnSession(const GdnTokens& tokens, const GdnSessionOptions& options = {});

  // Runs the roles one after the other, from where the last call stopped. Gates below or at 0 are
  // left out of the list. Every step runs twice when `twice` is set: the second must change
  // nothing.
  void Run(const std::vector<Role>& roles, const GateOf& gate = nullptr, bool twice = false);

  int position() const { return position_; }
  const std::vector<float>& out() const { return out_; }                         // [count, H, V]
  const std::vector<float>& share() const { return share_; }                     // [count, G, M]
  const std::vector<std::vector<std::byte>>& groups() const { return groups_; }  // [chunk * G + g]
  std::vector<std::vector<std::byte>>& groups() { return groups_; }
  const std::vector<float>& norm_weight() const { return norm_weight_; }
  const std::vector<float>& state() const { return state_; }  // folded [H, K, V]
  std::vector<float>& state() { return state_; }
  kernels::OpenRows open();
  kernels::Stream& stream() { return stream_; }

  // The definition's value of `out`.
  Doubles Expected(const GateOf& gate) const;

  // A chunk that Run will pass over as not in memory.
  void Forget(int chunk) { missing_ = chunk; }

 private:
  // A RouteList and the shares, with room for every row.
  struct Lists {
    std::vector<int32_t> chunk, count;
    std::vector<float> gate, share;
    std::vector<const std::byte*> group;
  };

  // The listed chunks of the rows whose tokens are at `place`; -1 is padding.
  Lists MakeLists(const std::vector<int>& place, const GateOf& gate) const;

  // Reads once more into `out`, the step's own output, which must not change; nor may the open
  // rows.
  void ReadAgain(const kernels::GdnReadArgs& args, const std::vector<float>& out);

  void Step(kernels::RowForm form, const std::vector<kernels::Piece>& pieces, const GateOf& gate,
            bool twice);
  void CloseChunk();

  GdnTokens tokens_;
  GdnSessionOptions options_;
  kernels::cpu::CpuStream stream_;
  int position_ = 0;
  int missing_ = -1;
  std::vector<float> k_, u_, c_, conv_;
  std::vector<float> norm_weight_, out_, share_, state_;
  std::vector<std::vector<std::byte>> groups_;
};

}  // namespace mneme::support
