#include "model/chat_template.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <tuple>
#include <utility>

#include "model/python_text.h"
#include "model/strict_json.h"

namespace mneme::model {
namespace {

namespace json = boost::json;

constexpr std::string_view kTurnStart = "<|im_start|>";
constexpr std::string_view kTurnEnd = "<|im_end|>";
constexpr std::string_view kThoughtStart = "<think>";
constexpr std::string_view kThoughtEnd = "</think>";

// What the template writes as tokens of their own.
constexpr auto kTokens = std::to_array<std::string_view>(
    {kTurnStart, kTurnEnd, kThoughtStart, kThoughtEnd, "<tool_call>", "</tool_call>",
     "<tool_response>", "</tool_response>"});

// The words below are part of the format: models were trained on exactly these.
constexpr std::string_view kToolsHead =
    "# Tools\n\nYou have access to the following functions:\n\n<tools>";
constexpr std::string_view kToolsTail =
    "\n</tools>\n\n"
    "If you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n"
    "</parameter>\n<parameter=example_parameter_2>\n"
    "This is the value for the second parameter\nthat can span\nmultiple lines\n"
    "</parameter>\n</function>\n</tool_call>\n\n"
    "<IMPORTANT>\nReminder:\n"
    "- Function calls MUST follow the specified format: an inner <function=...></function> block "
    "must be nested within <tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language BEFORE the "
    "function call, but NOT after\n"
    "- If there is no function call available, answer the question like normal with your current "
    "knowledge and do not tell the user about function calls\n"
    "</IMPORTANT>";

// Collects segments. Neighbouring text is one segment, because it is encoded as one text.
class SegmentWriter {
 public:
  // Text of the template, in which the names of tokens are tokens.
  void Own(std::string_view text) {
    while (!text.empty()) {
      size_t at = std::string_view::npos;
      std::string_view token;
      for (const std::string_view candidate : kTokens) {
        const size_t found = text.find(candidate);
        if (found < at) std::tie(at, token) = std::pair{found, candidate};
      }
      Content(text.substr(0, at));
      if (token.empty()) return;
      segments_.push_back({.is_token = true, .text = std::string(token)});
      text.remove_prefix(at + token.size());
    }
  }

  // Text that somebody else wrote, and that stays text.
  void Content(std::string_view text) {
    if (text.empty()) return;
    if (segments_.empty() || segments_.back().is_token) segments_.emplace_back();
    segments_.back().text.append(text);
  }

  std::vector<ChatSegment> Take() && { return std::move(segments_); }

