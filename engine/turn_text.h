// TurnText is what people are shown of logged tokens: the parts of a turn, and the beginning of a
// chunk.
//
// Threads:  engine thread only.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/session.h"
#include "model/tokenizer.h"
#include "proto/mneme/v1/event.pb.h"

namespace mneme::engine {

inline constexpr size_t kSpanCharactersMax = 80;

// The turn's runs as they were logged, the template's marks included.
v1::TranscriptTurn TranscriptOf(const v1::TurnRecord& record, const model::Tokenizer& tokenizer);

// The first characters of the tokens from `first` on.
Result<std::string> SpanText(Session& session, uint64_t first, uint64_t tokens,
                             const model::Tokenizer& tokenizer);

}  // namespace mneme::engine
