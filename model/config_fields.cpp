#include "model/config_fields.h"

#include <boost/json/serialize.hpp>
#include <limits>

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

Status ConfigFields::Absent(std::string_view name, std::string_view feature) const {
  const json::value* value = Find(name);
  if (value == nullptr) return {};
  const int64_t* count = value->if_int64();
  const bool* flag = value->if_bool();
  if ((count != nullptr && *count == 0) || (flag != nullptr && !*flag)) return {};
  return Fail(ErrorCode::kInvalidArgument, "{}: {}: expected none, found {}: {} not supported",
              kConfigName, name, Found(value), feature);
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
