// The table entry `embed`: one row of the embedding table for each token.
//
// Errors:   kInvalidArgument  also for a token that the table does not have
#pragma once

#include "base/result.h"
#include "kernels/kernel_table.h"

namespace mneme::kernels {

Status Validate(const EmbedArgs& args);

namespace cpu {
Status Embed(const EmbedArgs& args, Stream& stream);
}

}  // namespace mneme::kernels
