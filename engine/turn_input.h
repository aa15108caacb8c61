// TurnInput makes of what a client sends the tokens that are logged: messages through the chat
// template, text through the tokenizer, ids as they are.
//
// Threads:  EndOfLog engine thread only; EncodeInput any.
// Errors:   kInvalidArgument  what is no text, no conversation or no id of the vocabulary
//           too_large         more text than the tokenizer takes
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/session.h"
#include "model/chat_template.h"
#include "model/tokenizer.h"
#include "proto/mneme/v1/session.pb.h"

namespace mneme::engine {

// Recorded with each turn that the template wrote.
inline constexpr std::string_view kChatTemplateName = "qwen3.5";

struct TurnInput {
  std::vector<int32_t> ids;
  std::vector<v1::MessageSpan> messages;  // spans of ids; empty for plain text and ids
  bool chat = false;                      // the template wrote some of it
};

// How the session's log ends.
Result<model::LogEnd> EndOfLog(Session& session, const model::Tokenizer& tokenizer,
                               const model::ChatTemplate& chat);

// What an append or a generate brings to a log that ends with `end`: its input, and for a generate
// the tokens after which the model answers. `vocab` is the model's.
Result<TurnInput> EncodeInput(const v1::Request& request, model::LogEnd end,
                              const model::Tokenizer& tokenizer, const model::ChatTemplate& chat,
                              int32_t vocab);

}  // namespace mneme::engine
