#include "model/strict_json.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>
#include <charconv>
#include <limits>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>

namespace mneme::model {
namespace {

namespace json = boost::json;
using json::error_code;

// What Boost's own handler does, plus the keys seen so far in each open object.
class StrictEvents {
 public:
  static constexpr size_t max_object_size = json::object::max_size();
  static constexpr size_t max_array_size = json::array::max_size();
  static constexpr size_t max_key_size = json::string::max_size();
  static constexpr size_t max_string_size = json::string::max_size();

  explicit StrictEvents(size_t values_max) : values_left_(values_max) { stack_.reset(); }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) {
    keys_.emplace_back();
    return true;
  }
  bool on_object_end(size_t count, error_code& error) {
    keys_.pop_back();
    stack_.push_object(count);
    return Count(error);
  }
  bool on_array_begin(error_code&) { return true; }
  bool on_array_end(size_t count, error_code& error) {
    stack_.push_array(count);
    return Count(error);
  }
  bool on_key_part(json::string_view part, size_t, error_code&) {
    key_.append(part.data(), part.size());
    stack_.push_chars(part);
    return true;
  }
  bool on_key(json::string_view part, size_t, error_code& error) {
    key_.append(part.data(), part.size());
    stack_.push_key(part);
    const bool fresh = keys_.back().insert(key_).second;
    if (!fresh) return Refuse("the key " + Shown(key_) + " stands twice in one object", error);
    key_.clear();
    return true;
  }
  bool on_string_part(json::string_view part, size_t, error_code&) {
    stack_.push_chars(part);
    return true;
  }
  bool on_string(json::string_view part, size_t, error_code& error) {
    stack_.push_string(part);
    return Count(error);
  }
  bool on_number_part(json::string_view part, error_code&) {
    number_.append(part.data(), part.size());
    return true;
  }
  bool on_int64(int64_t value, json::string_view, error_code& error) {
    number_.clear();
    stack_.push_int64(value);
    return Count(error);
  }
  bool on_uint64(uint64_t value, json::string_view, error_code& error) {
    number_.clear();
    stack_.push_uint64(value);
    return Count(error);
  }
  // Reads the number again: the reader's own double is off in the last place for some exponents
  // (1e300), infinite for 1e999, and silently what became of an integer beyond 64 bits.
  bool on_double(double, json::string_view part, error_code& error) {
    number_.append(part.data(), part.size());
    if (number_.find_first_of(".eE") == std::string::npos)
      return Refuse("the integer " + Shown(number_) + " has more than 64 bits", error);
    double value = 0;
    const auto read = std::from_chars(number_.data(), number_.data() + number_.size(), value);
    if (read.ec != std::errc())
      return Refuse("the number " + Shown(number_) + " is out of range", error);
    number_.clear();
    stack_.push_double(value);
    return Count(error);
  }
  bool on_bool(bool value, error_code& error) {
    stack_.push_bool(value);
    return Count(error);
  }
  bool on_null(error_code& error) {
    stack_.push_null();
    return Count(error);
  }
  bool on_comment_part(json::string_view, error_code&) { return true; }
  bool on_comment(json::string_view, error_code&) { return true; }

  json::value Take() { return stack_.release(); }
  const std::string& refusal() const { return refusal_; }

 private:
  bool Count(error_code& error) {
    if (values_left_ == 0) return Refuse("it holds more values than the limit", error);
    --values_left_;
    return true;
  }
  bool Refuse(std::string why, error_code& error) {
    refusal_ = std::move(why);
    error = json::error::exception;  // any code: `refusal` is what is shown
    return false;
  }

  json::value_stack stack_;
  std::vector<std::unordered_set<std::string>> keys_;  // one set for each open object
  std::string key_;                                    // the key being read
  std::string number_;                                 // the number being read
  size_t values_left_;
  std::string refusal_;
};

}  // namespace

Result<json::value> ParseStrictJson(std::string_view text, std::string_view file,
                                    size_t values_max) {
  json::parse_options options;
  options.max_depth = kJsonDepthMax;
  json::basic_parser<StrictEvents> parser(options, values_max);
  error_code error;
  const size_t used = parser.write_some(false, text.data(), text.size(), error);
  if (!parser.handler().refusal().empty())
    return Fail(ErrorCode::kCorruption, "{}: expected JSON without surprises, found at byte {}: {}",
                file, used, parser.handler().refusal());
  if (error)
    return Fail(ErrorCode::kCorruption, "{}: expected JSON, found at byte {}: {}", file, used,
                error.message());
  const size_t rest = text.find_first_not_of(" \t\r\n", used);
  if (rest != std::string_view::npos)
    return Fail(ErrorCode::kCorruption,
                "{}: expected the end of the JSON text at byte {}, found {}", file, rest,
                Shown(text.substr(rest, 8)));
  return parser.handler().Take();
}

std::string Shown(std::string_view text) {
  constexpr size_t kShownMax = 96;
  std::string shown;
  for (const char c : text.substr(0, kShownMax)) shown += c >= 0x20 && c < 0x7f ? c : '?';
  if (text.size() > kShownMax) shown += "...";
  return shown;
}

}  // namespace mneme::model
