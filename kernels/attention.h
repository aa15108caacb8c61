// The table entry `attention`: q and k norms, rotation, append to the open KV page, softmax over
// all closed pages and the open one up to the row itself, output gate.
//
// Keys are taken oldest first in blocks of at most kKeyBlock, with a running maximum: the order of
// every sum depends on the row's own past alone. A row in prefill form goes with its piece through
// BLAS products of one fixed shape; its block of the open page is padded with zeros, and keys that
// it may not see get weight 0.
//
// Errors:   kInvalidArgument  an array is null, a size or index is out of range, a piece leaves the
//                             open page, or a closed page is not in memory; nothing was written
#pragma once

#include "base/result.h"
#include "kernels/kernel_table.h"

namespace mneme::kernels {

// Keys of one block; the open page's blocks are the cells of the 64-token grid.
inline constexpr int kKeyBlock = kPieceTokens;

Status Validate(const AttentionArgs& args);

namespace cpu {
Status Attention(const AttentionArgs& args, Stream& stream);
}

}  // namespace mneme::kernels
