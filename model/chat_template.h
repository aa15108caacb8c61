// ChatTemplate writes messages as the Qwen3.5 family was trained to read them, in token ids:
//
//   <|im_start|>role\n content <|im_end|>\n        a chat turn, not to be confused with one of the
//   log
//
//   system     the tools, one JSON a line, and how to call them, if there are any; then the content
//   user       the content
//   assistant  <think>\n reasoning \n</think>\n\n content, then its calls:
//              <tool_call>\n<function=NAME>\n<parameter=KEY>\n value \n</parameter>\n</function>\n
//              </tool_call>
//   tool       a user turn; neighbouring results share one: \n<tool_response>\n content
//              \n</tool_response>
//
// A log is never rendered again. Render writes only the messages of one append, after whatever the
// log ends with (LogEnd), and an answer stays in the log as it was generated, thinking included. So
// what the session holds is what the family's template gives for the whole conversation with
// thinking preserved, where that can be:
//
//   * Render(a) + Render(b) = Render(a + b), unless a ends and b begins with a tool result: those
//     share a turn within one append only.
//   * GenerationPrompt + the generated tokens up to <|im_end|> + the "\n" with which the next
//     append begins = the assistant message with that reasoning and content, if the model wrote no
//     white space of its own around either. A cut-off answer is closed by the next append the same
//     way, an unfinished thought with it.
//
// Content is encoded as text: nothing in a message, a tool or a call can give the id of <|im_end|>
// or open a turn, whatever it says.
//
// Owns:     nothing; the tokenizer must outlive it.
// Threads:  const after Make.
// Errors:   kInvalidArgument  Make: the tokenizer has no <|im_start|> or <|im_end|>
//           kInvalidArgument  Render: messages that no conversation can hold, bad JSON, content
//                             that is not UTF-8; the message says which
//           kTooLarge         Render: more text than the tokenizer takes
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/tokenizer.h"

namespace mneme::model {

enum class ChatRole : uint8_t { kSystem, kUser, kAssistant, kTool };

struct ChatToolCall {
  std::string name;
  std::string arguments_json;  // an object; empty counts as {}
};

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::string content;
  // Assistant only. Without it, reasoning is what the content has before </think>, if anything.
  std::optional<std::string> reasoning;
  std::vector<ChatToolCall> tool_calls;  // assistant only
};

// What a session's log ends with, and so what must come before the next turn.
enum class LogEnd : uint8_t {
  kEmpty,         // there is no token yet; only now a system message and tools may come
  kBetweenTurns,  // the last turn is closed, or the text was no conversation: nothing
  kTurnEndToken,  // <|im_end|>, as generation leaves it: "\n"
  kOpenTurn,      // inside a turn, as a cut-off answer leaves it: "<|im_end|>\n"
  kOpenThought,   // inside its reasoning: "\n</think>\n\n<|im_end|>\n"
};

struct RenderOptions {
  LogEnd end = LogEnd::kEmpty;
  std::span<const std::string> tools_json = {};  // one object each, in this order
};

// A rendered conversation before it is encoded: the template's tokens, and the text between them.
struct ChatSegment {
  bool is_token = false;  // `text` is the content of an added token, if the tokenizer has that one
  std::string text;
};

Result<std::vector<ChatSegment>> RenderSegments(std::span<const ChatMessage> messages,
                                                const RenderOptions& options);
std::vector<ChatSegment> GenerationSegments(LogEnd end, bool thinking);

class ChatTemplate {
 public:
  static Result<ChatTemplate> Make(const Tokenizer& tokenizer);

  // The same, but of a tokenizer with neither token, as base models have: then there is no chat
  // form, and Render and GenerationPrompt say so (kInvalidArgument).
  static Result<ChatTemplate> MakeIfAny(const Tokenizer& tokenizer);

  bool has_chat() const { return turn_start_ >= 0; }

  // The tokens of `messages`, closing what the log ends with.
  Result<std::vector<int32_t>> Render(std::span<const ChatMessage> messages,
                                      const RenderOptions& options) const;

  // The tokens after which the model answers: the assistant's header and an opened thought, or with
  // `thinking` off an empty one. kInvalidArgument for an empty log: there is nothing to answer.
  Result<std::vector<int32_t>> GenerationPrompt(LogEnd end, bool thinking) const;

  // `tail` is the end of the log, back to the start of its last turn at least; empty only if the
  // log is.
  LogEnd EndOf(std::span<const int32_t> tail) const;

  // Whether the model ends its answer with `id`: <|im_end|> or <|endoftext|>.
  bool IsStop(int32_t id) const { return id >= 0 && (id == turn_end_ || id == text_end_); }

 private:
  explicit ChatTemplate(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  Result<std::vector<int32_t>> Encode(std::span<const ChatSegment> segments) const;
  Status CheckHasChat() const;

  const Tokenizer* tokenizer_;
  int32_t turn_start_ = -1;     // <|im_start|>; -1 without a chat form
  int32_t turn_end_ = -1;       // <|im_end|>; -1 without a chat form
  int32_t text_end_ = -1;       // <|endoftext|>; this and the next two are -1 where there is none
  int32_t thought_start_ = -1;  // <think>
  int32_t thought_end_ = -1;    // </think>
};

}  // namespace mneme::model
