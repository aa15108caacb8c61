// JsonField: a value of a JSON file and where it stands there, so that a complaint can say so.
//
// Errors:   kInvalidArgument, with the path, what was expected and what was found
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace mneme::model {

struct JsonField {
  const boost::json::value* value = nullptr;  // null where the object has no such member
  std::string path;

  JsonField Member(std::string_view name) const;
  Error Unexpected(std::string_view expected) const;
  bool IsNull() const { return value == nullptr || value->is_null(); }
};

// `an array`, `true`: for messages.
std::string_view KindOf(const boost::json::value& value);

Result<const boost::json::object*> AsObject(const JsonField& field);
Result<const boost::json::array*> AsArray(const JsonField& field);

Status ExpectText(const JsonField& field, std::string_view expected);
Status ExpectNumber(const JsonField& field, int64_t expected);

// A switch that must be off; leaving it out means off too, or on.
Status ExpectOff(const JsonField& field);
Status ExpectOffBecauseOnByDefault(const JsonField& field);

Status ExpectNull(const JsonField& field);
Status ExpectEmptyText(const JsonField& field);  // or null

}  // namespace mneme::model
