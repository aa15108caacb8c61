#include "model/json_field.h"

namespace mneme::model {

namespace json = boost::json;

namespace {

std::string_view View(const json::string& text) { return {text.data(), text.size()}; }

}  // namespace

JsonField JsonField::Member(std::string_view name) const {
  const json::value* member =
      value != nullptr && value->is_object() ? value->get_object().if_contains(name) : nullptr;
  return {member, path.empty() ? std::string(name) : fmt::format("{}.{}", path, name)};
}

Error JsonField::Unexpected(std::string_view expected) const {
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("{}: expected {}, found {}", path, expected,
                           value == nullptr ? "nothing" : KindOf(*value)));
}

std::string_view KindOf(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return value.get_bool() ? "true" : "false";
    case json::kind::int64:
    case json::kind::uint64:
      return "an integer";
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
  }
  return "nothing";
}

Result<const json::object*> AsObject(const JsonField& field) {
  if (field.value == nullptr || !field.value->is_object()) {
    return Fail(field.Unexpected("an object"));
  }
  return &field.value->get_object();
}

Result<const json::array*> AsArray(const JsonField& field) {
  if (field.value == nullptr || !field.value->is_array()) return Fail(field.Unexpected("an array"));
  return &field.value->get_array();
}

Status ExpectText(const JsonField& field, std::string_view expected) {
  if (field.value == nullptr || !field.value->is_string()) {
    return Fail(field.Unexpected(fmt::format("\"{}\"", expected)));
  }
  if (View(field.value->get_string()) != expected) {
    return Fail(ErrorCode::kInvalidArgument,
                "{}: expected \"{}\", found another string of {} bytes", field.path, expected,
                field.value->get_string().size());
  }
  return {};
}

Status ExpectOff(const JsonField& field) {
  if (field.IsNull() || (field.value->is_bool() && !field.value->get_bool())) return {};
  return Fail(field.Unexpected("false"));
}

Status ExpectOffBecauseOnByDefault(const JsonField& field) {
  if (field.value == nullptr) return Fail(field.Unexpected("false"));
  return ExpectOff(field);
}

Status ExpectNull(const JsonField& field) {
  if (!field.IsNull()) return Fail(field.Unexpected("null"));
  return {};
}

Status ExpectEmptyText(const JsonField& field) {
  if (field.IsNull()) return {};
  if (field.value->is_string() && field.value->get_string().empty()) return {};
  return Fail(field.Unexpected("null or an empty string"));
}

Status ExpectNumber(const JsonField& field, int64_t expected) {
  const int64_t* number = field.value == nullptr ? nullptr : field.value->if_int64();
  if (number != nullptr && *number == expected) return {};
  return Fail(field.Unexpected(fmt::format("{}", expected)));
}

}  // namespace mneme::model