 private:
  std::vector<ChatSegment> segments_;
};

std::string_view NameOf(ChatRole role) {
  switch (role) {
    case ChatRole::kSystem:
      return "system";
    case ChatRole::kUser:
      return "user";
    case ChatRole::kAssistant:
      return "assistant";
    case ChatRole::kTool:
      return "tool";
  }
  return "unknown";
}

void WriteClosing(LogEnd end, SegmentWriter& writer) {
  switch (end) {
    case LogEnd::kEmpty:
    case LogEnd::kBetweenTurns:
      return;
    case LogEnd::kTurnEndToken:
      return writer.Own("\n");
    case LogEnd::kOpenTurn:
      return writer.Own("<|im_end|>\n");
    case LogEnd::kOpenThought:
      return writer.Own("\n</think>\n\n<|im_end|>\n");
  }
}

Result<json::object> ParseObject(std::string_view text) {
  auto value = ParseStrictJson(text, "JSON");
  if (!value) return Fail(ErrorCode::kInvalidArgument, "{}", value.error().message());
  if (!value->is_object()) {
    return Fail(ErrorCode::kInvalidArgument, "JSON: expected an object, found another value");
  }
  return std::move(value->get_object());
}

// Checks what depends on where a message stands.
Status CheckMessages(std::span<const ChatMessage> messages, const RenderOptions& options) {
  const bool first_of_session = options.end == LogEnd::kEmpty;
  if (messages.empty()) return Fail(ErrorCode::kInvalidArgument, "there are no messages");
  if (!options.tools_json.empty() && !first_of_session) {
    return Fail(ErrorCode::kInvalidArgument,
                "tools can only be given with the first messages of a session");
  }
  bool answers_something = !first_of_session;
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (NameOf(message.role) == "unknown") {
      return Fail(ErrorCode::kInvalidArgument, "message {}: unknown role", i);
    }
    if (message.role == ChatRole::kSystem && (i > 0 || !first_of_session)) {
      return Fail(ErrorCode::kInvalidArgument,
                  "message {}: a system message can only be the first of a session", i);
    }
    if (message.role == ChatRole::kTool && !answers_something) {
      return Fail(ErrorCode::kInvalidArgument,
                  "message {}: a tool result cannot begin a conversation", i);
    }
    answers_something = answers_something || message.role != ChatRole::kSystem;
    if (message.role == ChatRole::kAssistant) continue;
    if (message.reasoning.has_value() || !message.tool_calls.empty()) {
      return Fail(ErrorCode::kInvalidArgument,
                  "message {}: only an assistant message has reasoning or tool calls, this one is "
                  "of role {}",
                  i, NameOf(message.role));
    }
  }
  return {};
}

Status WriteSystem(const ChatMessage* system, std::span<const std::string> tools_json,
                   SegmentWriter& writer) {
  if (system == nullptr && tools_json.empty()) return {};
  const std::string_view content =
      system == nullptr ? std::string_view{} : PythonStrip(system->content);
  writer.Own("<|im_start|>system\n");
  if (!tools_json.empty()) {
    writer.Own(kToolsHead);
    for (size_t i = 0; i < tools_json.size(); ++i) {
      auto tool = ParseObject(tools_json[i]);
      if (!tool) return Fail(std::move(tool).error().Within(fmt::format("tool {}", i)));
      std::string text = "\n";
      AppendPythonJson(*tool, text);
      writer.Content(text);
    }
    writer.Own(kToolsTail);
    if (!content.empty()) writer.Own("\n\n");
  }
  writer.Content(content);
  writer.Own("<|im_end|>\n");
  return {};
}

Status WriteToolCall(const ChatToolCall& call, SegmentWriter& writer) {
  if (call.name.empty()) return Fail(ErrorCode::kInvalidArgument, "the function has no name");
  auto arguments = ParseObject(call.arguments_json.empty() ? "{}" : call.arguments_json);
  if (!arguments) return Fail(std::move(arguments).error().Within("arguments"));
  writer.Own("<tool_call>\n<function=");
  writer.Content(call.name);
  writer.Own(">\n");
  for (const auto& [key, value] : *arguments) {
    writer.Own("<parameter=");
    writer.Content({key.data(), key.size()});
    writer.Own(">\n");
    std::string text;
    AppendPythonText(value, text);
    writer.Content(text);
    writer.Own("\n</parameter>\n");
  }
  writer.Own("</function>\n</tool_call>");
  return {};
}

std::string_view StripNewlinesLeft(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  return text;
}

// What an assistant message thought and what it said.
struct Answer {
  std::string_view reasoning;
  std::string_view content;
};

Answer AnswerOf(const ChatMessage& message) {
  Answer answer{.reasoning = {}, .content = PythonStrip(message.content)};
  const std::string_view all = answer.content;
  if (message.reasoning.has_value()) {
    answer.reasoning = *message.reasoning;
  } else if (const size_t first = all.find(kThoughtEnd); first != std::string_view::npos) {
    answer.reasoning = all.substr(0, first);
    const size_t start = answer.reasoning.rfind(kThoughtStart);
    if (start != std::string_view::npos) {
      answer.reasoning.remove_prefix(start + kThoughtStart.size());
    }
    answer.content = StripNewlinesLeft(all.substr(all.rfind(kThoughtEnd) + kThoughtEnd.size()));
  }
  answer.reasoning = PythonStrip(answer.reasoning);
  return answer;
}

Status WriteAssistant(const ChatMessage& message, SegmentWriter& writer) {
  const Answer answer = AnswerOf(message);
  writer.Own("<|im_start|>assistant\n<think>\n");
  writer.Content(answer.reasoning);
  writer.Own("\n</think>\n\n");
  writer.Content(answer.content);
  const bool follows_text = !PythonStrip(answer.content).empty();
  for (size_t i = 0; i < message.tool_calls.size(); ++i) {
    if (i > 0) writer.Own("\n");
    if (i == 0 && follows_text) writer.Own("\n\n");
    auto written = WriteToolCall(message.tool_calls[i], writer);
    if (!written) return Fail(std::move(written).error().Within(fmt::format("tool call {}", i)));
  }
  writer.Own("<|im_end|>\n");
  return {};
}

}  // namespace

Result<std::vector<ChatSegment>> RenderSegments(std::span<const ChatMessage> messages,
                                                const RenderOptions& options) {
  auto checked = CheckMessages(messages, options);
  if (!checked) return Fail(std::move(checked).error().Within("render messages"));
  SegmentWriter writer;
  WriteClosing(options.end, writer);
  const bool has_system = messages[0].role == ChatRole::kSystem;
  auto written = WriteSystem(has_system ? &messages[0] : nullptr, options.tools_json, writer);
  if (!written) return Fail(std::move(written).error().Within("render messages"));

  for (size_t i = has_system ? 1 : 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (message.role == ChatRole::kAssistant) {
      written = WriteAssistant(message, writer);
      if (!written) {
        return Fail(
            std::move(written).error().Within(fmt::format("render messages: message {}", i)));
      }
    } else if (message.role == ChatRole::kTool) {
      const auto is_tool = [&](size_t at) {
        return at < messages.size() && messages[at].role == ChatRole::kTool;
      };
      if (i == 0 || !is_tool(i - 1)) writer.Own("<|im_start|>user");
      writer.Own("\n<tool_response>\n");
      writer.Content(PythonStrip(message.content));
      writer.Own("\n</tool_response>");
      if (!is_tool(i + 1)) writer.Own("<|im_end|>\n");
    } else {
      writer.Own("<|im_start|>user\n");
      writer.Content(PythonStrip(message.content));
      writer.Own("<|im_end|>\n");
    }
  }
  return std::move(writer).Take();
}

