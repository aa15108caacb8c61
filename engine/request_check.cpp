#include "engine/request_check.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "engine/repetition_window.h"

namespace mneme::engine {
namespace {

template <typename... Args>
tl::unexpected<Error> Invalid(fmt::format_string<Args...> format, Args&&... args) {
  return Fail(ErrorCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

// A name that is none, for a message: what is not visible ASCII, by its code point or byte.
std::string Escaped(std::string_view name) {
  std::string text;
  while (!name.empty()) {
    const Utf8Step step = FirstCharacter(name);
    const auto byte = static_cast<unsigned char>(name[0]);
    if (byte >= ' ' && byte <= '~') {
      text += name[0];
    } else if (step.kind == Utf8Kind::kCharacter) {
      text += fmt::format("\\u{{{:x}}}", static_cast<uint32_t>(CharacterOf(name)));
    } else {
      text += fmt::format("\\x{:02x}", byte);
    }
    name.remove_prefix(step.kind == Utf8Kind::kCharacter ? step.bytes : 1);
  }
  return text;
}

Status CheckMessages(const v1::Messages& input) {
  if (input.messages().empty()) return Invalid("input.messages is empty");
  for (int i = 0; i < input.messages_size(); ++i) {
    const v1::Message& message = input.messages(i);
    if (message.role() <= v1::ROLE_UNSPECIFIED || message.role() > v1::ROLE_TOOL) {
      return Invalid("input.messages[{}].role is {}; system, user, assistant and tool are 1 to 4",
                     i, static_cast<int>(message.role()));
    }
    const bool assistant = message.role() == v1::ROLE_ASSISTANT;
    if (!assistant && (!message.reasoning().empty() || !message.tool_calls().empty()))
      return Invalid("input.messages[{}]: only an assistant reasons or calls tools", i);
    for (const v1::ToolCall& call : message.tool_calls()) {
      if (call.name().empty()) return Invalid("input.messages[{}]: a tool call has no name", i);
    }
  }
  if (input.tools_json_size() > kToolsMax)
    return Invalid("input.messages.tools_json has {} tools; the most is {}",
                   input.tools_json_size(), kToolsMax);
  for (const std::string& tool : input.tools_json()) {
    if (tool.size() > kToolBytesMax)
      return Invalid("a tool has {} bytes; the most is {}", tool.size(), kToolBytesMax);
  }
  return {};
}

Status CheckInput(const v1::Input& input) {
  switch (input.kind_case()) {
    case v1::Input::kMessages:
      return CheckMessages(input.messages());
    case v1::Input::kText:
      if (input.text().empty()) return Invalid("input.text is empty");
      return {};
    case v1::Input::kTokens:
      if (input.tokens().ids().empty()) return Invalid("input.tokens is empty");
      return {};
    case v1::Input::KIND_NOT_SET:
      break;
  }
  return Invalid("input holds neither messages nor text nor tokens");
}

Status CheckKeyAndHead(const std::string& key, const v1::Head& head) {
  if (key.size() > kIdempotencyKeyBytesMax)
    return Invalid("idempotency_key has {} bytes; the most is {}", key.size(),
                   kIdempotencyKeyBytesMax);
  const size_t hash_bytes = head.chain_hash().size();
  if (hash_bytes != 0 && hash_bytes != 32)
    return Invalid("expected_head.chain_hash has {} bytes; it has 32, or none", hash_bytes);
  return {};
}

// Not finite counts as out of range.
Status CheckRange(const char* name, float value, float min, float max) {
  if (value >= min && value <= max) return {};
  return Invalid("sampling.{} is {}; it lies in {} to {}", name, value, min, max);
}

Status CheckGenerate(const v1::GenerateRequest& request, uint32_t generated_tokens_max) {
  MNEME_TRY(CheckSessionName(request.session()));
  if (request.has_input()) MNEME_TRY(CheckInput(request.input()));
  MNEME_TRY(CheckKeyAndHead(request.idempotency_key(), request.expected_head()));
  if (request.max_tokens() > generated_tokens_max)
    return Invalid("max_tokens is {}; the most is {}", request.max_tokens(), generated_tokens_max);
  const v1::SamplingSettings& sampling = request.sampling();
  MNEME_TRY(CheckRange("temperature", sampling.temperature(), 0.0f, kTemperatureMax));
  MNEME_TRY(CheckRange("top_p", sampling.top_p(), 0.0f, 1.0f));
  MNEME_TRY(CheckRange("min_p", sampling.min_p(), 0.0f, 1.0f));
  MNEME_TRY(
      CheckRange("repetition_penalty", sampling.repetition_penalty(), 0.0f, kRepetitionPenaltyMax));
  if (sampling.repetition_window() > kRepetitionWindowMax)
    return Invalid("sampling.repetition_window is {}; the most is {}", sampling.repetition_window(),
                   kRepetitionWindowMax);
  if (request.stop_size() > kStopStringsMax)
    return Invalid("stop has {} strings; the most is {}", request.stop_size(), kStopStringsMax);
  for (const std::string& stop : request.stop()) {
    if (stop.empty() || stop.size() > kStopStringBytesMax)
      return Invalid("a stop string has {} bytes; it has 1 to {}", stop.size(),
                     kStopStringBytesMax);
  }
  if (!v1::OnDisconnect_IsValid(request.on_disconnect()))
    return Invalid("on_disconnect is {}; cancel is 1, keep is 2",
                   static_cast<int>(request.on_disconnect()));
  if (!v1::PromptForm_IsValid(request.prompt_form()))
    return Invalid("prompt_form is {}; chat is 1, raw is 2",
                   static_cast<int>(request.prompt_form()));
  return {};
}

Status CheckAppend(const v1::AppendRequest& request) {
  MNEME_TRY(CheckSessionName(request.session()));
  MNEME_TRY(CheckInput(request.input()));
  return CheckKeyAndHead(request.idempotency_key(), request.expected_head());
}

Status CheckCount(const char* name, uint32_t value, uint32_t max) {
  if (value <= max) return {};
  return Invalid("{} is {}; the most is {}", name, value, max);
}

}  // namespace

Status CheckSessionName(const std::string& name) {
  constexpr std::string_view kRule =
      "a name has 1 to 128 letters, digits and signs of ASCII, no spaces and no '/'";
  if (name.empty()) return Invalid("the session has no name; {}", kRule);
  if (name.size() > kSessionNameBytesMax)
    return Invalid("a session name of {} bytes; {}", name.size(), kRule);
  const auto bad = std::find_if(name.begin(), name.end(),
                                [](char c) { return c <= ' ' || c > '~' || c == '/'; });
  if (bad == name.end()) return {};
  return Invalid("session name \"{}\": its character {} is not allowed; {}", Escaped(name),
                 bad - name.begin() + 1, kRule);
}

Status CheckRequest(const v1::Request& request, uint32_t generated_tokens_max) {
  switch (request.kind_case()) {
    case v1::Request::kOpen:
      return CheckSessionName(request.open().session());
    case v1::Request::kAppend:
      return CheckAppend(request.append());
    case v1::Request::kGenerate:
      return CheckGenerate(request.generate(), generated_tokens_max);
    case v1::Request::kStats:
      return request.stats().session().empty() ? Status()
                                               : CheckSessionName(request.stats().session());
    case v1::Request::kExplain:
      MNEME_TRY(CheckSessionName(request.explain().session()));
      return CheckCount("tokens_max", request.explain().tokens_max(), kExplainTokensMax);
    case v1::Request::kTranscript:
      MNEME_TRY(CheckSessionName(request.transcript().session()));
      return CheckCount("turns_max", request.transcript().turns_max(), kPageItemsMax);
    case v1::Request::kList:
      MNEME_TRY(CheckCount("sessions_max", request.list().sessions_max(), kPageItemsMax));
      return request.list().after().empty() ? Status() : CheckSessionName(request.list().after());
    case v1::Request::kClose:
      return CheckSessionName(request.close().session());
    case v1::Request::kDelete:
      return CheckSessionName(request.delete_().session());
    case v1::Request::kHealth:
    case v1::Request::kCancel:
      return {};
    case v1::Request::KIND_NOT_SET:
      break;
  }
  return Invalid("the request asks for nothing this server knows");
}

}  // namespace mneme::engine
