// Writing is the one write that a session may have in flight: an Append, a Generate, or what opens,
// closes or deletes it; and, for a Generate, the tokens that no turn of the log holds yet.
//
// Threads:  engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/call.h"
#include "engine/repetition_window.h"
#include "engine/stop_text.h"
#include "kernels/kernel_table.h"
#include "model/tokenizer.h"
#include "proto/mneme/v1/explain.pb.h"
#include "proto/mneme/v1/store.pb.h"

namespace mneme::engine {

enum class WriteKind : uint8_t { kOpen, kAppend, kGenerate, kDelete };

enum class WriteStage : uint8_t {
  kMemory,      // waits until the session's memory is back (Open)
  kEncoding,    // what it brings becomes tokens (Append, Generate)
  kComputing,   // the tokens before the answer, then the answer (Generate)
  kCommitting,  // the log has it
  kCommitted,   // logged; waits until it is computed (Append)
};

// What a Generate keeps from token to token.
struct Generation {
  Generation(const model::Tokenizer& tokenizer, std::vector<std::string> stop_strings)
      : text_stream(tokenizer, model::SpecialText::kHide), stop_text(std::move(stop_strings)) {}

  kernels::Sampling sampling;  // but for position and seen
  uint32_t tokens_max = 0;
  bool explain = false;
  model::TextStream text_stream;
  StopText stop_text;
  std::string text;                            // shown so far
  std::optional<RepetitionWindow> repetition;  // only with a penalty
  v1::ExplainRecord explained;
  bool started = false;  // `started` was sent
  v1::StopReason stop_reason = v1::STOP_REASON_UNSPECIFIED;
  bool truncated = false;
  int64_t first_token_us = 0;  // monotonic; 0: none yet
  int64_t last_token_us = 0;
  int64_t paused_us = 0;  // that its reader kept it from going on, in all
};

struct Writing {
  std::shared_ptr<Call> call;
  WriteKind kind = WriteKind::kAppend;
  WriteStage stage = WriteStage::kMemory;
  int64_t accepted_us = 0;  // monotonic
  v1::TurnRecord record;    // as it will be logged, but for the tokens of a Generate
  std::vector<int32_t> prompt;
  std::vector<int32_t> generated;
  std::unique_ptr<Generation> generation;  // of a Generate
  uint64_t append_tokens = 0;
  bool created = false;  // by this Open
  int64_t progress_at_us = 0;
  uint64_t progress_first = 0;  // position when progress was first told
  int64_t progress_first_us = 0;
  std::optional<v1::Event> answer;  // of an Append whose computing is waited for

  uint64_t tokens() const { return prompt.size() + generated.size(); }
};

}  // namespace mneme::engine
