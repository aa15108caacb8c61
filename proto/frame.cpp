#include "proto/frame.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/utf8.h"

namespace mneme::proto {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::internal::WireFormatLite;

constexpr size_t kBufferBytesMin = 4 * kKiB;

// Walks the bytes of a message along its schema without building anything.
class Scanner {
 public:
  explicit Scanner(const FrameLimits& limits) : limits_(limits) {}

  Status Scan(ByteSpan bytes, const Descriptor& type, uint32_t depth) {
    if (depth > limits_.depth_max) {
      return Fail(ErrorCode::kInvalidArgument, "{}: messages are nested deeper than {}",
                  type.name(), limits_.depth_max);
    }
    while (!bytes.empty()) MNEME_TRY(Field(bytes, type, depth));
    return {};
  }

 private:
  Status Field(ByteSpan& bytes, const Descriptor& type, uint32_t depth) {
    uint64_t tag = 0;
    if (!TakeVarint(bytes, tag) || tag > UINT32_MAX || (tag >> 3) == 0)
      return Fail(ErrorCode::kInvalidArgument, "{}: a field's tag is damaged", type.name());
    const auto number = static_cast<int>(tag >> 3);
    const auto wire_type = static_cast<uint32_t>(tag & 7);
    ByteSpan value;
    if (!TakeValue(bytes, wire_type, value)) {
      return Fail(ErrorCode::kInvalidArgument, "{}: field {} of wire type {} is damaged",
                  type.name(), number, wire_type);
    }
    const FieldDescriptor* field = type.FindFieldByNumber(number);
    if (field == nullptr) return CountItem(type);
    const bool packed = wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED &&
                        field->is_packable();  // only repeated numbers are
    if (!packed && wire_type != WireTypeOf(*field)) {
      return Fail(ErrorCode::kInvalidArgument, "{}: {} has wire type {}", type.name(),
                  field->name(), wire_type);
    }
    if (field->is_repeated() && !packed) MNEME_TRY(CountItem(type));
    if (field->type() == FieldDescriptor::TYPE_STRING && !IsText(value)) {
      return Fail(ErrorCode::kInvalidArgument, "{}: {} is not UTF-8", type.name(), field->name());
    }
    if (field->message_type() != nullptr) return Scan(value, *field->message_type(), depth + 1);
    return {};
  }

  Status CountItem(const Descriptor& type) {
    if (++items_ > limits_.items_max) {
      return Fail(ErrorCode::kInvalidArgument, "{}: more than {} repeated or unknown fields",
                  type.name(), limits_.items_max);
    }
    return {};
  }

  // Asked here because protobuf would write a line to the log for each text that is not.
  static bool IsText(ByteSpan value) {
    const std::string_view text(reinterpret_cast<const char*>(value.data()), value.size());
    return ValidUtf8Bytes(text) == text.size();
  }

  static uint32_t WireTypeOf(const FieldDescriptor& field) {
    return WireFormatLite::WireTypeForFieldType(
        static_cast<WireFormatLite::FieldType>(field.type()));
  }

  static bool TakeVarint(ByteSpan& bytes, uint64_t& value) {
    value = 0;
    for (size_t i = 0; i < bytes.size() && i < 10; ++i) {
      const auto byte = std::to_integer<uint64_t>(bytes[i]);
      if (i < 9) value |= (byte & 0x7f) << (7 * i);  // the tenth byte holds one bit we never need
      if ((byte & 0x80) == 0) {
        bytes = bytes.subspan(i + 1);
        return true;
      }
    }
    return false;
  }

  // Takes a value off `bytes`; `value` is its content where it has a length. Groups are refused.
  static bool TakeValue(ByteSpan& bytes, uint32_t wire_type, ByteSpan& value) {
    uint64_t number = 0;
    size_t size = 0;
    switch (wire_type) {
      case WireFormatLite::WIRETYPE_VARINT:
        return TakeVarint(bytes, number);
      case WireFormatLite::WIRETYPE_FIXED64:
        size = 8;
        break;
      case WireFormatLite::WIRETYPE_FIXED32:
        size = 4;
        break;
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        if (!TakeVarint(bytes, number) || number > bytes.size()) return false;
        size = static_cast<size_t>(number);
        break;
      default:
        return false;
    }
    if (size > bytes.size()) return false;
    value = bytes.first(size);
    bytes = bytes.subspan(size);
    return true;
  }

