#include "model/weight_header.h"

#include <fmt/format.h>

#include <boost/json/basic_parser_impl.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "model/strict_json.h"

namespace mneme::model {
namespace {

namespace json = boost::json;
using json::error_code;

constexpr size_t kDtypeNameBytesMax = 16;
constexpr size_t kMetadataTextBytesMax = 1 << 20;

constexpr std::pair<std::string_view, StoredDtype> kDtypes[] = {
    {"BOOL", StoredDtype::kBool},      {"U8", StoredDtype::kU8},
    {"I8", StoredDtype::kI8},          {"F8_E4M3", StoredDtype::kF8E4M3},
    {"F8_E5M2", StoredDtype::kF8E5M2}, {"I16", StoredDtype::kI16},
    {"U16", StoredDtype::kU16},        {"F16", StoredDtype::kF16},
    {"BF16", StoredDtype::kBf16},      {"I32", StoredDtype::kI32},
    {"U32", StoredDtype::kU32},        {"F32", StoredDtype::kF32},
    {"I64", StoredDtype::kI64},        {"U64", StoredDtype::kU64},
    {"F64", StoredDtype::kF64},
};

// Builds a WeightHeader from the parser's tokens. The form allows five places, and each token is
// refused where it does not belong.
class HeaderEvents {
 public:
  static constexpr size_t max_object_size = kTensorsMax + 2;
  static constexpr size_t max_array_size = kHeaderBytesMax;
  static constexpr size_t max_key_size = kHeaderBytesMax;
  static constexpr size_t max_string_size = kHeaderBytesMax;

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }

  bool on_object_begin(error_code& error) {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kTop;
        return true;
      case Place::kTop:
        place_ = key_ == kMetadataName ? Place::kMetadata : Place::kTensor;
        if (place_ == Place::kTensor) return BeginTensor(error);
        return true;
      default:
        return Unexpected("an object", error);
    }
  }

  bool on_object_end(size_t, error_code& error) {
    if (place_ == Place::kTensor && !EndTensor(error)) return false;
    place_ = place_ == Place::kTop ? Place::kEnd : Place::kTop;
    return true;
  }

  bool on_array_begin(error_code& error) {
    if (place_ != Place::kTensor) return Unexpected("an array", error);
    if (key_ == "shape") {
      place_ = Place::kShape;
      has_shape_ = true;
    } else if (key_ == "data_offsets") {
      place_ = Place::kOffsets;
      offsets_ = 0;
    } else {
      return Unexpected("an array", error);
    }
    return true;
  }
  bool on_array_end(size_t, error_code&) {
    place_ = Place::kTensor;
    return true;
  }

  bool on_key_part(json::string_view part, size_t total, error_code& error) {
    if (total > kTensorNameBytesMax) return KeyTooLong(part, total, error);
    text_.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, size_t total, error_code& error) {
    if (total > kTensorNameBytesMax) return KeyTooLong(part, total, error);
    text_.append(part.data(), part.size());
    key_ = std::exchange(text_, {});
    switch (place_) {
      case Place::kTop:
        if (key_ == kMetadataName && std::exchange(has_metadata_, true))
          return Refuse("__metadata__", "this once", "it twice", error);
        return true;
      case Place::kMetadata:
        if (header_.metadata.size() >= kMetadataKeysMax)
          return Refuse("__metadata__", fmt::format("at most {} entries", kMetadataKeysMax), "more",
                        error, ErrorCode::kInvalidArgument);
        if (!header_.metadata.emplace(key_, "").second)
          return Refuse("__metadata__", "each key once", Shown(key_) + " twice", error);
        return true;
      default:
        return TensorKey(error);
    }
  }

  bool on_string_part(json::string_view part, size_t total, error_code& error) {
    const bool metadata = place_ == Place::kMetadata;
    const size_t bytes_max = metadata ? kMetadataTextBytesMax : kDtypeNameBytesMax;
    if (total > bytes_max) return Unexpected("a string that long", error);
    text_.append(part.data(), part.size());
    return true;
  }
  bool on_string(json::string_view part, size_t total, error_code& error) {
    if (!on_string_part(part, total, error)) return false;
    const std::string text = std::exchange(text_, {});
    if (place_ == Place::kMetadata) {
      header_.metadata[key_] = text;
      return true;
    }
    if (place_ != Place::kTensor || key_ != "dtype") return Unexpected("a string", error);
    for (const auto& [name, dtype] : kDtypes) {
      if (name != text) continue;
      tensor_.tensor.dtype = dtype;
      has_dtype_ = true;
      return true;
    }
    return Refuse(tensor_.tensor.name, "a dtype this build knows (F32, BF16, F16, ...)",
                  Shown(text), error);
  }

  bool on_int64(int64_t value, json::string_view, error_code& error) {
    if (value < 0) return Unexpected(fmt::format("{}", value), error);
    return Integer(static_cast<uint64_t>(value), error);
  }
  bool on_uint64(uint64_t value, json::string_view, error_code& error) {
    return Integer(value, error);
  }
  bool on_number_part(json::string_view, error_code&) { return true; }
  bool on_double(double, json::string_view text, error_code& error) {
    return Unexpected(Shown(text), error);
  }
  bool on_bool(bool, error_code& error) { return Unexpected("a truth value", error); }
  bool on_null(error_code& error) { return Unexpected("null", error); }
  bool on_comment_part(json::string_view, error_code&) { return true; }
  bool on_comment(json::string_view, error_code&) { return true; }

  WeightHeader Take() { return std::move(header_); }
  bool done() const { return place_ == Place::kEnd; }

