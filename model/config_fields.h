// ConfigFields: the fields of a config.json as its layout's reader asks for them, each within its
// limits. A field is looked up in the nested object first where there is one, then at the top.
//
// Errors:   kInvalidArgument  a value outside its limits, or a feature that is not supported
//           kCorruption       a value of another type
//           The message names file, field, what was expected and what was found.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace mneme::model {

inline constexpr std::string_view kConfigName = "config.json";

// A value as it may stand in a message; `none` where there is none.
std::string Found(const boost::json::value* value);

class ConfigFields {
 public:
  // Both must outlive it.
  ConfigFields(const boost::json::object& top, const boost::json::object& nested)
      : top_(top), nested_(nested) {}

  // Null where neither object has the field, or has null there.
  const boost::json::value* Find(std::string_view name) const;

  struct Range {
    int64_t low;
    int64_t high;
  };
  Status Integer(int& field, std::string_view name, Range range) const;

  // The field must be absent or equal to `wanted`, written as JSON.
  Status Only(std::string_view name, std::string_view wanted) const;

  // Absent leaves `flag` alone.
  Status Flag(bool& flag, std::string_view name) const;

  // Absent, 0 or false.
  Status Absent(std::string_view name, std::string_view feature) const;

 private:
  const boost::json::object& top_;
  const boost::json::object& nested_;
};

// The object that `text`, of the file `file`, is.
Result<boost::json::object> ParseConfig(std::string_view text, std::string_view file = kConfigName);

// One id or a list of at most kEosIdsMax, all below `vocab`; none where `value` is null.
Result<std::vector<int32_t>> ConfigIds(const boost::json::value* value, std::string_view name,
                                       int vocab, std::string_view file = kConfigName);

// A number of a field from `low` to `high`.
Result<double> ConfigNumber(const boost::json::value* value, std::string_view name, double low,
                            double high);

// `value` must be a multiple of another field's.
Status CheckMultiple(std::string_view name, int value, std::string_view of_name, int of);

}  // namespace mneme::model