std::vector<ChatSegment> GenerationSegments(LogEnd end, bool thinking) {
  SegmentWriter writer;
  WriteClosing(end, writer);
  writer.Own(thinking ? "<|im_start|>assistant\n<think>\n"
                      : "<|im_start|>assistant\n<think>\n\n</think>\n\n");
  return std::move(writer).Take();
}

Result<ChatTemplate> ChatTemplate::Make(const Tokenizer& tokenizer) {
  ChatTemplate chat(tokenizer);
  for (const auto& [content, id] :
       {std::pair{kTurnStart, &chat.turn_start_}, std::pair{kTurnEnd, &chat.turn_end_}}) {
    const auto found = tokenizer.IdOf(content);
    if (!found) {
      return Fail(ErrorCode::kInvalidArgument, "chat template: the tokenizer has no added token {}",
                  content);
    }
    *id = *found;
  }
  chat.text_end_ = tokenizer.IdOf("<|endoftext|>").value_or(-1);
  chat.thought_start_ = tokenizer.IdOf(kThoughtStart).value_or(-1);
  chat.thought_end_ = tokenizer.IdOf(kThoughtEnd).value_or(-1);
  return chat;
}

Result<ChatTemplate> ChatTemplate::MakeIfAny(const Tokenizer& tokenizer) {
  if (tokenizer.IdOf(kTurnStart) || tokenizer.IdOf(kTurnEnd)) return Make(tokenizer);
  ChatTemplate none(tokenizer);
  none.text_end_ = tokenizer.IdOf("<|endoftext|>").value_or(-1);
  return none;
}

Status ChatTemplate::CheckHasChat() const {
  if (has_chat()) return {};
  return Fail(
      ErrorCode::kInvalidArgument,
      "chat template: the model has no chat form, since its tokenizer has no token {}; send "
      "text or ids and ask for the raw prompt form",
      kTurnStart);
}

Result<std::vector<int32_t>> ChatTemplate::Encode(std::span<const ChatSegment> segments) const {
  std::vector<int32_t> ids;
  std::string text;
  const auto flush = [&]() -> Status {
    auto encoded = tokenizer_->Encode(text, SpecialTokens::kAsText);
    MNEME_TRY(encoded);
    ids.insert(ids.end(), encoded->begin(), encoded->end());
    text.clear();
    return {};
  };
  for (const ChatSegment& segment : segments) {
    const auto id = segment.is_token ? tokenizer_->IdOf(segment.text) : std::nullopt;
    if (!id) {
      text.append(segment.text);
      continue;
    }
    MNEME_TRY(flush());
    ids.push_back(*id);
  }
  MNEME_TRY(flush());
  return ids;
}

Result<std::vector<int32_t>> ChatTemplate::Render(std::span<const ChatMessage> messages,
                                                  const RenderOptions& options) const {
  MNEME_TRY(CheckHasChat());
  const auto segments = RenderSegments(messages, options);
  MNEME_TRY(segments);
  auto ids = Encode(*segments);
  if (!ids) return Fail(std::move(ids).error().Within("render messages"));
  return ids;
}

Result<std::vector<int32_t>> ChatTemplate::GenerationPrompt(LogEnd end, bool thinking) const {
  MNEME_TRY(CheckHasChat());
  if (end == LogEnd::kEmpty) {
    return Fail(ErrorCode::kInvalidArgument, "generation prompt: the session has no messages yet");
  }
  return Encode(GenerationSegments(end, thinking));
}

LogEnd ChatTemplate::EndOf(std::span<const int32_t> tail) const {
  if (tail.empty()) return LogEnd::kEmpty;
  size_t at = tail.size();
  while (at > 0 && tail[at - 1] != turn_start_ && tail[at - 1] != turn_end_) --at;
  if (at == 0) return LogEnd::kBetweenTurns;
  if (tail[at - 1] == turn_end_) {
    return at == tail.size() ? LogEnd::kTurnEndToken : LogEnd::kBetweenTurns;
  }
  const std::span<const int32_t> turn = tail.subspan(at);
  if (thought_start_ >= 0 && thought_end_ >= 0) {
    bool open = false;
    for (const int32_t id : turn) open = id == thought_start_ || (open && id != thought_end_);
    return open ? LogEnd::kOpenThought : LogEnd::kOpenTurn;
  }
  // A vocabulary without these as tokens writes them as text.
  const std::string text = tokenizer_->Decode(turn);
  const bool open =
      text.starts_with("assistant\n<think>") && text.find(kThoughtEnd) == std::string::npos;
  return open ? LogEnd::kOpenThought : LogEnd::kOpenTurn;
}

}  // namespace mneme::model