  const FrameLimits limits_;
  uint32_t items_ = 0;
};

template <typename Parsed>
Result<Parsed> Parse(ByteSpan bytes, const FrameLimits& limits) {
  if (bytes.size() > limits.frame_bytes_max) {
    return Fail(Reason::kTooLarge, "a frame of {} bytes; the most is {}", bytes.size(),
                limits.frame_bytes_max);
  }
  MNEME_TRY(Scanner(limits).Scan(bytes, *Parsed::descriptor(), 1));
  Parsed message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return Fail(ErrorCode::kInvalidArgument, "{}: damaged", Parsed::descriptor()->name());
  return message;
}

Status CheckText(const std::string& text, const std::string& path) {
  const size_t valid = ValidUtf8Bytes(text);
  if (valid == text.size()) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "{}: byte {} is not UTF-8; convert the text, for example with iconv -f latin1 -t "
              "utf-8",
              path, valid + 1);
}

Status CheckTextsWithin(const Message& message, const std::string& prefix) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool text = field->type() == FieldDescriptor::TYPE_STRING;
    if (!text && field->message_type() == nullptr) continue;
    const std::string path = prefix + field->name();
    if (!field->is_repeated()) {
      MNEME_TRY(text ? CheckText(reflection.GetString(message, field), path)
                     : CheckTextsWithin(reflection.GetMessage(message, field), path + "."));
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      const std::string place = fmt::format("{}[{}]", path, i);
      MNEME_TRY(
          text ? CheckText(reflection.GetRepeatedString(message, field, i), place)
               : CheckTextsWithin(reflection.GetRepeatedMessage(message, field, i), place + "."));
    }
  }
  return {};
}

}  // namespace

Status CheckTexts(const Message& message) { return CheckTextsWithin(message, ""); }

size_t FrameBytes(const google::protobuf::MessageLite& message) {
  return kFrameHeaderBytes + message.ByteSizeLong();
}

void AppendFrame(const google::protobuf::MessageLite& message, std::string& out) {
  const auto length = static_cast<uint32_t>(message.ByteSizeLong());
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(length >> shift));
  message.AppendToString(&out);
}

Result<v1::Request> ParseRequest(ByteSpan message, const FrameLimits& limits) {
  return Parse<v1::Request>(message, limits);
}

Result<v1::Event> ParseEvent(ByteSpan message, const FrameLimits& limits) {
  return Parse<v1::Event>(message, limits);
}

uint32_t FrameReader::AnnouncedBytes() const {
  uint32_t length = 0;
  for (size_t i = 0; i < kFrameHeaderBytes; ++i)
    length |= std::to_integer<uint32_t>(buffer_[begin_ + i]) << (8 * i);
  return length;
}

MutableByteSpan FrameReader::Space() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == 0 && buffer_.size() > kBufferBytesMin) {
    buffer_ = std::vector<std::byte>(kBufferBytesMin);  // idle connections are many
  }
  if (end_ == buffer_.size()) buffer_.resize(std::max(2 * buffer_.size(), kBufferBytesMin));
  return MutableByteSpan(buffer_).subspan(end_);
}

Result<std::optional<ByteSpan>> FrameReader::Next() {
  if (end_ - begin_ < kFrameHeaderBytes) return std::optional<ByteSpan>();
  const uint32_t length = AnnouncedBytes();
  if (length > limits_.frame_bytes_max) {
    return Fail(Reason::kTooLarge, "a frame of {} bytes; the most is {}", length,
                limits_.frame_bytes_max);
  }
  if (end_ - begin_ - kFrameHeaderBytes < length) return std::optional<ByteSpan>();
  const auto message = ByteSpan(buffer_).subspan(begin_ + kFrameHeaderBytes, length);
  begin_ += kFrameHeaderBytes + length;
  return std::optional<ByteSpan>(message);
}

}  // namespace mneme::proto
