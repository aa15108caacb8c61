// What can be said against a request before anything is looked up: names, sizes, ranges.
//
// The server asks this of everything it receives, so that the engine meets only requests whose
// fields are in range; whether a session exists or a token id is in the vocabulary is the engine's.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "proto/mneme/v1/session.pb.h"

namespace mneme::engine {

inline constexpr size_t kSessionNameBytesMax = 128;
inline constexpr size_t kIdempotencyKeyBytesMax = 64;
inline constexpr float kTemperatureMax = 100.0f;
inline constexpr float kRepetitionPenaltyMax = 100.0f;
inline constexpr int kStopStringsMax = 8;
inline constexpr size_t kStopStringBytesMax = 128;
inline constexpr uint32_t kPageItemsMax = 1000;      // turns or sessions in one answer
inline constexpr uint32_t kExplainTokensMax = 1024;  // tokens in one answer
inline constexpr int kToolsMax = 64;
inline constexpr size_t kToolBytesMax = 64 * 1024;

// kInvalidArgument, naming the field, the value and what is allowed.
Status CheckRequest(const v1::Request& request, uint32_t generated_tokens_max);

// 1 to 128 bytes of visible ASCII without '/'.
Status CheckSessionName(const std::string& name);

}  // namespace mneme::engine
