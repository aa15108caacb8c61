// A frame is one protobuf message on a byte stream:
//
//   frame := length message          length: u32, little-endian, bytes of the message
//
// The client sends frames of Request, the server frames of Event. Everything here takes its bytes
// from strangers: the length is checked before anything is allocated for it, and the message is
// walked once, against its schema, before protobuf builds it (an empty sub-message takes two bytes
// on the wire and a hundred times that in memory).
//
// Errors:   too_large         a frame is longer than frame_bytes_max
//           kInvalidArgument  the bytes are not a message of this kind, or one of its limits is
//           passed
#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "proto/mneme/v1/event.pb.h"
#include "proto/mneme/v1/session.pb.h"

namespace mneme::proto {

inline constexpr size_t kFrameHeaderBytes = 4;

struct FrameLimits {
  uint32_t frame_bytes_max = static_cast<uint32_t>(kMiB);
  // Values of repeated fields that are not packed, and fields this build does not know, together.
  uint32_t items_max = 4096;
  // Messages inside each other, the outermost counted.
  uint32_t depth_max = 16;
};

// What a client takes from the server it chose: a long transcript is one event.
inline constexpr FrameLimits kEventLimits{
    .frame_bytes_max = static_cast<uint32_t>(16 * kMiB), .items_max = 262'144, .depth_max = 16};

// kInvalidArgument for the first text of `message` that is not UTF-8, with its field and its first
// wrong byte: "generate.input.messages.messages[0].content: byte 4 is not UTF-8".
Status CheckTexts(const google::protobuf::Message& message);

// Bytes of the frame that holds `message`.
size_t FrameBytes(const google::protobuf::MessageLite& message);

// Appends the frame of `message`, which is shorter than 4 GiB and passed CheckTexts.
void AppendFrame(const google::protobuf::MessageLite& message, std::string& out);

Result<v1::Request> ParseRequest(ByteSpan message, const FrameLimits& limits);
Result<v1::Event> ParseEvent(ByteSpan message, const FrameLimits& limits);

// FrameReader cuts a byte stream into messages.
//
// Owns:     the bytes received and not yet taken. It grows with what arrived, never with what a
//           header promises, and gives the memory back after a long frame.
class FrameReader {
 public:
  explicit FrameReader(const FrameLimits& limits) : limits_(limits) {}

  // Where the next bytes go; never empty. Ends the life of the span Next gave.
  MutableByteSpan Space();
  // `bytes` of Space have been filled.
  void Received(size_t bytes) { end_ += bytes; }

  // The next whole message, nothing where more bytes are needed, too_large as soon as the header
  // says so. After an error the stream is lost: what follows cannot be told from a frame.
  Result<std::optional<ByteSpan>> Next();

  // Part of a frame has arrived and the rest has not.
  bool midway() const { return end_ > begin_; }

 private:
  uint32_t AnnouncedBytes() const;

  const FrameLimits limits_;
  std::vector<std::byte> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace mneme::proto
