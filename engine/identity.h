// Identity: what a session's memory is a function of besides its tokens. A session is bound to one
// and is refused under another; architecture 2.
//
// Threads:  any
#pragma once

#include <string>
#include <string_view>

#include "memory/hash.h"
#include "memory/memory_layout.h"

namespace mneme::engine {

struct IdentityParts {
  memory::Digest weights_hash = {};
  memory::Digest config_hash = {};  // of what the model computes by (ModelConfig::ForwardText)
  memory::Digest router_hash = {};  // of the router or mixing file; zeros where there is none
  memory::Digest tokenizer_hash = {};
  float theta = 0;
};

// `weights=0123456789abcdef router=... reader=hla theta=0.1 window=16 ...`: compared as it is and
// shown as it is.
std::string IdentityText(const IdentityParts& parts, const memory::MemoryLayout& layout);

// The value of one field, `reader` say; empty where there is none of that name.
std::string IdentityField(const std::string& identity, std::string_view name);

// Why a session of one identity is not served under another, and what to do, in words:
// `it was made with another router (0123abcd in the session, 4567cdef here); serve it with ...`.
std::string IdentityDifference(const std::string& here, const std::string& session);

}  // namespace mneme::engine