  struct Refusal {
    ErrorCode code;
    std::string what;
  };
  const std::optional<Refusal>& refusal() const { return refusal_; }

 private:
  static constexpr std::string_view kMetadataName = "__metadata__";
  enum class Place { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };

  bool KeyTooLong(json::string_view part, size_t total, error_code& error) {
    const std::string where = place_ == Place::kTop ? Shown(text_.append(part.data(), part.size()))
                              : place_ == Place::kMetadata ? std::string(kMetadataName)
                                                           : tensor_.tensor.name;
    return Refuse(where, fmt::format("a name of at most {} bytes", kTensorNameBytesMax),
                  fmt::format("{} or more", total), error, ErrorCode::kInvalidArgument);
  }

  bool BeginTensor(error_code& error) {
    if (header_.tensors.size() >= kTensorsMax)
      return Refuse(key_, fmt::format("at most {} tensors", kTensorsMax), "more", error,
                    ErrorCode::kInvalidArgument);
    if (key_.empty()) return Refuse("(empty)", "a name", "none", error);
    if (!names_.insert(key_).second) return Refuse(key_, "each name once", "it twice", error);
    tensor_ = {};
    tensor_.tensor.name = key_;
    has_dtype_ = has_shape_ = has_offsets_ = false;
    return true;
  }

  bool TensorKey(error_code& error) {
    const bool known = key_ == "dtype" || key_ == "shape" || key_ == "data_offsets";
    if (!known)
      return Refuse(tensor_.tensor.name, "dtype, shape and data_offsets", Shown(key_), error);
    const bool twice = (key_ == "dtype" && has_dtype_) || (key_ == "shape" && has_shape_) ||
                       (key_ == "data_offsets" && has_offsets_);
    if (twice) return Refuse(tensor_.tensor.name, key_ + " once", "it twice", error);
    return true;
  }

  bool EndTensor(error_code& error) {
    if (!has_dtype_) return Refuse(tensor_.tensor.name, "a dtype", "none", error);
    if (!has_shape_) return Refuse(tensor_.tensor.name, "a shape", "none", error);
    if (!has_offsets_) return Refuse(tensor_.tensor.name, "data_offsets", "none", error);
    header_.tensors.push_back(std::move(tensor_));
    tensor_ = {};
    return true;
  }

  bool Integer(uint64_t value, error_code& error) {
    StoredTensor& tensor = tensor_.tensor;
    if (place_ == Place::kShape) {
      if (tensor.rank >= kRankMax)
        return Refuse(tensor.name, fmt::format("at most {} dimensions", kRankMax), "more", error,
                      ErrorCode::kInvalidArgument);
      tensor.shape[tensor.rank++] = value;
      return true;
    }
    if (place_ == Place::kOffsets) {
      if (offsets_ >= 2) return Refuse(tensor.name, "two data_offsets", "more", error);
      (offsets_ == 0 ? tensor_.begin : tensor_.end) = value;
      has_offsets_ = ++offsets_ == 2;
      return true;
    }
    return Unexpected(fmt::format("{}", value), error);
  }

  bool Unexpected(std::string_view found, error_code& error) {
    switch (place_) {
      case Place::kStart:
        return Refuse("(header)", "an object", found, error);
      case Place::kTop:
        return Refuse(key_, "an object", found, error);
      case Place::kMetadata:
        return Refuse(
            "__metadata__",
            fmt::format("a string of at most {} bytes for {}", kMetadataTextBytesMax, Shown(key_)),
            found, error);
      case Place::kTensor:
        return Refuse(tensor_.tensor.name,
                      key_ == "dtype" ? "dtype to be the name of a type"
                                      : fmt::format("{} to be an array", Shown(key_)),
                      found, error);
      case Place::kShape:
      case Place::kOffsets:
        return Refuse(tensor_.tensor.name, fmt::format("{} to be integers from 0 up", Shown(key_)),
                      found, error);
      case Place::kEnd:
        break;
    }
    return Refuse("(header)", "the end", found, error);
  }

  bool Refuse(std::string_view tensor, std::string_view expected, std::string_view found,
              error_code& error, ErrorCode code = ErrorCode::kCorruption) {
    refusal_ = {code,
                fmt::format("tensor {}: expected {}, found {}", Shown(tensor), expected, found)};
    error = json::error::exception;  // any code: `refusal` is what is shown
    return false;
  }

  Place place_ = Place::kStart;
  std::string text_;  // a key or string whose parts are still coming
  std::string key_;   // the last key
  DeclaredTensor tensor_;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false, has_metadata_ = false;
  size_t offsets_ = 0;
  std::unordered_set<std::string> names_;
  WeightHeader header_;
  std::optional<Refusal> refusal_;
};

}  // namespace

Result<WeightHeader> ParseWeightHeader(std::string_view text, std::string_view file) {
  json::parse_options options;
  options.max_depth = 8;
  json::basic_parser<HeaderEvents> parser(options);
  error_code error;
  const size_t used = parser.write_some(false, text.data(), text.size(), error);
  if (const auto& refusal = parser.handler().refusal())
    return Fail(refusal->code, "{}: {}", file, refusal->what);
  if (error)
    return Fail(ErrorCode::kCorruption, "{}: tensor (header): expected JSON, found at byte {}: {}",
                file, used, error.message());
  const size_t rest = text.find_first_not_of(" \t\r\n", used);
  if (rest != std::string_view::npos || !parser.handler().done())
    return Fail(ErrorCode::kCorruption,
                "{}: tensor (header): expected one JSON object of {} bytes, found {}", file,
                text.size(), rest == std::string_view::npos ? "none" : "text behind it");
  return parser.handler().Take();
}

}  // namespace mneme::model
