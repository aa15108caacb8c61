#include "model/router_metadata.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "model/router_weights.h"
#include "model/strict_json.h"

namespace mneme::model {
namespace {

constexpr std::string_view kKnownKeys[] = {"reader",    "chunk",         "window",        "theta",
                                           "pages_max", "closed_layers", "recent_chunks", "format"};

// The whole text as a number; nothing where it is not one.
template <typename Number>
std::optional<Number> NumberOf(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

class Reading {
 public:
  Reading(const std::map<std::string, std::string>& metadata, std::string_view file)
      : metadata_(metadata), file_(file) {}

  template <typename... Args>
  auto Refuse(std::string_view key, fmt::format_string<Args...> expected, Args&&... args) const {
    const auto found = metadata_.find(std::string(key));
    return Fail(ErrorCode::kInvalidArgument, "{}: metadata {}: expected {}, found {}", file_, key,
                fmt::format(expected, std::forward<Args>(args)...),
                found == metadata_.end() ? "none" : Shown(found->second));
  }

  Status CheckKeys() const {
    for (const auto& [key, value] : metadata_) {
      const bool known = std::count(std::begin(kKnownKeys), std::end(kKnownKeys), key) > 0;
      if (!known && !key.starts_with("note"))
        return Fail(ErrorCode::kInvalidArgument, "{}: metadata {}: expected {}, found this key",
                    file_, Shown(key), fmt::join(kKnownKeys, ", "));
    }
    return {};
  }

  std::optional<std::string_view> Text(std::string_view key) const {
    const auto found = metadata_.find(std::string(key));
    if (found == metadata_.end()) return std::nullopt;
    return Trimmed(found->second);
  }

  Status Integer(int& field, std::string_view key, int low, int high) const {
    const auto text = Text(key);
    const auto value = text ? NumberOf<int>(*text) : std::nullopt;
    if (!value || *value < low || *value > high)
      return Refuse(key, "an integer from {} to {}", low, high);
    field = *value;
    return {};
  }

  // An absent key is an empty list.
  Result<std::vector<int>> List(std::string_view key, size_t count_max) const {
    std::string_view text = Text(key).value_or("");
    if (text.starts_with('[') != text.ends_with(']')) return Refuse(key, "a list of integers");
    if (text.starts_with('[')) text = Trimmed(text.substr(1, text.size() - 2));
    std::vector<int> list;
    while (!text.empty()) {
      const size_t comma = text.find(',');
      const auto value = NumberOf<int>(Trimmed(text.substr(0, comma)));
      if (!value || list.size() >= count_max)
        return Refuse(key, "a list of at most {} integers", count_max);
      list.push_back(*value);
      if (comma == std::string_view::npos) break;
      text.remove_prefix(comma + 1);
      if (Trimmed(text).empty()) return Refuse(key, "an integer behind the last comma");
    }
    return list;
  }

 private:
  const std::map<std::string, std::string>& metadata_;
  std::string_view file_;
};

Status ReadLayerLists(RouterMetadata& result, const Reading& reading, const ModelConfig& config) {
  const auto layers = config.layers.size();
  result.closed.assign(layers, false);
  result.recent_chunks.assign(layers, 0);
  auto closed = reading.List("closed_layers", layers);
  if (!closed) return Fail(std::move(closed).error());
  for (const int layer : *closed) {
    const bool linear = layer >= 0 && static_cast<size_t>(layer) < layers &&
                        config.layers[static_cast<size_t>(layer)] == LayerKind::kLinear;
    if (!linear || result.closed[static_cast<size_t>(layer)])
      return reading.Refuse("closed_layers", "linear layers of {}, each once", layers);
    result.closed[static_cast<size_t>(layer)] = true;
  }
  auto recent = reading.List("recent_chunks", layers);
  if (!recent) return Fail(std::move(recent).error());
  if (!recent->empty() && recent->size() != layers)
    return reading.Refuse("recent_chunks", "one number for each of {} layers", layers);
  for (size_t layer = 0; layer < recent->size(); ++layer) {
    const int count = (*recent)[layer];
    const bool linear = config.layers[layer] == LayerKind::kLinear;
    if (count < 0 || count > kPagesMaxMax || (!linear && count != 0))
      return reading.Refuse("recent_chunks", "0 to {} in a linear layer and 0 in others",
                            kPagesMaxMax);
    result.recent_chunks[layer] = count;
  }
  return {};
}

}  // namespace

Result<RouterMetadata> ParseRouterMetadata(const std::map<std::string, std::string>& metadata,
                                           std::string_view file, std::string_view reader,
                                           const ModelConfig& config) {
  const Reading reading(metadata, file);
  RouterMetadata result;
  MNEME_TRY(reading.CheckKeys());
  if (reading.Text("reader") != reader) return reading.Refuse("reader", "{}", reader);
  int chunk = 0;
  MNEME_TRY(reading.Integer(chunk, "chunk", kChunkTokens, kChunkTokens));
  MNEME_TRY(ReadLayerLists(result, reading, config));
  if (reader != "hla") return result;

  MNEME_TRY(reading.Integer(result.window_tokens, "window", kWindowTokensMin, kChunkTokens));
  if (kChunkTokens % result.window_tokens != 0)
    return reading.Refuse("window", "a divisor of {}", kChunkTokens);
  MNEME_TRY(reading.Integer(result.pages_max, "pages_max", 1, kPagesMaxMax));
  const auto theta_text = reading.Text("theta");
  const auto theta = theta_text ? NumberOf<float>(*theta_text) : std::nullopt;
  if (!theta || !(*theta >= 0 && *theta < 1))
    return reading.Refuse("theta", "a number from 0 to below 1");
  result.theta = *theta;
  for (const int recent : result.recent_chunks) {
    if (recent > result.pages_max)
      return reading.Refuse("recent_chunks", "at most pages_max ({}) each", result.pages_max);
  }
  return result;
}

}  // namespace mneme::model
