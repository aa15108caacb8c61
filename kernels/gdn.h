// The table entries of the Gated-DeltaNet layers (kernel_table.h documents each), and the checks
// that every backend makes of their args before anything is queued.
//
// Limits:   K, V <= kHeadDimMax, T <= kChunkTokensMax, at most kGroupHeadsMax value heads a key
//           head; a prefill slice is one run of tokens within one chunk.
// Errors:   kInvalidArgument  an array is null or a size is out of range; nothing was written
//           kCorruption       gdn_read, fold_pages: a page group does not belong to the layer
#pragma once

#include "base/result.h"
#include "kernels/kernel_table.h"
#include "kernels/stream.h"

namespace mneme::kernels {

// What the scratch memory of one thread has room for.
inline constexpr int kHeadDimMax = 512;
inline constexpr int kChunkTokensMax = 1024;
inline constexpr int kConvWidthMax = 1 << 20;
inline constexpr int kPagesMax = 4096;

// The same words from every backend: `gdn_read: q is null`.
Status Validate(const GdnPrepareArgs& args);
Status Validate(const RouteArgs& args);
Status Validate(const GdnReadArgs& args);
Status Validate(const RepresentArgs& args);
Status Validate(const IndexArgs& args);
Status Validate(const SealArgs& args);
Status Validate(const FoldArgs& args);
Status Validate(const FoldPagesArgs& args);

namespace cpu {

// Rows of padding get zeros everywhere.
Status GdnPrepare(const GdnPrepareArgs& args, Stream& stream);
Status Route(const RouteArgs& args, Stream& stream);

// Where the list is null and the session has no folded state, history cannot be read, then or
// later: uA of the open rows is written as 0. So a session of a reader that folds has a state (of
// zeros) from its first token. A group that is null is passed over; that row's result is worthless.
Status GdnRead(const GdnReadArgs& args, Stream& stream);

Status Represent(const RepresentArgs& args, Stream& stream);
Status Index(const IndexArgs& args, Stream& stream);

// KV numbers beyond f16 are stored as its largest. Errors: kInvalidArgument also where a
// transition is not finite; the groups are then unspecified.
Status Seal(const SealArgs& args, Stream& stream);
Status Fold(const FoldArgs& args, Stream& stream);

// A chunk whose gate is 0 is not read.
Status FoldPages(const FoldPagesArgs& args, Stream& stream);

}  // namespace cpu

}  // namespace mneme::kernels
