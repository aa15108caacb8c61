#include "engine/turn_input.h"

#include <algorithm>
#include <optional>

namespace mneme::engine {
namespace {

constexpr uint64_t kTailTokens = 1024;       // looked at first to see how a log ends
constexpr uint64_t kTailTokensMax = 65'536;  // and at most

model::ChatMessage FromWire(const v1::Message& message) {
  model::ChatMessage made;
  switch (message.role()) {
    case v1::ROLE_SYSTEM:
      made.role = model::ChatRole::kSystem;
      break;
    case v1::ROLE_ASSISTANT:
      made.role = model::ChatRole::kAssistant;
      break;
    case v1::ROLE_TOOL:
      made.role = model::ChatRole::kTool;
      break;
    default:
      made.role = model::ChatRole::kUser;
  }
  made.content = message.content();
  if (!message.reasoning().empty()) made.reasoning = message.reasoning();
  for (const v1::ToolCall& call : message.tool_calls())
    made.tool_calls.push_back({.name = call.name(), .arguments_json = call.arguments_json()});
  return made;
}

const char* NameOf(model::ChatRole role) {
  switch (role) {
    case model::ChatRole::kSystem:
      return "system";
    case model::ChatRole::kUser:
      return "user";
    case model::ChatRole::kAssistant:
      return "assistant";
    case model::ChatRole::kTool:
      return "tool";
  }
  return "";
}

// Message by message, so that the turn records where each lies; tool results that follow each other
// share one span, as they share one turn of the template.
Status AddMessages(const v1::Messages& input, const model::ChatTemplate& chat, model::LogEnd* end,
                   TurnInput* turn) {
  std::vector<model::ChatMessage> messages;
  for (const v1::Message& message : input.messages()) messages.push_back(FromWire(message));
  const std::vector<std::string> tools(input.tools_json().begin(), input.tools_json().end());
  // Says what is wrong with all of them together.
  const auto all = chat.Render(messages, {.end = *end, .tools_json = tools});
  MNEME_TRY(all);
  std::vector<int32_t> ids;
  std::vector<v1::MessageSpan> spans;
  model::LogEnd before = *end;
  for (size_t first = 0; first < messages.size();) {
    size_t last = first + 1;
    while (last < messages.size() && messages[first].role == model::ChatRole::kTool &&
           messages[last].role == model::ChatRole::kTool)
      ++last;
    // A system message begins the session, and its first user message still does for the template.
    const auto part = chat.Render(std::span(messages).subspan(first, last - first),
                                  {.end = before,
                                   .tools_json = first == 0 ? std::span<const std::string>(tools)
                                                            : std::span<const std::string>()});
    MNEME_TRY(part);
    v1::MessageSpan span;
    span.set_role(NameOf(messages[first].role));
    span.set_first_token(turn->ids.size() + ids.size());
    span.set_tokens(part->size());
    spans.push_back(std::move(span));
    ids.insert(ids.end(), part->begin(), part->end());
    before = model::LogEnd::kBetweenTurns;
    first = last;
  }
  if (ids != *all) {  // the template joins something across messages: no spans then
    ids = *all;
    spans.clear();
  }
  turn->ids.insert(turn->ids.end(), ids.begin(), ids.end());
  turn->messages.insert(turn->messages.end(), spans.begin(), spans.end());
  turn->chat = true;
  *end = model::LogEnd::kBetweenTurns;
  return {};
}

// `end` is how what precedes it ends, and becomes how it ends itself.
Status AddInput(const v1::Input& input, const model::Tokenizer& tokenizer,
                const model::ChatTemplate& chat, model::LogEnd* end, TurnInput* turn) {
  if (input.has_messages()) return AddMessages(input.messages(), chat, end, turn);
  std::vector<int32_t> ids;
  if (input.has_tokens()) {
    for (const uint32_t id : input.tokens().ids()) {
      if (id >= static_cast<uint32_t>(tokenizer.vocab_size())) {
        return Fail(ErrorCode::kInvalidArgument, "token id {}: the vocabulary has {}", id,
                    tokenizer.vocab_size());
      }
      ids.push_back(static_cast<int32_t>(id));
    }
  } else {
    auto encoded = tokenizer.Encode(input.text(), model::SpecialTokens::kAsText);
    MNEME_TRY(encoded);
    if (*end == model::LogEnd::kEmpty && !encoded->empty()) ids = tokenizer.start_ids();
    ids.insert(ids.end(), encoded->begin(), encoded->end());
  }
  if (ids.empty()) return Fail(ErrorCode::kInvalidArgument, "the input has no tokens");
  turn->ids.insert(turn->ids.end(), ids.begin(), ids.end());
  *end = chat.EndOf(ids);
  return {};
}

}  // namespace

Result<model::LogEnd> EndOfLog(Session& session, const model::Tokenizer& tokenizer,
                               const model::ChatTemplate& chat) {
  const uint64_t position = session.head.position();
  if (!chat.has_chat()) return position == 0 ? model::LogEnd::kEmpty : model::LogEnd::kBetweenTurns;
  const auto start = tokenizer.IdOf("<|im_start|>");
  const auto stop = tokenizer.IdOf("<|im_end|>");
  for (uint64_t count = std::min(kTailTokens, position);;
       count = std::min({count * 8, kTailTokensMax, position})) {
    const auto tail = session.Collect(position - count, count);
    MNEME_TRY(tail);
    const bool decided = std::any_of(tail->begin(), tail->end(),
                                     [&](int32_t id) { return id == start || id == stop; });
    if (decided || count == position || count >= kTailTokensMax) return chat.EndOf(*tail);
  }
}

Result<TurnInput> EncodeInput(const v1::Request& request, model::LogEnd end,
                              const model::Tokenizer& tokenizer, const model::ChatTemplate& chat,
                              int32_t vocab) {
  TurnInput turn;
  const bool generates = request.has_generate();
  const bool has_input = generates ? request.generate().has_input() : request.append().has_input();
  const v1::Input& input = generates ? request.generate().input() : request.append().input();
  if (has_input) MNEME_TRY(AddInput(input, tokenizer, chat, &end, &turn));
  if (generates && request.generate().prompt_form() != v1::PROMPT_FORM_RAW) {
    const auto prompt = chat.GenerationPrompt(end, request.generate().thinking());
    MNEME_TRY(prompt);
    turn.ids.insert(turn.ids.end(), prompt->begin(), prompt->end());
    turn.chat = true;
  }
  for (const int32_t id : turn.ids) {
    if (id < 0 || id >= vocab)
      return Fail(ErrorCode::kInvalidArgument, "token id {}: the model's vocabulary has {}", id,
                  vocab);
  }
  return turn;
}

}  // namespace mneme::engine
