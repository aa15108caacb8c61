#include "model/config_fields.h"

#include <boost/json/serialize.hpp>
#include <limits>
#include <utility>

#include "model/model_config.h"
#include "model/strict_json.h"

namespace mneme::model {

namespace json = boost::json;

std::string Found(const json::value* value) {
  if (value == nullptr) return "none";
  return Shown(json::serialize(*value));
}

const json::value* ConfigFields::Find(std::string_view name) const {
  for (const json::object* object : {&nested_, &top_}) {
    const json::value* value = object->if_contains(name);
    if (value != nullptr && !value->is_null()) return value;
  }
  return nullptr;
}

Status ConfigFields::Integer(int& field, std::string_view name, Range range) const {
  const json::value* value = Find(name);
  const int64_t* integer = value == nullptr ? nullptr : value->if_int64();
  if (integer == nullptr || *integer < range.low || *integer > range.high)
    return Fail(integer == nullptr && value != nullptr ? ErrorCode::kCorruption
                                                       : ErrorCode::kInvalidArgument,
                "{}: {}: expected an integer from {} to {}, found {}", kConfigName, name, range.low,
                range.high, Found(value));
  field = static_cast<int>(*integer);
  return {};
}

Status ConfigFields::Only(std::string_view name, std::string_view wanted) const {
  const json::value* value = Find(name);
  if (value == nullptr || json::serialize(*value) == wanted) return {};
  return Fail(ErrorCode::kInvalidArgument, "{}: {}: expected {}, found {}, which is not supported",
              kConfigName, name, wanted, Found(value));
}

Status ConfigFields::Flag(bool& flag, std::string_view name) const {
  const json::value* value = Find(name);
  if (value == nullptr) return {};
  if (!value->is_bool())
    return Fail(ErrorCode::kCorruption, "{}: {}: expected true or false, found {}", kConfigName,
                name, Found(value));
  flag = value->get_bool();
  return {};
}

Status ConfigFields::Absent(std::string_view name, std::string_view feature) const {
  const json::value* value = Find(name);
  if (value == nullptr) return {};
  const int64_t* count = value->if_int64();
  const bool* flag = value->if_bool();
  if ((count != nullptr && *count == 0) || (flag != nullptr && !*flag)) return {};
  return Fail(ErrorCode::kInvalidArgument, "{}: {}: expected none, found {}: {} not supported",
              kConfigName, name, Found(value), feature);
}

Result<json::object> ParseConfig(std::string_view text, std::string_view file) {
  auto value = ParseStrictJson(text, file);
  MNEME_TRY(value);
  if (!value->is_object())
    return Fail(ErrorCode::kCorruption, "{}: expected an object, found {}", file, Found(&*value));
  return std::move(value->get_object());
}

Result<std::vector<int32_t>> ConfigIds(const json::value* value, std::string_view name, int vocab,
                                       std::string_view file) {
  std::vector<int32_t> ids;
  if (value == nullptr || value->is_null()) return ids;
  const json::array* list = value->if_array();
  const size_t count = list == nullptr ? 1 : list->size();
  if (count > kEosIdsMax)
    return Fail(ErrorCode::kInvalidArgument, "{}: {}: expected at most {} ids, found {}", file,
                name, kEosIdsMax, count);
  for (size_t i = 0; i < count; ++i) {
    const json::value& item = list == nullptr ? *value : (*list)[i];
    const int64_t* id = item.if_int64();
    if (id == nullptr || *id < 0 || *id >= vocab)
      return Fail(ErrorCode::kInvalidArgument, "{}: {}: expected ids below vocab_size {}, found {}",
                  file, name, vocab, Found(&item));
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

Result<double> ConfigNumber(const json::value* value, std::string_view name, double low,
                            double high) {
  double number = std::numeric_limits<double>::quiet_NaN();
  if (value != nullptr && value->is_number()) number = value->to_number<double>();
  if (!(number >= low && number <= high))
    return Fail(ErrorCode::kInvalidArgument, "{}: {}: expected a number from {} to {}, found {}",
                kConfigName, name, low, high, Found(value));
  return number;
}

Status CheckMultiple(std::string_view name, int value, std::string_view of_name, int of) {
  if (value % of == 0) return {};
  return Fail(ErrorCode::kInvalidArgument, "{}: {}: expected a multiple of {} ({}), found {}",
              kConfigName, name, of_name, of, value);
}

}  // namespace mneme::model
